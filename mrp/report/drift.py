"""Two results folders against each other: the same jobs of two commits, two GPUs, two heads.

Jobs are paired by id, problems by document id and prompt. Accuracy is compared by McNemar's exact
test, tokens per forward by a bootstrap over problems, time ratios by the intervals in the records.
What moved beyond noise is decided over the whole comparison at once (Holm, 5 %), since among a few
hundred cells some always look unusual.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from mrp.errors import UserError
from mrp.io import atomic_write_text, read_json
from mrp.report.cells import DASH, percent, points, signed, times
from mrp.report.outcomes import raw_lines, sample_lines
from mrp.report.statistics import Bools, Estimate, Floats, curve, mcnemar, paired_difference
from mrp.report.statistics import percentile as interval_of
from mrp.report.templating import environment_of_templates

LEVEL = 0.05  # chance that anything at all is called moved where nothing did


@dataclass(frozen=True)
class Answers:
    """A job's answers on one task.

    Attributes:
        prompts, texts: by document id.
        correct: [n]; tokens, forwards: [n], all in the order of the ids.
        speed: the record's paired time measurement, None without one.
    """

    prompts: dict[int, str]
    texts: dict[int, str]
    correct: Bools
    tokens: Floats
    forwards: Floats
    speed: dict[str, Any] | None


@dataclass
class Change:
    """One number of one cell before and after.

    Attributes:
        what: accuracy, TPF or time ratio.
        before, after, difference: as shown.
        p: two-sided, that nothing changed; moved: whether it is beyond noise among all changes.
    """

    what: str
    before: str
    after: str
    difference: str
    p: float
    moved: bool = False


@dataclass
class Pair:
    """One job on one task in both folders, or the reason why it cannot be compared."""

    job: str
    task: str
    problems: int = 0
    same_texts: int = 0
    changes: list[Change] = field(default_factory=list)
    note: str = ""

    @property
    def moved(self) -> bool:
        """Whether any of its numbers did."""
        return any(change.moved for change in self.changes)


@dataclass(frozen=True)
class Drift:
    """The comparison of two folders; `facts` are (name, before, after) of how they came about."""

    before: Path
    after: Path
    facts: tuple[tuple[str, str, str], ...]
    pairs: tuple[Pair, ...]

    @property
    def moved(self) -> list[Pair]:
        """The cells of which a number moved beyond noise."""
        return [pair for pair in self.pairs if pair.moved]


def compare_folders(before: Path, after: Path) -> Drift:
    """Compare two suite results folders, such as results/embedded and a copy from another commit.

    Raises:
        UserError: one is no results folder, a record is damaged, they have no job in common, or
            nothing of those that they have can be compared.
    """
    one, two = _records(before), _records(after)
    if not one.keys() & two.keys():
        raise UserError(
            f"{before} and {after} have no job in common: compare two results folders of one suite"
        )
    devices = [
        {record["provenance"]["device"] for record in found.values()} for found in (one, two)
    ]
    timed = devices[0] == devices[1]  # times of different devices say nothing about the code
    pairs: list[Pair] = []
    for job in [*one, *(job for job in two if job not in one)]:
        if job not in one or job not in two:
            missing = after if job in one else before
            pairs.append(Pair(job, "", note=f"no record in {missing}"))
            continue
        left, right = _answers(before, job, one[job]), _answers(after, job, two[job])
        for task in left.keys() | right.keys():
            if task in left and task in right:
                pairs.append(_compare(job, task, left[task], right[task], timed))
            else:
                pairs.append(Pair(job, task, note="a task of one folder only"))
    if not any(pair.changes for pair in pairs):
        shared = len(one.keys() & two.keys())
        jobs = "the one job" if shared == 1 else f"none of the {shared} jobs"
        raise UserError(
            f"{before} and {after}: {jobs} in both answered the same problems, so that nothing can "
            "be compared: give two runs of one suite with the same data"
        )
    _judge([change for pair in pairs for change in pair.changes])
    facts = tuple(_facts(one, two))
    return Drift(Path(before), Path(after), facts, tuple(sorted(pairs, key=_order(one, two))))


def write_page(drift: Drift, out: Path) -> None:
    """Write the comparison as one self-contained HTML file."""
    page = environment_of_templates().get_template("drift.html.j2").render(drift=drift, level=LEVEL)
    atomic_write_text(Path(out), page)


# ---- reading -------------------------------------------------------------------------------------


def _records(folder: Path) -> dict[str, dict[str, Any]]:
    """The records below a suite's results folder, by job."""
    files = sorted((Path(folder) / "runs").glob("*/record.json"))
    if not files:
        raise UserError(
            f"{folder}: no runs/*/record.json here: give a suite's results folder, such as "
            "results/embedded"
        )
    found = {}
    for file in files:
        record = read_json(file)
        if not isinstance(record, dict) or not {"tasks", "provenance"} <= record.keys():
            raise UserError(f"{file}: damaged: no record of a decode job")
        found[file.parent.name] = record
    return found


