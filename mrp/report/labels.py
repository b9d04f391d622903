"""Text at points of a plot, placed so that no text covers a marker or another text."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from matplotlib.text import Text

from mrp.report.statistics import Floats

DIRECTIONS = (90, -90, 0, 180, 45, -45, 135, -135)  # degrees, tried in this order
DISTANCES = (4.5, 7.0, 10.0)  # points (1/72 inch) from the marker's centre to the text
MARKER = 2.6  # half a marker's size, in points
LINE = 0.8  # half of what is kept free around a line, in points
SIZE = 5.6
FAINT = 0.6  # the opacity of labels of points that matter less
# A veil behind the text, for where it has to cross a line. (An outline would turn it into shapes.)
VEIL = {"boxstyle": "square,pad=0.04", "facecolor": "white", "edgecolor": "none", "alpha": 0.7}


@dataclass(frozen=True)
class Label:
    """Text for the point (x, y) in data coordinates; a smaller rank is placed first.

    Of `texts` the first one that has a place is written; faint unless `strong`.
    """

    x: float
    y: float
    texts: tuple[str, ...]
    colour: str
    rank: int
    strong: bool = True


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
        at = axes.transData.transform((label.x, label.y))
        for written in label.texts:
            text = axes.annotate(
                written,
                (label.x, label.y),
                xytext=(0, 0),
                textcoords="offset points",
                ha="center",
                va="center_baseline",
                color=label.colour,
                alpha=1.0 if label.strong else FAINT,
                fontsize=SIZE,
                bbox=VEIL,
                zorder=2.5,
                annotation_clip=False,
            )
            box = Text.get_window_extent(text, renderer)  # without the veil's margin
            obstacles = [np.vstack([taken, lines]), taken]
            spot = _free(at, box.width, box.height, unit, frame, obstacles)
            if spot is None:
                text.remove()
                continue
            shift = (spot[::2].mean() - at[0], spot[1::2].mean() - at[1])
            text.set_position((shift[0] / unit, shift[1] / unit))
            taken = np.vstack([taken, spot])
            placed += 1
            break
    return placed


def _free(
    at: Floats, width: float, height: float, unit: float, frame: Floats, obstacles: list[Floats]
) -> Floats | None:
    """The first place beside `at` that is free of the first obstacles, else of the next ones.

    All in pixels; a box is [x0, y0, x1, y1], obstacles are [boxes, 4].
    """
    spots = _spots(at, width, height, unit)
    low, high = spots[:, :2], spots[:, 2:]
    spots = spots[np.all(low >= frame[:2], axis=1) & np.all(high <= frame[2:], axis=1)]
    low, high = spots[:, None, :2], spots[:, None, 2:]
    for boxes in obstacles:
        apart = np.any((boxes[:, :2] >= high) | (boxes[:, 2:] <= low), axis=2)
        free = np.all(apart, axis=1)
        if free.any():
            found: Floats = spots[free.argmax()]
            return found
    return None


def _spots(at: Floats, width: float, height: float, unit: float) -> Floats:
    """Boxes around `at`, near ones first: [spots, 4]."""
    half = np.array([width, height]) / 2
    centres = [
        at + np.array([math.cos(angle), math.sin(angle)]) * (distance * unit + half * [1.0, 0.6])
        for distance in DISTANCES
        for angle in map(math.radians, DIRECTIONS)
    ]
    return _boxes(np.array(centres), half)


def _marks_and_lines(axes: Any, unit: float) -> tuple[Floats, Floats]:
    """Boxes around all markers and texts, and along all lines: [boxes, 4] each."""
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
    boxes = [_boxes(np.vstack(marks), MARKER * unit)]
    boxes += [np.array([text.get_window_extent().extents]) for text in axes.texts]
    return np.vstack(boxes), _boxes(np.vstack(lines), LINE * unit)


def _boxes(centres: Floats, half: float | Floats) -> Floats:
    return np.hstack([centres - half, centres + half])
