"""headline: two panels for those who look at one figure: speed, and accuracy after remasking."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.patches import Patch

from mrp.config import OPTIONS
from mrp.report import style
from mrp.report.comparisons import reference, select
from mrp.report.curves import (
    Curve,
    Place,
    curves,
    knob_of,
    mode_name,
    places,
    split,
    symbol,
    variant_name,
)
from mrp.report.figures.parts import Drawing, say
from mrp.report.frame import AUTO
from mrp.report.pooling import highest, speed_measure
from mrp.report.statistics import Estimate
from mrp.schema import LOSSLESS

DIRECT = "direct"  # the one mode of the left panel that is not lossless
MEASURES = {"time_ratio": "tokens/s", "tpf": "tokens per forward"}
BAR = 0.13  # inches
ROOM = 15.0  # % of accuracy


@dataclass(frozen=True)
class Setting:
    """A mode with its head and options, the same for all backbones."""

    mode: str
    name: str
    wanted: dict[str, Any]


def headline(rows: pd.DataFrame) -> Drawing:
    """Left: speed over static's. Right: accuracy of dynamic and remask over τ. Means over tasks.

    Of each lossless mode the fastest setting is shown, of direct decoding the smallest K with the
    most accurate head; one choice for all backbones.
    """
    found = places(rows)
    backbones = list(dict.fromkeys(place.backbone for place in found))
    settings, choice = _settings(found)
    height = max(1.6, 0.55 + BAR * (len(settings) + 1) * len(backbones))
    widths = [2.6 if len(backbones) > 1 else 1.5, *[1.0] * len(backbones)]
    figure, ((left, *right),) = style.panels(1, len(widths), height, width_ratios=widths)
    numbers: list[dict[str, Any]] = []
    handles: list[Any] = []
    look = style.looks(dict.fromkeys(rows["mode"]))
    left.set_title("Speed over static decoding")
    if settings:
        handles += _bars(left, _of(found, backbones), settings, look, numbers)
    else:
        say(left, "no lossless or direct runs")
    variants = _variants(found)
    for panel, backbone in zip(right, backbones, strict=True):
        panel.set_title(backbone)
        panel.set_xlabel("threshold τ")
        mine = [place for place in found if place.backbone == backbone]
        handles += _lines(panel, backbone, mine, variants, numbers)
        panel.set_ylim(0, 100)
        panel.tick_params(labelleft=panel is right[0])
    right[0].set_ylabel("accuracy, %")
    tasks = ", ".join(dict.fromkeys(place.task.removeprefix("mrp_") for place in found))
    means = f"Arithmetic means over {tasks}, with 95 % intervals."
    note = f"{means} Dotted: static. Bold: gain in points."
    style.legend(figure, handles, f"{note}\n{choice}")
    return Drawing(figure, pd.DataFrame(numbers))


def _of(found: Sequence[Place], backbones: Sequence[str]) -> dict[str, list[Place]]:
    return {name: [place for place in found if place.backbone == name] for name in backbones}


# ---- left: speed ---------------------------------------------------------------------------------


def _settings(found: Sequence[Place]) -> tuple[list[Setting], str]:
    """What the left panel shows, in the suite's order; how it was chosen, in a sentence."""
    rows = pd.concat([place.rows for place in found])
    modes = [mode for mode in dict.fromkeys(rows["mode"]) if mode in (DIRECT, *LOSSLESS)]
    of_mode = {mode: parts for mode in modes if (parts := _candidates(rows, mode))}
    lossless = [part for mode in of_mode if mode != DIRECT for part in of_mode[mode]]
    speed = speed_measure(pd.concat(lossless)) if lossless else ""
    chosen = []
    for mode, parts in of_mode.items():
        best = highest(parts, "accuracy" if mode == DIRECT else speed)
        chosen.append(_setting(best.iloc[0], knob_of(rows[rows["mode"] == mode])))
    reasons = []
    if lossless:
        reasons.append(f"each lossless mode's with the most {MEASURES[speed]}")
    if DIRECT in of_mode:
        reasons.append("direct's smallest K with the most accurate head")
    why = f"Settings, by means over all bars of a mode: {', '.join(reasons)}." if reasons else ""
    return chosen, why


