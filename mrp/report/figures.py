"""The figures: pareto, lookahead and remask, each as PDF, PNG and SVG with its numbers as CSV."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from mrp.io import atomic_write_text
from mrp.report import style
from mrp.report.comparisons import reference
from mrp.report.curves import SYMBOLS, Curve, cells, curves, plotted, static_point
from mrp.report.labels import Label, place
from mrp.report.page import DIGITS
from mrp.report.tables import control_at

ALL_MODES = ("static", "direct", "speculative", "self_speculative", "dynamic", "remask")
SPEEDS = {"tpf": "tokens per forward (TPF)", "time_ratio": "time ratio (tokens/s over static's)"}


@dataclass(frozen=True)
class Drawing:
    """A figure and the numbers in it."""

    figure: Figure
    numbers: pd.DataFrame


def write_figures(rows: pd.DataFrame, out: Path) -> list[Path]:
    """Write all figures to `out`; the same records give the same bytes.

    Args:
        rows: the tidy table of results.

    Returns:
        The files.
    """
    files = []
    drawers: dict[str, Callable[[pd.DataFrame], Drawing]] = {
        "pareto": pareto,
        "lookahead": lookahead,
        "remask": remask,
    }
    for name, draw in drawers.items():
        with style.styled():
            drawing = draw(rows)
            files += style.save(drawing.figure, out, name)
        path = Path(out) / f"{name}.csv"
        text = drawing.numbers.to_csv(index=False, float_format=DIGITS, lineterminator="\n")
        atomic_write_text(path, text)
        files.append(path)
    return files


# ---- pareto --------------------------------------------------------------------------------------


def pareto(rows: pd.DataFrame) -> Drawing:
    """Accuracy over speed: a column a task, and for each backbone a row for TPF and one for time.

    Every mode is a curve with its knob's values beside the points; a grey band marks the frontier.
    """
    backbones, tasks = list(dict.fromkeys(rows["backbone"])), list(dict.fromkeys(rows["task"]))
    figure, axes = style.panels(len(backbones) * len(SPEEDS), len(tasks), 3.2)
    handles: list[Any] = []
    numbers: list[pd.DataFrame] = []
    pending: list[tuple[Any, list[Label]]] = []
    for backbone, task, cell in cells(rows):
        found = curves(cell, ALL_MODES)
        numbers += [plotted(curve, backbone, task) for curve in found]
        for offset, speed in enumerate(SPEEDS):
            panel = axes[len(SPEEDS) * backbones.index(backbone) + offset][tasks.index(task)]
            panel.set_title(f"{backbone} · {task}")
            panel.set_xlabel(SPEEDS[speed])
            panel.set_ylabel("accuracy, %")
            shown = [curve for curve in found if curve.rows[speed].notna().any()]
            if not shown:
                _say(panel, "no records" if not found else "not timed")
                continue
            handles += [curve.draw(panel, speed) for curve in shown]
            handles += _frontier(panel, cell, shown, speed)
            point = static_point(panel, cell, 1.0)
            handles += [point] if point else []
            _percent_axis(panel)
            labels = [label for curve in shown for label in _knob_labels(curve, speed)]
            pending.append((panel, labels))
    style.legend(figure, _ordered(handles), "beside the points: K, τ or steps a block")
    style.freeze(figure)
    for panel, labels in pending:
        place(panel, labels)
    return Drawing(figure, _joined(numbers))


def _frontier(panel: Any, cell: pd.DataFrame, shown: Sequence[Curve], speed: str) -> list[Any]:
    """Draw through the points than which none is both faster and more accurate."""
    points = [mark for curve in shown for mark in _marks(curve, speed)]
    static = reference(cell)
    if static is not None:
        points.append((1.0, 100 * static["accuracy"]))
    best = frontier(points)
    line = panel.plot(
        [x for x, _ in best],
        [y for _, y in best],
        color="#d9d9d9",
        linewidth=5,
        solid_capstyle="round",
        solid_joinstyle="round",
        zorder=0.5,
        label="frontier",
    )
    return list(line)


def frontier(points: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    """The points that no other beats in both coordinates, from left to right."""
    best: list[tuple[float, float]] = []
    for x, y in sorted(points, key=lambda point: (-point[0], -point[1])):
        if not best or y > best[-1][1]:
            best.append((x, y))
    return best[::-1]


def _marks(curve: Curve, speed: str) -> list[tuple[float, float]]:
    shown = curve.rows.dropna(subset=[speed])
    return list(zip(shown[speed], 100 * shown["accuracy"], strict=True))


def _knob_labels(curve: Curve, speed: str) -> list[Label]:
    """The knob's values: its name at the first point; the two ends are placed first."""
    labels = []
    shown = curve.rows.dropna(subset=[speed])
    values = [f"{value:g}".removeprefix("0").replace("inf", "auto") for value in shown[curve.knob]]
    for number, ((x, y), text) in enumerate(zip(_marks(curve, speed), values, strict=True)):
        last = number == len(values) - 1
        named = f"{SYMBOLS[curve.knob]}={text}" if number == 0 else text
        rank = 0 if number == 0 else 1 if last else 2
        labels.append(Label(x, y, named, _darker(curve.colour), rank))
    return labels


