"""Turns on a GPU that several jobs share: they work at once, but a timing has it to itself.

Two locks a device, as a turnstile before a room. Whoever works passes the turnstile into the room;
a timing keeps the turnstile, so that nobody enters, and waits until the room is empty; workers look
at the turnstile now and then and step out for it.

What keeps the GPU busy for seconds, as decoding does, first takes one of a few seats and keeps it
until it is done: the GPU serves processes in slices of time, so that with many of them each waits
long for every answer. What hardly uses it, as a warm-up does, or is few by other means, as
trainings are (`mrp.leases.TRAININGS`), needs none. All locks end with their processes. On a device
that is not shared, nothing here does anything.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

SEATS = 5  # enough to keep a GPU busy while each prepares, or looks at its results
POLL_SECONDS = 0.01


class Device(NamedTuple):
    """The open lock files of a device that is shared."""

    turnstile: int
    room: int
    seats: tuple[int, ...]


_device: Device | None = None  # that is leased
_inside = False  # whether this process is in the room


@contextlib.contextmanager
def take_turns(folder: Path, key: str) -> Iterator[None]:
    """Take turns with the other processes that lease the device called `key`, in this block.

    Raises:
        OSError: the folder of locks cannot be used.
    """
    global _device
    with contextlib.ExitStack() as opened:

        def lock_file(name: str) -> int:
            descriptor = os.open(folder / f"{name}-{key}.lock", os.O_RDWR | os.O_CREAT, 0o600)
            opened.callback(os.close, descriptor)
            return descriptor

        seats = tuple(lock_file(f"seat{number}") for number in range(SEATS))
        _device = Device(lock_file("turnstile"), lock_file("room"), seats)
        try:
            yield
        finally:
            _device = None


@contextlib.contextmanager
def seated() -> Iterator[None]:
    """Be one of the few that keep the device busy, as soon as there is a seat; around `working`."""
    device = _device
    if device is None:
        yield
        return
    seat = _sit(device)
    try:
        yield
    finally:
        if _device is device:  # else its locks are gone already
            fcntl.flock(seat, fcntl.LOCK_UN)


@contextlib.contextmanager
def working() -> Iterator[None]:
    """Use the device beside others; a long block calls `give_way` now and then."""
    device = _device
    if device is None:
        yield
        return
    _enter(device)
    try:
        yield
    finally:
        if _inside and _device is device:
            _leave(device)


def give_way() -> None:
    """Step out of `working` while another process times something; costs microseconds if none does.

    What this process gave the device to do is done before. Elsewhere it does nothing.
    """
    if _device is None or not _inside:
        return
    if _try(_device.turnstile):
        fcntl.flock(_device.turnstile, fcntl.LOCK_UN)
    else:
        _leave(_device)
        _enter(_device)


@contextlib.contextmanager
def alone() -> Iterator[None]:
    """Have the device to oneself, for a timing; not inside `working`."""
    if _device is None:
        yield
        return
    turnstile, room, _ = _device
    fcntl.flock(turnstile, fcntl.LOCK_EX)
    try:
        fcntl.flock(room, fcntl.LOCK_EX)
        yield
    finally:
        fcntl.flock(room, fcntl.LOCK_UN)
        fcntl.flock(turnstile, fcntl.LOCK_UN)


def _sit(device: Device) -> int:
    """Take a seat, as soon as there is one; returns its lock."""
    while True:
        for seat in device.seats:
            if _try(seat):
                return seat
        time.sleep(POLL_SECONDS)


def _enter(device: Device) -> None:
    global _inside
    fcntl.flock(device.turnstile, fcntl.LOCK_EX)
    fcntl.flock(device.room, fcntl.LOCK_SH)
    fcntl.flock(device.turnstile, fcntl.LOCK_UN)
    _inside = True


def _leave(device: Device) -> None:
    global _inside
    torch = sys.modules.get("torch")  # who has not loaded it has given a device nothing to do
    if torch is not None and torch.cuda.is_available():
        torch.cuda.synchronize()
    fcntl.flock(device.room, fcntl.LOCK_UN)
    _inside = False


def _try(descriptor: int) -> bool:
    """Lock, if nobody else has."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
