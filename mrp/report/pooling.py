"""Rows of one setting on several tasks, and over a knob's values, as one row of a table.

Tables of many settings show means over a backbone's tasks and over K or tau, with bootstrap
intervals; the numbers of each task and each value stand in the paper's tables.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TypeAlias

import pandas as pd

from mrp.report import contrasts
from mrp.report.cells import (
    DASH,
    Cell,
    lookahead,
    none,
    percent,
    percent_span,
    points,
    signed,
    signed_span,
    span,
)
from mrp.report.comparisons import SPEEDS, dynamic_curve, over_dynamic, select
from mrp.report.contrasts import Contrast, Speed, pooled, share_of
from mrp.report.frame import Results
from mrp.report.settings import KNOBS, Line, is_usual
from mrp.report.statistics import Curve, Estimate
from mrp.schema import OPTIONS

Number: TypeAlias = Speed
# What makes runs one row: all but their K, tau and the like.
SETTING = ["mode", "head", "head_source", *(name for name in OPTIONS if name not in KNOBS)]
SWEEP = 3  # values of K that make a sweep: heads of other depths have two
SYMBOLS = {"k": "K", "tau": "τ", "gamma": "\N{GREEK SMALL LETTER GAMMA}"}
NUMBERS: dict[str, Number] = {
    "accuracy": contrasts.accuracy,
    "tpf": contrasts.tpf,
    "time": contrasts.time_ratio,
}


@dataclass(frozen=True)
class Backbone:
    """One backbone, without the heads' repetitions.

    Attributes:
        rows: with a record; planned: these and those without.
    """

    results: Results
    name: str
    rows: pd.DataFrame
    planned: pd.DataFrame

    def cell(self, task: str) -> pd.DataFrame:
        """The rows on one task."""
        return select(self.rows, task=task)

    @cached_property
    def dynamic(self) -> dict[tuple[str, Number], Curve | None]:
        """Dynamic's points (speed, accuracy), by task and measure of speed."""
        return {
            (str(task), speed): dynamic_curve(self.results, self.cell(task), speed)
            for task in self.rows["task"].unique()
            for speed in SPEEDS.values()
        }

    def over_dynamic(self, row: Line, speed: Number) -> Contrast | None:
        """A run's accuracy minus dynamic's at the same speed."""
        return over_dynamic(self.results, row, self.dynamic[row["task"], speed], speed)

    @property
    def note(self) -> str:
        """What its rows are means over, and how many runs are missing."""
        tasks = list(self.rows["task"].unique())
        over = f"mean over {' and '.join(tasks)}" if len(tasks) > 1 else str(tasks[0])
        missing = self.planned["job"].nunique() - self.rows["job"].nunique()
        return f"{over}; {missing} runs missing" if missing else over


def backbones(results: Results, rows: pd.DataFrame) -> Iterator[Backbone]:
    """Those with any record, in the suite's order."""
    for name, mine in rows[rows["head_seed_of"].isna()].groupby("backbone", sort=False):
        done = select(mine, status="done")
        if not done.empty:
            yield Backbone(results, str(name), done, mine)


def mean_over(results: Results, rows: pd.DataFrame, number: Number) -> Contrast | None:
    """A number's mean over rows; None where none has it."""
    return pooled([number(results, row) for _, row in rows.iterrows()])


def knob_values(rows: pd.DataFrame) -> str:
    """K = 1, 2, 3."""
    texts = []
    for name in KNOBS:
        values = sorted(set(rows[name].dropna())) if name in rows else []
        if values:
            symbol = SYMBOLS.get(name, name.replace("_", " "))
            shown = (lookahead(value) if name == "k" else f"{value:g}" for value in values)
            texts.append(f"{symbol} = {', '.join(shown)}")
    return "; ".join(texts)


# ---- cells ---------------------------------------------------------------------------------------


def level(contrast: Contrast | None, unit: str, lacking: str = DASH) -> Cell:
    """A number with its interval: "percent", or a ratio."""
    if contrast is None:
        return none(lacking)
    if unit == "percent":
        found = share_of(contrast)
        detail = percent_span(found.low, found.high)
        return Cell(percent(found.value), detail, value=found.value, scale=100)
    found = contrast.estimate
    detail = _without_width(contrast) if contrast.flat else span(found.low, found.high)
    return Cell(f"{found.value:.2f}", detail, value=found.value)


def change(contrast: Contrast | None, unit: str, lacking: str = DASH) -> Cell:
    """A difference with its interval, "points" or a ratio's; coloured where that is off zero."""
    if contrast is None:
        return none(lacking)
    found = contrast.estimate
    tone = "up" if found.low > 0 else "down" if found.high < 0 else ""
    if unit == "points":
        text, detail, scale = points(found.value), _points_span(found), 100
    else:
        text, detail, scale = signed(found.value, 2), signed_span(found.low, found.high), 1
    if contrast.flat:
        detail = _without_width(contrast)
    return Cell(text, detail, value=found.value, tone=tone, scale=scale)


def _points_span(found: Estimate) -> str:
    return f"{points(found.low)} to {points(found.high)}"


def _without_width(contrast: Contrast) -> str:
    """In place of an interval: no problem differs, or nothing was measured (static's own time)."""
    return "" if contrast.problems is None else "no spread over problems"


def accepted_share(rows: pd.DataFrame) -> Cell:
    """Drafts that were accepted, of all that were proposed, in %; empty where none was."""
    proposed = float(rows["proposed"].sum())
    if not proposed:
        return none("")
    share = float(rows["accepted"].sum()) / proposed
    return Cell(percent(share), value=share, scale=100)


def passes(rows: pd.DataFrame) -> Cell:
    """Head passes for each token."""
    mean = float(rows["head_per_token"].mean())
    return Cell(f"{mean:.2f}", value=mean)


def jobs_of(rows: pd.DataFrame) -> tuple[str, ...]:
    """The runs that rows are of."""
    return tuple(dict.fromkeys(map(str, rows["job"])))


def labels(*texts: str) -> tuple[Cell, ...]:
    """Plain label cells."""
    return tuple(map(Cell, texts))


def split(rows: pd.DataFrame, columns: Sequence[str]) -> list[pd.DataFrame]:
    """Rows split by the values of columns, in order of first appearance."""
    return [part for _, part in rows.groupby(list(columns), sort=False, dropna=False)]


# ---- choices of rows -----------------------------------------------------------------------------


def over_k(rows: pd.DataFrame) -> pd.DataFrame:
    """Those with a K and without further options: what shows the worth of a lookahead."""
    plain: pd.DataFrame = rows[is_usual(rows) & rows["k"].notna() & rows["tau"].isna()]
    return plain


def sweeps(rows: pd.DataFrame) -> list[pd.DataFrame]:
    """The ways without further options that were run with SWEEP or more values of K."""
    return [mine for mine in split(over_k(rows), SETTING) if mine["k"].nunique() >= SWEEP]


def speed_measure(rows: pd.DataFrame) -> str:
    """By which column the fastest of rows is chosen: the clock's, if all of them were timed."""
    return "time_ratio" if rows["time_ratio"].notna().all() else "tpf"


def highest(parts: Sequence[pd.DataFrame], measure: str) -> pd.DataFrame:
    """The part whose mean of a column is the highest."""
    best: pd.DataFrame = max(parts, key=lambda part: float(part[measure].mean()))
    return best
