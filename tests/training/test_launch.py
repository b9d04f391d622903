"""Training in several processes: killed, resumed with another number, short of memory or disk."""

from __future__ import annotations

import json
import os
import resource
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from mrp.cli import explain, main
from mrp.errors import UserError
from mrp.locks import try_lock
from mrp.training import loop
from mrp.training.backbone import train_backbone
from mrp.training.head import train_head
from tests.training.test_commands import suite  # noqa: F401 (a fixture)
from tests.training.test_loop import BACKBONE, DATA, HEAD, finish, launched, rows_of, start

SETTINGS = replace(BACKBONE, steps=20)


@pytest.fixture(scope="module")
def backbone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What one process trains in one go."""
    out = tmp_path_factory.mktemp("backbone")
    train_backbone(SETTINGS, DATA, out, "cpu")
    return out


def workers(process: subprocess.Popen[str]) -> list[int]:
    """The processes that a launcher started, without multiprocessing's own helpers."""
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    command = {pid: Path(f"/proc/{pid}/cmdline").read_bytes() for pid in children}
    return [int(pid) for pid in children if b"spawn_main" in command[pid]]


def is_alive(pid: int) -> bool:
    """Whether a process still runs (a zombie does not)."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def step_of(out: Path) -> int:
    """The step of the resume point; 0 without one."""
    if not (out / "training.pt").exists():
        return 0
    return int(torch.load(out / "training.pt", weights_only=True)["step"])


def wait_for_progress(process: subprocess.Popen[str], out: Path, after: int) -> None:
    """Wait for a resume point behind step `after`."""
    deadline = time.monotonic() + 90
    while step_of(out) <= after:
        assert process.poll() is None
        assert time.monotonic() < deadline
        time.sleep(0.02)


@pytest.mark.slow
def test_a_killed_worker_ends_all_and_the_run_goes_on_in_another_number(
    backbone: Path, tmp_path: Path
) -> None:
    out, slow = tmp_path / "out", {"MRP_TEST_SLOW": "0.1"}
    first = start("backbone", asdict(SETTINGS), out, None, slow, processes=2)
    wait_for_progress(first, out, 0)
    both = workers(first)
    assert len(both) == 2
    os.kill(both[1], signal.SIGKILL)
    _, errors = first.communicate(timeout=30)
    assert first.returncode == 1
    assert not any(map(is_alive, both))
    said = [line for line in errors.splitlines() if not line.startswith("backbone: step ")]
    assert said == [
        f"mrp: error: {out}: training process 2 of 2 was killed (signal 9); see to it and run the "
        "same command again"
    ]
    step = step_of(out)
    assert 0 < step < SETTINGS.steps

    # The launcher itself: its workers end, too, and keep the run's lock until they have.
    second = start("backbone", asdict(SETTINGS), out, None, slow, processes=2)
    wait_for_progress(second, out, step)
    both = workers(second)
    for pid in both:
        os.kill(pid, signal.SIGSTOP)
    second.kill()
    second.wait()
    assert try_lock(out / ".lock") is None
    for pid in both:
        os.kill(pid, signal.SIGCONT)
    deadline = time.monotonic() + 30
    while any(map(is_alive, both)):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    second.communicate()
    assert step < step_of(out) < SETTINGS.steps

    assert "resuming from step" in finish(start("backbone", asdict(SETTINGS), out, None, {}))
    record = json.loads((out / "provenance.json").read_text())
    assert record["processes"] == 1
    ours, whole = (load_file(path / "model.safetensors") for path in (out, backbone))
    torch.testing.assert_close(ours, whole, atol=1e-4, rtol=1e-4)
    assert [row["step"] for row in rows_of(out)] == [row["step"] for row in rows_of(backbone)]


def test_a_workers_own_error_is_raised_once(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    settings = asdict(replace(SETTINGS, lr=1e30, warmup=0))
    assert launched("backbone", settings, tmp_path, None) == 2
    (line,) = capfd.readouterr().err.splitlines()
    assert line.startswith("mrp: error: the loss is not finite at step ")


def test_a_second_run_in_a_directory_waits_for_the_first(tmp_path: Path) -> None:
    slow = {"MRP_TEST_SLOW": "0.1"}
    first = start("backbone", asdict(SETTINGS), tmp_path, None, slow)
    wait_for_progress(first, tmp_path, 0)
    second = start("backbone", asdict(SETTINGS), tmp_path, None, {})
    finish(first)
    finish(second)
    assert json.loads((tmp_path / "provenance.json").read_text())["resumed_from"] == 0


@pytest.mark.parametrize(
    "error",
    [
        torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.\nGPU 0 has"),
        RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`"),
        RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory: you tried"),
        MemoryError(),
    ],
)
def test_too_little_memory_is_one_line_with_what_helps(
    error: Exception, backbone: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*arguments: object) -> None:
        raise error

    monkeypatch.setattr(loop, "_gradients", fail)
    with pytest.raises(UserError) as caught:
        train_head(HEAD, backbone, tmp_path, "cpu", DATA)
    assert str(caught.value) == (
        "out of memory with batch_size 2, packed_length 96, accumulate 1 and 1 of "
        "gpus_per_training: raise accumulate (train settings) or gpus_per_training "
        "(config/config.yaml), which leave the weights as they are, or lower batch_size"
    )


@contextmanager
def largest_file(size: int) -> Iterator[None]:
    """Let no file of this process grow beyond `size` bytes, as a disk that is full."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_a_full_disk_is_one_line_and_loses_nothing(backbone: Path, tmp_path: Path) -> None:
    with largest_file(20_000), pytest.raises(OSError, match=r"training\.pt") as caught:
        train_head(HEAD, backbone, tmp_path, "cpu", DATA)
    assert explain(caught.value) == (
        f"{tmp_path}/training.pt: file too large at step 5, nothing is lost: no other file is "
        "harmed; see to it and run the same command again",
        1,
    )
    assert not list(tmp_path.glob(".*.tmp"))
    train_head(HEAD, backbone, tmp_path, "cpu", DATA)
    assert (tmp_path / "provenance.json").exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--gpus", "3"], "--gpus 3 (gpus_per_training): visible are 2 (0, 1); lower it"),
        (["--gpus", "2"], "backbones.S.train.batch_size: 3 does not divide over --gpus 2 "),
        (["--gpus", "x"], "argument --gpus: 'x' is no whole number of at least 0"),
    ],
)
def test_a_number_of_gpus_that_cannot_be_is_one_line(
    arguments: list[str],
    message: str,
    suite: list[str],  # noqa: F811
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("MRP_FAKE_GPUS", "2")
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    file = Path(suite[1])
    file.write_text(file.read_text().replace("steps: 2, batch_size: 2", "steps: 2, batch_size: 3"))
    command = ["train-backbone", *suite, "--backbone", "S", "--out", str(tmp_path / "o")]
    if "x" in arguments:
        with pytest.raises(SystemExit, match="2"):
            main([*command, *arguments])
    else:
        assert main([*command, *arguments]) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1