def _answers(folder: Path, job: str, record: dict[str, Any]) -> dict[str, Answers]:
    path = Path(folder) / "runs" / job / "samples.jsonl"
    try:
        lines = sample_lines(raw_lines(path))
        return {
            task: _task_answers([line for line in lines if line["task"] == task], entry["speed"])
            for task, entry in record["tasks"].items()
        }
    except (KeyError, TypeError, ValueError) as error:
        raise UserError(f"{path}: damaged ({error!r}): delete it and run again") from None


def _task_answers(lines: list[dict[str, Any]], speed: dict[str, Any] | None) -> Answers:
    lines = sorted(lines, key=lambda line: int(line["doc_id"]))
    counts = [line["counts"] for line in lines]
    return Answers(
        prompts={int(line["doc_id"]): str(line["prompt"]) for line in lines},
        texts={int(line["doc_id"]): str(line["text"]) for line in lines},
        correct=np.array([bool(line["correct"]) for line in lines]),
        tokens=np.array([float(count["generated"]) for count in counts]),
        forwards=np.array([float(count["denoise"] + count["verify"]) for count in counts]),
        speed=speed,
    )


def _facts(
    one: dict[str, dict[str, Any]], two: dict[str, dict[str, Any]]
) -> Iterator[tuple[str, str, str]]:
    """Where the two folders' records come from."""
    names = ("git", "mrp", "device", "dtype", "seed", "backbone_hash", "head_hash")
    for name in names:
        values = []
        for records in (one, two):
            seen = {str(record["provenance"].get(name))[:16] for record in records.values()}
            values.append(", ".join(sorted(seen - {"None"})) or DASH)
        yield name.replace("_", " "), values[0], values[1]


def _order(one: dict[str, Any], two: dict[str, Any]) -> Any:
    places = {job: place for place, job in enumerate([*one, *two])}
    return lambda pair: (not pair.moved, not pair.note, places[pair.job], pair.task)


# ---- comparing -----------------------------------------------------------------------------------


def _compare(job: str, task: str, left: Answers, right: Answers, timed: bool) -> Pair:
    if left.prompts != right.prompts:
        return Pair(job, task, note="other problems: not comparable")
    pair = Pair(job, task, problems=len(left.prompts))
    pair.same_texts = sum(left.texts[doc] == right.texts[doc] for doc in left.texts)
    pair.changes = [_accuracy(left, right), _tpf(left, right)]
    if timed and left.speed is not None and right.speed is not None:
        pair.changes += _time(left.speed, right.speed)
    return pair


def _accuracy(left: Answers, right: Answers) -> Change:
    difference = paired_difference(right.correct, left.correct)
    won = int((right.correct & ~left.correct).sum())
    lost = int((left.correct & ~right.correct).sum())
    return Change(
        "accuracy",
        percent(left.correct.mean()),
        percent(right.correct.mean()),
        _with_interval(difference, points),
        mcnemar(won, lost),
    )


def _tpf(left: Answers, right: Answers) -> Change:
    both = curve(
        [left.correct, right.correct],
        [left.tokens, right.tokens],
        [left.forwards, right.forwards],
    )
    moved = both.speeds[:, 1] - both.speeds[:, 0]
    value = float(both.speed[1] - both.speed[0])
    return Change(
        "TPF",
        f"{both.speed[0]:.2f}",
        f"{both.speed[1]:.2f}",
        _with_interval(interval_of(value, moved), lambda x: signed(x, 2)),
        _normal_p(value, float(moved.std())),
    )


def _time(left: dict[str, Any], right: dict[str, Any]) -> Iterator[Change]:
    """The time ratios over static, compared on the log scale by their own intervals."""
    if None in (left["low"], left["high"], right["low"], right["high"]):
        return  # a single repeat has no interval
    error = math.hypot(*(math.log(s["high"] / s["low"]) / (2 * 1.96) for s in (left, right)))
    value = math.log(right["ratio"] / left["ratio"])
    low, high = (math.exp(value + side * 1.96 * error) for side in (-1, 1))
    yield Change(
        "time ratio",
        times(left["ratio"]),
        times(right["ratio"]),
        f"by {math.exp(value):.2f} ({low:.2f} to {high:.2f})",
        _normal_p(value, error),
    )


def _with_interval(estimate: Estimate, show: Any) -> str:
    return f"{show(estimate.value)} ({show(estimate.low)} to {show(estimate.high)})"


def _normal_p(value: float, error: float) -> float:
    """Two-sided p of a normal estimate; exact agreement and exact disagreement have no noise."""
    if error == 0:
        return 1.0 if value == 0 else 0.0
    return math.erfc(abs(value) / error / math.sqrt(2))


def _judge(changes: list[Change]) -> None:
    """Mark what moved: Holm's step-down procedure over all changes at once."""
    ordered = sorted(changes, key=lambda change: change.p)
    for place, change in enumerate(ordered):
        if change.p > LEVEL / (len(ordered) - place):
            break
        change.moved = True