# ---- lookahead -----------------------------------------------------------------------------------


def lookahead(rows: pd.DataFrame) -> Drawing:
    """Accuracy of direct decoding over K: a panel a backbone and task, a curve a head."""
    found = list(cells(rows))
    figure, axes = _one_row_a_backbone(rows)
    handles: list[Any] = []
    numbers: list[pd.DataFrame] = []
    for panel, (backbone, task, cell) in zip(axes, found, strict=True):
        panel.set_title(f"{backbone} · {task}")
        panel.set_xlabel("lookahead K")
        panel.set_ylabel("accuracy, %")
        shown = [_by_head(curve) for curve in curves(cell, ("direct",))]
        control = _control(cell, shown)
        shown += [control] if control is not None else []
        if not shown:
            _say(panel, "no records")
            continue
        numbers += [plotted(curve, backbone, task) for curve in shown]
        for curve, shift in zip(shown, _spread(len(shown), 0.05), strict=True):
            moved = replace(curve, rows=curve.rows.assign(at=curve.rows["k"] + shift))
            handles.append(moved.draw(panel, "at", errors=True))
        point = static_point(panel, cell, 0.0)
        handles += [point] if point else []
        panel.set_xticks(sorted({0, *(int(k) for curve in shown for k in curve.rows["k"])}))
        panel.set_ylim(0, 102)
    style.legend(figure, handles)
    return Drawing(figure, _joined(numbers))


def _by_head(curve: Curve) -> Curve:
    """A curve of direct decoding in its head's colour, named by the head."""
    variant = str(curve.rows["head_variant"].iloc[0])
    objective = "direct objective" if variant == "direct" else "residual"
    chained = ", chained" if variant == "k2" else ""
    name = f"{curve.name.removeprefix('direct, ')}: {objective}{chained}"
    return replace(curve, name=name, colour=style.HEAD_COLOURS[variant])


def _control(cell: pd.DataFrame, shown: Sequence[Curve]) -> Curve | None:
    """The static runs with as few steps as direct decoding with K has, placed at that K."""
    ks = sorted({int(k) for curve in shown for k in curve.rows["k"]})
    rows = {k: row for k in ks if (row := control_at(cell, k)) is not None}
    if not rows:
        return None
    frame = pd.DataFrame(list(rows.values())).assign(k=list(rows))
    name = "no head: static at the same TPF"
    return Curve(name, style.GREY, style.OTHER_MARKER, True, "k", frame)


# ---- remask --------------------------------------------------------------------------------------


