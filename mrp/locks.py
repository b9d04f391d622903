"""File locks that end with the processes that hold them, also after a kill -9.

A lock is an open descriptor (flock). A program started from here does not inherit it, a forked
child gives its copy up at once, and a training worker that gets an `Inherited` copy keeps the lock
alive until it has ended, too.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import logging
import os
import socket
import time
from collections.abc import Callable, Iterator
from multiprocessing import reduction
from pathlib import Path
from typing import Any

logger = logging.getLogger(__name__)

LOCK = ".lock"  # of a run directory
POLL_SECONDS = 0.2
# What file systems answer that keep no locks (some cluster file systems, if mounted so).
UNSUPPORTED = (errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP, errno.ENOTSUP)

_held: set[int] = set()


def flock(descriptor: int, name: Path) -> bool:
    """Lock an open file without waiting; False if another process holds it.

    A file system without locks counts as free, with a warning.

    Raises:
        OSError: any other failure.
    """
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError as error:
        if error.errno not in UNSUPPORTED:
            raise
        logger.warning(
            "%s: this file system keeps no locks: see to it that no two processes work here", name
        )
    return True


def try_lock(path: Path) -> int | None:
    """Lock the file at `path`, made if need be; its descriptor, or None if another process has it.

    Raises:
        OSError: it cannot be opened.
    """
    # Python opens with O_CLOEXEC: programs started from here do not inherit the lock.
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
    try:
        if flock(descriptor, path):
            _held.add(descriptor)
            return descriptor
    except BaseException:
        os.close(descriptor)
        raise
    os.close(descriptor)
    return None


def release(descriptor: int) -> None:
    """Give a lock of `try_lock` back."""
    _held.discard(descriptor)
    os.close(descriptor)


@contextlib.contextmanager
def run_lock(directory: Path | None) -> Iterator[None]:
    """Be the only process that works in a run's directory while the block runs (None: no run).

    A second process waits: after a kill of the workflow alone, its jobs are still at work while the
    next workflow starts them again. The one that waited finds a finished run, or a resume point.

    Raises:
        OSError: the directory cannot be made or written.
    """
    if directory is None:
        yield
        return
    path = Path(directory) / LOCK
    path.parent.mkdir(parents=True, exist_ok=True)
    told = False
    while (descriptor := try_lock(path)) is None:
        if not told:
            logger.info(
                "waiting: %s works in %s; it goes on here when that one has ended",
                path.read_text().strip() or "another process",
                path.parent,
            )
            told = True
        time.sleep(POLL_SECONDS)
    try:
        # For the process that waits, and for a user who wants to end this one.
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, f"process {os.getpid()} on {socket.gethostname()}\n".encode(), 0)
        yield
    finally:
        release(descriptor)


class Inherited:
    """All locks of this process, to be handed to a process that multiprocessing spawns.

    The locks then last until both have ended. It keeps them by being alive.
    """

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        return _keep, ([reduction.DupFd(descriptor) for descriptor in sorted(_held)],)


def _keep(copies: list[Any]) -> Inherited:
    """In the spawned process: take the copies over."""
    _held.update(copy.detach() for copy in copies)
    return Inherited()


def _forget_in_child() -> None:
    """Close a forked child's copies, so that the lock ends with the process that took it."""
    while _held:
        os.close(_held.pop())


os.register_at_fork(after_in_child=_forget_in_child)
