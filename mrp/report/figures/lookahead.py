"""lookahead: what a head is worth over K, by direct decoding's accuracy and by accepted drafts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd

from mrp.report import style
from mrp.report.comparisons import reference
from mrp.report.curves import Curve, Place, curves, numbers_of, options_name, places, shifts
from mrp.report.figures.parts import Drawing, layout, outer_labels, same_x, say, seeds_note
from mrp.report.pooling import over_k, sweeps
from mrp.report.statistics import wilson
from mrp.report.tables import control_at

DIRECT = "direct"  # in the upper panels; the lower ones have every mode that verifies drafts
BY_HEAD = (DIRECT, "speculative")
OBJECTIVES = {"default": "residual", "k2": "residual, chained", "direct": "direct objective"}


def lookahead(rows: pd.DataFrame) -> Drawing:
    """Over K: accuracy of direct decoding above, share of accepted drafts below; a curve a head.

    Of ways without further options alone, and below of the modes that the findings' table of
    lookahead has: lattices, each with a K of its own, are not about K.
    """
    found = places(rows)
    modes = list(dict.fromkeys(rows["mode"]))
    drafting = _drafting(found)
    figure, placed = layout(found, 2 if drafting else 1, 1.45)
    handles: list[Any] = []
    drawn: list[tuple[Place, Curve]] = []
    for place, panels in placed:
        plain = replace(place, rows=over_k(place.rows))
        direct = heads(curves(plain, (DIRECT,), modes))
        control = _control(place, direct)
        shown = [*direct, *([control] if control is not None else [])]
        panels[0].set_ylabel("direct:\naccuracy, %")
        handles += _over_k(panels[0], place, shown, "accuracy", ("accuracy_low", "accuracy_high"))
        static = reference(place.rows)
        if static is not None and shown:
            level = 100 * static["accuracy"]
            line = {"color": style.BLACK, "linewidth": 0.8, "linestyle": ":", "label": "static"}
            handles.append(panels[0].axhline(level, **line))
        drawn += [(place, each) for each in shown]
        if not drafting:
            continue
        panels[1].set_ylabel("drafts\naccepted, %")
        verified = heads([with_acceptance(each) for each in curves(plain, drafting, modes)])
        handles += _over_k(panels[1], place, verified, "acceptance", ACCEPTANCE)
        drawn += [(place, each) for each in verified]
    for _, panels in placed:
        panels[-1].set_xlabel("lookahead K")
    same_x(panel for _, panels in placed for panel in panels)
    outer_labels(figure, ticks=True)
    note = " ".join(filter(None, ("Ways without further options.", seeds_note(rows))))
    style.legend(figure, handles, note)
    return Drawing(figure, numbers_of(drawn))


def _drafting(found: Sequence[Place]) -> list[str]:
    """The modes that verified drafts and were swept over K, anywhere."""
    ways = [way for place in found for way in sweeps(place.rows)]
    return [*dict.fromkeys(str(w["mode"].iloc[0]) for w in ways if w["acceptance"].notna().any())]


ACCEPTANCE = ("acceptance_low", "acceptance_high")


def with_acceptance(curve: Curve) -> Curve:
    """The curve's rows that verified drafts, with an interval of the share of accepted drafts.

    The drafts of one round depend on each other, so a round counts as one trial: Wilson's interval
    for as many trials as there were rounds.
    """
    rows = curve.rows.dropna(subset=["acceptance"])
    spans = [wilson(a * n, n) for a, n in zip(rows["acceptance"], rows["verify"], strict=True)]
    ends = {"acceptance_low": [s.low for s in spans], "acceptance_high": [s.high for s in spans]}
    return replace(curve, rows=rows.assign(**ends))


def heads(found: Sequence[Curve]) -> list[Curve]:
    """Curves of direct and speculative decoding in their head's colour and marker; others as is.

    Of heads of one kind that differ in depth only the one with most values of K is kept: the others
    are the depth figure's. Of other options and ways of training, those with as many values of K as
    the kind's longest curve: the others are in the tables of ablations.
    """
    kept: dict[tuple[str, ...], Curve] = {}
    for curve in found:
        if curve.rows.empty:
            continue
        first = curve.rows.iloc[0]
        if pd.isna(first["head"]):
            kept[curve.name,] = curve
            continue
        kind = str(first["head_variant"])
        options = options_name(first, curve.knob)
        key = (curve.mode, kind, options, str(first["head_source"]), str(first["head_reveal"]))
        if key in kept and len(curve.rows) <= len(kept[key].rows):
            continue
        before = sum(other[:2] == key[:2] for other in kept if other != key)
        kept[key] = replace(curve, dashes=style.DASHES[before % len(style.DASHES)])
        if curve.mode in BY_HEAD:
            look = style.Look(style.HEAD_COLOURS[kind], style.HEAD_MARKERS[kind])
            here = " (trained here)" if first["trained_here"] else ""
            name = ", ".join(filter(None, (f"{first['head']}{here}: {OBJECTIVES[kind]}", options)))
            kept[key] = replace(kept[key], name=name, colour=look.colour, marker=look.marker)
    longest: dict[tuple[str, str, bool], int] = {}
    for curve in kept.values():
        longest[_kind(curve)] = max(longest.get(_kind(curve), 0), len(curve.rows))
    return [curve for curve in kept.values() if len(curve.rows) == longest[_kind(curve)]]


def _kind(curve: Curve) -> tuple[str, str, bool]:
    first = curve.rows.iloc[0]
    return curve.mode, str(first["head_variant"]), bool(first["trained_here"])


def _over_k(
    panel: Any, place: Place, shown: Sequence[Curve], measure: str, ends: tuple[str, str]
) -> list[Any]:
    """Draw curves over K, the other seeds' values as faint points; returns legend entries."""
    if not shown:
        say(panel, "no records")
        return []
    handles = []
    for curve, shift in zip(shown, shifts(len(shown), min(0.05, 0.3 / len(shown))), strict=True):
        finite = curve.rows[np.isfinite(curve.rows["k"])]
        drawn = replace(curve, rows=finite)
        handles.append(drawn.draw(panel, finite["k"] + shift, measure, ends))
        for _, row in finite.iterrows():
            seeds = place.seeds(row)
            if seeds.empty:
                continue
            at = [row["k"] + shift] * len(seeds)
            panel.plot(at, 100 * seeds[measure], "_", color=curve.colour, markersize=7)
    ks = sorted({int(k) for curve in shown for k in curve.rows["k"] if np.isfinite(k)})
    panel.set_xticks(ks)
    panel.set_ylim(-3, 103)
    return handles


def _control(place: Place, shown: Sequence[Curve]) -> Curve | None:
    """The static runs with as few steps as direct decoding with K has, placed at that K."""
    ks = sorted({int(k) for curve in shown for k in curve.rows["k"]})
    rows = {k: row for k in ks if (row := control_at(place.rows, k)) is not None}
    if not rows:
        return None
    frame = pd.DataFrame(list(rows.values())).assign(k=list(rows))
    look = style.LOOKS["static"]
    name = "no head: static at the same TPF"
    return Curve("static", name, "", look.colour, look.marker, style.DASHES[1], False, "k", frame)
