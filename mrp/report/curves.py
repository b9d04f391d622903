"""Which rows make a curve, and how it is called and drawn."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pandas as pd

from mrp.report import style
from mrp.report.comparisons import reference, select

KNOBS = {
    "static": "steps",
    "direct": "k",
    "speculative": "k",
    "self_speculative": "k",
    "dynamic": "tau",
    "remask": "tau",
}
SYMBOLS = {"steps": "steps", "k": "K", "tau": "τ"}


@dataclass(frozen=True)
class Curve:
    """Rows of one backbone and task that differ in one knob alone, in its order."""

    name: str
    colour: str
    marker: str
    filled: bool
    knob: str
    rows: pd.DataFrame

    def draw(self, axes: Any, x: str, errors: bool = False) -> Any:
        """Plot accuracy in % over a column; returns the line."""
        shown = self.rows.dropna(subset=[x])
        y = 100 * shown["accuracy"]
        if errors:
            ends = [y - 100 * shown["accuracy_low"], 100 * shown["accuracy_high"] - y]
            axes.errorbar(
                *(shown[x], y, ends), fmt="none", ecolor=self.colour, elinewidth=0.7, alpha=0.6
            )
        (line,) = axes.plot(
            *(shown[x], y),
            label=self.name,
            color=self.colour,
            marker=self.marker,
            markerfacecolor=self.colour if self.filled else "white",
            markeredgewidth=0.9,
            linestyle="-" if self.filled else (0, (4, 2)),
        )
        return line


def cells(rows: pd.DataFrame) -> Iterator[tuple[str, str, pd.DataFrame]]:
    """(backbone, task, finished rows) of every cell in the suite's order."""
    for (backbone, task), cell in rows.groupby(["backbone", "task"], sort=False):
        yield str(backbone), str(task), select(cell, status="done")


def curves(cell: pd.DataFrame, modes: tuple[str, ...]) -> list[Curve]:
    """The curves of some modes in one cell; static means the control with fewer steps."""
    found = []
    keys = ["mode", "head", "condition", "rule", "delta", "scale", "shortlist"]
    chosen = cell[cell["mode"].isin(modes)]
    for _, rows in chosen.groupby(keys, sort=False, dropna=False):
        first = rows.iloc[0]
        knob = KNOBS[first["mode"]]
        shown = rows.dropna(subset=[knob]).sort_values(knob)
        if shown.empty:
            continue
        found.append(
            Curve(
                name=curve_name(first),
                colour=style.MODE_COLOURS[first["mode"]],
                marker=_marker(first),
                filled=first["head_source"] != "trained",
                knob=knob,
                rows=shown,
            )
        )
    return found


def _marker(row: pd.Series[Any]) -> str:
    if row["rule"] == "residual":
        return style.RESIDUAL_MARKER
    if row["condition"] == "masked":
        return style.MASKED_MARKER
    return style.MARKERS.get(row["head_variant"], style.OTHER_MARKER)


def curve_name(row: pd.Series[Any]) -> str:
    """A curve's name in legends and in the CSV files."""
    mode = str(row["mode"]).replace("_", "-")
    if mode == "static":
        return "no head: static, fewer steps"
    parts = [mode]
    if not pd.isna(row["head"]):
        trained = row["head_source"] == "trained"
        parts.append(f"{row['head']} (trained here)" if trained else str(row["head"]))
    if mode == "remask" and row["condition"] != "revealed":
        parts.append(f"{row['condition']} ids")
    if mode == "remask" and row["rule"] != "confidence":
        parts.append(f"|W r| > {row['delta']:g}")
    if not pd.isna(row["scale"]) and row["scale"] != 1:
        parts.append(f"scale {row['scale']:g}")
    if not pd.isna(row["shortlist"]) and row["shortlist"]:
        parts.append(f"shortlist {row['shortlist']:.0f}")
    return ", ".join(parts)


def static_point(axes: Any, cell: pd.DataFrame, x: float) -> Any:
    """Mark static's accuracy at `x`; None without its record."""
    row = reference(cell)
    if row is None:
        return None
    (point,) = axes.plot(
        [x],
        [100 * row["accuracy"]],
        label="static",
        color=style.BLACK,
        marker="*",
        markersize=8,
        linestyle="none",
        zorder=5,
    )
    return point


def plotted(curve: Curve, backbone: str, task: str) -> pd.DataFrame:
    """A curve's numbers for the CSV file."""
    columns = ["mode", "head", curve.knob, "n", "accuracy", "accuracy_low", "accuracy_high"]
    columns += ["tpf", "time_ratio", "time_ratio_low", "time_ratio_high", "job"]
    shown = curve.rows[columns].rename(columns={curve.knob: "value"})
    shown.insert(2, "knob", curve.knob)
    shown.insert(0, "curve", curve.name)
    shown.insert(0, "task", task)
    shown.insert(0, "backbone", backbone)
    return shown
