"""All ways of decoding side by side: lossless by what they save, lossy by the frontier."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TypeAlias

import numpy as np
import pandas as pd

from mrp.report import contrasts
from mrp.report.cells import Cell, Group, Row, Table, mark_best, none, points, signed
from mrp.report.comparisons import reference
from mrp.report.contrasts import Contrast, pooled
from mrp.report.frame import Results
from mrp.report.pooling import (
    SETTING,
    Backbone,
    accepted_share,
    backbones,
    change,
    highest,
    jobs_of,
    knob_values,
    labels,
    level,
    mean_over,
    passes,
    speed_measure,
    split,
)
from mrp.report.settings import KNOBS, setting_name
from mrp.schema import LOSSLESS

FAST = 2.0  # tokens per forward that a lossy mode should reach to be worth its losses
Ranked: TypeAlias = "tuple[float, Row]"


def build_contest(results: Results, rows: pd.DataFrame) -> list[Table]:
    """The two tables, as far as the suite has jobs for them.

    Args:
        results: of `frame.load_results` or `frame.load_records`.
        rows: of `comparisons.compare`.
    """
    known = list(backbones(results, rows))
    return [table for table in (_lossless(known), _lossy(known)) if table.groups]


# ---- lossless ------------------------------------------------------------------------------------


def _lossless(known: list[Backbone]) -> Table:
    groups = []
    for backbone in known:
        rows = backbone.rows[backbone.rows["mode"].isin(LOSSLESS)]
        measure = speed_measure(rows)
        ranked = []
        for _, same_text in rows.groupby(rows["cap"].fillna(1.0)):
            field = _points(backbone, same_text, ("tpf", "time_ratio"))
            ways = split(same_text, SETTING)
            ranked += [_lossless_row(backbone, mine, field, measure) for mine in ways]
        ranked.sort(key=lambda item: -item[0])
        if ranked:
            better = ["", "", "high", "low", "high", ""]
            built = mark_best([row for _, row in ranked], better)
            groups.append(Group(backbone.name, backbone.note, built))
    return Table(
        "lossless",
        "Lossless ways of decoding, side by side",
        "Each with the options that make it fastest, K among them; fastest first. Self-speculative "
        "decoding drafts without any head: it is what a head has to beat. A way is on the frontier "
        "if no other of the same text, at any of its settings, has as many tokens per forward in "
        "as little time.",
        2,
        (
            *(("Way", ""), ("At", ""), ("Same as static", "answers, all its runs")),
            *(("Accepted", "% of drafts"), ("TPF", "tokens a forward")),
            *(("Head passes", "a token"), ("Time ratio", "tokens/s over static's")),
            ("Verdict", "TPF and time"),
        ),
        tuple(groups),
        "A way that caps confidences gives static's text under the same cap, which is another than "
        "without one: its answers are compared with that, and its frontier is of such ways alone.",
    )


def _lossless_row(
    backbone: Backbone, mine: pd.DataFrame, field: list[Point], measure: str
) -> Ranked:
    """A way's row at its fastest setting, with what it is ranked by."""
    best = highest(split(mine, KNOBS), measure)
    time, tpf = (
        mean_over(backbone.results, best, number)
        for number in (contrasts.time_ratio, contrasts.tpf)
    )
    same, n = mine["same_text"].sum(), mine["compared_texts"].sum()
    counted = Cell(f"{same:.0f} of {n:.0f}", tone="" if same == n else "down")
    cells = (
        replace(counted, job=" ".join(jobs_of(mine))) if n else none("static was not run"),
        accepted_share(best),
        level(tpf, "ratio"),
        passes(best),
        level(time, "ratio", "not timed"),
        _verdict(mine, field, ("TPF", "of the time ratio")),
    )
    row = Row(labels(setting_name(mine.iloc[0]), knob_values(best)), cells, jobs=jobs_of(best))
    return float(best[measure].mean()), row


def _value(contrast: Contrast | None) -> float:
    return -np.inf if contrast is None else contrast.value


# ---- lossy ---------------------------------------------------------------------------------------


def _lossy(known: list[Backbone]) -> Table:
    groups = []
    for backbone in known:
        static = backbone.rows["mode"].eq("static") & backbone.rows["steps"].isna()
        rows = backbone.rows[~backbone.rows["mode"].isin(LOSSLESS) & ~static]
        on_tpf, on_time = (_frontier(backbone, speed) for speed in ("tpf", "time_ratio"))
        fields = [_points(backbone, rows, (speed, "accuracy")) for speed in ("tpf", "time_ratio")]
        ranked = [
            _lossy_row(backbone, mine, (on_tpf, on_time), fields) for mine in split(rows, SETTING)
        ]
        ranked.sort(key=lambda item: -item[0])
        if ranked:
            better = ["high", "", "high", "high", "", ""]
            built = mark_best([row for _, row in ranked], better)
            groups.append(Group(backbone.name, backbone.note, built))
    return Table(
        "lossy",
        "Lossy ways of decoding, by the frontier",
        "A run is on the frontier of a task if no other run, static's and the lossless ones' "
        "included, is at least as accurate and at least as fast, and better in one of the two. "
        "The gains are averages over a way's own runs, where dynamic has points as fast; a run "
        "slower than static and all of dynamic's is compared with the slowest of these. The "
        "verdicts are about means over tasks, among the lossy ways alone: which settings of a way "
        "none of the others beats, or, if there is none, what beats the one that comes nearest.",
        2,
        (
            *(("Way", ""), ("Runs", "with")),
            ("Best accuracy", f"% at TPF {FAST:g} or above"),
            ("On the frontier", "runs, by TPF and time"),
            *(("Over dynamic", "points, same TPF"), ("Over dynamic", "points, same time")),
            *(("Verdict", "accuracy and TPF"), ("Verdict", "accuracy and time")),
        ),
        tuple(groups),
    )


