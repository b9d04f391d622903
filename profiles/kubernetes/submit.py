#!/usr/bin/env python3
"""Submit a job script of Snakemake to Kubernetes: one Job with one pod. Prints the Job's name.

The pod runs the image and mounts the volume at the same path as here, so that the repository, the
results and the hub's cache are the same files everywhere.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

# What the pod takes over from here: where downloaded models are, and that nothing else is fetched.
PASSED_ON = ("HF_HOME", "HF_HUB_CACHE", "HF_HUB_OFFLINE", "HF_DATASETS_OFFLINE")
DAY = 24 * 3600


def job(
    script: Path, image: str, claim: str, mount: str, gpus: int, cpus: int, memory: int
) -> dict[str, Any]:
    """The Job's manifest; `memory` in MB."""
    amounts: dict[str, str] = {"memory": f"{memory}M"}
    if gpus:
        amounts["nvidia.com/gpu"] = str(gpus)
    container = {
        "name": "mrp",
        "image": image,
        "command": ["/bin/sh", str(script)],
        "workingDir": str(Path.cwd()),
        "env": [{"name": n, "value": os.environ[n]} for n in PASSED_ON if n in os.environ],
        # Kubernetes takes a limit for the request, too; cores may be used beyond theirs.
        "resources": {"limits": amounts, "requests": {"cpu": str(cpus)}},
        "volumeMounts": [
            {"name": "shared", "mountPath": mount},
            {"name": "memory", "mountPath": "/dev/shm"},
        ],
    }
    pod = {
        "restartPolicy": "Never",
        "containers": [container],
        "volumes": [
            {"name": "shared", "persistentVolumeClaim": {"claimName": claim}},
            # The processes of one training talk through it; a pod's own has 64 MB.
            {"name": "memory", "emptyDir": {"medium": "Memory"}},
        ],
    }
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"generateName": "mrp-", "labels": {"app": "mrp"}},
        "spec": {
            "backoffLimit": 0,  # Snakemake decides what runs again
            "ttlSecondsAfterFinished": DAY,
            "template": {"metadata": {"labels": {"app": "mrp"}}, "spec": pod},
        },
    }


def main() -> int:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--image", required=True)
    parser.add_argument("--volume", required=True, metavar="CLAIM:PATH")
    parser.add_argument("--gpus", type=int, required=True)
    parser.add_argument("--cpus", type=int, required=True)
    parser.add_argument("--memory", type=int, required=True, metavar="MB")
    parser.add_argument("script", type=Path)
    args = parser.parse_args()
    claim, _, mount = args.volume.partition(":")
    if not args.image or "$" in args.image:
        return _refuse("MRP_IMAGE is not set: export the name of an image that has mrp installed")
    if not claim or "$" in claim or not mount.startswith("/"):
        return _refuse(
            f"MRP_VOLUME is {args.volume!r}: export CLAIM:PATH, a volume claim and where it is "
            "mounted here, such as mrp:/work"
        )
    if not Path.cwd().is_relative_to(mount):
        return _refuse(
            f"MRP_VOLUME: this folder, {Path.cwd()}, is not on the volume mounted at {mount}: pods "
            "would not see it; move the repository there"
        )
    manifest = job(args.script, args.image, claim, mount, args.gpus, args.cpus, args.memory)
    command = ["kubectl", "create", "--filename", "-", "--output", "name"]
    try:
        done = subprocess.run(
            command, input=json.dumps(manifest), text=True, stdout=subprocess.PIPE
        )
    except FileNotFoundError:
        return _refuse("kubectl is not on the PATH: install it in the image that runs snakemake")
    print(done.stdout.strip().rpartition("/")[2])  # job.batch/mrp-x7k2p
    return done.returncode


def _refuse(line: str) -> int:
    print(f"mrp: error: {line}", file=sys.stderr)
    return 2


if __name__ == "__main__":
    sys.exit(main())
