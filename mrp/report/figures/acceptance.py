"""acceptance: how many drafts a round accepts, by mode, head and K."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
from matplotlib import colormaps

from mrp.report import style
from mrp.report.curves import Curve, Place, curves, mode_name, places, plotted, symbol
from mrp.report.figures.lookahead import ACCEPTANCE, heads, with_acceptance
from mrp.report.figures.parts import Drawing, entry, joined, layout, outer_labels, sentence

BAR = 0.115  # inches
SHORT = {"speculative": "", "self_speculative": "no head"}


def acceptance(rows: pd.DataFrame) -> Drawing:
    """A bar a mode, head and K: the shares of rounds that accepted 0, 1, 2, ... drafts.

    Records without a count of rounds by accepted drafts give the share of accepted drafts alone,
    as a point with its interval.
    """
    drafted = rows[rows["acceptance"].notna() & rows["head_seed_of"].isna()]
    if drafted.empty:
        return sentence("No run of this suite drafted and verified tokens.")
    found = places(rows)
    modes = list(dict.fromkeys(drafted["mode"]))
    shown = {id(place): _bars(place, modes) for place in found}
    most = max(len(bars) for bars in shown.values())
    figure, placed = layout(found, 1, 0.45 + BAR * most)
    sizes = max(len(_rounds(row)) for _, row in drafted.iterrows())
    ramp = [colormaps["YlGnBu"](x) for x in np.linspace(0.28, 1, max(sizes - 1, 2))]
    colours = [style.FAINT, *ramp]  # light to dark, so that it survives any eye and any printer
    numbers: list[pd.DataFrame] = []
    for place, (panel,) in placed:
        bars = shown[id(place)]
        for number, (_, row) in enumerate(bars):
            _bar(panel, number, row, colours)
        names = [label for label, _ in bars]
        first = panel.get_subplotspec().is_first_col()
        hidden = not first and names == [label for label, _ in shown[id(placed[0][0])]]
        panel.set_yticks(range(len(bars)), [""] * len(bars) if hidden else names)
        panel.tick_params(axis="y", length=0)
        panel.set_ylim(most - 0.4, -0.6)
        panel.set_xlim(0, 100)
        panel.grid(axis="y", visible=False)
        panel.set_xlabel("rounds, %" if sizes else "drafts accepted, %")
        numbers += [
            plotted(place, each.name, each.knob, each.rows).assign(
                accepted_rounds=each.rows["accepted_rounds"]
            )
            for each in _drafting(place, modes)
        ]
    outer_labels(figure)
    handles = [entry(f"{size} accepted", colours[size], "s", markersize=5) for size in range(sizes)]
    style.legend(
        figure,
        handles,
        "At the right of each bar: drafts accepted a round, on average." if sizes else "",
    )
    return Drawing(figure, joined(numbers))


def _drafting(place: Place, modes: Sequence[str]) -> list[Curve]:
    return heads([with_acceptance(curve) for curve in curves(place, modes)])


def _bars(place: Place, modes: Sequence[str]) -> list[tuple[str, pd.Series[Any]]]:
    """A label and a row for each bar; a variant's name stands at its first K alone."""
    bars = []
    for curve in _drafting(place, modes):
        mode = SHORT.get(curve.mode, mode_name(curve.mode))
        name = " ".join(filter(None, (mode, curve.variant)))
        for (_, row), text in zip(curve.rows.iterrows(), curve.knob_texts(), strict=True):
            bars.append((f"{name}  {symbol(curve.knob)}={text}" if name else text, row))
            name = ""
    return bars


def _rounds(row: pd.Series[Any]) -> list[int]:
    """Rounds that accepted 0, 1, 2, ... drafts; none where the record does not say."""
    text = row["accepted_rounds"]
    return [int(often) for often in text.split()] if isinstance(text, str) else []


def _bar(panel: Any, number: int, row: pd.Series[Any], colours: Sequence[Any]) -> None:
    rounds = _rounds(row)
    if not rounds:
        low, high = (100 * row[end] for end in ACCEPTANCE)
        panel.plot([low, high], [number, number], color=style.BLACK, linewidth=0.8)
        panel.plot([100 * row["acceptance"]], [number], "o", color=style.BLACK)
        return
    shares = 100 * np.array(rounds) / sum(rounds)
    left = np.concatenate([[0], np.cumsum(shares)[:-1]])
    panel.barh([number] * len(rounds), shares, 0.82, left, color=colours[: len(rounds)])
    mean = sum(size * often for size, often in enumerate(rounds)) / sum(rounds)
    panel.text(101.5, number, f"{mean:.2f}", va="center_baseline", fontsize=5.4)
