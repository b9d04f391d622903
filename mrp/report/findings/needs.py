"""Which runs a claim rests on: without all of them there is no verdict on it.

Each function takes a place with all rows that the suite plans, those without a record too, and
yields the ones that the claim's judge looks at.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TypeAlias

import pandas as pd

from mrp.report.comparisons import reference, select
from mrp.report.findings.place import Place
from mrp.report.findings.remasking import HALVES, lowest_tau
from mrp.report.settings import Line, is_usual, usual_reveal

Needs: TypeAlias = Callable[[Place], Iterable[Line]]


def lines(rows: pd.DataFrame) -> list[Line]:
    """Rows as lines."""
    return [row for _, row in rows.iterrows()]


def together(*needs: Needs) -> Needs:
    """All of them."""
    return lambda planned: [row for each in needs for row in each(planned)]


def baseline(planned: Place) -> Iterator[Line]:
    """Static with a step for each token."""
    if planned.static is not None:
        yield planned.static


def usual(*modes: str) -> Needs:
    """A mode's rows without ablations."""
    return lambda planned: [row for row in planned.usual if row["mode"] in modes]


def heads(mode: str, *variants: str) -> Needs:
    """A mode's rows with the main head of each of these ways of training."""
    return lambda planned: [
        row for head in planned.heads(*variants) for row in planned.of(mode, head).values()
    ]


def depths(mode: str) -> Needs:
    """A mode's rows with heads that differ in their depth alone."""
    return lambda planned: [
        row
        for row in planned.usual
        if (row["mode"], row["head_variant"]) == (mode, "default") and usual_reveal(row)
    ]


def lossless(modes: Sequence[str]) -> Needs:
    """Every run of these lossless modes, and static with each of their caps."""

    def needs(planned: Place) -> Iterator[Line]:
        rows = planned.every[planned.every["mode"].isin(modes)]
        yield from lines(rows)
        for cap in rows["cap"].fillna(1.0).unique():
            static = reference(planned.every, cap)
            if static is not None:
                yield static

    return needs


def lattices(planned: Place) -> Iterator[Line]:
    """Lattices with a head, and the chains that they are beside."""
    rows = select(planned.rows, mode="lattice")
    yield from lines(rows)
    keys = {(row["head"], row["k"], row["cap"]) for _, row in rows.iterrows()}
    chains = select(planned.rows, mode="speculative")
    for _, row in chains[is_usual(chains, but=("cap",))].iterrows():
        if (row["head"], row["k"], row["cap"]) in keys:
            yield row


def remask(passes: str) -> Needs:
    """One way of remasking at a low tau, and dynamic at the same."""

    def needs(planned: Place) -> Iterator[Line]:
        rows = select(planned.rows, mode="remask", passes=passes)
        rows = rows[is_usual(rows, but=("passes",))]
        taus = planned.low_taus(rows)
        if taus:
            yield from lines(rows[rows["tau"].isin(taus)])
            dynamic = select(planned.rows, mode="dynamic")
            yield from lines(dynamic[dynamic["tau"].isin(taus)])

    return needs


def recovery(planned: Place) -> Iterator[Line]:
    """At the lowest tau: dynamic, one pass, and all two-pass variants."""
    rows = planned.rows
    tau = lowest_tau(rows)
    at = select(rows, tau=tau) if tau is not None else rows.iloc[:0]
    one = select(at, mode="remask", passes="one")
    for part in (
        select(at, mode="dynamic"),
        one[is_usual(one)],
        select(at, mode="remask", passes=HALVES),
    ):
        yield from lines(part)


def freedave(planned: Place) -> Iterator[Line]:
    """FreeDave, and dynamic at the same tau."""
    rows = select(planned.rows, mode="freedave")
    yield from lines(rows)
    dynamic: pd.DataFrame = select(planned.rows, mode="dynamic")
    yield from lines(dynamic[dynamic["tau"].isin(set(rows["tau"]))])
