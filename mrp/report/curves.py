"""Which rows make a curve, and how it is called and drawn."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from mrp.config import OPTIONS
from mrp.report import style
from mrp.report.comparisons import reference, select
from mrp.report.settings import KNOBS, option_text, own_options

# Other options are called by their names.
SYMBOLS = {"k": "K", "tau": "τ", "gamma": "\N{GREEK SMALL LETTER GAMMA}"}


@dataclass(frozen=True)
class Place:
    """One backbone on one task.

    Attributes:
        rows: with a record; of heads that were trained with several seeds, the first alone.
        repeats: the rows of the other seeds.
    """

    backbone: str
    task: str
    rows: pd.DataFrame
    repeats: pd.DataFrame

    @property
    def title(self) -> str:
        """What stands above its panel."""
        return f"{self.backbone} · {self.task.removeprefix('mrp_')}"

    def seeds(self, row: pd.Series[Any]) -> pd.DataFrame:
        """The rows that differ from `row` in the seed of the head alone."""
        if self.repeats.empty:
            return self.repeats
        wanted = {name: None if pd.isna(row[name]) else row[name] for name in OPTIONS}
        return select(self.repeats, mode=row["mode"], head_seed_of=row["head"], **wanted)


def places(rows: pd.DataFrame) -> list[Place]:
    """Every backbone and task in the suite's order."""
    found = []
    for (backbone, task), cell in rows.groupby(["backbone", "task"], sort=False):
        done = select(cell, status="done")
        repeated = done["head_seed_of"].notna()
        found.append(Place(str(backbone), str(task), done[~repeated], done[repeated]))
    return found


@dataclass(frozen=True)
class Curve:
    """Rows of one backbone and task that differ in one knob alone, in its order.

    Attributes:
        mode: of all rows.
        name: the mode with all that differs from its usual way; in legends and CSV files.
        variant: the same without the mode.
        knob: an option, or "" for a mode that has none.
    """

    mode: str
    name: str
    variant: str
    colour: str
    marker: Any
    dashes: Any
    filled: bool
    knob: str
    rows: pd.DataFrame

    def knob_texts(self) -> list[str]:
        """The knob's values as short texts."""
        if not self.knob:
            return [""] * len(self.rows)
        values = [f"{value:g}" for value in self.rows[self.knob]]
        return [value.removeprefix("0").replace("inf", "auto") for value in values]

    def draw(
        self,
        axes: Any,
        x: Sequence[float] | pd.Series[Any],
        y: str,
        ends: tuple[str, str] | None = None,
        unit: float = 100,
    ) -> Any:
        """Plot `unit` times a column over x [rows], with its interval if `ends` are given."""
        values, at = unit * self.rows[y], np.asarray(x, dtype=float)
        if ends is not None:
            low, high = (unit * self.rows[end] for end in ends)
            axes.errorbar(
                *(at, values, np.clip([values - low, high - values], 0, None)),
                fmt="none",
                ecolor=self.colour,
                elinewidth=0.7,
                alpha=0.55,
            )
        (line,) = axes.plot(
            *(at, values),
            label=self.name,
            color=self.colour,
            marker=self.marker,
            markerfacecolor=self.colour if self.filled else "white",
            markeredgewidth=0.7,
            linestyle=self.dashes,
        )
        return line


def curves(
    place: Place, modes: Sequence[str] | None = None, known: Sequence[str] = ()
) -> list[Curve]:
    """The curves of some modes (None: all); static means the controls with fewer steps.

    Args:
        known: all modes of the suite, so that a mode looks the same in all its figures.
    """
    look = style.looks(known or dict.fromkeys(place.rows["mode"]))
    found = []
    for rows in split(place.rows, ("mode",)):
        mode = str(rows["mode"].iloc[0])
        if modes is not None and mode not in modes:
            continue
        knob = knob_of(rows)
        keys = ["head", *(name for name in OPTIONS if name != knob)]
        parts = split(rows, keys, knob)
        for number, part in enumerate(parts):
            first = part.iloc[0]
            found.append(
                Curve(
                    mode=mode,
                    name=curve_name(first, knob),
                    variant=variant_name(first, knob),
                    colour=look[mode].colour,
                    marker=look[mode].marker,
                    dashes=style.DASHES[number % len(style.DASHES)],
                    filled=not first["trained_here"],
                    knob=knob,
                    rows=part,
                )
            )
    return found


