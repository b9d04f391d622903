"""Claims about remasking: what it gains at the same tau, at the same TPF, in the same time."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import pandas as pd

from mrp.report import contrasts
from mrp.report.comparisons import select
from mrp.report.contrasts import Contrast, Speed, over_dynamic, pooled
from mrp.report.findings.place import Place
from mrp.report.findings.readings import Measured
from mrp.report.settings import Line, is_usual, setting_name

LOW_TAU = 0.6  # what the paper's gains are at: 0.5 and 0.6
HALVES = "halves"
Gain = Callable[[Place, Line], Contrast | None]


def at_equal_tau(place: Place, row: Line) -> Contrast | None:
    """Accuracy over dynamic's at the same tau."""
    found = select(place.rows, mode="dynamic", tau=row["tau"])
    return None if found.empty else place.accuracy(row) - place.accuracy(found.iloc[0])


def at_equal_tpf(place: Place, row: Line) -> Contrast | None:
    """Accuracy over dynamic's at the same tokens per forward."""
    return _over_dynamic(place, row, contrasts.tpf)


def at_equal_time(place: Place, row: Line) -> Contrast | None:
    """Accuracy over dynamic's at the same tokens per second."""
    return _over_dynamic(place, row, contrasts.time_ratio)


def _over_dynamic(place: Place, row: Line, speed: Speed) -> Contrast | None:
    return over_dynamic(place.results, row, place.dynamic[speed], speed)


def papers_way(gain: Gain) -> Callable[[Place], Iterator[Measured]]:
    """One pass of the head over the ids after the reveal, by confidence."""

    def judge(place: Place) -> Iterator[Measured]:
        rows = select(place.rows, mode="remask")
        return _gains(place, rows[is_usual(rows)], gain)

    return judge


def by_halves(gain: Gain) -> Callable[[Place], Iterator[Measured]]:
    """Two passes, each fresh token judged with its half masked."""

    def judge(place: Place) -> Iterator[Measured]:
        rows = select(place.rows, mode="remask", passes=HALVES)
        return _gains(place, rows[is_usual(rows, but=("passes",))], gain)

    return judge


def _gains(place: Place, rows: pd.DataFrame, gain: Gain) -> Iterator[Measured]:
    if rows.empty:
        return
    for name, mine in rows.groupby(rows.apply(setting_name, axis=1), sort=False):
        taus = low_taus(mine["tau"].tolist())
        found = [gain(place, row) for _, row in mine.iterrows() if row["tau"] in taus]
        total = pooled(found)
        if total is not None:
            known = [tau for tau, one in zip(taus, found, strict=True) if one is not None]
            quantity = f"over dynamic, over τ = {', '.join(f'{tau:g}' for tau in known)}"
            yield Measured(str(name), quantity, total, "points", above=0)


def low_taus(taus: Sequence[float]) -> list[float]:
    """Those up to LOW_TAU, or the lowest."""
    return [tau for tau in taus if tau <= LOW_TAU + 1e-9] or [min(taus)]
