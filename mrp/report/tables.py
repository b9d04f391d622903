"""The paper's four tables, in its order, and one of all other modes, from the tidy results."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pandas as pd

from mrp.report import cells
from mrp.report.cells import Cell, Column, Group, Row, RowSeries, Table
from mrp.report.comparisons import select
from mrp.report.pooling import knob_values, split
from mrp.report.settings import KNOBS, setting_name
from mrp.report.singles import (
    by_place,
    head_labels,
    remask_label,
    run_chips,
    static_note,
    static_rows,
)
from mrp.report.verdicts import with_verdicts
from mrp.schema import OPTIONS

# A control without a head is compared with a head where its tokens per forward are this near.
NEAR = 0.1
# The modes that the paper's tables show run by run.
IN_PAPER = ("direct", "speculative", "self_speculative", "dynamic", "remask")
# What the rows over K of one head have in common.
BESIDE_K = ["head", *(name for name in OPTIONS if name != "k")]

ACCURACY = Column("Accuracy", "%", cells.accuracy, "high")
VERSUS_STATIC = Column("vs static", "points", cells.difference("vs_static", "static was not run"))
TPF = Column("TPF", "tokens a forward", cells.plain("tpf"), "high")
TPF_END = Column("TPF end to end", "all forwards", cells.plain("tpf_end_to_end"), "high")
FORWARDS = Column("Forwards", "an answer", cells.forwards, "low")
HEAD = Column("Head passes", "a token", cells.plain("head_per_token"))
TIME = Column("Time ratio", "tokens/s over static's", cells.time_ratio, "high")
# What stands beside our accuracy and our time ratio where the paper has a number for the table.
PAPER_ACCURACY = (
    Column("Paper", "accuracy, %", cells.published_accuracy),
    Column("Difference", "ours minus the paper's, points", cells.accuracy_gap),
    Column("Verdict", "on accuracy", cells.verdict("accuracy_verdict")),
)
PAPER_SPEEDUP = (
    Column("Paper", "speedup", cells.published_speedup),
    Column("Difference", "ours minus the paper's", cells.speedup_gap),
    Column("Verdict", "on speedup", cells.verdict("speedup_verdict")),
)


def build_tables(rows: pd.DataFrame, published: pd.DataFrame | None) -> list[Table]:
    """All tables that the suite has jobs for.

    Args:
        rows: of `comparisons.compare`.
        published: of `published.read_published`, or None.
    """
    rows = rows[rows["head_seed_of"].isna()]  # repetitions have a table of their own
    found = [
        _residual_or_direct(with_verdicts(rows, published, "residual_vs_direct")),
        _speculative(with_verdicts(rows, published, "speculative")),
        _direct(with_verdicts(rows, published, "direct")),
        _remask(with_verdicts(rows, published, "remask")),
        _others(rows),
    ]
    return [table for table in found if table.groups]


# ---- 1: residual against direct objective --------------------------------------------------------


def _residual_or_direct(rows: pd.DataFrame) -> Table:
    """Accuracy of direct decoding over K: a row a head, a column a K, and the no-head control."""
    ks = sorted({int(k) for k in select(rows, mode="direct")["k"]})
    groups = []
    for title, cell in by_place(rows):
        direct = select(cell, mode="direct")
        if direct.empty:
            continue
        built = [
            Row(head_labels(by_k.iloc[0]), tuple(_at_k(by_k, k) for k in ks), starts=True)
            for by_k in split(direct, BESIDE_K)
        ]
        controls = tuple(_control_cell(cell, direct, k) for k in ks)
        if any(control.text for control in controls):
            label = Cell("no head", "several reveals a step")
            built.append(Row((label, Cell("control")), controls, starts=True))
        better = ["high"] * len(ks)
        groups.append(Group(title, static_note(cell), cells.mark_best(built, better)))
    return Table(
        "residual-or-direct",
        "Residual or direct objective",
        "Accuracy of direct decoding in %, over the lookahead K: after each forward of the "
        "backbone, K passes of the head reveal one more token each, unverified. A head trained on "
        "residuals corrects the backbone's hidden state; one trained directly replaces it. The "
        "control has no head: it reveals as many tokens at once from the backbone's own logits.",
        2,
        (("Head", ""), ("Objective", ""), *((f"K = {k}", "%") for k in ks)),
        tuple(groups),
        "A block has a whole number of forwards, so two K can have the same TPF. Chained heads "
        "were trained on two reveals in a row.",
    )


def _at_k(by_k: pd.DataFrame, k: int) -> Cell:
    found = select(by_k, k=k)
    if found.empty:
        return cells.none("not in this suite")
    row = found.iloc[0]
    if row["status"] != "done":
        return Cell(row["status"], hint=row["note"], job=row["job"], tone="none")
    return _accuracy_with_tpf(row)


def _accuracy_with_tpf(row: RowSeries) -> Cell:
    shown = cells.accuracy(row)
    detail = f"{shown.detail}\nTPF {row['tpf']:.2f}"
    if not pd.isna(row["published_accuracy"]):
        paper = cells.percent(row["published_accuracy"])
        detail += f"\npaper {paper}, ours {cells.accuracy_gap(row).text}"
        detail += f"\n{row['accuracy_verdict']}"
    return replace(shown, detail=detail)


def control_at(cell: pd.DataFrame, k: int) -> RowSeries | None:
    """The static run with fewer steps whose TPF is nearest to that of direct decoding with K = k.

    None if none is near, or either side has no record.
    """
    speeds = select(cell, mode="direct", k=k, status="done")["tpf"]
    controls = select(cell, mode="static", status="done").dropna(subset=["steps"])
    if speeds.empty or controls.empty:
        return None
    target = float(speeds.median())
    distance = (controls["tpf"] - target).abs()
    nearest = controls.iloc[int(distance.to_numpy().argmin())]
    return nearest if abs(nearest["tpf"] - target) <= NEAR * target else None


def _control_cell(cell: pd.DataFrame, direct: pd.DataFrame, k: int) -> Cell:
    if select(cell, mode="static").dropna(subset=["steps"]).empty:
        return Cell("")
    row = control_at(cell, k)
    if row is None:
        return cells.none("none at this TPF")
    shown = _accuracy_with_tpf(row)
    return replace(shown, detail=f"{shown.detail}, {row['steps']:.0f} steps")


# ---- 2, 3: speculative and direct decoding -------------------------------------------------------


def _speculative(rows: pd.DataFrame) -> Table:
    columns = [
        *(ACCURACY, *_paper(rows, ("speculative", "self_speculative"), PAPER_ACCURACY)),
        VERSUS_STATIC,
        Column("Same as static", "answers", cells.same_text),
        Column("Accepted", "% of drafts", cells.share("acceptance", ("accepted", "proposed"))),
        *(TPF, TPF_END, FORWARDS, HEAD, TIME),
        *_paper(rows, ("speculative", "self_speculative"), PAPER_SPEEDUP),
    ]
    return _by_head(
        rows,
        ("speculative", "self_speculative"),
        columns,
        "speculative",
        "Speculative decoding, lossless",
        "K drafts a round, then one forward of the backbone checks them all; what it would not "
        "have chosen itself is dropped, so every answer must be static's, letter for letter. The "
        "drafts come from a head, or without one from the backbone's own last distribution "
        "(self-speculative: nothing to train; what a head has to beat).",
        "Objective: chained heads were trained on two reveals in a row.",
    )


def _direct(rows: pd.DataFrame) -> Table:
    columns = [
        *(ACCURACY, *_paper(rows, ("direct",), PAPER_ACCURACY)),
        *(VERSUS_STATIC, TPF, TPF_END, FORWARDS, HEAD, TIME),
        *_paper(rows, ("direct",), PAPER_SPEEDUP),
    ]
    return _by_head(
        rows,
        ("direct",),
        columns,
        "direct",
        "Direct decoding",
        "The same runs as in the first table, with what they cost. K drafts of the head are "
        "revealed after each forward of the backbone and never checked: fast, at a price in "
        "accuracy.",
        "",
    )


def _by_head(
    rows: pd.DataFrame,
    modes: tuple[str, ...],
    columns: Sequence[Column],
    id_: str,
    title: str,
    caption: str,
    note: str,
) -> Table:
    """A row for each head and K, below static's."""
    groups = []
    for name, cell in by_place(rows):
        mine = cell[cell["mode"].isin(modes)]
        if mine.empty:
            continue
        built = static_rows(cell, columns, 3, mine["cap"].dropna())
        for by_k in split(mine, ["mode", *BESIDE_K]):
            for number, (_, row) in enumerate(by_k.sort_values("k").iterrows()):
                names = head_labels(row)
                labels = (
                    *(cells.again(names) if number else names),
                    Cell(cells.lookahead(row["k"])),
                )
                built.append(cells.number_row(row, labels, columns, starts=number == 0))
        groups.append(Group(name, "", cells.mark_best(built, [c.better for c in columns])))
    headings = (("Drafts from", ""), ("Objective", ""), ("K", ""))
    return Table(
        id_,
        title,
        caption,
        3,
        (*headings, *((column.label, column.unit) for column in columns)),
        tuple(groups),
        note,
    )


