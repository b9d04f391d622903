"""remask: what remasking gains over dynamic decoding: at equal τ, at equal TPF, in equal time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pandas as pd

from mrp.report import style
from mrp.report.curves import Curve, Place, curves, numbers_of, places, shifts
from mrp.report.figures.parts import Drawing, layout, outer_labels, same_x, same_y, say, sentence

IN_TIME = "vs_dynamic_at_time"
GAINS = {
    "vs_dynamic": "gain at\nequal τ, points",
    "vs_dynamic_at_tpf": "gain at\nequal TPF, points",
    IN_TIME: "gain in\nequal time, points",
}
NOTE = (
    "Line at 0: dynamic decoding; at equal TPF and in equal time, its accuracy between its points, "
    "the slowest of which also stands for what is slower. Each kind of gain has its own scale."
)


def remask(rows: pd.DataFrame) -> Drawing:
    """Accuracy minus dynamic's over τ: a row of panels for each of GAINS; time's if any was timed.

    Panels of one gain share a scale. At equal τ the gains are several times those at equal speed,
    which on one scale could not be told from zero.
    """
    remasks = rows[rows["mode"] == "remask"]
    if remasks.empty:
        return sentence("This suite has no remask runs.")
    timed = bool(remasks["time_ratio"].notna().any())
    gains = {gain: label for gain, label in GAINS.items() if timed or gain != IN_TIME}
    found = places(rows)
    every = _looks([curve for place in found for curve in curves(place, ("remask",))])
    figure, placed = layout(found, len(gains), 1.0)
    handles: list[Any] = []
    lines: list[tuple[Place, Curve]] = []
    drawn: dict[str, list[Any]] = {gain: [] for gain in gains}
    for place, panels in placed:
        shown = [
            replace(curve, colour=look.colour, marker=look.marker, dashes="-")
            for curve in curves(place, ("remask",))
            for look in (every[curve.name],)
        ]
        ticks = sorted({tau for curve in shown for tau in curve.rows["tau"]})
        for panel, (gain, label) in zip(panels, gains.items(), strict=True):
            panel.set_xlabel("confidence threshold τ")
            panel.set_ylabel(label)
            ends = (f"{gain}_low", f"{gain}_high")
            compared = [replace(c, rows=c.rows.dropna(subset=[gain])) for c in shown]
            compared = [curve for curve in compared if len(curve.rows)]
            if not compared:
                say(panel, "no records" if not shown else "no dynamic run to compare with")
                continue
            panel.axhline(0, color=style.LOOKS["dynamic"].colour, linewidth=1.4, zorder=1)
            for curve, shift in zip(compared, shifts(len(compared), 0.007), strict=True):
                handles.append(curve.draw(panel, curve.rows["tau"] + shift, gain, ends))
            panel.set_xticks(ticks)
            drawn[gain].append(panel)
        lines += [(place, curve) for curve in shown]
    same_x(panel for panels in drawn.values() for panel in panels)
    for panels in drawn.values():
        same_y(panels)
    outer_labels(figure, ticks=True)
    order = {name: number for number, name in enumerate(every)}
    handles.sort(key=lambda handle: order[str(handle.get_label())])
    style.legend(figure, handles, NOTE)
    return Drawing(
        figure,
        numbers_of(lines, [f"{gain}{end}" for gain in gains for end in ("", "_low", "_high")]),
    )


def _looks(found: Sequence[Curve]) -> dict[str, style.Look]:
    """Every variant in a colour and with a marker of its own."""
    names = dict.fromkeys(curve.name for curve in found)
    return {name: style.SERIES[number % len(style.SERIES)] for number, name in enumerate(names)}
