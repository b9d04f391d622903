"""What the tables of single runs share: their groups, static's row, and the labels of a run."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import pandas as pd

from mrp.report import cells
from mrp.report.cells import Cell, Column, Row, RowSeries
from mrp.report.comparisons import reference, select
from mrp.report.pooling import split
from mrp.report.settings import setting_name


def by_place(rows: pd.DataFrame) -> Iterator[tuple[str, pd.DataFrame]]:
    """The rows of each backbone and task, in the suite's order, with a title."""
    for cell in split(rows, ["backbone", "task"]):
        yield f"{cell['backbone'].iloc[0]} · {cell['task'].iloc[0]}", cell


def head_labels(row: RowSeries) -> tuple[Cell, Cell]:
    """Which head a row used, and what it was trained for."""
    if pd.isna(row["head"]):
        return Cell("no head", str(row["mode"]).replace("_", "-")), cells.none(cells.DASH)
    own = []
    if not pd.isna(row["scale"]) and row["scale"] != 1:
        own.append(f"correction {cells.TIMES} {row['scale']:g}")
    if not pd.isna(row["shortlist"]) and row["shortlist"]:
        own.append(f"shortlist of {row['shortlist']:.0f}")
    if not pd.isna(row["cap"]) and row["cap"] != 1:
        own.append(f"cap {row['cap']:g}")
    own += _alone(row)
    objective = "direct" if row["head_variant"] == "direct" else "residual"
    chained = ", chained" if row["head_variant"] == "k2" else ""
    return Cell(str(row["head"]), ", ".join(own), chips=run_chips(row)), Cell(objective + chained)


def remask_label(row: RowSeries) -> Cell:
    """Which mode a row of the remask table is, and which variant of it."""
    if row["mode"] != "remask":
        return Cell(str(row["mode"]))
    rule = f"|W r| > {row['delta']:g}" if row["rule"] == "residual" else "confidence"
    if not pd.isna(row["floor"]) and row["floor"]:
        rule += f" {row['floor']:g}"
    read = "halves" if row["passes"] == "halves" else f"{row['condition']} ids"
    own = ", ".join([read, rule, *_alone(row)])
    return Cell(f"remask, {row['head']}", own, chips=run_chips(row))


def _alone(row: RowSeries) -> list[str]:
    """Whether the head saw the current block alone, in words."""
    return [] if pd.isna(row["prefix"]) or row["prefix"] else ["head without prefix"]


def run_chips(row: RowSeries) -> tuple[str, ...]:
    """Whether this very run trained the head, as a chip."""
    return ("trained here",) if row["trained_here"] else ()


def static_rows(
    cell: pd.DataFrame, columns: Sequence[Column], labels: int, caps: Iterable[float] = ()
) -> list[Row]:
    """Static's row as a reference, if the suite has it; with each of these caps, too."""
    found = select(cell, mode="static", steps=None)
    found = found[found["cap"].isin({1.0, *caps})]
    return [
        cells.number_row(
            row, (Cell(setting_name(row)), *[Cell("")] * (labels - 1)), columns, reference=True
        )
        for _, row in found.iterrows()
    ]


def static_note(cell: pd.DataFrame) -> str:
    """Static's accuracy in a line."""
    planned = reference(cell)
    row = reference(select(cell, status="done"))
    if row is None:
        failed = planned is not None and planned["status"] == "failed"
        return "static failed" if failed else "static was not run"
    shown = cells.accuracy(row)
    return f"static {shown.text} % ({shown.detail}) at TPF {row['tpf']:.2f}"
