"""Files that are whole or absent: atomic writes, hashes, and reads that name what is damaged."""

from __future__ import annotations

import errno
import hashlib
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from mrp.errors import UserError

UMASK = os.umask(0)  # it can only be read by setting it
os.umask(UMASK)


def atomic_write(path: Path, write: Callable[[Path], None]) -> None:
    """Let `write` fill a temporary file beside `path`, then rename it over `path`.

    A reader sees the old file or the new one, never a part, also after a kill or a power cut.

    Raises:
        OSError: it cannot be written (no space, no rights, a folder of that name); names `path`.
    """
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        write(temporary)
        temporary.chmod(0o666 & ~UMASK)  # safetensors would keep the weights to this user alone
        with open(temporary, "rb") as file:
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(path)) from error
    except Exception as error:
        # What torch and safetensors, by its class's name, make of a full disk.
        if not isinstance(error, RuntimeError) and type(error).__name__ != "SafetensorError":
            raise
        first = str(error).partition("\n")[0]
        raise OSError(errno.EIO, f"cannot be written ({first})", str(path)) from error
    finally:
        temporary.unlink(missing_ok=True)


def atomic_write_bytes(path: Path, data: bytes) -> None:
    """Write `data` to `path` in one step (see `atomic_write`)."""
    atomic_write(path, lambda temporary: _write_bytes(temporary, data))


def atomic_write_text(path: Path, text: str) -> None:
    """Write `text` as UTF-8 to `path` in one step (see `atomic_write`)."""
    atomic_write_bytes(path, text.encode("utf-8"))


def atomic_write_json(path: Path, value: Any) -> None:
    """Write `value` as indented JSON to `path` in one step (see `atomic_write`)."""
    atomic_write_text(path, json.dumps(value, indent=2, ensure_ascii=False) + "\n")


def read_json(path: Path) -> Any:
    """Return the JSON value in `path`.

    Raises:
        UserError: the file is missing or is not JSON.
    """
    try:
        return json.loads(Path(path).read_text("utf-8"))
    except FileNotFoundError:
        raise UserError(f"{path}: no such file") from None
    except (ValueError, OSError, RecursionError) as error:
        raise UserError(f"{path}: damaged or not JSON ({error}); delete it and run again") from None


def sha256_file(path: Path) -> str:
    """Return the SHA-256 of a file's bytes as 64 hex digits."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def human_size(count: float) -> str:
    """Bytes for people, such as 16.4 GB: decimal, as disks and the hub's pages count."""
    for unit in ("B", "kB", "MB"):
        if count < 999.5:
            return f"{count:.3g} {unit}"
        count /= 1000
    return f"{count:,.1f} GB"


def _write_bytes(path: Path, data: bytes) -> None:
    path.write_bytes(data)
