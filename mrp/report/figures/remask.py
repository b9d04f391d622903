"""remask: what remasking gains over dynamic decoding, at equal threshold and at equal speed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pandas as pd

from mrp.report import style
from mrp.report.curves import Curve, Place, curves, numbers_of, places, shifts
from mrp.report.figures.parts import Drawing, layout, outer_labels, same_x, say, sentence

GAINS = {
    "vs_dynamic": "gain at\nequal τ, points",
    "vs_dynamic_at_tpf": "gain at\nequal TPF, points",
}


def remask(rows: pd.DataFrame) -> Drawing:
    """Accuracy minus dynamic's over τ: at the same τ above, at the same TPF below."""
    if not (rows["mode"] == "remask").any():
        return sentence("This suite has no remask runs.")
    found = places(rows)
    every = _looks([curve for place in found for curve in curves(place, ("remask",))])
    figure, placed = layout(found, len(GAINS), 1.35)
    handles: list[Any] = []
    lines: list[tuple[Place, Curve]] = []
    drawn: list[Any] = []
    for place, panels in placed:
        shown = [
            replace(curve, colour=look.colour, marker=look.marker, dashes="-")
            for curve in curves(place, ("remask",))
            for look in (every[curve.name],)
        ]
        ticks = sorted({tau for curve in shown for tau in curve.rows["tau"]})
        for panel, (gain, label) in zip(panels, GAINS.items(), strict=True):
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
            drawn.append(panel)
        lines += [(place, curve) for curve in shown]
    same_x(drawn)
    limits = [value for panel in drawn for value in panel.get_ylim()]
    for panel in drawn:
        panel.set_ylim(min(limits), max(limits))
    outer_labels(figure, ticks=True)
    order = {name: number for number, name in enumerate(every)}
    handles.sort(key=lambda handle: order[str(handle.get_label())])
    note = "Line at 0: dynamic decoding. At equal TPF: dynamic's accuracy between its points."
    style.legend(figure, handles, note)
    return Drawing(
        figure,
        numbers_of(lines, [f"{gain}{end}" for gain in GAINS for end in ("", "_low", "_high")]),
    )


def _looks(found: Sequence[Curve]) -> dict[str, style.Look]:
    """Every variant in a colour and with a marker of its own."""
    names = dict.fromkeys(curve.name for curve in found)
    return {name: style.SERIES[number % len(style.SERIES)] for number, name in enumerate(names)}
