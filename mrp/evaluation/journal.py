"""Generations on disk as they finish, so that a killed job loses at most the samples in flight.

Those that the last round finished count among them: they are written during the next one.

A journal belongs to one setting: its first line holds everything that decides an answer (mode, its
knobs, seed, checkpoint hashes, ...). A journal that starts with another line is never read.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import time
from pathlib import Path
from typing import Any, BinaryIO

from mrp.closing import Closing
from mrp.errors import UserError
from mrp.locks import flock

logger = logging.getLogger(__name__)

FORMAT = 1
SYNC_INTERVAL = 1.0  # seconds
encode = json.JSONEncoder(separators=(",", ":")).encode


def request_key(prompt: list[int], until: list[str], max_new_tokens: int) -> str:
    """The identity of one request within a setting: what was asked, hashed."""
    asked = encode([prompt, until, max_new_tokens])
    return hashlib.sha256(asked.encode()).hexdigest()[:32]


class Journal(Closing):
    """An append-only JSON-lines file of finished generations, keyed by request."""

    def __init__(self, path: Path, header: dict[str, Any]) -> None:
        """Open the journal at `path` and read what an earlier run of the same setting left.

        A line torn by a kill is cut off. A journal with another header is kept as `*.old` and a
        new one is started.

        Raises:
            UserError: another process is writing this journal.
        """
        self.path = Path(path)
        self.entries: dict[str, dict[str, Any]] = {}
        # Through JSON and back, so that tuples compare equal to the lists that a file holds.
        header = json.loads(json.dumps({"journal": FORMAT, **header}))
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self._file = self._open_locked()
        found, self.entries, whole = _read(self.path)
        if found is not None and found != header:
            old = self.path.with_name(self.path.name + ".old")
            logger.warning(
                "%s is of another setting (%s differ); kept as %s, starting over",
                self.path,
                ", ".join(_differences(found, header)),
                old.name,
            )
            os.replace(self.path, old)
            self._file.close()
            self._file = self._open_locked()
            found, self.entries, whole = None, {}, 0
        self._file.truncate(whole)
        self._file.seek(0, os.SEEK_END)
        self._synced = time.monotonic()
        if found is None:
            self.entries = {}
            self._write(header)
            self.sync()

    def append(self, key: str, entry: dict[str, Any]) -> None:
        """Add a finished generation; it survives a kill at once, a power cut after a second."""
        self.entries[key] = entry
        self._write({"key": key, **entry})
        if time.monotonic() - self._synced >= SYNC_INTERVAL:
            self.sync()

    def sync(self) -> None:
        """Force what was appended onto the disk."""
        os.fsync(self._file.fileno())
        self._synced = time.monotonic()

    def close(self) -> None:
        """Sync, and let another process open the journal."""
        self.sync()
        self._file.close()

    def _write(self, line: dict[str, Any]) -> None:
        self._file.write(encode(line).encode() + b"\n")
        self._file.flush()

    def _open_locked(self) -> BinaryIO:
        file = open(self.path, "a+b")  # noqa: SIM115 (held open until close())
        if not flock(file.fileno(), self.path):
            file.close()
            raise UserError(
                f"{self.path}: another process is decoding into this directory; wait for it to "
                "end or choose another --out"
            )
        return file


def _read(path: Path) -> tuple[dict[str, Any] | None, dict[str, dict[str, Any]], int]:
    """The header (None without a whole one), the entries, and the length of the whole lines."""
    header: dict[str, Any] | None = None
    entries: dict[str, dict[str, Any]] = {}
    whole = 0
    with open(path, "rb") as file:
        for line in file:
            try:
                value = json.loads(line)
            except ValueError:
                break
            if not line.endswith(b"\n") or not isinstance(value, dict):
                break
            if header is None:
                header = value
            elif isinstance(value.get("key"), str):
                entries[value.pop("key")] = value
            else:
                break
            whole += len(line)
    return header, entries, whole


def _differences(left: dict[str, Any], right: dict[str, Any]) -> list[str]:
    return sorted(name for name in left.keys() | right.keys() if left.get(name) != right.get(name))
