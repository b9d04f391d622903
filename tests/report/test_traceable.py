"""Any number of any table can be computed again from the samples, by code that is not the report's.

The page says which runs a number comes from: its cell, or its row.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from functools import cache
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np
import pytest

from mrp.report.frame import Results
from mrp.report.page import write_tables
from tests.report.conftest import N
from tests.report.synthetic import Written
from tests.report.test_page import POOLED, Box, Page

TASKS = ("mini_math", "mini_code")
HEAD = ("head_draft", "head_remask", "head_store")
OWN = ("Sampling",)  # an interval: a bootstrap
EVERY_TABLE = 8
RANDOM = 50
Run = tuple[str, str]  # job, task


class Samples:
    """What samples.jsonl and the timing of record.json say of a run."""

    def __init__(self, written: Written) -> None:
        self.written = written

    @cache  # noqa: B019 - one object a module
    def lines(self, run: Run) -> list[dict[str, Any]]:
        path = self.written.layout.run_dir(run[0]) / "samples.jsonl"
        every = map(json.loads, path.read_text("utf-8").splitlines())
        return [line for line in every if line["task"] == run[1]]

    @cache  # noqa: B019
    def job(self, job: str) -> dict[str, Any]:
        path = self.written.layout.run_dir(job) / "record.json"
        record: dict[str, Any] = json.loads(path.read_text("utf-8"))
        return record

    def count(self, run: Run, *names: str) -> int:
        return sum(line["counts"][name] for line in self.lines(run) for name in names)

    def accuracy(self, run: Run) -> float:
        return sum(line["correct"] for line in self.lines(run)) / N

    def tpf(self, run: Run) -> float:
        return self.count(run, "generated") / self.count(run, "denoise", "verify")

    def head(self, run: Run) -> float:
        return self.count(run, *HEAD) / self.count(run, "generated")

    def time(self, run: Run) -> float:
        speed = self.job(run[0])["tasks"][run[1]]["speed"]
        return 1.0 if speed is None else float(speed["ratio"])

    def same(self, run: Run, other: str) -> int:
        pairs = zip(self.lines(run), self.lines((other, run[1])), strict=True)
        return sum(one["text"] == two["text"] for one, two in pairs)

    def backbone(self, run: Run) -> str:
        return str(self.job(run[0])["job"]["backbone"])

    def static(self, run: Run, capped: bool) -> str:
        cap = self.job(run[0])["job"]["cap"]
        own = capped and cap not in (None, 1.0)
        return f"{self.backbone(run)}.mini.static" + (f".cap{cap:g}" if own else "")

    def dynamic(self, run: Run) -> str:
        return f"{self.backbone(run)}.mini.dynamic.tau{self.job(run[0])['job']['tau']:g}"

    def there(self, run: Run, speed: Callable[[Run], float]) -> float | None:
        """Dynamic's accuracy at a run's speed, on lines through static's and its own points.

        What is slower than all of them is compared with the slowest.
        """
        name = self.backbone(run)
        jobs = [f"{name}.mini.static", *(f"{name}.mini.dynamic.tau{t}" for t in (0.5, 0.7, 0.9))]
        points = sorted((speed((job, run[1])), self.accuracy((job, run[1]))) for job in jobs)
        x, y = map(list, zip(*points, strict=True))
        at = speed(run)
        return float(np.interp(at, x, y)) if at <= x[-1] else None

    def over_dynamic(self, runs: list[Run], speed: Callable[[Run], float]) -> float:
        known = [(run, self.there(run, speed)) for run in runs]
        return fmean(self.accuracy(run) - there for run, there in known if there is not None)


def of_one_run(samples: Samples, box: Box) -> float:
    """A number of the paper's tables and of the one of other modes: of one run on one task."""
    run = (str(box.attributes["data-job"]), box.group.split(" · ")[1])
    lossless = box.table == "speculative" or "lattice" in run[0]
    static = (samples.static(run, lossless), run[1])
    decoding = samples.count(run, "denoise", "verify")
    made = samples.count(run, "generated")
    if box.column == "Same as baseline":
        return samples.same(run, static[0] if lossless else samples.dynamic(run)) / N
    if box.column.startswith(("Gain", "Dynamic")):
        there = samples.there(run, samples.tpf)
        if box.column == "Gain at equal τ":
            there = samples.accuracy((samples.dynamic(run), run[1]))
        assert there is not None
        return there if box.column == "Dynamic" else samples.accuracy(run) - there
    values: dict[str, Callable[[], float]] = {
        "Accuracy": lambda: samples.accuracy(run),
        "vs static": lambda: samples.accuracy(run) - samples.accuracy(static),
        "Same as static": lambda: samples.same(run, static[0]) / N,
        "Accepted": lambda: samples.count(run, "accepted") / samples.count(run, "proposed"),
        "TPF": lambda: samples.tpf(run),
        "TPF end to end": lambda: made / (decoding + samples.count(run, "prefill")),
        "Forwards": lambda: decoding / N,
        "Head passes": lambda: samples.head(run),
        "Vetoed": lambda: samples.count(run, "vetoed") / made,
        "Time ratio": lambda: samples.time(run),
    }
    return samples.accuracy(run) if box.column.startswith("K =") else values[box.column]()


