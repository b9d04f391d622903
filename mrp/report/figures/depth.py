"""depth: what more layers in the head bring, and what they cost."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pandas as pd

from mrp.report import style
from mrp.report.curves import Curve, Place, curves, numbers_of, options_name, places, shifts, symbol
from mrp.report.figures.parts import Drawing, say, seeds_note, sentence
from mrp.report.settings import usual_reveal

# (mode, measure, unit, label) of the panels side by side.
MEASURES = (
    ("direct", "accuracy", 100, "direct:\naccuracy, %"),
    ("speculative", "tpf", 1, "speculative:\nTPF"),
    ("speculative", "time_ratio", 1, "speculative:\ntime ratio"),
)


def depth(rows: pd.DataFrame) -> Drawing:
    """Over the head's layers: accuracy of direct decoding, TPF and time ratio of speculative."""
    found = [(place, lines) for place in places(rows) if (lines := _lines(place))]
    if not found:
        return sentence("This suite has no heads of one kind that differ in depth.")
    timed = rows["time_ratio"].notna().any()
    measures = MEASURES if timed else MEASURES[:-1]
    figure, axes = style.panels(len(found), len(measures), 1.7)
    names = dict.fromkeys(line.name for _, lines in found for line in lines)
    look = {name: style.SERIES[n % len(style.SERIES)] for n, name in enumerate(names)}
    handles: dict[str, Any] = {}
    drawn: list[tuple[Place, Curve]] = []
    for panels, (place, lines) in zip(axes, found, strict=True):
        panels[0].set_title(place.title)
        drawn += [(place, line) for line in lines]
        drawn += [
            (place, replace(line, rows=seeds))
            for line in lines
            for _, row in line.rows.iterrows()
            if not (seeds := place.seeds(row)).empty
        ]
        for panel, (mode, measure, unit, label) in zip(panels, measures, strict=True):
            panel.set_xlabel("layers of the head")
            panel.set_ylabel(label)
            shown = [
                replace(line, colour=look[line.name].colour, marker=look[line.name].marker)
                for line in lines
                if line.mode == mode and line.rows[measure].notna().any()
            ]
            if not shown:
                say(panel, "no records")
            for line, shift in zip(shown, shifts(len(shown), 0.06), strict=True):
                handles[line.name] = _draw(panel, place, line, shift, measure, unit)
            ticks = sorted({int(n) for line in shown for n in line.rows["head_layers"]})
            if shown:
                panel.set_xticks(ticks)
    for row in axes[:-1]:
        for panel in row:
            panel.set_xlabel("")
    style.legend(figure, [handles[name] for name in names if name in handles], seeds_note(rows))
    return Drawing(figure, numbers_of(drawn))


def _draw(panel: Any, place: Place, line: Curve, shift: float, measure: str, unit: float) -> Any:
    at = line.rows["head_layers"] + shift
    handle = line.draw(panel, at, measure, (f"{measure}_low", f"{measure}_high"), unit)
    for (_, row), x in zip(line.rows.iterrows(), at, strict=True):
        seeds = place.seeds(row)
        if seeds.empty:
            continue
        values = unit * seeds[measure]
        panel.plot([x] * len(seeds), values, "_", color=line.colour, markersize=7)
    return handle


def _lines(place: Place) -> list[Curve]:
    """A curve for each mode, kind of head, K and other options that has several depths."""
    runs = []
    for curve in curves(place, ("direct", "speculative")):
        for _, row in curve.rows.iterrows():
            if usual_reveal(row) and not pd.isna(row["head_layers"]):
                runs.append((_kind(curve, row), curve, row))
    lines = []
    for kind in dict.fromkeys(kind for kind, _, _ in runs):
        mine = [(curve, row) for other, curve, row in runs if other == kind]
        frame = pd.DataFrame([row for _, row in mine]).drop_duplicates("head_layers")
        if len(frame) < 2:
            continue
        lines.append(
            replace(
                mine[0][0],
                name=kind,
                knob="head_layers",
                filled=True,
                dashes="-",
                rows=frame.sort_values("head_layers"),
            )
        )
    return lines


def _kind(curve: Curve, row: pd.Series[Any]) -> str:
    """A name for all runs that differ from this one in the head's depth alone."""
    options = options_name(row, curve.knob)
    parts = (curve.mode, str(row["head_variant"]), options, f"{symbol('k')}={row['k']:g}")
    return ", ".join(filter(None, parts))
