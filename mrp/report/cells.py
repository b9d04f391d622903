"""How a number is shown: the parts of a table, and one function for each kind of cell."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import pandas as pd

from mrp.report.comparisons import DYNAMIC_DRAFTED
from mrp.schema import LOSSLESS

RowSeries: TypeAlias = "pd.Series[Any]"
DASH, MINUS, TIMES = "\N{EN DASH}", "\N{MINUS SIGN}", "\N{MULTIPLICATION SIGN}"
PLACES = (2, 3, 4)  # of a ratio: more of them for an interval whose ends look alike with fewer


@dataclass(frozen=True)
class Cell:
    """One cell.

    Attributes:
        text: what it says; detail: smaller, below, lines apart; hint: shown on hovering.
        value: the number that `text` shows, unrounded; scale: what `text` multiplies it by, 100
            where it is in % or in points; job: the run it comes from, or several runs,
            blanks between.
        tone: "up" or "down" for a difference beyond noise, "none" for a missing value, "again" for
            a label that only repeats the one above, "said" for a sentence.
        chips: short labels beside the text.
        best: the best value of its column among comparable rows.
    """

    text: str
    detail: str = ""
    hint: str = ""
    value: float | None = None
    job: str = ""
    tone: str = ""
    chips: tuple[str, ...] = ()
    best: bool = False
    scale: int = 1

    @property
    def label(self) -> str:
        """All that tells a row from others, in one line; `text` alone may be that of many rows."""
        return ", ".join(filter(None, (self.text, *self.detail.splitlines(), *self.chips)))


@dataclass(frozen=True)
class Column:
    """A column of numbers; `better` is "high" or "low" where the best is to be marked."""

    label: str
    unit: str
    cell: Callable[[RowSeries], Cell]
    better: str = ""


@dataclass(frozen=True)
class Row:
    """A row: labels, then numbers, or the reason why there are none.

    Attributes:
        scope: the best value is looked for among rows of one group with the same scope.
        reference: a baseline, left out of that search and shown quieter.
        starts: whether a line separates it from the row above.
        jobs: the runs that its numbers come from, where its cells do not say so.
    """

    labels: tuple[Cell, ...]
    cells: tuple[Cell, ...]
    missing: str = ""
    scope: str = ""
    reference: bool = False
    starts: bool = False
    jobs: tuple[str, ...] = ()


@dataclass(frozen=True)
class Group:
    """Rows that belong together: one backbone on one task."""

    title: str
    note: str
    rows: tuple[Row, ...]


@dataclass(frozen=True)
class Table:
    """A table; `columns` are (heading, unit) pairs, the first `labels` of them of labels."""

    id: str
    title: str
    caption: str
    labels: int
    columns: tuple[tuple[str, str], ...]
    groups: tuple[Group, ...]
    note: str = ""


# ---- numbers as text -----------------------------------------------------------------------------


def percent(share: float) -> str:
    """0.9297 -> 93.0."""
    return f"{100 * share:.1f}"


def signed(difference: float, places: int) -> str:
    """With a sign, a true minus, and no sign at zero."""
    text = f"{difference:+.{places}f}"
    return text[1:] if not float(text) else text.replace("-", MINUS)


def points(difference: float) -> str:
    """0.0123 -> +1.2."""
    return signed(100 * difference, 1)


def span(low: float, high: float) -> str:
    """An interval of ratios: 1.20 to 1.40, with a dash; a narrow one with more places."""
    places = _places(low, high)
    return f"{low:.{places}f}{DASH}{high:.{places}f}"


def signed_span(low: float, high: float) -> str:
    """An interval of differences of ratios: -0.20 to +0.10, likewise."""
    places = _places(low, high)
    return f"{signed(low, places)} to {signed(high, places)}"


def _places(low: float, high: float) -> int:
    differ = (places for places in PLACES if round(low, places) != round(high, places))
    return next(differ, PLACES[0])


def percent_span(low: float, high: float) -> str:
    """An interval of shares: 87.1 to 96.3, likewise."""
    return f"{percent(low)}{DASH}{percent(high)}"


def times(ratio: float) -> str:
    """1.31 and a multiplication sign."""
    return f"{ratio:.2f}{TIMES}"


def p_value(p: float) -> str:
    """p = 0.013; a very small one as such."""
    return f"p = {p:.2g}" if p >= 1e-4 else "p < 0.0001"


def lookahead(k: float) -> str:
    """K, or auto where the mode chose it itself."""
    return "auto" if math.isinf(k) else f"{k:.0f}"


def accuracy(row: RowSeries) -> Cell:
    """Accuracy in % with Wilson's interval."""
    return Cell(
        percent(row["accuracy"]),
        percent_span(row["accuracy_low"], row["accuracy_high"]),
        f"{row['correct']:.0f} of {row['n']:.0f} right",
        row["accuracy"],
        row["job"],
        scale=100,
    )


