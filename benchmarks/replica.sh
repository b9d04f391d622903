#!/usr/bin/env bash
# The replica suite on one GPU that is lent for half an hour, from nothing to its records in small:
#
#   bash benchmarks/replica.sh OUT [SUITE]
#
# Jobs share the GPU under NVIDIA's MPS daemon where there is one. The tests that need a GPU run
# beside the first trainings, and end the run where they fail: nothing is decoded before. A run that
# was ended, by a kill too, goes on when it is started again; OUT/records then holds what is done.
# After it, here or elsewhere: mrp report findings --suite replica --records OUT/records
set -euo pipefail
out=$(realpath -m "${1:?usage: bash benchmarks/replica.sh OUT [SUITE]}")
suite=${2:-replica}
cd "$(dirname "${BASH_SOURCE[0]}")/.."
mkdir -p "$out"
command=(snakemake --cores all --resources gpu=1 --config "suite=$suite")

pytest -o addopts= -m gpu -q -p no:cacheprovider -n 6 tests/decoding > "$out/tests.log" 2>&1 &
tests=$!

if command -v nvidia-cuda-mps-control > /dev/null; then
    # Not for the tests: a fault would end every process under the daemon.
    CUDA_MPS_PIPE_DIRECTORY=$(mktemp -d)
    export CUDA_MPS_PIPE_DIRECTORY CUDA_MPS_LOG_DIRECTORY=$out/mps
    mkdir -p "$CUDA_MPS_LOG_DIRECTORY"
    nvidia-cuda-mps-control -d
    trap 'echo quit | nvidia-cuda-mps-control' EXIT
fi
"${command[@]}" --rerun-incomplete > "$out/snakemake.log" 2>&1 &
grid=$!

if ! wait "$tests"; then
    kill -TERM "$grid"
    wait "$grid" || true
    tail -n 40 "$out/tests.log"
    exit 1
fi
tail -n 1 "$out/tests.log"
status=0
wait "$grid" || status=$?
mrp pack --suite "$suite" --records "$out/records" --command "${command[*]}"
exit "$status"
