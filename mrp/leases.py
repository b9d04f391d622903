"""One GPU for one process: a lease by file lock among the visible devices.

Snakemake's `resources: gpu=1` bounds how many jobs run at once but hands out no index, so that
jobs started together would all sit on device 0. Each process therefore locks one index and shows
itself only that device. The lock lives with the process: a kill -9 frees it.
"""

from __future__ import annotations

import contextlib
import fcntl
import logging
import os
import re
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from mrp.errors import UserError

logger = logging.getLogger(__name__)

DEVICES = ("auto", "cpu", "cuda")
FAKE_COUNT = "MRP_FAKE_GPUS"  # tests pretend to have this many devices
POLL_SECONDS = 0.2


def visible_devices() -> list[str]:
    """The devices this process may use, as CUDA_VISIBLE_DEVICES spells them; no torch needed."""
    allowed = os.environ.get("CUDA_VISIBLE_DEVICES")
    if allowed is None:
        return [str(index) for index in range(_device_count())]
    names = [name.strip() for name in allowed.split(",")]
    # CUDA itself stops at the first entry that is no device: "-1", "NoDevFiles", "".
    for place, name in enumerate(names):
        if not (name.isdigit() or name.startswith(("GPU-", "MIG-"))):
            return names[:place]
    return names


def gpu_per_job(device: str) -> int:
    """How many GPUs a workflow job asks its scheduler for: one, or none on a machine without.

    Raises:
        UserError: an unknown name.
    """
    if device not in DEVICES:
        raise UserError(f"device: {device!r} is not one of {', '.join(DEVICES)}")
    return int(device == "cuda" or (device == "auto" and bool(visible_devices())))


@contextlib.contextmanager
def lease(device: str = "auto") -> Iterator[str]:
    """Hold a device while the block runs and yield its torch name: "cpu", "cuda" or "cuda:N".

    "auto" takes a GPU where there is one. Waits while all are leased. Enter before anything
    touches CUDA, since CUDA reads the visible devices once. Left as they are: a device that the
    user names ("cuda:N"), a single one that a scheduler assigned, and those of torchrun's workers,
    which divide them among themselves.

    Raises:
        UserError: an unknown name, or "cuda" on a machine without a visible GPU.
    """
    if re.fullmatch(r"cuda:\d+", device):
        yield device
        return
    if device not in DEVICES:
        raise UserError(f"--device: {device!r} is not one of {', '.join(DEVICES)}, cuda:N")
    names = visible_devices() if device != "cpu" else []
    if not names:
        if device == "cuda":
            raise UserError(
                "--device cuda: no GPU is visible (nvidia-smi, CUDA_VISIBLE_DEVICES); "
                "use --device cpu or auto"
            )
        yield "cpu"
        return
    assigned = len(names) == 1 and "CUDA_VISIBLE_DEVICES" in os.environ
    if assigned or "LOCAL_RANK" in os.environ:
        yield "cuda"
        return
    before = os.environ.get("CUDA_VISIBLE_DEVICES")
    name, descriptor = _lock_one(names)
    os.environ["CUDA_VISIBLE_DEVICES"] = name
    try:
        yield "cuda"
    finally:
        if before is None:
            del os.environ["CUDA_VISIBLE_DEVICES"]
        else:
            os.environ["CUDA_VISIBLE_DEVICES"] = before
        _held.discard(descriptor)
        os.close(descriptor)


def _lock_one(names: list[str]) -> tuple[str, int]:
    """Lock the first free device; returns its name and the descriptor that holds the lock."""
    folder = Path(tempfile.gettempdir()) / f"mrp-leases-{os.getuid()}"
    folder.mkdir(mode=0o700, exist_ok=True)
    told = False
    while True:
        for name in names:
            # Python opens with O_CLOEXEC: programs started from here do not inherit the lock.
            descriptor = os.open(folder / f"gpu-{name}.lock", os.O_RDWR | os.O_CREAT, 0o600)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                os.close(descriptor)
                continue
            _held.add(descriptor)
            return name, descriptor
        if not told:
            visible = ", ".join(names)
            logger.info("waiting for a free GPU (visible: %s; all leased by other jobs)", visible)
            told = True
        time.sleep(POLL_SECONDS)


_held: set[int] = set()


def _forget_in_child() -> None:
    """Close a forked child's copies, so that the lock ends with the process that took it."""
    while _held:
        os.close(_held.pop())


os.register_at_fork(after_in_child=_forget_in_child)


def _device_count() -> int:
    """GPUs of this machine, by nvidia-smi or, without it, by their device files."""
    fake = os.environ.get(FAKE_COUNT)
    if fake is not None:
        return int(fake)
    if shutil.which("nvidia-smi"):
        with contextlib.suppress(OSError, subprocess.SubprocessError):
            listed = subprocess.run(
                ["nvidia-smi", "-L"], capture_output=True, text=True, check=True, timeout=30
            )
            return sum(line.startswith("GPU ") for line in listed.stdout.splitlines())
    return len(list(Path("/dev").glob("nvidia[0-9]*")))