def _candidates(rows: pd.DataFrame, mode: str) -> list[pd.DataFrame]:
    """The settings of a mode that may be shown: uncapped, K not left to the mode, on most places.

    Of direct decoding those with the smallest K.
    """
    rows = rows[(rows["mode"] == mode) & (rows["cap"].fillna(1) == 1) & (rows["k"] != AUTO)]
    if mode == DIRECT:
        rows = rows[rows["k"] == rows["k"].min()]
    groups = split(rows, ["head", *OPTIONS])
    most = max(map(len, groups), default=0)
    return [part for part in groups if len(part) == most]


def _setting(row: pd.Series[Any], knob: str) -> Setting:
    parts = (mode_name(row["mode"]), variant_name(row, knob), f"{symbol(knob)}={row[knob]:g}")
    options = {name: row[name] for name in ("mode", "head", *OPTIONS)}
    wanted = {name: None if pd.isna(value) else value for name, value in options.items()}
    return Setting(str(row["mode"]), ", ".join(filter(None, parts)), wanted)


def _bars(
    panel: Any,
    by_backbone: dict[str, list[Place]],
    settings: Sequence[Setting],
    look: Any,
    numbers: list[dict[str, Any]],
) -> list[Any]:
    """Draw a group of bars a backbone; the solid part is time, the outline tokens per forward."""
    step = len(settings) + 1
    longest = 1.0
    for group, (backbone, mine) in enumerate(by_backbone.items()):
        for number, setting in enumerate(settings):
            y = group * step + number
            colour = look[setting.mode].colour
            shown = [select(place.rows, **setting.wanted) for place in mine]
            found = pd.concat(shown)
            if found.empty:
                _note(panel, "no record", (0.0, y), colour)
                continue
            tpf, time = _mean(found, "tpf"), _mean(found, "time_ratio")
            texts = []
            for name, value in (("time_ratio", time), ("tpf", tpf)):
                if value is None:
                    continue
                texts.append(f"{value.value:.2f}")
                numbers.append(_number("speed", backbone, setting.name, name, np.nan, value))
            if time is not None:
                panel.barh(y, time.value, 0.8, color=colour)
                panel.plot([time.low, time.high], [y, y], color=style.BLACK, linewidth=0.7)
            if tpf is not None:
                panel.barh(y, tpf.value, 0.8, fill=False, edgecolor=colour, linewidth=0.9)
            ends = [v.high if v is time else v.value for v in (time, tpf) if v is not None]
            longest = max(longest, *ends)
            _note(panel, " | ".join(texts), (max(ends), y), colour)
    middles = [group * step + (len(settings) - 1) / 2 for group in range(len(by_backbone))]
    panel.set_yticks(middles, list(by_backbone), fontsize=7.2, fontweight="bold")
    panel.tick_params(axis="y", length=0)
    panel.set_ylim(len(by_backbone) * step - 1.3, -0.7)
    panel.set_xlim(0, longest * 1.22)
    panel.grid(axis="y", visible=False)
    panel.axvline(1, color=style.BLACK, linewidth=0.8, linestyle=":")
    panel.set_xlabel("ratio to static: solid tokens/s, outline tokens per forward")
    return [Patch(color=look[each.mode].colour, label=each.name) for each in settings]


def _note(panel: Any, text: str, at: tuple[float, float], colour: Any) -> None:
    panel.annotate(
        text,
        at,
        xytext=(2.5, 0),
        textcoords="offset points",
        va="center_baseline",
        fontsize=5.6,
        color=style.for_text(colour),
    )


def _mean(rows: pd.DataFrame, measure: str) -> Estimate | None:
    """Arithmetic mean over tasks, as in the tables; the interval is of independent tasks."""
    rows = rows.dropna(subset=[measure])
    if rows.empty:
        return None
    value = float(rows[measure].mean())
    down, up = (
        math.sqrt(float(((rows[measure] - rows[f"{measure}_{end}"]) ** 2).sum())) / len(rows)
        for end in ("low", "high")
    )
    return Estimate(value, value - down, value + up)


# ---- right: accuracy -----------------------------------------------------------------------------


