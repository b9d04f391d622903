"""GPUs for one process: a lease by file lock among the visible devices.

Snakemake's `resources: gpu=N` bounds how many GPUs are busy at once but hands out no index, so that
jobs started together would all sit on device 0. Each process therefore locks as many devices as it
needs and shows itself only those. The locks live with the process: a kill -9 frees them.

A device may have several places (`share`, a suite's jobs_per_gpu), each a lock of its own; who has
one takes turns with the others (`mrp.turns`).
"""

from __future__ import annotations

import contextlib
import logging
import os
import re
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from itertools import product
from pathlib import Path

from mrp.errors import UserError
from mrp.locks import POLL_SECONDS, release, try_lock
from mrp.turns import take_turns

logger = logging.getLogger(__name__)

DEVICES = ("auto", "cpu", "cuda")
# Tests pretend to have this many devices; what leases one of them computes on the CPU.
FAKE_COUNT = "MRP_FAKE_GPUS"
# Of the jobs that share a GPU, how many a workflow lets train at once: the rest of them decode what
# is trained already, instead of waiting behind every training that could begin.
TRAININGS = 4
VISIBLE = "CUDA_VISIBLE_DEVICES"


@dataclass(frozen=True)
class Leased:
    """What a process got: torch's name of the device ("cpu", "cuda", "cuda:N") and how many."""

    device: str
    count: int = 1


def visible_devices() -> list[str]:
    """The devices this process may use, as CUDA_VISIBLE_DEVICES spells them; no torch needed."""
    allowed = os.environ.get(VISIBLE)
    if allowed is None:
        return [str(index) for index in range(_device_count())]
    names = [name.strip() for name in allowed.split(",")]
    # CUDA itself stops at the first entry that is no device: "-1", "NoDevFiles", "".
    for place, name in enumerate(names):
        if not (_is_index(name) or name.startswith(("GPU-", "MIG-"))):
            return names[:place]
    return names


def gpu_per_job(device: str, count: object = 1, share: int = 1) -> int:
    """How many GPUs a workflow job asks its scheduler for: `count`, or none on a machine without.

    Args:
        device: the workflow's setting.
        count: one, or the setting gpus_per_training.
        share: jobs that share a GPU.

    Raises:
        UserError: an unknown device, no whole number of at least 1, or more than are visible.
    """
    if device not in DEVICES:
        raise UserError(f"device: {device!r} is not one of {', '.join(DEVICES)}")
    if not isinstance(count, int) or isinstance(count, bool) or count < 1:
        raise UserError(f"gpus_per_training: {count!r} is no whole number of at least 1")
    if share > 1 and count > 1:
        raise UserError(
            f"gpus_per_training: {count} does not go with the suite's jobs_per_gpu: {share}: a job "
            "that needs several GPUs shares none; set one of the two to 1"
        )
    if device == "cuda":  # also from a cluster's login node, which has none itself
        return count
    names = visible_devices() if device == "auto" else []
    if names and count > len(names):
        raise UserError(
            f"gpus_per_training: {count}, but visible are {len(names)} ({', '.join(names)}); lower "
            "it, or set device: cuda where a cluster's nodes have more"
        )
    return count if names else 0


@contextlib.contextmanager
def lease(device: str = "auto", share: int = 1) -> Iterator[str]:
    """Hold one device while the block runs and yield its torch name (see `lease_many`)."""
    with lease_many(device, 1, share) as leased:
        yield leased.device


@contextlib.contextmanager
def lease_many(device: str = "auto", count: int = 1, share: int = 1) -> Iterator[Leased]:
    """Hold `count` devices while the block runs, with at most `share` - 1 others on each.

    "auto" takes GPUs where there is one, else the CPU. Waits while too few are free. Enter before
    anything touches CUDA, since CUDA reads the visible devices once. Taken without waiting, as
    there is no choice: a device that the user names ("cuda:N") and a single one that a scheduler
    assigned. One device that is shared is used in turns (`mrp.turns`). Left alone: the devices of
    torchrun's workers, which divide them among themselves.

    Raises:
        UserError: an unknown name, fewer visible GPUs than `count`, "cuda" on a machine without a
            visible GPU, or a folder of locks that cannot be used.
    """
    if device not in DEVICES and not re.fullmatch(r"cuda:\d+", device):
        raise UserError(f"--device: {device!r} is not one of {', '.join(DEVICES)}, cuda:N")
    names = _distinct(visible_devices()) if device != "cpu" else {}
    if ":" in device:
        if count > 1:
            raise UserError(f"--device {device} is one GPU, --gpus is {count}: use --device cuda")
        index = int(device.partition(":")[2])
        keys = list(names.values())[index : index + 1]
        with _marked(keys), _turns(keys, share):
            yield Leased(device)
        return
    if not names:
        if device == "cuda":
            raise UserError(
                "--device cuda: no GPU is visible (nvidia-smi, CUDA_VISIBLE_DEVICES); "
                "use --device cpu or auto"
            )
        yield Leased("cpu")
        return
    torch_name = "cpu" if FAKE_COUNT in os.environ else "cuda"
    if "LOCAL_RANK" in os.environ:
        yield Leased(torch_name)
        return
    if count > len(names):
        raise UserError(
            f"--gpus {count} (gpus_per_training): visible are {len(names)} "
            f"({', '.join(names)}); lower it, or show more (CUDA_VISIBLE_DEVICES)"
        )
    before = os.environ.get(VISIBLE)
    if len(names) == 1 and before is not None:
        with _marked(list(names.values())), _turns(names.values(), share):
            yield Leased(torch_name)
        return
    locks = _wait_for(names, count, share)
    # In CUDA's order, not in that of the locks, so that every process counts them alike.
    os.environ[VISIBLE] = ",".join(name for name in names if name in locks)
    try:
        with _turns([names[name] for name in locks], share):
            yield Leased(torch_name, count)
    finally:
        if before is None:
            del os.environ[VISIBLE]
        else:
            os.environ[VISIBLE] = before
        for descriptor in locks.values():
            release(descriptor)


