"""How far a suite is: every training and decode job with its state, read from what they leave."""

from __future__ import annotations

import json
import math
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from mrp.grid import Job, jobs
from mrp.layout import Layout
from mrp.live import Pulse, state
from mrp.locks import LOCK, release, try_lock
from mrp.models.weights import WEIGHTS
from mrp.progress import Display
from mrp.schema import HeadsFrom, Suite

State = Literal["running", "failed", "begun", "outdated", "left", "done"]
# In the order in which a reader wants them: what needs a look first, what is done last.
STATES: tuple[State, ...] = ("running", "failed", "begun", "outdated", "left", "done")
WATCH_INTERVAL = 2.0  # seconds between two looks
LINE_INTERVAL = 30.0  # seconds between two lines where there is no terminal


@dataclass(frozen=True)
class Item:
    """One job of the workflow.

    Attributes:
        kind: "training" or "decode".
        name: backbone, backbone.head or the decode job's id.
        state: "begun" was stopped and goes on where it was; "outdated" will run again, since its
            settings or its code changed.
        note: the last line of the log of a running or failed job.
        seconds: decoding time of a finished decode job.
        log: of a running or failed job.
    """

    kind: Literal["training", "decode"]
    name: str
    state: State
    note: str = ""
    seconds: float = 0.0
    log: Path | None = None


@dataclass(frozen=True)
class Status:
    """A suite's jobs; `seconds_left` is None until a decode job is done."""

    items: tuple[Item, ...]
    seconds_spent: float
    seconds_left: float | None

    def count(self, kind: str, state: State) -> int:
        """How many jobs of a kind are in a state."""
        return sum(item.kind == kind and item.state == state for item in self.items)


def read_status(suite: Suite, results: Path, heads: HeadsFrom = "released") -> Status:
    """The state of every job that the workflow runs for a suite."""
    layout = Layout(suite, Path(results), heads)
    items = (*_trainings(layout), *_decodes(layout))
    decodes = [item for item in items if item.kind == "decode"]
    times = [item.seconds for item in decodes if item.state == "done"]
    missing = len(decodes) - len(times)
    return Status(items, sum(times), sum(times) / len(times) * missing if times else None)


def is_done(layout: Layout, job: Job) -> bool:
    """Whether a job has a record, of the settings and the code of today."""
    found = _record(layout.record(job.id))
    return found is not None and found[0] == job.digest


def watch(suite: Suite, results: Path, heads: HeadsFrom = "released") -> None:
    """Show one line that keeps up with a run of the suite, until all of its jobs are done.

    Read from the files alone: any terminal will do, and it does not matter who runs the suite.
    """
    pulse = Pulse(Layout(suite, Path(results), heads).root / "runs")
    status = read_status(suite, results, heads)
    with _Watch(suite.name, status) as line:
        while line.done < line.total:
            time.sleep(WATCH_INTERVAL)
            status = read_status(suite, results, heads)
            states = [item.state for item in status.items]
            numbers = state(states.count("running"), states.count("failed"), pulse.rate())
            line.advance(_done(status), numbers)


class _Watch(Display):
    """How many of a suite's jobs are done."""

    def __init__(self, label: str, status: Status) -> None:
        super().__init__(len(status.items), _done(status), "job", True, label)
        self.written = time.monotonic() - LINE_INTERVAL

    def is_due(self) -> bool:
        return time.monotonic() - self.written >= LINE_INTERVAL

    def write_line(self, numbers: str) -> None:
        self.written = time.monotonic()
        shown = f", {numbers}" if numbers else ""
        print(f"{self.label}: {self.done} of {self.total} jobs{shown}", file=sys.stderr, flush=True)


def _done(status: Status) -> int:
    return sum(item.state == "done" for item in status.items)


def _trainings(layout: Layout) -> Iterator[Item]:
    suite = layout.suite
    for backbone, spec in suite.backbones.items():
        if spec.path is None:
            directory = layout.trained_backbone_dir(backbone)
            yield _training(backbone, directory, layout.log("train_backbone", backbone))
    used = {(job.backbone, job.head) for job in jobs(suite, layout.heads) if job.head is not None}
    for backbone in suite.backbones:
        for head, head_spec in suite.heads.items():
            if (backbone, head) in used and head_spec.source(layout.heads) == "trained":
                name = f"{backbone}.{head}"
                directory = layout.trained_head_dir(backbone, head)
                yield _training(name, directory, layout.log("train_head", name))


def _training(name: str, directory: Path, log: Path) -> Item:
    if (directory / WEIGHTS).is_file():
        return Item("training", name, "done")
    return _unfinished("training", name, directory, log, [directory / "training.pt"])


def _decodes(layout: Layout) -> Iterator[Item]:
    for job in jobs(layout.suite, layout.heads):
        directory, log = layout.run_dir(job.id), layout.log("decode", job.id)
        found = _record(layout.record(job.id))
        if found is None:
            yield _unfinished("decode", job.id, directory, log, [directory / "journal.jsonl"])
        elif found[0] != job.digest:
            yield Item("decode", job.id, "outdated")
        else:
            yield Item("decode", job.id, "done", seconds=found[1])


def _record(path: Path) -> tuple[str, float] | None:
    """A record's digest and decoding seconds; None where there is none, or a damaged one."""
    try:
        record = json.loads(path.read_text("utf-8"))
        seconds = sum(float(entry["decode_seconds"]) for entry in record["tasks"].values())
        digest = str(record["job"]["digest"])
    except (
        OSError, ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError
    ):  # fmt: skip
        return None
    return (digest, seconds) if math.isfinite(seconds) else None


def _unfinished(
    kind: Literal["training", "decode"],
    name: str,
    directory: Path,
    log: Path,
    traces: Sequence[Path],
) -> Item:
    """Running if a process holds the directory's lock; failed if its log ends in an error."""
    last = _last_line(log)
    if _is_locked(directory):
        return Item(kind, name, "running", last, log=log)
    if "error" in last.lower():
        return Item(kind, name, "failed", last, log=log)
    return Item(kind, name, "begun" if any(path.exists() for path in traces) else "left")


def _is_locked(directory: Path) -> bool:
    path = directory / LOCK
    if not path.exists():
        return False
    try:
        descriptor = try_lock(path)
    except OSError:  # another user's run: not ours to look into
        return False
    if descriptor is not None:
        release(descriptor)
    return descriptor is None


def _last_line(log: Path) -> str:
    try:
        with open(log, "rb") as file:
            file.seek(max(0, log.stat().st_size - 4096))
            lines = file.read().decode("utf-8", "replace").splitlines()
    except OSError:
        return ""
    return next((line.strip() for line in reversed(lines) if line.strip()), "")