def _variants(found: Sequence[Place]) -> list[str]:
    """Dynamic, the suite's first way of remasking, and its first with other passes."""
    for place in found:
        remasks = curves(place, ("remask",))
        if remasks:
            first = remasks[0]
            others = [curve for curve in remasks if _passes(curve) != _passes(first)]
            return [first.name, *(curve.name for curve in others[:1])]
    return []


def _passes(curve: Curve) -> Any:
    return curve.rows["passes"].iloc[0] if "passes" in curve.rows else None


def _lines(
    panel: Any,
    backbone: str,
    mine: Sequence[Place],
    variants: Sequence[str],
    numbers: list[dict[str, Any]],
) -> list[Any]:
    """Draw mean accuracies over τ of one backbone."""
    per_task = [curves(place, ("dynamic", "remask")) for place in mine]
    handles = []
    drawn: list[Curve] = []
    for number, name in enumerate(["dynamic", *variants]):
        same = [curve for found in per_task for curve in found if curve.name == name]
        means = _means(same, len(mine))
        if means.empty:
            continue
        last = number == len(variants)
        dashes = "-" if number == 0 or last else style.DASHES[1]
        curve = replace(same[0], rows=means, dashes=dashes, filled=number == 0 or last)
        ends = ("accuracy_low", "accuracy_high")
        handles.append(curve.draw(panel, means["tau"], "accuracy", ends))
        drawn.append(curve)
        for _, mean in means.iterrows():
            value = Estimate(*(mean[column] for column in ("accuracy", *ends)))
            numbers.append(_number("accuracy", backbone, name, "accuracy", mean["tau"], value))
    if not drawn:
        say(panel, "no records")
        return []
    static = [row for place in mine if (row := reference(place.rows)) is not None]
    if len(static) == len(mine):
        level = 100 * float(np.mean([row["accuracy"] for row in static]))
        panel.axhline(level, color=style.BLACK, linewidth=0.8, linestyle=":")
    else:
        panel.text(0.97, 0.02, "static: no record", transform=panel.transAxes, ha="right", size=5.6)
    panel.set_xticks(sorted({tau for curve in drawn for tau in curve.rows["tau"]}))
    _mark_gain(panel, drawn)
    return handles


def _means(same: Sequence[Curve], tasks: int) -> pd.DataFrame:
    """Means over tasks at each τ that all tasks have, with intervals of independent tasks."""
    rows = pd.concat([curve.rows for curve in same]) if same else pd.DataFrame({"tau": []})
    means = []
    for tau, part in rows.groupby("tau"):
        if len(part) < tasks:
            continue
        mean = _mean(part, "accuracy")
        if mean is None:
            continue
        ends = {"accuracy_low": mean.low, "accuracy_high": mean.high}
        means.append({"mode": part["mode"].iloc[0], "tau": tau, "accuracy": mean.value, **ends})
    return pd.DataFrame(means)


def _mark_gain(panel: Any, drawn: Sequence[Curve]) -> None:
    """The points between dynamic and the last way of remasking at the lowest τ."""
    if len(drawn) < 2 or drawn[0].mode != "dynamic":
        return
    low, high = (curve.rows.set_index("tau")["accuracy"] for curve in (drawn[0], drawn[-1]))
    both = low.index.intersection(high.index)
    if both.empty:
        return
    tau = both.min()
    start, end = 100 * low[tau], 100 * high[tau]
    # Curves rise from here to the right: below them is room, unless they start at the axis.
    below = min(start, end) > ROOM
    panel.annotate(
        f"{end - start:+.0f}",
        (tau, min(start, end) if below else max(start, end)),
        xytext=(-3, -5 if below else 5),
        textcoords="offset points",
        va="top" if below else "bottom",
        color=style.for_text(drawn[-1].colour),
        fontweight="bold",
    )
    panel.plot([tau, tau], [start, end], color=drawn[-1].colour, linewidth=0.8, zorder=1)


def _number(
    panel: str, backbone: str, name: str, measure: str, tau: float, value: Estimate
) -> dict[str, Any]:
    """A line of the CSV file."""
    return {
        "panel": panel,
        "backbone": backbone,
        "setting": name,
        "tau": tau,
        "measure": measure,
        "mean": value.value,
        "low": value.low,
        "high": value.high,
    }
