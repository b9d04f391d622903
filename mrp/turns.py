"""Turns on a GPU that several jobs share: all work at once, but a timing has it to itself.

Two locks a device, as a turnstile before a room. Whoever works passes the turnstile into the room,
which holds any number of workers. A timing keeps the turnstile, so that nobody enters, and waits
until the room is empty; workers look at the turnstile now and then and step out for it. The locks
end with their processes. On a device that is not shared, nothing here does anything.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import sys
from collections.abc import Iterator
from pathlib import Path

_device: tuple[int, int] | None = None  # the turnstile and the room of the leased device
_inside = False  # whether this process is in the room


@contextlib.contextmanager
def take_turns(folder: Path, key: str) -> Iterator[None]:
    """Take turns with the other processes that lease the device called `key`, in this block.

    Raises:
        OSError: the folder of locks cannot be used.
    """
    global _device
    with contextlib.ExitStack() as opened:
        descriptors = []
        for name in ("turnstile", "room"):
            path = folder / f"{name}-{key}.lock"
            descriptors.append(os.open(path, os.O_RDWR | os.O_CREAT, 0o600))
            opened.callback(os.close, descriptors[-1])
        _device = descriptors[0], descriptors[1]
        try:
            yield
        finally:
            _device = None


@contextlib.contextmanager
def working() -> Iterator[None]:
    """Use the device beside others; a long block calls `give_way` now and then."""
    if _device is None:
        yield
        return
    _enter(*_device)
    try:
        yield
    finally:
        if _device is not None:
            _leave(_device[1])


def give_way() -> None:
    """Step out of `working` while another process times something; costs microseconds if none does.

    What this process gave the device to do is done before. Elsewhere it does nothing.
    """
    if _device is None or not _inside:
        return
    turnstile, room = _device
    try:
        fcntl.flock(turnstile, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        _leave(room)
        _enter(turnstile, room)
    else:
        fcntl.flock(turnstile, fcntl.LOCK_UN)


@contextlib.contextmanager
def alone() -> Iterator[None]:
    """Have the device to oneself, for a timing; not inside `working`."""
    if _device is None:
        yield
        return
    turnstile, room = _device
    fcntl.flock(turnstile, fcntl.LOCK_EX)
    try:
        fcntl.flock(room, fcntl.LOCK_EX)
        yield
    finally:
        fcntl.flock(room, fcntl.LOCK_UN)
        fcntl.flock(turnstile, fcntl.LOCK_UN)


def _enter(turnstile: int, room: int) -> None:
    global _inside
    fcntl.flock(turnstile, fcntl.LOCK_EX)
    fcntl.flock(room, fcntl.LOCK_SH)
    fcntl.flock(turnstile, fcntl.LOCK_UN)
    _inside = True


def _leave(room: int) -> None:
    global _inside
    torch = sys.modules.get("torch")  # who has not loaded it has given a device nothing to do
    if torch is not None and torch.cuda.is_available():
        torch.cuda.synchronize()
    fcntl.flock(room, fcntl.LOCK_UN)
    _inside = False
