"""The files of a run in its directory: the resume point, metrics.csv and provenance.json."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn

from mrp.errors import UserError
from mrp.io import atomic_write, atomic_write_text, read_json, sha256_file
from mrp.training.settings import digest

CHECKPOINT, METRICS, PROVENANCE = "training.pt", "metrics.csv", "provenance.json"
WEIGHTS = "model.safetensors"


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
    """Write the resume point in one step, so that a kill leaves the old one or the new one."""
    state = {
        "step": point.step,
        "seconds": point.seconds,
        "identity": dict(identity),
        "model": model.state_dict(),
        "optimizer": optimizer.state_dict(),
    }
    atomic_write(out_dir / CHECKPOINT, lambda path: torch.save(state, path))


def load_checkpoint(
    out_dir: Path,
    identity: Mapping[str, Any],
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    device: torch.device,
) -> Point:
    """Restore the resume point of `out_dir`; a fresh `Point` if there is none.

    Raises:
        UserError: it is damaged, or was written under other settings (names the first such key).
    """
    path = out_dir / CHECKPOINT
    if not path.exists():
        return Point()
    try:
        state = torch.load(path, map_location=device, weights_only=True)
        stored = state["identity"]
        _same_settings(path, stored, identity)
        model.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        return Point(state["step"], state["seconds"])
    except UserError:
        raise
    except Exception as error:  # torch.load raises whatever the damaged bytes lead it to
        raise UserError(
            f"{path}: damaged checkpoint ({type(error).__name__}); pass --restart to start over"
        ) from error


def finished(out_dir: Path, identity: Mapping[str, Any]) -> bool:
    """Whether `out_dir` already holds the whole result of exactly this run.

    Raises:
        UserError: it holds the result of other settings, which is not overwritten silently.
    """
    path = out_dir / PROVENANCE
    if not path.exists():
        return False
    record = read_json(path)
    _same_settings(path, record.get("identity", {}), identity)
    weights = out_dir / WEIGHTS
    return weights.exists() and sha256_file(weights) == record.get("sha256")


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


def _same_settings(path: Path, stored: Mapping[str, Any], wanted: Mapping[str, Any]) -> None:
    if digest(stored) == digest(wanted):
        return
    key = next(key for key in sorted({*stored, *wanted}) if stored.get(key) != wanted.get(key))
    raise UserError(
        f"{path}: was written with {key}={stored.get(key)!r}, now {key}={wanted.get(key)!r}; "
        "go back to the old setting, choose another --out, or pass --restart to start over"
    )
