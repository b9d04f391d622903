"""acceptance: how many drafts a round accepts, by mode, head and K."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
from matplotlib import colormaps

from mrp.report import style
from mrp.report.curves import Curve, Place, curves, mode_name, numbers_of, places, symbol
from mrp.report.figures.lookahead import ACCEPTANCE, heads, with_acceptance
from mrp.report.figures.parts import Drawing, entry, layout, outer_labels, sentence

BAR = 0.115  # inches
APART = 0.5  # bars' width between the bars of two heads
SHORT = {"speculative": "", "self_speculative": "no head"}
Key = tuple[str, str]  # mode with its head, and K, as texts


def acceptance(rows: pd.DataFrame) -> Drawing:
    """A bar a mode, head and K: the shares of rounds that accepted 0, 1, 2, ... drafts.

    Records without a count of rounds by accepted drafts give the share of accepted drafts alone,
    as a point with its interval.
    """
    drafted = rows[rows["acceptance"].notna() & rows["head_seed_of"].isna()]
    counted = drafted[drafted["accepted_rounds"].astype(bool)]
    drafted = drafted if counted.empty else counted
    if drafted.empty:
        return sentence("No run of this suite drafted and verified tokens.")
    found = places(rows)
    modes = list(dict.fromkeys(drafted["mode"]))
    jobs = set(drafted["job"])
    shown = [_drafting(place, modes, jobs) for place in found]
    heights = _heights([key for lines in shown for line in lines for key, _ in _bars(line)])
    tallest = max(heights.values())
    drawn = [(place, line) for place, lines in zip(found, shown, strict=True) for line in lines]
    figure, placed = layout(found, 1, 0.45 + BAR * tallest)
    sizes = max(len(_rounds(row)) for _, row in drafted.iterrows())
    ramp = [colormaps["YlGnBu"](x) for x in np.linspace(0.28, 1, max(sizes - 1, 2))]
    colours = [style.FAINT, *ramp]  # light to dark, so that it survives any eye and any printer
    for (_, (panel,)), lines in zip(placed, shown, strict=True):
        for line in lines:
            for key, row in _bars(line):
                _bar(panel, heights[key], row, colours)
        panel.set_yticks(list(heights.values()), _names(list(heights)))
        panel.set_ylim(tallest + 0.6, -0.6)
        panel.set_xlim(0, 100)
        panel.grid(axis="y", visible=False)
        panel.tick_params(axis="y", length=0)
        panel.set_xlabel("rounds, %" if sizes else "drafts accepted, %")
    outer_labels(figure, ticks=True)
    handles = [entry(f"{size} accepted", colours[size], "s", markersize=5) for size in range(sizes)]
    note = "At the right of each bar: drafts accepted a round, on average."
    style.legend(figure, handles, note if sizes else "")
    return Drawing(figure, numbers_of(drawn, ("accepted_rounds",)))


def _drafting(place: Place, modes: Sequence[str], jobs: set[str]) -> list[Curve]:
    """The curves of these modes, of them the rows of these jobs."""
    own = replace(place, rows=place.rows[place.rows["job"].isin(jobs)])
    return heads([with_acceptance(curve) for curve in curves(own, modes)])


def _bars(curve: Curve) -> Iterator[tuple[Key, pd.Series[Any]]]:
    """The rows of a curve with what their bars are called."""
    mode = SHORT.get(curve.mode, mode_name(curve.mode))
    name = " ".join(filter(None, (mode, curve.variant)))
    for (_, row), text in zip(curve.rows.iterrows(), curve.knob_texts(), strict=True):
        yield (name, f"{symbol(curve.knob)}={text}"), row


def _heights(keys: Sequence[Key]) -> dict[Key, float]:
    """Where each bar lies, the same in all panels: 0 is the top."""
    groups = list(dict.fromkeys(name for name, _ in keys))
    ordered = [
        key
        for group in groups
        for key in sorted({key for key in keys if key[0] == group}, key=lambda key: _at(key[1]))
    ]
    return {key: n + APART * groups.index(key[0]) for n, key in enumerate(ordered)}


def _at(text: str) -> float:
    """The number of K = 3 or of a tau, the one chosen by the mode itself last."""
    number = text.split("=")[-1]
    return float(number) if number.replace(".", "").isdigit() else np.inf


def _names(keys: Sequence[Key]) -> list[str]:
    """The bars' labels: mode and head stand at the first of their bars alone."""
    firsts = dict(reversed(keys))
    return [f"{name}  {at}" if firsts[name] == at else at.split("=")[-1] for name, at in keys]


def _rounds(row: pd.Series[Any]) -> list[int]:
    """Rounds that accepted 0, 1, 2, ... drafts; none where the record does not say."""
    text = row["accepted_rounds"]
    return [int(often) for often in text.split()] if isinstance(text, str) else []


def _bar(panel: Any, height: float, row: pd.Series[Any], colours: Sequence[Any]) -> None:
    rounds = _rounds(row)
    if not rounds:
        low, high = (100 * row[end] for end in ACCEPTANCE)
        panel.plot([low, high], [height, height], color=style.BLACK, linewidth=0.8)
        panel.plot([100 * row["acceptance"]], [height], "o", color=style.BLACK)
        return
    shares = 100 * np.array(rounds) / sum(rounds)
    left = np.concatenate([[0], np.cumsum(shares)[:-1]])
    panel.barh([height] * len(rounds), shares, 0.82, left, color=colours[: len(rounds)])
    mean = sum(size * often for size, often in enumerate(rounds)) / sum(rounds)
    panel.text(101.5, height, f"{mean:.2f}", va="center_baseline", fontsize=5.4)