# ---- 4: dynamic -> remask ------------------------------------------------------------------------


def _remask(rows: pd.DataFrame) -> Table:
    """Dynamic and every way of remasking, tau by tau."""
    columns = [
        *(ACCURACY, *_paper(rows, ("dynamic", "remask"), PAPER_ACCURACY)),
        VERSUS_STATIC,
        Column("Gain at equal τ", "points", _gain("vs_dynamic", "dynamic was not run")),
        TPF,
        Column("Dynamic", "% at this TPF", _dynamic_there),
        Column("Gain at equal TPF", "points", _gain("vs_dynamic_at_tpf", "no dynamic that fast")),
        *(TPF_END, FORWARDS),
        Column("Vetoed", "% of tokens", _vetoed),
        *(HEAD, TIME),
    ]
    groups = []
    for name, cell in by_place(rows):
        mine = cell[cell["mode"].isin(("dynamic", "remask"))]
        if mine.empty:
            continue
        built = static_rows(cell, columns, labels=2)
        for tau in sorted(set(mine["tau"])):
            for number, (_, row) in enumerate(select(mine, tau=tau).iterrows()):
                at = Cell(f"{tau:g}", tone="again" if number else "")
                labels = (remask_label(row), at)
                built.append(
                    cells.number_row(row, labels, columns, scope=at.text, starts=number == 0)
                )
        groups.append(Group(name, "", cells.mark_best(built, [c.better for c in columns])))
    return Table(
        "remask",
        "Dynamic decoding, then remasking",
        "Dynamic reveals every token of confidence above τ at once. Remasking adds one pass of the "
        "head, which looks at the fresh tokens and masks the doubtful ones again. That costs "
        "forwards: the fair question is not what it gains at the same τ but at the same speed.",
        2,
        (("Mode", ""), ("τ", ""), *((column.label, column.unit) for column in columns)),
        tuple(groups),
        "Best in bold among the rows of one τ. The head reads the ids after the reveal that "
        "it judges (revealed) or before it (masked), or judges each half of the fresh tokens with "
        "that half masked (halves); it masks a token again whose corrected confidence is below τ, "
        "or below the number given, or, by the other rule, whose correction |W r| is above δ.",
    )


