"""The files of a run in its directory: the resume point, metrics.csv and provenance.json."""

from __future__ import annotations

import contextlib
import csv
import io
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn

from mrp.errors import UserError
from mrp.io import atomic_write, atomic_write_text, read_json, sha256_file

CHECKPOINT, METRICS, PROVENANCE = "training.pt", "metrics.csv", "provenance.json"
CONFIG, WEIGHTS = "config.json", "model.safetensors"
FILES = (CHECKPOINT, METRICS, PROVENANCE, CONFIG, WEIGHTS)


@dataclass
class Point:
    """Where a run stands: steps done and the seconds that they took."""

    step: int = 0
    seconds: float = 0.0


def save_checkpoint(
    out_dir: Path,
    point: Point,
    identity: Mapping[str, Any],
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
) -> None:
    """Write the resume point in one step, so that a kill leaves the old one or the new one.

    Raises:
        OSError: it cannot be written; names the file and says what is left.
    """
    state = {
        "step": point.step,
        "seconds": point.seconds,
        "identity": dict(identity),
        "model": model.state_dict(),
        "optimizer": optimizer.state_dict(),
    }

    def write(path: Path) -> None:
        # Through a file of ours: given a path, torch hides what the system says.
        with open(path, "wb") as file:
            torch.save(state, file)

    path = out_dir / CHECKPOINT
    try:
        atomic_write(path, write)
    except OSError as error:
        left = "the resume point before it is whole" if path.exists() else "no other file is harmed"
        what = f"{(error.strerror or '').lower()} at step {point.step}, nothing is lost: {left}"
        raise OSError(error.errno, what, str(path)) from error


def load_checkpoint(
    out_dir: Path, model: nn.Module, optimizer: torch.optim.Optimizer, device: torch.device
) -> Point:
    """Restore the resume point of `out_dir`; a fresh `Point` if there is none.

    Raises:
        UserError: it is damaged.
    """
    path = out_dir / CHECKPOINT
    if not path.exists():
        return Point()
    with _naming_damage(path):
        state = torch.load(path, map_location=device, weights_only=True)
        model.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        return Point(state["step"], state["seconds"])


def finished(out_dir: Path, identity: Mapping[str, Any]) -> bool:
    """Whether `out_dir` already holds the whole result of exactly this run."""
    path, weights = out_dir / PROVENANCE, out_dir / WEIGHTS
    if not path.exists() or not weights.exists():
        return False
    record = _provenance(path)
    if _difference(record.get("identity", {}), identity) is not None:
        return False
    return bool(sha256_file(weights) == record.get("sha256"))


def _provenance(path: Path) -> dict[str, Any]:
    record = read_json(path)
    if not isinstance(record, dict) or not isinstance(record.get("identity", {}), dict):
        raise UserError(f"{path}: damaged; delete it and run again")
    return record


def other_run(out_dir: Path, identity: Mapping[str, Any]) -> str | None:
    """How the run that left a result or a resume point here differs: "lr was 0.001, is 0.002".

    None if nothing is here, or it is this run's own.

    Raises:
        UserError: what is here is damaged.
    """
    result, point = out_dir / PROVENANCE, out_dir / CHECKPOINT
    found = []
    if result.exists():
        found.append(_provenance(result).get("identity", {}))
    if point.exists():
        with _naming_damage(point):  # mapped: only the identity is read from the disk
            found.append(torch.load(point, "cpu", weights_only=True, mmap=True)["identity"])
    differences = (_difference(stored, identity) for stored in found)
    return next((difference for difference in differences if difference), None)


def set_aside(out_dir: Path) -> None:
    """Rename what another run left to *.old; what was kept so before goes."""
    for name in FILES:
        old = out_dir / f"{name}.old"
        old.unlink(missing_ok=True)
        if (out_dir / name).exists():
            (out_dir / name).rename(old)


def clear(out_dir: Path) -> None:
    """Forget an earlier run (--restart)."""
    for name in (CHECKPOINT, METRICS, PROVENANCE):
        (out_dir / name).unlink(missing_ok=True)


class Metrics:
    """metrics.csv: one row every few steps; after a resume, no row twice and none missing."""

    def __init__(self, out_dir: Path, columns: list[str], step: int, writes: bool) -> None:
        """Drop the rows after `step`, which the resumed run computes again."""
        self.path, self.columns, self.writes = out_dir / METRICS, columns, writes
        if not writes:
            return
        rows = []
        if step and self.path.exists():
            with open(self.path, newline="") as file:
                rows = [row for row in csv.DictReader(file) if _is_kept(row, columns, step)]
        buffer = io.StringIO()
        writer = csv.DictWriter(buffer, columns, lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
        atomic_write_text(self.path, buffer.getvalue())

    def append(self, row: Mapping[str, Any]) -> None:
        """Add one row."""
        if self.writes:
            with open(self.path, "a", newline="") as file:
                csv.DictWriter(file, self.columns, lineterminator="\n").writerow(row)


def _is_kept(row: Mapping[str, str | None], columns: list[str], step: int) -> bool:
    """Whether a row is whole (a kill may cut the last one) and not after `step`."""
    if any(not row.get(column) for column in columns):
        return False
    return int(row["step"] or 0) <= step


def _difference(stored: Mapping[str, Any], wanted: Mapping[str, Any]) -> str | None:
    """The first key that differs, with both values; one that is missing counts as None."""
    for key in {**wanted, **stored}:
        was, now = stored.get(key), wanted.get(key)
        if was != now:
            return f"{key} was {was!r}, is {now!r}"
    return None


@contextlib.contextmanager
def _naming_damage(path: Path) -> Iterator[None]:
    try:
        yield
    except Exception as error:  # torch.load raises whatever the damaged bytes lead it to
        raise UserError(
            f"{path}: damaged resume point ({type(error).__name__}); delete it to start over"
        ) from error