def _wait_for(names: dict[str, str], count: int, share: int = 1) -> dict[str, int]:
    """Lock a place on `count` of the devices; returns the locks' descriptors by device name.

    A device has `share` places; of all the free ones that on the least busy device is taken.

    All or nothing, so that two processes never wait for each other: whoever got too few gives them
    back. But for one: the process in the waiting place keeps what it has until the others, who wait
    for nothing, end. So a stream of jobs that need a single device does not starve it.
    """
    folder = _lock_folder()
    locks: dict[str, int] = {}
    place: int | None = None
    told = False
    try:
        while True:
            for number, (name, key) in product(range(share), names.items()):
                if len(locks) < count and name not in locks:
                    descriptor = _try(folder, _place(key, number))
                    if descriptor is not None:
                        locks[name] = descriptor
            if len(locks) == count:
                return locks
            if place is None and count > 1:
                place = _try(folder, "waiting.lock")
            if place is None:
                while locks:
                    release(locks.popitem()[1])
            if not told:
                logger.info(
                    "waiting for %s (visible: %s; leased by other jobs)",
                    "a free GPU" if count == 1 else f"{count} free GPUs",
                    ", ".join(names),
                )
                told = True
            time.sleep(POLL_SECONDS)
    except BaseException:
        while locks:
            release(locks.popitem()[1])
        raise
    finally:
        if place is not None:
            release(place)


@contextlib.contextmanager
def _marked(keys: list[str]) -> Iterator[None]:
    """Lock devices that are used in any case, so that those who have a choice take others."""
    locks = []
    for key in keys:
        with contextlib.suppress(UserError):
            locks.append(_try(_lock_folder(), _place(key)))
    try:
        yield
    finally:
        for descriptor in locks:
            if descriptor is not None:
                release(descriptor)


@contextlib.contextmanager
def _turns(keys: Iterable[str], share: int) -> Iterator[None]:
    """Take turns on the leased device where others may share it."""
    keys = list(keys)
    if share == 1 or len(keys) != 1:
        yield
        return
    with take_turns(_lock_folder(), keys[0]):
        yield


def _place(key: str, number: int = 0) -> str:
    """The name of a lock: a device has one for every job that it may have."""
    return f"gpu-{key}.{number}.lock" if number else f"gpu-{key}.lock"


def _lock_folder() -> Path:
    """This user's folder of locks on this machine.

    Raises:
        UserError: it cannot be made, or is not this user's own.
    """
    try:
        folder = Path(tempfile.gettempdir()) / f"mrp-leases-{os.getuid()}"
        folder.mkdir(mode=0o700, exist_ok=True)
        owner = folder.lstat().st_uid
    except OSError as error:
        raise _no_locks(error, tempfile.tempdir or "the temporary folder") from None
    if owner != os.getuid():
        raise UserError(
            f"{folder}: belongs to another user (id {owner}), so no GPU can be leased: remove it, "
            "or set TMPDIR to a folder of your own"
        )
    return folder


def _try(folder: Path, name: str) -> int | None:
    try:
        return try_lock(folder / name)
    except OSError as error:
        raise _no_locks(error, folder / name) from None


def _no_locks(error: OSError, where: object) -> UserError:
    return UserError(
        f"{error.filename or where}: {(error.strerror or str(error)).lower()}, so no GPU can be "
        "leased: set TMPDIR to a folder that you can write, or name a device (--device cuda:N)"
    )


def _distinct(names: list[str]) -> dict[str, str]:
    """The lock's name of every device: its UUID where known, so that "1" and "GPU-..." are one.

    Inside a container or a cluster's job, index 0 may be any of the machine's GPUs.
    """
    uuids = _uuids()
    keys: dict[str, str] = {}
    for name in names:
        key = name
        if _is_index(name):
            key = uuids[int(name)] if int(name) < len(uuids) else str(int(name))
        elif name.startswith("GPU-"):  # CUDA takes a beginning, too
            key = next((uuid for uuid in uuids if uuid.startswith(name)), name)
        if key not in keys.values():
            keys[name] = re.sub(r"[^\w.-]", "_", key)
    return keys


def _is_index(name: str) -> bool:
    return name.isascii() and name.isdecimal()


def _device_count() -> int:
    """GPUs of this machine, by nvidia-smi or, without it, by their device files."""
    fake = os.environ.get(FAKE_COUNT)
    if fake is not None:
        return int(fake)
    return len(_uuids()) or len(list(Path("/dev").glob("nvidia[0-9]*")))


def _uuids() -> list[str]:
    """The UUIDs of this machine's GPUs by index; empty where they are not known."""
    return [] if FAKE_COUNT in os.environ else _listed()


@cache
def _listed() -> list[str]:
    if not shutil.which("nvidia-smi"):
        return []
    with contextlib.suppress(OSError, subprocess.SubprocessError):
        done = subprocess.run(
            ["nvidia-smi", "-L"], capture_output=True, text=True, check=True, timeout=30
        )
        # GPU 0: NVIDIA H200 (UUID: GPU-...); the MIG slices of a GPU follow it, indented.
        return re.findall(r"^GPU \d+: .*\(UUID: ([^)]+)\)", done.stdout, re.MULTILINE)
    return []
