"""Which options a row was run with, and what is the usual one of them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeAlias

import numpy as np
import pandas as pd

from mrp.schema import OPTIONS

Line: TypeAlias = "Mapping[str, Any] | pd.Series[Any]"  # a row of the tidy table

# What a mode cannot do without: the points of its curve. All other options have a usual value.
KNOBS = tuple(name for name, usual in OPTIONS.items() if usual is None)
USUAL_REVEAL = "gt-1"
USUAL = {name: usual for name, usual in OPTIONS.items() if usual is not None}


def is_usual(rows: pd.DataFrame, but: tuple[str, ...] = ()) -> Any:
    """Whether each row has no option, or the usual value, for all options but those named."""
    fits = np.ones(len(rows), dtype=np.bool_)
    for name, usual in USUAL.items():
        if name not in but:
            column = rows[name].to_numpy()
            fits &= pd.isna(column) | (column == usual)
    return fits


def usual_reveal(row: Line) -> bool:
    """Whether a row's head, if it has one, was trained in the usual way, on one reveal."""
    return bool(pd.isna(row["head_reveal"]) or row["head_reveal"] == USUAL_REVEAL)


def own_options(row: Line) -> dict[str, Any]:
    """The options of a row that are not the usual ones, knobs aside."""
    return {
        name: row[name]
        for name, usual in USUAL.items()
        if not pd.isna(row[name]) and row[name] != usual
    }


def option_text(name: str, value: Any) -> str:
    """An option as a few words."""
    if name == "condition":
        return f"{value} ids"
    if name == "passes":
        return "by halves" if value == "halves" else "in one pass"
    words = name.replace("_", " ")
    if isinstance(value, bool | np.bool_):
        return f"with {words}" if value else f"without {words}"
    return f"{words} {value}" if isinstance(value, str) else f"{words} {value:g}"


def change_text(name: str, value: Any) -> str:
    """An option as a change from the usual value."""
    usual = option_text(name, USUAL[name]).removeprefix(f"{name.replace('_', ' ')} ")
    return f"{option_text(name, value)} instead of {usual}"


def setting_name(row: Line, head: bool = True) -> str:
    """Mode, head and options of a row, knobs aside: speculative, k2, cap 0.9."""
    parts = [str(row["mode"]).replace("_", "-")]
    if head and not pd.isna(row["head"]):
        trained = " (trained here)" if row["trained_here"] else ""
        parts.append(f"{row['head']}{trained}")
    return ", ".join([*parts, *(option_text(*item) for item in own_options(row).items())])