def of_several(samples: Samples, box: Box, before: list[Box]) -> float:
    """A number of the tables of means; `before` are the two boxes to the left."""
    jobs = str(box.attributes.get("data-job") or box.jobs).split()
    runs = [(job, task) for job in jobs for task in TASKS]
    measure = {
        "Accuracy": samples.accuracy,
        "Best accuracy": samples.accuracy,
        "TPF": samples.tpf,
        "Time ratio": samples.time,
        "Head passes": samples.head,
    }
    if box.column in measure:
        return fmean(map(measure[box.column], runs))
    if box.column == "Accepted":
        accepted, proposed = (
            sum(samples.count(run, name) for run in runs) for name in ("accepted", "proposed")
        )
        return accepted / proposed
    if box.column == "Difference":
        usual, here = (of_several(samples, one, []) for one in before)
        return here - usual
    if box.column == "Spread":
        by_head: dict[str, list[float]] = {}
        number = samples.tpf if box.unit == "tokens a forward" else samples.accuracy
        for run in runs:
            by_head.setdefault(samples.job(run[0])["job"]["head"], []).append(number(run))
        means = [fmean(values) for values in by_head.values()]
        return (max(means) - min(means)) * (1 if number == samples.tpf else 100)
    assert box.column in ("Gain", "Over dynamic")
    if box.unit.endswith("same τ"):
        gains = (
            samples.accuracy(run) - samples.accuracy((samples.dynamic(run), run[1])) for run in runs
        )
        return fmean(gains)
    speed = samples.time if box.unit.endswith("same time") else samples.tpf
    return samples.over_dynamic(runs, speed)


@pytest.fixture(scope="module")
def boxes(replica_results: Results, tmp_path_factory: pytest.TempPathFactory) -> list[Box]:
    out: Path = tmp_path_factory.mktemp("traceable")
    write_tables(replica_results, None, out)
    page = Page()
    page.feed((out / "tables.html").read_text("utf-8"))
    return page.boxes


def test_random_cells_of_every_table(replica: Written, boxes: list[Box]) -> None:
    places = [
        place
        for place, box in enumerate(boxes)
        if "data-value" in box.attributes and box.column not in OWN
    ]
    by_table: dict[str, list[int]] = {}
    for place in places:
        by_table.setdefault(boxes[place].table, []).append(place)
    assert set(by_table) == {
        *("residual-or-direct", "speculative", "direct", "remask", "others"),
        *POOLED,
    }
    luck = random.Random(0)
    chosen = luck.sample(places, RANDOM)
    for found in by_table.values():
        chosen += luck.sample(found, min(EVERY_TABLE, len(found)))
    samples = Samples(replica)
    for place in chosen:
        box = boxes[place]
        if box.table in POOLED:
            value = of_several(samples, box, boxes[place - 2 : place])
        else:
            value = of_one_run(samples, box)
        shown = float(box.attributes["data-value"] or "")
        assert shown == pytest.approx(value, rel=1e-5, abs=1e-6), (box, value)


def test_counts_of_same_answers(replica: Written, boxes: list[Box]) -> None:
    """The table of lossless ways says it in words: over all runs of a way."""
    samples = Samples(replica)
    counted = [box for box in boxes if (box.table, box.column) == ("lossless", "Same as static")]
    assert counted
    for box in counted:
        runs = [(job, task) for job in str(box.attributes["data-job"]).split() for task in TASKS]
        same = sum(samples.same(run, samples.static(run, capped=True)) for run in runs)
        assert box.number == f"{same} of {len(runs) * N}"


def test_every_job_of_the_suite_has_a_row(replica: Written, boxes: list[Box]) -> None:
    shown = {
        job for box in boxes for job in f"{box.attributes.get('data-job') or ''} {box.jobs}".split()
    }
    assert shown == {path.name for path in (replica.layout.root / "runs").iterdir()}