def split(rows: pd.DataFrame, columns: Sequence[str], order: str = "") -> list[pd.DataFrame]:
    """Rows by the values of columns, as they first appear; missing values are equal.

    With `order` each part is sorted by that column, and rows without a value in it are left out.
    Much faster than pandas' own grouping, where the columns are many and the rows few.
    """
    found: dict[tuple[Any, ...], list[int]] = {}
    rank = rows[order].tolist() if order else []
    values = zip(*(rows[name].tolist() for name in columns), strict=True)
    for number, key in enumerate(values):
        if not order or not pd.isna(rank[number]):
            found.setdefault(tuple(None if pd.isna(v) else v for v in key), []).append(number)
    if order:
        found = {key: sorted(numbers, key=rank.__getitem__) for key, numbers in found.items()}
    return [rows.iloc[numbers] for numbers in found.values()]


def knob_of(rows: pd.DataFrame) -> str:
    """The option along which a mode's runs make a curve: of those that it needs, what varies most.

    "" for a mode that needs none.
    """
    varied = {name: len({v for v in rows[name].tolist() if not pd.isna(v)}) for name in KNOBS}
    best = max(varied, key=lambda name: varied[name])
    return best if varied[best] else ""


def symbol(knob: str) -> str:
    """What a knob is called beside points."""
    return SYMBOLS.get(knob, knob)


def curve_name(row: pd.Series[Any], knob: str) -> str:
    """A curve's name in legends and in the CSV files."""
    if row["mode"] == "static":
        return "no head: static, fewer steps"
    mode, variant = mode_name(row["mode"]), variant_name(row, knob)
    return f"{mode}, {variant}" if variant else mode


def mode_name(mode: str) -> str:
    """A mode's name for readers."""
    return str(mode).replace("_", "-")


def variant_name(row: pd.Series[Any], knob: str) -> str:
    """The head and the options that differ from the mode's usual ones, the knob aside."""
    return ", ".join(filter(None, (head_name(row), options_name(row, knob))))


def head_name(row: pd.Series[Any]) -> str:
    """A row's head; "" without one."""
    if pd.isna(row["head"]):
        return ""
    name = f"{row['head']} head" if row["head"] == row["mode"] else str(row["head"])
    return f"{name} (trained here)" if row["trained_here"] else name


def options_name(row: pd.Series[Any], knob: str) -> str:
    """The options that differ from the mode's usual ones, the knob aside; "" if none does."""
    knobs = [name for name in KNOBS if name != knob and not pd.isna(row[name])]
    parts = [f"{symbol(name)} {row[name]:g}" for name in knobs]
    return ", ".join([*parts, *(option_text(*item) for item in own_options(row).items())])


def static_point(axes: Any, place: Place, x: float) -> Any:
    """Mark static's accuracy at `x`; None without its record."""
    row = reference(place.rows)
    if row is None:
        return None
    (point,) = axes.plot(
        [x],
        [100 * row["accuracy"]],
        label="static",
        color=style.BLACK,
        marker=style.STATIC_MARKER,
        markersize=7,
        linestyle="none",
        zorder=5,
    )
    return point


def numbers_of(drawn: Sequence[tuple[Place, Curve]], more: Sequence[str] = ()) -> pd.DataFrame:
    """The rows of curves as numbers for a CSV file; `more` are columns beside the usual ones."""
    if not drawn:
        return pd.DataFrame()
    columns = ["mode", "head", "head_seed_of", "head_layers", "n"]
    for measure in ("accuracy", "tpf", "time_ratio"):
        columns += [measure, f"{measure}_low", f"{measure}_high"]
    rows = pd.concat([curve.rows for _, curve in drawn], ignore_index=True)
    first = [
        (place.backbone, place.task, curve.name, curve.knob, value)
        for place, curve in drawn
        for value in (curve.rows[curve.knob] if curve.knob else [np.nan] * len(curve.rows))
    ]
    names = ("backbone", "task", "curve", "knob", "value")
    labels = pd.DataFrame(first, columns=pd.Index(names))
    return pd.concat([labels, rows[[*columns, "acceptance", *more, "job"]]], axis=1)


def shifts(n: int, step: float) -> Iterator[float]:
    """Small shifts around 0 that keep n error bars apart."""
    return iter([float(shift) for shift in (np.arange(n) - (n - 1) / 2) * step])