def remask(rows: pd.DataFrame) -> Drawing:
    """Dynamic and remask: a row a backbone and task, over the threshold and over the speed."""
    found = list(cells(rows))
    figure, axes = style.panels(len(found), 2, 2.6)
    handles: list[Any] = []
    numbers: list[pd.DataFrame] = []
    pending: list[tuple[Any, list[Label]]] = []
    for (left, right), (backbone, task, cell) in zip(axes, found, strict=True):
        shown = _coloured(curves(cell, ("dynamic", "remask")))
        left.set_title(f"{backbone} · {task}: at equal τ")
        right.set_title(f"{backbone} · {task}: at equal speed")
        left.set_xlabel("confidence threshold τ")
        right.set_xlabel(SPEEDS["tpf"])
        left.set_ylabel("accuracy, %")
        if not shown:
            _say(left, "no records")
            _say(right, "no records")
            continue
        numbers += [plotted(curve, backbone, task) for curve in shown]
        for curve, shift in zip(shown, _spread(len(shown), 0.006), strict=True):
            moved = replace(curve, rows=curve.rows.assign(at=curve.rows["tau"] + shift))
            handles.append(moved.draw(left, "at", errors=True))
            curve.draw(right, "tpf")
        static = reference(cell)
        if static is not None:
            left.axhline(100 * static["accuracy"], color=style.BLACK, linewidth=0.8, linestyle=":")
            handles.append(static_point(right, cell, static["tpf"]))
        left.set_xticks(sorted({tau for curve in shown for tau in curve.rows["tau"]}))
        labels = [label for curve in shown for label in _knob_labels(curve, "tpf")]
        pending.append((right, labels))
        right.sharey(left)
        _percent_axis(left)
    style.legend(figure, handles, "dotted: static; beside the points: τ")
    style.freeze(figure)
    for panel, labels in pending:
        place(panel, labels)
    return Drawing(figure, _joined(numbers))


def _coloured(found: Sequence[Curve]) -> list[Curve]:
    """Every variant of remask in a colour of its own."""
    palette = iter((style.VERMILLION, style.BLUE, style.GREEN, style.PURPLE, style.SKY) * 9)
    return [
        curve if curve.rows["mode"].iloc[0] == "dynamic" else replace(curve, colour=next(palette))
        for curve in found
    ]


# ---- parts ---------------------------------------------------------------------------------------


def _one_row_a_backbone(rows: pd.DataFrame) -> tuple[Figure, list[Any]]:
    """Panels for every backbone and task, in the order of `cells`."""
    backbones, tasks = rows["backbone"].nunique(), rows["task"].nunique()
    figure, axes = style.panels(backbones, tasks, 2.5)
    return figure, [panel for row in axes for panel in row]


def _spread(n: int, step: float) -> list[float]:
    """Small shifts around 0 that keep error bars apart."""
    return [float(shift) for shift in (np.arange(n) - (n - 1) / 2) * step]


def _percent_axis(panel: Any) -> None:
    """At least ten points high, and never far beyond 0 and 100 %."""
    low, high = panel.get_ylim()
    missing = max(0.0, 10 - (high - low)) / 2
    panel.set_ylim(max(-4.0, low - missing), min(104.0, high + missing))


def _ordered(handles: Sequence[Any]) -> list[Any]:
    """Static and the frontier at the end of a legend."""
    last = ("static", "frontier")
    return sorted(handles, key=lambda handle: str(handle.get_label()) in last)


def _darker(colour: str) -> str:
    """A colour for small text, dark enough to read."""
    parts = (int(colour[i : i + 2], 16) for i in (1, 3, 5))
    return "#" + "".join(f"{round(0.7 * part):02x}" for part in parts)


def _say(panel: Any, text: str) -> None:
    """A sentence in place of a plot."""
    panel.text(0.5, 0.5, text, transform=panel.transAxes, ha="center", va="center", color="#777777")
    panel.set_xticks([])
    panel.set_yticks([])


def _joined(numbers: Sequence[pd.DataFrame]) -> pd.DataFrame:
    return pd.concat(numbers, ignore_index=True) if numbers else pd.DataFrame()