def difference(name: str, lacking: str) -> Callable[[RowSeries], Cell]:
    """Points of accuracy between two runs, with its interval; `lacking` says why there is none."""

    def cell(row: RowSeries) -> Cell:
        if is_baseline(row):
            return Cell("")
        if pd.isna(row[name]):
            return none(lacking)
        low, high = row[f"{name}_low"], row[f"{name}_high"]
        p = row.get(f"{name}_p")
        tested = "" if p is None or pd.isna(p) else f"\n{p_value(p)}"
        hint = "p: McNemar's exact test" if tested else ""
        tone = "up" if low > 0 else "down" if high < 0 else ""
        detail = f"{points(low)} to {points(high)}{tested}"
        return Cell(points(row[name]), detail, hint, row[name], row["job"], tone, scale=100)

    return cell


def plain(name: str, places: int = 2) -> Callable[[RowSeries], Cell]:
    """A number without an interval."""

    def cell(row: RowSeries) -> Cell:
        if pd.isna(row[name]):
            return none(DASH)
        return Cell(f"{row[name]:.{places}f}", value=row[name], job=row["job"])

    return cell


def share(name: str, of: tuple[str, str]) -> Callable[[RowSeries], Cell]:
    """A share in %; `of` names the two counters it comes from."""

    def cell(row: RowSeries) -> Cell:
        if pd.isna(row[name]):
            return none(DASH)
        hint = f"{row[of[0]]:.0f} of {row[of[1]]:.0f}"
        return Cell(percent(row[name]), "", hint, row[name], row["job"], scale=100)

    return cell


def forwards(row: RowSeries) -> Cell:
    """Backbone forwards an answer: denoising and verifying, and below the others."""
    return Cell(
        f"{row['forwards_per_answer']:.1f}",
        f"+ {row['other_forwards_per_answer']:.1f}",
        "below: prefilling the prompt; storing a finished block takes no forward of its own",
        row["forwards_per_answer"],
        row["job"],
    )


def same_text(row: RowSeries) -> Cell:
    """How many answers are those of static, letter for letter."""
    if is_baseline(row):
        return Cell("")
    if pd.isna(row["same_text"]):
        return none("static was not run")
    same, n = int(row["same_text"]), int(row["compared_texts"])
    tone = "" if same == n else "down"
    return Cell(f"{same} of {n}", value=same / n, job=row["job"], tone=tone)


def same_as_baseline(row: RowSeries) -> Cell:
    """The same for all modes: against static, against dynamic, or not to be expected."""
    if row["mode"] in LOSSLESS:
        return same_text(row)
    if row["mode"] != DYNAMIC_DRAFTED:
        return Cell("")
    if pd.isna(row["same_as_dynamic"]):
        return none("dynamic was not run")
    same, n = int(row["same_as_dynamic"]), int(row["compared_to_dynamic"])
    tone = "" if same == n else "down"
    return Cell(f"{same} of {n}", "dynamic's", value=same / n, job=row["job"], tone=tone)


def time_ratio(row: RowSeries) -> Cell:
    """Tokens per second over static's, with its interval."""
    if is_baseline(row):
        return Cell("baseline", tone="none")
    if pd.isna(row["time_ratio"]):
        return none("not timed")
    detail = ""
    if not pd.isna(row["time_ratio_low"]):
        detail = span(row["time_ratio_low"], row["time_ratio_high"])
    return Cell(times(row["time_ratio"]), detail, "", row["time_ratio"], row["job"])


