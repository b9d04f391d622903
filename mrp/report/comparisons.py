"""Rows against each other, problem by problem: against static, and remask against dynamic."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import pandas as pd

from mrp.errors import UserError
from mrp.report.frame import Results
from mrp.report.outcomes import Outcome
from mrp.report.statistics import (
    Curve,
    Floats,
    gain_at_equal_speed,
    join,
    mcnemar,
    paired_difference,
    percentile,
)
from mrp.schema import LOSSLESS

NUMBERS = (
    *("vs_static", "vs_static_low", "vs_static_high", "vs_static_p", "won", "lost"),
    *("same_text", "compared_texts", "same_as_dynamic", "compared_to_dynamic"),
    *("vs_dynamic", "vs_dynamic_low", "vs_dynamic_high", "vs_dynamic_p"),
    *("dynamic_at_tpf", "vs_dynamic_at_tpf", "vs_dynamic_at_tpf_low", "vs_dynamic_at_tpf_high"),
)


DYNAMIC_DRAFTED = "freedave"  # its text has to be that of dynamic, not of static


def compare(results: Results) -> pd.DataFrame:
    """The tidy table with the columns NUMBERS; NaN where either side has no record.

    vs_static: accuracy minus static's, McNemar's p, problems won and lost. same_text: answers
    equal to static's, of compared_texts. same_as_dynamic: freedave's answers equal to those of
    dynamic at its tau, of compared_to_dynamic. vs_dynamic: remask minus dynamic at its tau.
    dynamic_at_tpf: accuracy on the line through static's and dynamic's points at the row's TPF.

    Raises:
        UserError: two runs answered other problems.
    """
    rows = results.rows
    values: dict[Any, dict[str, float]] = {}
    for _, cell in select(rows, status="done").groupby(["backbone", "task"], sort=False):
        bases = {cap: reference(cell, cap) for cap in {1.0, *cell["cap"].dropna()}}
        for index, row in cell.iterrows():
            values[index] = {}
            static = bases[cap_of(row)]
            if static is not None and static["job"] != row["job"]:
                values[index] |= _against_static(*pair(results, row, static))
            if row["mode"] == "remask":
                values[index] |= _against_dynamic(results, row, cell)
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


def curve_of(results: Results, rows: Iterable[pd.Series[Any]]) -> Curve:
    """The points (TPF, accuracy) of rows of one backbone and task."""
    listed = list(rows)
    for row in listed:
        pair(results, row, listed[0])
    return join([results.points[row["job"], row["task"]] for row in listed])


def gain_at_equal_tpf(
    results: Results, row: pd.Series[Any], cell: pd.DataFrame
) -> tuple[float, float, Floats] | None:
    """Dynamic's accuracy at the row's TPF, the row's gain over it, the gain's replicates.

    None where dynamic has no record, or none of its points is as fast.
    """
    points = select(cell, mode="dynamic")
    if points.empty:
        return None
    pair(results, row, points.iloc[0])
    static = reference(cell)
    base = [] if static is None else [static]
    base += [point for _, point in points.iterrows()]
    return gain_at_equal_speed(curve_of(results, [row]), curve_of(results, base))


def _against_static(one: Outcome, static: Outcome) -> dict[str, float]:
    won, lost = _disagreements(one, static)
    return {
        **_difference("vs_static", one, static),
        "won": won,
        "lost": lost,
        "same_text": int((one.texts == static.texts).sum()),
        "compared_texts": len(one.texts),
    }


def _against_dynamic(results: Results, row: pd.Series[Any], cell: pd.DataFrame) -> dict[str, float]:
    values: dict[str, float] = {}
    same_tau = select(cell, mode="dynamic", tau=row["tau"])
    if not same_tau.empty:
        values |= _difference("vs_dynamic", *pair(results, row, same_tau.iloc[0]))
    gain = gain_at_equal_tpf(results, row, cell)
    if gain is not None:
        there, value, replicates = gain
        interval = percentile(value, replicates)
        values |= {
            "dynamic_at_tpf": there,
            "vs_dynamic_at_tpf": value,
            "vs_dynamic_at_tpf_low": interval.low,
            "vs_dynamic_at_tpf_high": interval.high,
        }
    return values


def _as_dynamic(results: Results, row: pd.Series[Any], cell: pd.DataFrame) -> dict[str, float]:
    same_tau = select(cell, mode="dynamic", tau=row["tau"])
    if same_tau.empty:
        return {}
    one, two = pair(results, row, same_tau.iloc[0])
    same = int((one.texts == two.texts).sum())
    return {"same_as_dynamic": same, "compared_to_dynamic": len(one.texts)}


def _difference(name: str, one: Outcome, two: Outcome) -> dict[str, float]:
    difference = paired_difference(one.correct, two.correct)
    return {
        name: difference.value,
        f"{name}_low": difference.low,
        f"{name}_high": difference.high,
        f"{name}_p": mcnemar(*_disagreements(one, two)),
    }


def _disagreements(one: Outcome, two: Outcome) -> tuple[int, int]:
    """Problems that only the first, only the second got right."""
    return (
        int((one.correct & ~two.correct).sum()),
        int((~one.correct & two.correct).sum()),
    )
