"""Claims about remasking: what it gains at the same tau, at the same TPF, in the same time."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace

import numpy as np
import pandas as pd

from mrp.report import contrasts
from mrp.report.comparisons import over_dynamic, pair, select
from mrp.report.contrasts import Contrast, Speed, mean, pooled
from mrp.report.findings.place import LOW_TAU, Place
from mrp.report.findings.readings import Measured, Quotient
from mrp.report.settings import Line, is_usual, setting_name
from mrp.report.statistics import Bools, Floats, weights

HALVES = "halves"
MORE_POINTS = 1.5  # times what one pass recovers: what a better rule has to recover
MORE_PERCENT = 15  # of one pass's time: what it may take on top
MORE_TIME = 1 + MORE_PERCENT / 100
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
    low = place.low_taus(rows)
    for name, mine in rows.groupby(rows.apply(setting_name, axis=1), sort=False):
        mine = mine[mine["tau"].isin(low)]
        found = {row["tau"]: gain(place, row) for _, row in mine.iterrows()}
        total = pooled(list(found.values()))
        if total is not None:
            # The same words everywhere, so that places with and without such a tau are pooled.
            quantity = f"over dynamic, over τ = {_listed(found)}"
            left_out = [tau for tau, one in found.items() if one is None]
            note = f"not at τ = {_listed(left_out)}, where no dynamic is as fast"
            note = note if left_out else ""
            yield Measured(str(name), quantity, total, "points", above=0, note=note)


def _listed(taus: Iterable[float]) -> str:
    return ", ".join(f"{tau:g}" for tau in taus)


# ---- recovery: what the two-pass rules bring beside one pass -------------------------------------


def recovery(place: Place) -> Iterator[Measured]:
    """Points over dynamic at the lowest tau: the best two-pass variant's over one pass's.

    The variant is chosen on one half of the problems and judged on the other, both ways round: of
    those that are surely within the time allowed, if any is, the most accurate one.
    """
    planned = (place.planned or place).rows
    tau = lowest_tau(planned)
    if tau is None:
        return
    at = select(place.rows, tau=tau)
    dynamic, one = select(at, mode="dynamic"), select(at, mode="remask", passes="one")
    one, variants = one[is_usual(one)], select(at, mode="remask", passes=HALVES)
    if dynamic.empty or one.empty or variants.empty:
        return
    base, usual = dynamic.iloc[0], one.iloc[0]
    candidates = _in_time(place, [row for _, row in variants.iterrows()], usual)
    chosen, right = _by_the_other_half(place, candidates)
    lost = pair(place.results, usual, base)[1].correct
    gain = _share(right) - _share(lost)
    gain_of_one = place.accuracy(usual) - place.accuracy(base)
    names = " or ".join(dict.fromkeys(setting_name(row) for row in chosen))
    at_tau = f"at τ = {tau:g}"
    subject = "two passes"
    yield Measured(subject, f"recovered {at_tau}", gain, "points", note=names)
    yield Measured(subject, "recovered by one pass", gain_of_one, "points")
    goal = replace(
        gain_of_one,
        value=MORE_POINTS * gain_of_one.value,
        replicates=MORE_POINTS * gain_of_one.replicates,
    )
    beyond = gain - goal
    quantity = f"beyond {MORE_POINTS:g} times that"
    yield Measured(subject, quantity, beyond, "points", above=0, goal=True)
    if gain_of_one.estimate.low > 0:  # else a quotient means nothing
        yield Quotient.of(subject, "of one pass's points", gain, gain_of_one)
    rounds = mean(place.tpf(row) for row in chosen)
    yield Quotient.of(subject, "of its rounds", place.tpf(usual), rounds)
    times = pooled([place.time(row) for row in chosen])
    time_of_one = place.time(usual)
    if times is not None and time_of_one is not None:
        yield Quotient.of(
            subject, f"of its time, at most {MORE_TIME:g}", time_of_one, times, below=MORE_TIME
        )


def lowest_tau(rows: pd.DataFrame) -> float | None:
    """The lowest tau planned for dynamic and both kinds of remasking; None if above LOW_TAU."""
    remask = select(rows, mode="remask")
    kinds = (
        select(rows, mode="dynamic"),
        select(remask, passes="one"),
        select(remask, passes=HALVES),
    )
    common = set.intersection(*(set(part["tau"]) for part in kinds))
    low = [tau for tau in common if tau <= LOW_TAU + 1e-9]
    return min(low, default=None)


def _in_time(place: Place, variants: list[Line], one: Line) -> list[Line]:
    """The variants within the time allowed.

    Those whose whole interval is within it; else those that were measured so; else all of them.
    """
    limit = place.time(one)
    times = [place.time(row) for row in variants]
    more = [None if limit is None or time is None else (limit / time).estimate for time in times]
    for bound in ("high", "value"):
        fast = [
            row
            for row, found in zip(variants, more, strict=True)
            if found is not None and getattr(found, bound) <= MORE_TIME
        ]
        if fast:
            return fast
    return variants


def _by_the_other_half(place: Place, variants: Sequence[Line]) -> tuple[list[Line], Bools]:
    """The variant chosen for each half of the problems, and which answers are right [n]."""
    outcomes = [place.results.outcomes[row["job"], row["task"]].correct for row in variants]
    even = np.arange(len(outcomes[0])) % 2 == 0
    right = np.zeros(len(even), dtype=np.bool_)
    chosen = []
    for judged in (even, ~even):
        best = max(range(len(variants)), key=lambda number: int(outcomes[number][~judged].sum()))
        right[judged] = outcomes[best][judged]
        chosen.append(variants[best])
    return chosen, right


def _share(right: Bools) -> Contrast:
    """A share of right answers with its resamples."""
    values: Floats = right.astype(np.float64)
    n = len(values)
    return Contrast(float(values.mean()), weights(n) @ values / n, n)