def published_accuracy(row: RowSeries) -> Cell:
    """The paper's accuracy; what its source leaves open shows on hovering."""
    if pd.isna(row["published_accuracy"]):
        return none("not published")
    value = row["published_accuracy"]
    return Cell(percent(value), hint=row["published_note"], value=value, scale=100)


def accuracy_gap(row: RowSeries) -> Cell:
    """Our accuracy minus the paper's with its interval, and ours by the paper's own scoring."""
    if pd.isna(row["accuracy_gap"]):
        return none(DASH)
    detail = f"{points(row['accuracy_gap_low'])} to {points(row['accuracy_gap_high'])}"
    if row["paper_rule"] and row["accuracy_here"] != row["accuracy"]:
        detail += f"\nby its rule {percent(row['accuracy_here'])}"
    hint = "" if not row["paper_rule"] else "scored by the paper's own rule"
    gap = row["accuracy_gap"]
    return Cell(points(gap), detail, hint, gap, row["job"], scale=100)


def published_speedup(row: RowSeries) -> Cell:
    """The paper's speedup, likewise."""
    if pd.isna(row["published_speedup"]):
        return none("not published")
    value = row["published_speedup"]
    return Cell(times(value), hint=row["published_note"], value=value)


def speedup_gap(row: RowSeries) -> Cell:
    """Our time ratio minus the paper's with its interval."""
    if pd.isna(row["speedup_gap"]):
        return none(DASH)
    detail = ""
    if not pd.isna(row["speedup_gap_low"]):
        detail = f"{signed(row['speedup_gap_low'], 2)} to {signed(row['speedup_gap_high'], 2)}"
    return Cell(signed(row["speedup_gap"], 2), detail, value=row["speedup_gap"], job=row["job"])


def verdict(name: str) -> Callable[[RowSeries], Cell]:
    """What the comparison with the paper comes to."""
    tones = {"reproduced": "up", "not reproduced": "down", "not published": "none", "": "none"}

    def cell(row: RowSeries) -> Cell:
        return Cell(row[name] or DASH, tone=tones.get(row[name], ""))

    return cell


def is_baseline(row: RowSeries) -> bool:
    """Static with a step for each token, its confidences not capped."""
    return bool(row["mode"] == "static" and pd.isna(row["steps"]) and row["cap"] == 1)


def none(reason: str) -> Cell:
    """No number, and why."""
    return Cell(reason, tone="none")


def again(labels: Sequence[Cell]) -> tuple[Cell, ...]:
    """Labels that only repeat those of the row above."""
    return tuple(replace(label, tone="again") for label in labels)


# ---- rows ----------------------------------------------------------------------------------------


def number_row(
    row: RowSeries,
    labels: Sequence[Cell],
    columns: Sequence[Column],
    *,
    scope: str = "",
    reference: bool = False,
    starts: bool = False,
) -> Row:
    """A row of all columns' cells, or of the reason why the job has no record."""
    done = row["status"] == "done"
    cells = tuple(column.cell(row) for column in columns) if done else ()
    missing = "" if done else row["note"]
    jobs = () if done else (str(row["job"]),)
    return Row(tuple(labels), cells, missing, scope, reference, starts, jobs)


def mark_best(rows: Sequence[Row], better: Sequence[str]) -> tuple[Row, ...]:
    """Mark each column's best cells within each scope, unless all are equally good.

    Cells that show the same text are equally good.
    """
    marked = [list(row.cells) for row in rows]
    for column, direction in enumerate(better):
        for scope in {row.scope for row in rows} if direction else ():
            found = [
                (cells[column].value, number)
                for number, (row, cells) in enumerate(zip(rows, marked, strict=True))
                if row.scope == scope and cells and not row.reference
                if cells[column].value is not None
            ]
            if len(found) < 2:
                continue
            sign = 1 if direction == "high" else -1
            top = max(found, key=lambda item: sign * (item[0] or 0.0))[1]
            winners = [
                number
                for _, number in found
                if marked[number][column].text == marked[top][column].text
            ]
            for number in winners if len(winners) < len(found) else ():
                marked[number][column] = replace(marked[number][column], best=True)
    return tuple(replace(row, cells=tuple(cells)) for row, cells in zip(rows, marked, strict=True))
