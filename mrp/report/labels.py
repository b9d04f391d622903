"""Text at points of a plot, placed so that no text covers a marker or another text."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from matplotlib.patheffects import withStroke

from mrp.report.statistics import Floats

DIRECTIONS = (90, -90, 0, 180, 45, -45, 135, -135)  # degrees, tried in this order
DISTANCES = (4.5, 7.0, 10.0)  # points (1/72 inch) from the marker's centre to the text
MARKER = 2.6  # half a marker's size, in points
LINE = 0.8  # half of what is kept free around a line, in points
SIZE = 6.0
HALO = [withStroke(linewidth=1.2, foreground="white")]  # where a text has to cross a line


@dataclass(frozen=True)
class Label:
    """Text for the point (x, y) in data coordinates; a smaller rank is placed first."""

    x: float
    y: float
    text: str
    colour: str
    rank: int


def place(axes: Any, labels: Iterable[Label]) -> int:
    """Write labels beside their points; one that has no free place is left out.

    A place off all curves is looked for first, then one that crosses a curve. Call it when the
    figure's layout is final.

    Returns:
        How many labels found a place.
    """
    figure = axes.figure
    unit = figure.dpi / 72
    renderer = figure.canvas.get_renderer()
    window = axes.get_window_extent()
    frame = np.array([window.x0, window.y0, window.x1, window.y1])
    marks, lines = _marks_and_lines(axes, unit)
    taken = marks
    placed = 0
    for label in sorted(labels, key=lambda label: label.rank):
        text = axes.annotate(
            label.text,
            (label.x, label.y),
            xytext=(0, 0),
            textcoords="offset points",
            ha="center",
            va="center_baseline",
            color=label.colour,
            fontsize=SIZE,
            path_effects=HALO,
            annotation_clip=False,
        )
        at = axes.transData.transform((label.x, label.y))
        box = text.get_window_extent(renderer)
        spot = _free(at, box.width, box.height, unit, frame, [np.vstack([taken, lines]), taken])
        if spot is None:
            text.remove()
            continue
        text.set_position(((spot[::2].mean() - at[0]) / unit, (spot[1::2].mean() - at[1]) / unit))
        taken = np.vstack([taken, spot])
        placed += 1
    return placed


def _free(
    at: Floats, width: float, height: float, unit: float, frame: Floats, obstacles: list[Floats]
) -> Floats | None:
    """The first place beside `at` that is free of the first obstacles, else of the next ones.

    All in pixels; a box is [x0, y0, x1, y1], obstacles are [boxes, 4].
    """
    for boxes in obstacles:
        for spot in _spots(at, width, height, unit):
            inside = (spot[:2] >= frame[:2]).all() and (spot[2:] <= frame[2:]).all()
            apart = (boxes[:, :2] >= spot[2:]).any(axis=1) | (boxes[:, 2:] <= spot[:2]).any(axis=1)
            if inside and apart.all():
                return spot
    return None


def _spots(at: Floats, width: float, height: float, unit: float) -> Iterator[Floats]:
    """Boxes around `at`, near ones first."""
    half = np.array([width, height]) / 2
    for distance in DISTANCES:
        for angle in DIRECTIONS:
            way = np.array([math.cos(math.radians(angle)), math.sin(math.radians(angle))])
            centre = at + way * (distance * unit + half * [1.0, 0.6])
            yield np.concatenate([centre - half, centre + half])


def _marks_and_lines(axes: Any, unit: float) -> tuple[Floats, Floats]:
    """Boxes around all markers, and along all lines: [boxes, 4] each."""
    marks: list[Floats] = [np.empty((0, 2))]
    lines: list[Floats] = [np.empty((0, 2))]
    for line in axes.get_lines():
        points = axes.transData.transform(line.get_xydata())
        if line.get_marker() not in ("None", None, ""):
            marks.append(points)
        if line.get_linestyle() == "None" or not line.get_visible():
            continue
        for start, end in pairwise(points):
            steps = 2 + int(np.hypot(*(end - start)) / (2 * LINE * unit))
            lines.append(np.linspace(start, end, steps))
    return _boxes(np.vstack(marks), MARKER * unit), _boxes(np.vstack(lines), LINE * unit)


def _boxes(centres: Floats, half: float) -> Floats:
    return np.hstack([centres - half, centres + half])
