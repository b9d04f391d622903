"""What the figures share: panels a backbone and task, legends' entries, sentences for no data."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from mrp.report import style
from mrp.report.curves import Place

WIDER = 1.15  # a panel is this much higher where fewer than three stand side by side


@dataclass(frozen=True)
class Drawing:
    """A figure and the numbers in it."""

    figure: Figure
    numbers: pd.DataFrame


def sentence(text: str) -> Drawing:
    """In place of a figure for which the suite has no runs: why there is none."""
    figure, ((panel,),) = style.panels(1, 1, 0.4)
    say(panel, textwrap.fill(text, 60))
    panel.set_axis_off()
    return Drawing(figure, pd.DataFrame({"note": [text]}))


def layout(
    found: Sequence[Place], measures: int, height: float
) -> tuple[Figure, list[tuple[Place, list[Any]]]]:
    """A column a backbone and a row a task, or a column a task where there is one backbone.

    Args:
        found: the backbones and tasks.
        measures: how many panels each has, one below the other.
        height: of a panel in inches, where three stand side by side.

    Returns:
        The figure; each place with its panels.
    """
    backbones = list(dict.fromkeys(place.backbone for place in found))
    tasks = list(dict.fromkeys(place.task for place in found))
    many = len(backbones) > 1
    across, down = (backbones, tasks) if many else (tasks, backbones)
    height *= WIDER if len(across) < 3 else 1
    figure, axes = style.panels(len(down) * measures, len(across), height)
    for panel in (panel for row in axes for panel in row):
        panel.set_axis_off()  # until a place takes it
    placed = []
    for place in found:
        row, column = (place.task, place.backbone) if many else (place.backbone, place.task)
        first = down.index(row) * measures
        mine = [axes[first + number][across.index(column)] for number in range(measures)]
        for panel in mine:
            panel.set_axis_on()
        mine[0].set_title(place.title)
        placed.append((place, mine))
    return figure, placed


def outer_labels(figure: Figure, ticks: bool = False) -> None:
    """Keep axes' labels, and with `ticks` the ticks' too, at the left and at the bottom alone."""
    for panel in figure.axes:
        spec = panel.get_subplotspec()
        if spec is None:
            continue
        if not spec.is_first_col():
            panel.set_ylabel("")
        if not spec.is_last_row():
            panel.set_xlabel("")
        if ticks:
            panel.tick_params(labelleft=spec.is_first_col(), labelbottom=spec.is_last_row())


def same_x(panels: Iterable[Any]) -> None:
    """Give panels with something in them one range and the same ticks along x."""
    drawn = [panel for panel in panels if panel.lines]
    ends = [end for panel in drawn for end in panel.get_xlim()]
    ticks = sorted({float(tick) for panel in drawn for tick in panel.get_xticks()})
    for panel in drawn:
        panel.set_xticks(ticks)
        panel.set_xlim(min(ends), max(ends))


def same_y(panels: Sequence[Any]) -> None:
    """Give panels one range along y."""
    limits = [end for panel in panels for end in panel.get_ylim()]
    for panel in panels:
        panel.set_ylim(min(limits), max(limits))


def entry(label: str, colour: str, marker: Any, **more: Any) -> Line2D:
    """An entry of a legend."""
    line = {"linestyle": "none", "markeredgewidth": 0.7, **more}
    return Line2D([], [], label=label, color=colour, marker=marker, **line)


def say(panel: Any, text: str) -> None:
    """A sentence in place of a plot."""
    panel.text(0.5, 0.5, text, transform=panel.transAxes, ha="center", va="center", color="#666666")
    panel.set_xticks([])
    panel.set_yticks([])


def percent_axis(panel: Any, low: float, high: float) -> None:
    """From `low` to `high` %, at least ten points high, with room for markers and labels."""
    missing = max(0.0, 10 - (high - low)) / 2
    room = 0.07 * (high - low + 2 * missing)
    panel.set_ylim(max(-3.0, low - missing - room), min(104.0, high + missing + room))


def seeds_note(rows: pd.DataFrame) -> str:
    """What the short marks are, where a suite has heads that repeat others with new seeds."""
    repeated = bool(rows["head_seed_of"].notna().any())
    return "Short marks: the same head trained with other seeds." if repeated else ""