def _lossy_row(
    backbone: Backbone,
    mine: pd.DataFrame,
    frontiers: tuple[set[object], set[object]],
    fields: list[list[Point]],
) -> Ranked:
    results = backbone.results
    on_tpf, on_time = frontiers
    fast = [
        (mean_over(results, part, contrasts.accuracy), part)
        for part in split(mine, KNOBS)
        if part["tpf"].mean() >= FAST
    ]
    best, at_best = max(fast, key=lambda item: _value(item[0]), default=(None, mine))
    timed, own = mine["time_ratio"].notna().any(), set(mine.index)
    gains: list[Cell] = []
    for speed in (contrasts.tpf, contrasts.time_ratio):
        if mine["mode"].iloc[0] == "dynamic":
            gains.append(Cell("baseline", tone="none"))
            continue
        found = [backbone.over_dynamic(row, speed) for _, row in mine.iterrows()]
        gains.append(change(pooled(found), "points", "no dynamic that fast"))
    cells = (
        replace(level(best, "percent", "none that fast"), job=" ".join(jobs_of(at_best))),
        Cell(f"{len(on_tpf & own)} and {len(on_time & own)} of {len(mine)}")
        if timed
        else Cell(f"{len(on_tpf & own)} of {len(mine)}", "not timed"),
        *gains,
        _verdict(mine, fields[0], ("TPF", "points")),
        _verdict(mine, fields[1], ("of the time ratio", "points")),
    )
    named = labels(setting_name(mine.iloc[0]), knob_values(mine))
    return _value(best), Row(named, cells, jobs=jobs_of(mine))


def _frontier(backbone: Backbone, speed: str) -> set[object]:
    """The index of every row that no other of its task beats."""
    found: set[object] = set()
    for _, cell in backbone.rows.groupby("task", sort=False):
        fast = cell[speed].to_numpy(float, copy=True)
        static = reference(cell)
        if static is not None:
            fast[cell["job"].to_numpy() == static["job"]] = 1.0  # by definition, in both measures
        known = ~np.isnan(fast)
        x, y = fast[known], cell["accuracy"].to_numpy(float)[known]
        as_good = (x[None, :] >= x[:, None]) & (y[None, :] >= y[:, None])
        better = as_good & ((x[None, :] > x[:, None]) | (y[None, :] > y[:, None]))
        best = np.flatnonzero(known)[np.flatnonzero(~better.any(axis=1))]
        found |= set(cell.index[best])
    return found


# ---- verdicts on one frontier --------------------------------------------------------------------


@dataclass(frozen=True)
class Point:
    """A setting's means over tasks of two measures; more is better in both."""

    jobs: frozenset[str]
    name: str
    at: str
    values: tuple[float, float]

    def beaten_by(self, other: Point) -> bool:
        """Whether `other` is at least as good in both and better in one."""
        pairs = list(zip(self.values, other.values, strict=True))
        return all(a <= b for a, b in pairs) and any(a < b for a, b in pairs)


def _points(backbone: Backbone, rows: pd.DataFrame, measures: tuple[str, str]) -> list[Point]:
    """Every setting that has both measures on all of the backbone's tasks."""
    tasks = backbone.rows["task"].nunique()
    found = []
    for part in split(rows, [*SETTING, *KNOBS]):
        first, second = (part[measure] for measure in measures)
        if len(part) == tasks and first.notna().all() and second.notna().all():
            values = (float(first.mean()), float(second.mean()))
            name = setting_name(part.iloc[0])
            found.append(Point(frozenset(part["job"]), name, knob_values(part), values))
    return found


def _verdict(mine: pd.DataFrame, field: list[Point], units: tuple[str, str]) -> Cell:
    """Which of a way's settings are on the frontier, or what its nearest one is dominated by."""
    jobs = set(mine["job"])
    own = [point for point in field if point.jobs <= jobs]
    if not own:
        return none("not timed" if len(mine) else "")
    best = [point for point in own if not any(map(point.beaten_by, field))]
    if best:
        there = frozenset().union(*(point.jobs for point in best))
        at = knob_values(mine[mine["job"].isin(there)])
        return Cell("on the frontier", at, tone="said up")
    # The nearest is the one that the fewest beat; what beats it most is named.
    nearest = min(own, key=lambda point: sum(map(point.beaten_by, field)))
    rivals = [point for point in field if nearest.beaten_by(point)]
    spread = [max(p.values[i] for p in field) - min(p.values[i] for p in field) for i in (0, 1)]
    ahead = max(
        rivals,
        key=lambda rival: sum(
            (theirs - ours) / width if width else 0.0
            for theirs, ours, width in zip(rival.values, nearest.values, spread, strict=True)
        ),
    )
    gaps = [theirs - ours for theirs, ours in zip(ahead.values, nearest.values, strict=True)]
    by = ", ".join(filter(None, (ahead.name, ahead.at)))
    told = " and ".join(
        f"{points(gap)} points" if unit == "points" else f"{signed(gap, 2)} {unit}"
        for gap, unit in zip(gaps, units, strict=True)
    )
    here = f"{nearest.at}: " if nearest.at else ""
    return Cell(f"dominated by {by}", f"{here}{told} ahead", tone="said")
