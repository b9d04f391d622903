"""pareto and pareto_time: accuracy over speed, every mode, the frontier in full colour."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import pandas as pd

from mrp.report import style
from mrp.report.comparisons import reference
from mrp.report.curves import (
    Curve,
    Place,
    curves,
    mode_name,
    numbers_of,
    places,
    static_point,
    symbol,
)
from mrp.report.figures.parts import (
    Drawing,
    entry,
    layout,
    outer_labels,
    percent_axis,
    say,
    sentence,
)
from mrp.report.labels import Label
from mrp.report.labels import place as place_labels

SPEEDS = {"tpf": "tokens per forward (TPF)", "time_ratio": "tokens/s over static's"}
Point = tuple[float, float]


def pareto(rows: pd.DataFrame) -> Drawing:
    """Accuracy over tokens per forward, which no machine's noise touches."""
    return _over(rows, "tpf")


def pareto_time(rows: pd.DataFrame) -> Drawing:
    """Accuracy over the measured time ratio."""
    if not rows["time_ratio"].notna().any():
        return sentence("No times were measured in this suite (decoding.speed), so none are drawn.")
    return _over(rows, "time_ratio")


def _over(rows: pd.DataFrame, speed: str) -> Drawing:
    modes = list(dict.fromkeys(rows["mode"]))
    found = places(rows)
    figure, placed = layout(found, 1, 2.1)
    handles: dict[str, Any] = {}
    drawn: list[tuple[Place, Curve]] = []
    pending: list[tuple[Any, list[Label]]] = []
    for place, (panel,) in placed:
        panel.set_xlabel(SPEEDS[speed])
        panel.set_ylabel("accuracy, %")
        everything = curves(place, known=modes)
        drawn += [(place, each) for each in everything]
        timed = [_timed(each, speed) for each in everything]
        shown = [each for each in timed if len(each.rows)]
        if not shown:
            say(panel, "not timed" if everything else "no records")
            continue
        handles |= {each.mode: _mode_entry(each) for each in shown if each.mode not in handles}
        pending.append((panel, _draw(panel, place, shown, speed)))
        static_point(panel, place, 1.0)
    outer_labels(figure)
    last = [
        entry("static", style.BLACK, style.STATIC_MARKER, markersize=6),
        entry("frontier", style.FAINT, "", linestyle="-", linewidth=4),
    ]
    ordered = [handles[mode] for mode in modes if mode in handles]
    note = (
        "Beside the points: K, τ or steps. Full colour: on the frontier; lines: the best of each "
        "mode; faintest: what other runs of the same mode beat."
    )
    style.legend(figure, [*ordered, *last], note)
    style.freeze(figure)
    for panel, labels in pending:
        place_labels(panel, labels)
    return Drawing(figure, numbers_of(drawn))


def _timed(curve: Curve, speed: str) -> Curve:
    known = curve.rows[speed].notna()
    return curve if known.all() else replace(curve, rows=curve.rows[known])


def _mode_entry(curve: Curve) -> Any:
    name = "static, fewer steps" if curve.mode == "static" else mode_name(curve.mode)
    return entry(name, curve.colour, curve.marker)


def _draw(panel: Any, place: Place, shown: Sequence[Curve], speed: str) -> list[Label]:
    """Draw a panel; returns the labels that are to be placed when the layout is final."""
    static = reference(place.rows)
    base = [] if static is None else [(1.0, 100 * static["accuracy"])]
    points = [point for each in shown for point in _points(each, speed)]
    best = frontier([*base, *(point.at for point in points)])
    panel.plot(
        *([x for x, _ in best], [y for _, y in best]),
        color=style.FAINT,
        linewidth=4,
        solid_capstyle="round",
        solid_joinstyle="round",
        zorder=0.5,
    )
    variants = Counter(each.mode for each in shown)
    labels: list[Label] = []
    for mode in variants:
        mine = [point for point in points if point.curve.mode == mode]
        labels += _draw_mode(panel, mine, set(best), variants[mode] > 1)
    # Where all that leads is far above the rest, the rest would take the room: it is counted.
    heights = [y for _, y in [*base, *(point.at for point in points)]]
    low, high = best[-1][1], max(heights)
    floor = max(min(heights), min(low - 4, high - 1.6 * (high - low)))
    percent_axis(panel, floor, high)
    bottom = panel.get_ylim()[0]
    below = sum(y < bottom for y in heights)
    if below:
        panel.text(
            *(0.01, 0.02, f"{below} points below"),
            transform=panel.transAxes,
            color="#666666",
            fontsize=5.6,
        )
    return [label for label in labels if label.y >= bottom]


@dataclass(frozen=True)
class Mark:
    """A run as a point: (speed, accuracy in %), its curve and the knob's value as text."""

    at: Point
    curve: Curve
    text: str


def _points(curve: Curve, speed: str) -> list[Mark]:
    found = zip(curve.rows[speed], curve.rows["accuracy"], curve.knob_texts(), strict=True)
    return [Mark((float(x), 100 * float(y)), curve, text) for x, y, text in found]


def _draw_mode(panel: Any, mine: Sequence[Mark], best: set[Point], several: bool) -> list[Label]:
    """A mode's points: those that lead all, those that lead the mode's own runs, and the rest."""
    own = frontier([mark.at for mark in mine])
    curve = mine[0].curve
    panel.plot(*zip(*own, strict=True), color=curve.colour, linewidth=0.8, alpha=0.45, zorder=2)
    labels: dict[
        Point, Label
    ] = {}  # of runs that are as fast and as right as each other, the first one's
    tiers: dict[tuple[int, bool], list[Point]] = {}
    for mark in mine:
        leads, known = mark.at in best, mark.at in own
        tiers.setdefault((leads + known, mark.curve.filled), []).append(mark.at)
        if known:
            labels.setdefault(mark.at, _label(mark, leads, several))
    for (tier, filled), points in tiers.items():
        panel.plot(
            *zip(*points, strict=True),
            linestyle="none",
            marker=curve.marker,
            markersize=(2.4, 3.4, 4.6)[tier],
            markerfacecolor=curve.colour if filled else "white",
            markeredgewidth=0.6,
            markeredgecolor=style.BLACK if tier == 2 else curve.colour,
            alpha=(0.22, 0.6, 1.0)[tier],
            zorder=(1.5, 3, 4)[tier],
        )
    return list(labels.values())


def _label(mark: Mark, leads: bool, several: bool) -> Label:
    """The knob's value; of what leads all its name, and the variant where the mode has several."""
    named = f"{symbol(mark.curve.knob)}={mark.text}" if mark.text else ""
    variant = mark.curve.variant if several else ""
    mode = "" if mark.curve.mode == mark.curve.knob else mode_name(mark.curve.mode)
    full = (mode, variant, named)
    texts = (" ".join(full), " ".join(full[1:]), named, mark.text) if leads else (mark.text,)
    written = tuple(dict.fromkeys(" ".join(text.split()) for text in texts if text.strip()))
    colour = style.for_text(mark.curve.colour)
    return Label(*mark.at, written, colour, 0 if leads else 1, leads)


def frontier(points: Sequence[Point]) -> list[Point]:
    """The points that no other beats in both coordinates, from left to right."""
    best: list[Point] = []
    for x, y in sorted(points, key=lambda point: (-point[0], -point[1])):
        if not best or y > best[-1][1]:
            best.append((x, y))
    return best[::-1]