def _gain(name: str, lacking: str) -> Any:
    show = cells.difference(name, lacking)
    return lambda row: show(row) if row["mode"] == "remask" else Cell("")


def _dynamic_there(row: RowSeries) -> Cell:
    if row["mode"] != "remask" or pd.isna(row["dynamic_at_tpf"]):
        return Cell("")
    there = row["dynamic_at_tpf"]
    return Cell(cells.percent(there), value=there, job=row["job"], scale=100)


def _vetoed(row: RowSeries) -> Cell:
    if row["mode"] != "remask":
        return Cell("")
    return cells.share("vetoed_per_token", ("vetoed", "generated"))(row)


# ---- 5: all that the paper has not ---------------------------------------------------------------


def _others(rows: pd.DataFrame) -> Table:
    """Every run of a mode that no table above shows: rivals, lattices, other static decoding."""
    columns = [
        *(ACCURACY, VERSUS_STATIC),
        Column("Same as baseline", "answers", cells.same_as_baseline),
        Column("Accepted", "% of drafts", cells.share("acceptance", ("accepted", "proposed"))),
        *(TPF, TPF_END, FORWARDS, HEAD, TIME),
    ]
    groups = []
    for name, cell in by_place(rows):
        reference_row = cell["mode"].eq("static") & cell["steps"].isna() & cell["cap"].eq(1)
        mine = cell[~cell["mode"].isin(IN_PAPER) & ~reference_row]
        if mine.empty:
            continue
        built = static_rows(cell, columns, labels=2)
        for part in split(mine, ["mode", "head", *(n for n in OPTIONS if n not in KNOBS)]):
            for number, (_, row) in enumerate(part.iterrows()):
                way = Cell(setting_name(row), chips=run_chips(row), tone="again" if number else "")
                at = Cell(knob_values(row.to_frame().T))
                built.append(cells.number_row(row, (way, at), columns, starts=number == 0))
        groups.append(Group(name, "", cells.mark_best(built, [c.better for c in columns])))
    return Table(
        "others",
        "Other ways of decoding",
        "What the paper does not have: rivals of other papers, drafts in lattices, static decoding "
        "with fewer steps or with capped confidences. Lossless ways must give the answers of their "
        "baseline, letter for letter: static's, with the same cap; FreeDave's those of dynamic "
        "decoding at the same τ.",
        2,
        (("Way", ""), ("At", ""), *((column.label, column.unit) for column in columns)),
        tuple(groups),
    )


def _paper(
    rows: pd.DataFrame, modes: tuple[str, ...], columns: tuple[Column, ...]
) -> tuple[Column, ...]:
    """The columns, if the paper has a number for any of the rows."""
    name = "published_speedup" if columns is PAPER_SPEEDUP else "published_accuracy"
    return columns if rows[rows["mode"].isin(modes)][name].notna().any() else ()
