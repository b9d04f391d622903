"""What single choices do: K, depth, one option against the usual, remasking's ways, seeds."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd

from mrp.report import contrasts
from mrp.report.cells import Cell, Group, Row, Table, mark_best
from mrp.report.comparisons import select
from mrp.report.contrasts import Contrast, pooled
from mrp.report.frame import Results
from mrp.report.pooling import (
    NUMBERS,
    SETTING,
    SWEEP,
    Backbone,
    accepted_share,
    backbones,
    change,
    jobs_of,
    knob_values,
    labels,
    level,
    mean_over,
    passes,
    split,
    sweeps,
)
from mrp.report.settings import (
    KNOBS,
    USUAL,
    USUAL_REVEAL,
    change_text,
    is_usual,
    own_options,
    setting_name,
    usual_reveal,
)
from mrp.schema import OPTIONS

Values = dict[Any, Any]  # a row, by column
Pairs = list[tuple[Values, Values]]  # (here, usual) rows
MEASURES = (
    *(("Accuracy", "%"), ("TPF", "tokens a forward")),
    *(("Accepted", "% of drafts"), ("Time ratio", "tokens/s over static's")),
)


def build_ablations(results: Results, rows: pd.DataFrame) -> list[Table]:
    """The tables that the suite has jobs for.

    Args:
        results: of `frame.load_results` or `frame.load_records`.
        rows: of `comparisons.compare`.
    """
    known = list(backbones(results, rows))
    found = [
        *(_lookahead(known), _depth(known), _options(known)),
        *(_remasking(known), _seeds(results, rows)),
    ]
    return [table for table in found if table.groups]


# ---- lookahead -----------------------------------------------------------------------------------


def _lookahead(known: list[Backbone]) -> Table:
    groups = []
    for backbone in known:
        built = [
            Row(
                labels(setting_name(part.iloc[0]), knob_values(part)),
                _measures(backbone, part),
                starts=number == 0,
                jobs=jobs_of(part),
            )
            for mine in sweeps(backbone.rows)
            for number, part in enumerate(split(mine.sort_values("k", kind="stable"), ["k"]))
        ]
        if built:
            groups.append(Group(backbone.name, backbone.note, tuple(built)))
    return Table(
        "lookahead",
        "Lookahead, K by K",
        f"Ways without further options that were run with {SWEEP} or more values of K.",
        2,
        (("Way", ""), ("At", ""), *MEASURES),
        tuple(groups),
    )


def _measures(backbone: Backbone, rows: pd.DataFrame) -> tuple[Cell, ...]:
    """The cells under MEASURES."""
    accuracy, tpf, time = (mean_over(backbone.results, rows, number) for number in NUMBERS.values())
    return (
        level(accuracy, "percent"),
        level(tpf, "ratio"),
        accepted_share(rows),
        level(time, "ratio", "not timed"),
    )


# ---- depth ---------------------------------------------------------------------------------------


def _depth(known: list[Backbone]) -> Table:
    groups = []
    for backbone in known:
        rows = backbone.rows[is_usual(backbone.rows)]
        rows = select(rows, head_variant="default").dropna(subset=["head_layers"])
        rows = rows.loc[[usual_reveal(row) for _, row in rows.iterrows()]]
        built: list[Row] = []
        for mine in split(rows, ["mode", "head_source"]):
            by_layers = {
                int(part["head_layers"].iloc[0]): part.drop_duplicates(["task", *KNOBS])
                for _, part in mine.sort_values("head_layers", kind="stable").groupby("head_layers")
            }
            if len(by_layers) > 1:
                built += _depth_rows(backbone, by_layers)
        if built:
            groups.append(Group(backbone.name, backbone.note, tuple(built)))
    return Table(
        "depth",
        "Depth of the head",
        "Heads that differ in their number of layers alone, over the K that all of them have.",
        2,
        (("Mode", ""), ("Layers", ""), *MEASURES),
        tuple(groups),
    )


def _depth_rows(backbone: Backbone, by_layers: dict[int, pd.DataFrame]) -> Iterator[Row]:
    common = set.intersection(
        *({*zip(part["task"], part["k"], strict=True)} for part in by_layers.values())
    )
    built = []
    for number, (layers, part) in enumerate(by_layers.items()):
        shared = [key in common for key in zip(part["task"], part["k"], strict=True)]
        chosen = part[shared]
        if chosen.empty:
            continue
        name = str(chosen["mode"].iloc[0]).replace("_", "-")
        first = Cell(f"{name}, {knob_values(chosen)}", tone="again" if number else "")
        texts, cells = (first, Cell(str(layers))), _measures(backbone, chosen)
        built.append(Row(texts, cells, starts=number == 0, jobs=jobs_of(chosen)))
    yield from mark_best(built, ["high", "high", "high", "high"])


# ---- one option against the usual ----------------------------------------------------------------


def _options(known: list[Backbone]) -> Table:
    groups = []
    for backbone in known:
        built = [_option_row(backbone, what, pairs) for what, pairs in _all_pairs(backbone.rows)]
        if built:
            groups.append(Group(backbone.name, backbone.note, tuple(built)))
    return Table(
        "options",
        "One choice at a time",
        "Each row changes one thing and nothing else: runs with it against runs with the usual "
        "value, on the same problems, averaged over K or τ. Coloured where the interval of the "
        "difference leaves out zero.",
        3,
        (
            *(("Change", ""), ("In", ""), ("Over", "")),
            *(("Accuracy", "%, usual"), ("Accuracy", "% with it"), ("Difference", "points")),
            *(("TPF", "usual"), ("TPF", "with it"), ("Difference", "tokens a forward")),
            *(("Time ratio", "usual"), ("Time ratio", "with it"), ("Difference", "of static's")),
        ),
        tuple(groups),
    )


def _option_row(backbone: Backbone, what: str, pairs: Pairs) -> Row:
    here, beside = (pd.DataFrame([pair[side] for pair in pairs]) for side in (0, 1))
    of_here, of_beside = (" ".join(jobs_of(rows)) for rows in (here, beside))
    where = setting_name(pairs[0][1])
    cells: list[Cell] = []
    for name, number in NUMBERS.items():
        unit, of_difference = ("percent", "points") if name == "accuracy" else ("ratio", "ratio")
        found = [
            (one, two)
            for mine, usual in pairs
            if (one := number(backbone.results, mine)) is not None
            if (two := number(backbone.results, usual)) is not None
        ]
        lacking = "not timed"
        cells += [
            replace(level(pooled([two for _, two in found]), unit, lacking), job=of_beside),
            replace(level(pooled([one for one, _ in found]), unit, lacking), job=of_here),
            change(pooled([one - two for one, two in found]), of_difference, lacking),
        ]
    return Row(labels(what, where, knob_values(here)), tuple(cells), jobs=jobs_of(here))


def _all_pairs(rows: pd.DataFrame) -> Iterator[tuple[str, Pairs]]:
    """For every option and value that is not usual: the rows with it, each beside its usual one."""
    lines: list[Values] = rows.to_dict("records")
    by_key = {_key(row): row for row in lines}
    groups: dict[tuple[str, str], Pairs] = {}
    for row in lines:
        for what, key in _counterparts(row, rows):
            usual = by_key.get(key)
            if usual is not None:
                groups.setdefault((what, setting_name(usual)), []).append((row, usual))
    for (what, _), pairs in sorted(groups.items(), key=lambda item: item[0][0]):
        yield what, pairs


def _counterparts(row: Values, rows: pd.DataFrame) -> Iterator[tuple[str, tuple[str, ...]]]:
    """(the change in words, the usual row's key) for each thing in which a row is not usual."""
    for name, value in own_options(row).items():
        usual = dict(row)
        usual[name] = USUAL[name]
        if name == "rule":
            usual["delta"] = np.nan  # the confidence rule has none
        if name == "passes":
            usual["condition"] = USUAL["condition"]  # two passes have none
        yield change_text(name, value), _key(usual)
    if not usual_reveal(row):
        others = select(rows, head_variant=row["head_variant"], head_source=row["head_source"])
        others = select(others, head_reveal=USUAL_REVEAL, head_layers=row["head_layers"])
        if not others.empty:
            usual = dict(row)
            usual["head"] = others["head"].iloc[0]
            yield f"trained on {row['head_reveal']} instead of {USUAL_REVEAL}", _key(usual)


def _key(row: Values) -> tuple[str, ...]:
    names = ("task", "mode", "head", "head_source", *OPTIONS)
    return tuple("" if pd.isna(row[name]) else str(row[name]) for name in names)


# ---- remasking -----------------------------------------------------------------------------------


def _remasking(known: list[Backbone]) -> Table:
    groups = []
    for backbone in known:
        rows = select(backbone.rows, mode="remask")
        built = [
            _remask_row(backbone, part, starts=number == 0)
            for mine in split(rows, SETTING)
            for number, part in enumerate(split(mine.sort_values("tau", kind="stable"), ["tau"]))
        ]
        if built:
            better = ["high", "high", "", "high", "high", "high", "high"]
            groups.append(Group(backbone.name, backbone.note, mark_best(built, better)))
    return Table(
        "remasking",
        "Ways of remasking",
        "Accuracy gained over dynamic decoding at the same τ and, which is the fair question, at "
        "the same tokens per forward and in the same time, where dynamic is read off the lines "
        "between its own points and static's; what is slower than all of them is compared with the "
        "slowest.",
        2,
        (
            *(("Way", ""), ("At", ""), ("Accuracy", "%"), ("TPF", "tokens a forward")),
            *(("Head passes", "a token"), ("Time ratio", "tokens/s over static's")),
            ("Gain", "points, same τ"),
            *(("Gain", "points, same TPF"), ("Gain", "points, same time")),
        ),
        tuple(groups),
        "The usual way: one pass over the ids after the reveal; what is below τ is masked again.",
    )


def _remask_row(backbone: Backbone, mine: pd.DataFrame, starts: bool) -> Row:
    """A way's runs at one tau."""
    gains: list[list[Contrast | None]] = [[], [], []]
    for _, row in mine.iterrows():
        same = select(backbone.cell(row["task"]), mode="dynamic", tau=row["tau"])
        right = contrasts.accuracy(backbone.results, row)
        gains[0].append(
            None if same.empty else right - contrasts.accuracy(backbone.results, same.iloc[0])
        )
        for place, speed in ((1, contrasts.tpf), (2, contrasts.time_ratio)):
            gains[place].append(backbone.over_dynamic(row, speed))
    lacking = ("no dynamic there", "no dynamic that fast", "no dynamic that fast")
    accuracy, tpf, time = (mean_over(backbone.results, mine, number) for number in NUMBERS.values())
    cells = (
        level(accuracy, "percent"),
        level(tpf, "ratio"),
        passes(mine),
        level(time, "ratio", "not timed"),
        *(change(pooled(one), "points", why) for one, why in zip(gains, lacking, strict=True)),
    )
    named = labels(setting_name(mine.iloc[0]), knob_values(mine))
    return Row(named, cells, starts=starts, jobs=jobs_of(mine))


# ---- seeds ---------------------------------------------------------------------------------------


def _seeds(results: Results, rows: pd.DataFrame) -> Table:
    done = select(rows, status="done")
    groups = []
    for name, mine in done.groupby("backbone", sort=False):
        repeated = [str(head) for head in mine["head_seed_of"].dropna().unique()]
        built = [row for head in repeated for row in _seed_rows(results, mine, head)]
        if built:
            note = " and ".join(mine["task"].unique())
            groups.append(Group(str(name), f"mean over {note}", tuple(built)))
    return Table(
        "seeds",
        "Heads trained again with another seed",
        "The spread between heads that differ in the seed alone, beside the sampling interval of "
        "one of them. Where the spread is the larger of the two, a difference of that size between "
        "two heads says nothing about how they were trained. A claim whose verdict changes with "
        "the seed counts as undecided.",
        3,
        (
            *(("Head", ""), ("Mode", ""), ("At", ""), ("Accuracy", "%, seed by seed")),
            *(("Spread", "points"), ("Sampling", "\N{PLUS-MINUS SIGN} points, 95 %")),
            *(("TPF", "seed by seed"), ("Spread", "tokens a forward")),
            ("Sampling", "\N{PLUS-MINUS SIGN} tokens a forward, 95 %"),
        ),
        tuple(groups),
    )


def _seed_rows(results: Results, mine: pd.DataFrame, head: str) -> Iterator[Row]:
    rows = mine[(mine["head"] == head) | (mine["head_seed_of"] == head)]
    last = ""
    for part in split(rows, ["mode", *OPTIONS]):
        by_seed = split(part, ["head"])
        if len(by_seed) < 2 or part["head"].iloc[0] != head:
            continue
        cells: list[Cell] = []
        for number, scale, places in ((contrasts.accuracy, 100, 1), (contrasts.tpf, 1, 2)):
            found = [mean_over(results, one, number) for one in by_seed]
            cells += _spread([one for one in found if one is not None], scale, places)
        mode = setting_name(part.iloc[0], head=False)
        texts = labels(head, mode, knob_values(part))
        yield Row(texts, tuple(cells), starts=mode != last, jobs=jobs_of(part))
        last = mode


def _spread(found: list[Contrast], scale: float, places: int) -> list[Cell]:
    values = [scale * one.value for one in found]
    estimate = found[0].estimate
    spread = max(values) - min(values)
    sampling = scale * (estimate.high - estimate.low) / 2
    return [
        Cell(", ".join(f"{value:.{places}f}" for value in values)),
        Cell(f"{spread:.{places}f}", value=spread, tone="down" if spread > sampling else ""),
        Cell(f"{sampling:.{places}f}", value=sampling),
    ]
