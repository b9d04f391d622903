"""Goals beyond the paper for lossless decoding: what lattices add to the best chain of drafts.

A lattice is judged beside chains of the same baseline: with capped confidences both equal static
decoding under the same cap, which is another text than without one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pandas as pd

from mrp.report.comparisons import DYNAMIC_DRAFTED, select
from mrp.report.contrasts import Contrast
from mrp.report.findings.place import Place
from mrp.report.findings.readings import Measured, Quotient
from mrp.report.pooling import knob_values
from mrp.report.settings import Line, setting_name
from mrp.schema import LOSSLESS, MODES

LATTICES = ("lattice", "self_lattice")
CHAINS = tuple(name for name in LOSSLESS if name not in LATTICES)
RIVALS = tuple(name for name in CHAINS if not MODES[name].needs_head)
MORE_TOKENS = 1.2  # times the best chain's tokens per forward
MORE_SPEED = 1.15  # times the best chain's tokens per second
AT_BATCH = 1  # prompts at a time that the goal for the clock is about


@dataclass(frozen=True)
class Sides:
    """The lattices and the chains with a record that have the same baseline, neither empty."""

    subject: str
    lattices: pd.DataFrame
    chains: pd.DataFrame


def sides(place: Place) -> Iterator[Sides]:
    """By baseline: without a cap first, then those with one."""
    rows = place.rows[place.rows["mode"].isin(LOSSLESS)]
    caps = rows["cap"].fillna(1.0)
    for cap in sorted(caps.unique(), reverse=True):
        mine = rows[caps == cap]
        lattices, chains = (mine[mine["mode"].isin(names)] for names in (LATTICES, CHAINS))
        if len(lattices) and len(chains):
            subject = "best lattice" if cap == 1 else f"best lattice, cap {cap:g}"
            yield Sides(subject, lattices, chains)


def needs(planned: Place) -> list[Line]:
    """Every lattice, and every chain of the same baseline."""
    both = [part for side in sides(planned) for part in (side.lattices, side.chains)]
    return [row for part in both for _, row in part.iterrows()]


def more_tokens(place: Place) -> Iterator[Measured]:
    """A lattice's tokens per forward over the best chain's, each at its best setting."""
    for side in sides(place):
        best, chain = (_best(rows, place.tpf) for rows in (side.lattices, side.chains))
        if best is not None and chain is not None:
            yield Measured(side.subject, "at its best setting", best[1], "tpf")
            yield Measured(side.subject, "of the best chain", chain[1], "tpf")
            yield Quotient.of(
                side.subject,
                f"of the chain's, at least {MORE_TOKENS:g}",
                best[1],
                chain[1],
                above=MORE_TOKENS,
                note=f"{best[0]} over {chain[0]}",
            )


def more_than_rivals(place: Place) -> Iterator[Measured]:
    """The same tokens per forward beside every other lossless way that needs no head of ours.

    FreeDave stands beside them, over its own baseline: no setting of it gives static's text, and
    its rule with static decoding's step is self-speculative decoding.
    """
    told = False
    for side in sides(place):
        best = _best(side.lattices, place.tpf)
        for mode in RIVALS:
            rival = _best(select(side.chains, mode=mode), place.tpf)
            if best is not None and rival is not None:
                told = True
                quantity = f"over {mode.replace('_', '-')} at its best setting"
                gap, note = best[1] - rival[1], f"{best[0]} against {rival[0]}"
                yield Measured(side.subject, quantity, gap, "more tpf", above=0, note=note)
    if told:
        yield from _freedave(place)


def _freedave(place: Place) -> Iterator[Measured]:
    """FreeDave's tokens per forward over those of dynamic decoding, whose text it gives."""
    found = []
    for _, row in select(place.rows, mode=DYNAMIC_DRAFTED).iterrows():
        dynamic = select(place.rows, mode="dynamic", tau=row["tau"])
        if not dynamic.empty:
            found.append((place.tpf(row), place.tpf(dynamic.iloc[0]), _named(row)))
    if found:
        mine, base, name = max(found, key=lambda item: (item[0] / item[1]).value)
        quantity = "of the tokens per forward of dynamic, whose text it gives, at its best setting"
        yield Quotient.of("freedave", quantity, mine, base, note=name)


def faster(place: Place) -> Iterator[Measured]:
    """A lattice's tokens per second over the best chain's, each the fastest of its kind.

    Both are measured over static, so that their quotient holds the noise of both measurements. The
    fastest of many is fast by chance, too: of more chains than lattices that favours the chain.
    What was not timed one prompt at a time is shown, and decides nothing.
    """
    for side in sides(place):
        alone = all((rows["time_batch"] == AT_BATCH).any() for rows in (side.lattices, side.chains))
        lattices, chains = (
            rows[rows["time_batch"] == AT_BATCH] if alone else rows
            for rows in (side.lattices, side.chains)
        )
        best, chain = _best(lattices, place.time), _best(chains, place.time)
        if best is None or chain is None:
            continue
        yield Measured(side.subject, "at its fastest", best[1], "ratio")
        yield Measured(side.subject, "by the best chain", chain[1], "ratio")
        batches = sorted({int(batch) for batch in lattices["time_batch"].dropna()})
        others = "" if alone else f", but timed {_joined(batches)} at a time"
        yield Quotient.of(
            side.subject,
            f"of the chain's speed, at least {MORE_SPEED:g}{others}",
            best[1],
            chain[1],
            **({"above": MORE_SPEED} if alone else {}),
            note=f"{best[0]} over {chain[0]}",
        )


def _best(
    rows: pd.DataFrame, number: Callable[[Line], Contrast | None]
) -> tuple[str, Contrast] | None:
    """The setting with the highest number, in words, and that; None where none has one."""
    known = [
        (_named(row), found) for _, row in rows.iterrows() if (found := number(row)) is not None
    ]
    return max(known, key=lambda item: item[1].value, default=None)


def _named(row: pd.Series[Any]) -> str:
    """All that a row was run with: lattice, k2, window 3, K = 5."""
    return ", ".join(filter(None, (setting_name(row), knob_values(row.to_frame().T))))


def _joined(batches: list[int]) -> str:
    return " or ".join(map(str, batches))
