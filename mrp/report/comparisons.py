"""Rows against each other, problem by problem: against static, and remask against dynamic."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from mrp.errors import UserError
from mrp.report import contrasts
from mrp.report.contrasts import Contrast, Speed
from mrp.report.frame import Results
from mrp.report.outcomes import Outcome
from mrp.report.settings import Line
from mrp.report.statistics import (
    Curve,
    Estimate,
    gain_at_equal_speed,
    join,
    mcnemar,
    paired_difference,
)
from mrp.schema import LOSSLESS

NUMBERS = (
    *("vs_static", "vs_static_low", "vs_static_high", "vs_static_p", "won", "lost"),
    *("same_text", "compared_texts", "same_as_dynamic", "compared_to_dynamic"),
    *("vs_dynamic", "vs_dynamic_low", "vs_dynamic_high", "vs_dynamic_p"),
    *("dynamic_at_tpf", "vs_dynamic_at_tpf", "vs_dynamic_at_tpf_low", "vs_dynamic_at_tpf_high"),
    *("vs_dynamic_at_time", "vs_dynamic_at_time_low", "vs_dynamic_at_time_high"),
)
SPEEDS: dict[str, Speed] = {"tpf": contrasts.tpf, "time": contrasts.time_ratio}
DYNAMIC_DRAFTED = "freedave"  # its text has to be that of dynamic, not of static


def compare(results: Results) -> pd.DataFrame:
    """The tidy table with the columns NUMBERS; NaN where either side has no record.

    vs_static: accuracy minus static's, McNemar's p, problems won and lost. same_text: answers
    equal to static's, of compared_texts. same_as_dynamic: freedave's answers equal to those of
    dynamic at its tau, of compared_to_dynamic. vs_dynamic: remask minus dynamic at its tau.
    vs_dynamic_at_tpf, vs_dynamic_at_time: the same at its tokens per forward and per second, as
    `over_dynamic` has it. dynamic_at_tpf: the accuracy of dynamic that the former compares with.

    Raises:
        UserError: two runs answered other problems.
    """
    rows = results.rows
    values: dict[Any, dict[str, float]] = {}
    for _, cell in select(rows, status="done").groupby(["backbone", "task"], sort=False):
        bases = {cap: reference(cell, cap) for cap in {1.0, *cell["cap"].dropna()}}
        dynamic = {name: dynamic_curve(results, cell, speed) for name, speed in SPEEDS.items()}
        for index, row in cell.iterrows():
            values[index] = {}
            static = bases[cap_of(row)]
            if static is not None and static["job"] != row["job"]:
                values[index] |= _against_static(*pair(results, row, static))
            if row["mode"] == "remask":
                values[index] |= _against_dynamic(results, row, cell, dynamic)
            if row["mode"] == DYNAMIC_DRAFTED:
                values[index] |= _as_dynamic(results, row, cell)
    more = pd.DataFrame.from_dict(values, orient="index")
    more = more.reindex(index=rows.index, columns=list(NUMBERS)).astype(float)
    return pd.concat([rows, more], axis=1)


def select(rows: pd.DataFrame, **wanted: Any) -> pd.DataFrame:
    """The rows whose columns have these values; None stands for a missing one."""
    chosen = np.ones(len(rows), dtype=np.bool_)
    for name, value in wanted.items():
        column = rows[name].to_numpy()
        chosen &= pd.isna(column) if value is None else column == value
    return rows[chosen]


def reference(rows: pd.DataFrame, cap: float = 1.0) -> pd.Series[Any] | None:
    """The baseline among rows of one backbone and task: static, a step for each token."""
    found = select(rows, mode="static", steps=None, cap=cap)
    return None if found.empty else found.iloc[0]


def cap_of(row: pd.Series[Any]) -> float:
    """The cap of the static run that a row is compared to: its own, where its mode is lossless."""
    capped = row["mode"] in LOSSLESS and not pd.isna(row["cap"])
    return float(row["cap"]) if capped else 1.0


def pair(
    results: Results, first: pd.Series[Any], second: pd.Series[Any]
) -> tuple[Outcome, Outcome]:
    """The outcomes of two rows.

    Raises:
        UserError: they are of other problems.
    """
    one = results.outcomes[first["job"], first["task"]]
    two = results.outcomes[second["job"], second["task"]]
    if one.problems != two.problems:
        raise UserError(
            f"jobs {first['job']} and {second['job']} answered different problems of "
            f"{first['task']}: delete both records and run them again"
        )
    return one, two


def dynamic_curve(results: Results, cell: pd.DataFrame, speed: Speed) -> Curve | None:
    """Static's and dynamic's points (speed, accuracy) among a cell's rows.

    None where there is no dynamic run, or too few points for a line.
    """
    dynamic = select(cell, mode="dynamic")
    static = reference(cell)
    base = [*([] if static is None else [static]), *(point for _, point in dynamic.iterrows())]
    points = [point for point in (_point(results, row, speed) for row in base) if point]
    return None if dynamic.empty or len(points) < 2 else join(points)


def over_dynamic(
    results: Results, row: Line, dynamic: Curve | None, speed: Speed
) -> Contrast | None:
    """A run's accuracy minus dynamic's at the same speed (`tpf` or `time_ratio`).

    Dynamic's accuracy is read off the straight lines of `dynamic_curve`, whose slowest point also
    stands for all that is slower. None where none of its points is as fast.
    """
    run = _point(results, row, speed)
    gain = None if run is None or dynamic is None else gain_at_equal_speed(run, dynamic)
    problems = contrasts.accuracy(results, row).problems
    return None if gain is None else Contrast(gain[1], gain[2], problems)


def _point(results: Results, row: Line, speed: Speed) -> Curve | None:
    fast, right = speed(results, row), contrasts.accuracy(results, row)
    if fast is None:
        return None
    return Curve(
        np.array([fast.value]),
        np.array([right.value]),
        fast.replicates[:, None],
        right.replicates[:, None],
    )


def _against_static(one: Outcome, static: Outcome) -> dict[str, float]:
    won, lost = _disagreements(one, static)
    return {
        **_difference("vs_static", one, static),
        "won": won,
        "lost": lost,
        "same_text": int((one.texts == static.texts).sum()),
        "compared_texts": len(one.texts),
    }


def _against_dynamic(
    results: Results, row: pd.Series[Any], cell: pd.DataFrame, dynamic: dict[str, Curve | None]
) -> dict[str, float]:
    values: dict[str, float] = {}
    for _, point in select(cell, mode="dynamic").iterrows():
        outcomes = pair(results, row, point)
        if point["tau"] == row["tau"]:
            values |= _difference("vs_dynamic", *outcomes)
    for name, speed in SPEEDS.items():
        gain = over_dynamic(results, row, dynamic[name], speed)
        if gain is not None:
            values |= _columns(f"vs_dynamic_at_{name}", gain.estimate)
    if "vs_dynamic_at_tpf" in values:
        values["dynamic_at_tpf"] = row["accuracy"] - values["vs_dynamic_at_tpf"]
    return values


def _as_dynamic(results: Results, row: pd.Series[Any], cell: pd.DataFrame) -> dict[str, float]:
    same_tau = select(cell, mode="dynamic", tau=row["tau"])
    if same_tau.empty:
        return {}
    one, two = pair(results, row, same_tau.iloc[0])
    same = int((one.texts == two.texts).sum())
    return {"same_as_dynamic": same, "compared_to_dynamic": len(one.texts)}


def _difference(name: str, one: Outcome, two: Outcome) -> dict[str, float]:
    return {
        **_columns(name, paired_difference(one.correct, two.correct)),
        f"{name}_p": mcnemar(*_disagreements(one, two)),
    }


def _columns(name: str, found: Estimate) -> dict[str, float]:
    return {name: found.value, f"{name}_low": found.low, f"{name}_high": found.high}


def _disagreements(one: Outcome, two: Outcome) -> tuple[int, int]:
    """Problems that only the first, only the second got right."""
    return (
        int((one.correct & ~two.correct).sum()),
        int((~one.correct & two.correct).sum()),
    )
