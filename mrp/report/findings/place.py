"""One backbone on one task, as the claims look at it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import pandas as pd

from mrp.report import contrasts
from mrp.report.comparisons import SPEEDS, dynamic_curve, reference, select
from mrp.report.contrasts import Contrast, Speed
from mrp.report.frame import Results
from mrp.report.settings import Line, is_usual, usual_reveal
from mrp.report.statistics import Curve
from mrp.schema import OPTIONS

LOW_TAU = 0.6  # what the paper's gains are at: 0.5 and 0.6


@dataclass(frozen=True)
class Head:
    """A head that the claims are about: one of each way of training."""

    name: str
    variant: str
    source: str


@dataclass(frozen=True)
class Place:
    """The rows with a record of one backbone on one task.

    Attributes:
        rows: those that claims are judged by, one for each setting.
        every: all of them, those of repeated heads too.
        planned: the place with all rows that the suite plans; None where that is this one.
    """

    results: Results
    backbone: str
    task: str
    rows: pd.DataFrame
    every: pd.DataFrame
    planned: Place | None = None

    @property
    def title(self) -> str:
        """How texts call it."""
        return f"{self.backbone} · {self.task}"

    @cached_property
    def usual(self) -> list[Line]:
        """The rows without ablations: claims are about these."""
        return list(self.rows[is_usual(self.rows)].to_dict("records"))

    @cached_property
    def static(self) -> Line | None:
        """The baseline."""
        return reference(self.rows)

    @cached_property
    def dynamic(self) -> dict[Speed, Curve | None]:
        """Dynamic's points (speed, accuracy), by the measure of speed."""
        return {speed: dynamic_curve(self.results, self.rows, speed) for speed in SPEEDS.values()}

    def heads(self, *variants: str) -> list[Head]:
        """The main head of each of these variants: the one named like it, if any is.

        A released head goes before one that was trained here, if the suite has both: what a suite
        trains beside its released heads is there to be run, not to be judged. It is the main one
        of the plan: where its runs are missing, no other head stands in.
        """
        found: list[Head] = []
        for variant in variants:
            heads = {
                Head(str(row["head"]), variant, str(row["head_source"]))
                for row in (self.planned or self).usual
                if row["head_variant"] == variant
            }
            first = min(heads, key=_preference, default=None)
            found += [] if first is None else [first]
        return found

    def of(self, mode: str, head: Head | None = None) -> dict[float, Line]:
        """A mode's usual rows by its knob, K or tau, in rising order."""
        rows = [row for row in self.usual if row["mode"] == mode]
        if head is not None:
            wanted = (head.name, head.source)
            rows = [row for row in rows if (row["head"], row["head_source"]) == wanted]
        by_knob = {float(row["tau"] if pd.isna(row["k"]) else row["k"]): row for row in rows}
        return dict(sorted(by_knob.items()))

    def depths(self, mode: str) -> dict[int, dict[float, Line]]:
        """By number of layers and K: the rows of heads that differ in nothing else."""
        by_source: dict[str, dict[int, dict[float, Line]]] = {}
        for row in self.usual:
            family = (row["mode"], row["head_variant"]) == (mode, "default")
            if family and usual_reveal(row) and not pd.isna(row["head_layers"]):
                by_layers = by_source.setdefault(str(row["head_source"]), {})
                by_layers.setdefault(int(row["head_layers"]), {}).setdefault(row["k"], row)
        return max(by_source.values(), key=len, default={})

    def low_taus(self, rows: pd.DataFrame) -> list[float]:
        """The low tau among those that the suite plans for remasking in the way of these rows."""
        if rows.empty:
            return []
        planned = (self.planned or self).rows
        same = select(planned, **{name: rows[name].iloc[0] for name in ("mode", "passes")})
        return low_taus(same["tau"].tolist())

    def accuracy(self, row: Line) -> Contrast:
        """A row's share of right answers."""
        return contrasts.accuracy(self.results, row)

    def tpf(self, row: Line) -> Contrast:
        """A row's tokens per forward."""
        return contrasts.tpf(self.results, row)

    def time(self, row: Line) -> Contrast | None:
        """A row's tokens per second over static's."""
        return contrasts.time_ratio(self.results, row)


def _preference(head: Head) -> tuple[str, bool, str]:
    """Released heads first, then one that is called like its variant."""
    return head.source, head.name != head.variant, head.name


def low_taus(taus: Sequence[float]) -> list[float]:
    """Those up to LOW_TAU, or the lowest."""
    return [tau for tau in taus if tau <= LOW_TAU + 1e-9] or [min(taus)]


def places(results: Results, rows: pd.DataFrame) -> Iterator[list[Place]]:
    """Every backbone and task: with the heads themselves, then with each of their repetitions."""
    for (backbone, task), cell in rows.groupby(["backbone", "task"], sort=False):
        at = (results, str(backbone), str(task))
        done = select(cell, status="done")
        if done.empty:
            continue
        yield [
            Place(*at, select(seed_rows, status="done"), done, Place(*at, seed_rows, cell))
            for seed_rows in _by_seed(cell)
        ]


def _by_seed(cell: pd.DataFrame) -> Iterator[pd.DataFrame]:
    """The rows of the heads themselves; then with those of another seed in their place.

    A repeated head takes the name of the one that it repeats. Where a setting was not run with it,
    the row of the head itself stays.
    """
    main = cell[cell["head_seed_of"].isna()]
    yield main
    again = cell[cell["head_seed_of"].notna()]
    seeds = {str(name): list(rows["head"].unique()) for name, rows in again.groupby("head_seed_of")}
    for number in range(max(map(len, seeds.values()), default=0)):
        chosen = {heads[number]: name for name, heads in seeds.items() if number < len(heads)}
        rows = again[again["head"].isin(chosen)].copy()
        rows["head"] = rows["head"].map(chosen)
        taken = set(_keys(rows))
        left = [key not in taken for key in _keys(main)]
        yield pd.concat([main[left], rows])


def _keys(rows: pd.DataFrame) -> list[tuple[str, ...]]:
    columns = ["mode", "head", *OPTIONS]
    return [tuple(map(str, values)) for values in rows[columns].itertuples(index=False)]
