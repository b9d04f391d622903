"""What `mrp tune` chooses from: one table of modes with the knobs worth trying.

A chain is a row of candidates that differ in one knob, from careful to eager: the more eager one
makes more tokens a forward and, where its text differs at all, is right no more often. That is what
lets the search leave most of a chain out.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import product
from typing import Any

import yaml

from mrp.schema import LOSSLESS, MODES, MOST_DRAFTS, OPTIONS

TAUS = (0.95, 0.9, 0.85, 0.8, 0.75, 0.7, 0.65, 0.6, 0.55, 0.5)
DRAFTS = (1, 2, 3, 4, 5, 6)
CAPS = (1.0, 0.9)  # none, and one that changes few answers and makes the order predictable
# Of these the last value makes the most tokens a forward, at the same text; it costs more, too.
RISING = ("k", "window", "ahead", "head_passes")


@dataclass(frozen=True)
class Sweep:
    """The values of one knob, careful ones first, and of the others, which multiply into chains."""

    mode: str
    knob: str
    values: tuple[Any, ...]
    others: Mapping[str, tuple[Any, ...]]


def _sweep(mode: str, knob: str, values: Sequence[Any], **others: tuple[Any, ...]) -> Sweep:
    return Sweep(mode, knob, tuple(values), others)


SWEEPS = (
    _sweep("speculative", "k", DRAFTS, head_passes=(1, 0), cap=CAPS),
    _sweep("self_speculative", "k", DRAFTS, cap=CAPS),
    _sweep(
        "lattice", "k", DRAFTS, window=(2, 3), ahead=(False, True), head_passes=(1, 0), cap=CAPS
    ),
    _sweep("self_lattice", "k", DRAFTS, window=(2, 3), ahead=(False, True), cap=CAPS),
    # With a budget in place of a window. A round has its states whatever K is, and the largest K
    # made the most tokens of them.
    _sweep(
        "lattice",
        "k",
        (MOST_DRAFTS,),
        budget=(16,),
        ahead=(False, True),
        head_passes=(1, 0),
        cap=CAPS,
    ),
    _sweep("self_lattice", "k", (MOST_DRAFTS,), budget=(16,), ahead=(False, True), cap=CAPS),
    _sweep("static", "steps", (14, 12, 10, 8, 6, 4)),
    _sweep("dynamic", "tau", TAUS),
    _sweep("remask", "tau", TAUS, passes=("one", "halves"), floor=(0.0, 0.9)),
    _sweep("direct", "k", (1, 2, 3, 4)),
    _sweep("factor", "factor", (0.1, 0.25, 0.5, 0.75, 1.0, 1.25, 1.5)),
    _sweep("entropy", "gamma", (0.01, 0.02, 0.05, 0.1, 0.2, 0.3, 0.5)),
    _sweep("klass", "tau", TAUS),
    _sweep("wino", "tau", TAUS),
    _sweep("freedave", "tau", TAUS, k=(2, 4)),
)


@dataclass(frozen=True)
class Candidate:
    """A mode with its options, those that are not the defaults; `head` is a head's name."""

    mode: str
    options: tuple[tuple[str, Any], ...] = ()
    head: str | None = None

    @property
    def knobs(self) -> dict[str, Any]:
        """The options by name."""
        return dict(self.options)

    @cached_property
    def text(self) -> Candidate:
        """The plainest candidate that gives the same text on every problem."""
        if self.mode in LOSSLESS:
            return Candidate("static", tuple(o for o in self.options if o[0] == "cap"))
        if self.mode == "freedave":
            return Candidate("dynamic", tuple(o for o in self.options if o[0] == "tau"))
        return self

    def __str__(self) -> str:
        words = [f"{name}={_word(value)}" for name, value in self.options]
        return " ".join([self.mode, *([self.head] if self.head else []), *words])


STATIC = Candidate("static")


@dataclass(frozen=True)
class Chain:
    """Candidates from careful to eager.

    falls: accuracy may fall along the chain; if not, all of it gives one text.
    costs: a forward of the more eager ones costs more, so that time may have its best in the
        middle; without, speed rises along the chain by the clock too.
    """

    members: tuple[Candidate, ...]
    falls: bool
    costs: bool


def chains(
    heads: Sequence[str], block_size: int, lossless: bool, most_tokens: bool = False
) -> list[Chain]:
    """The table's chains for these heads, names, and this block length.

    `most_tokens`: without those in which another makes more tokens a forward, whatever it costs.
    """
    found = []
    for sweep in SWEEPS:
        if lossless and sweep.mode not in LOSSLESS:
            continue
        for head in heads if MODES[sweep.mode].needs_head else (None,):
            for others in _combinations(sweep, lossless, most_tokens):
                members = tuple(
                    _candidate(sweep.mode, head, {**others, sweep.knob: value})
                    for value in sweep.values
                    if _makes_sense(sweep, value, others, block_size)
                )
                if members:
                    falls = len({member.text for member in members}) > 1
                    found.append(Chain(members, falls, sweep.knob == "k"))
    return _with_budgets(found) if most_tokens else found


def _with_budgets(found: Sequence[Chain]) -> list[Chain]:
    """Without windows where a budget fits the blocks: wherever measured, it makes more tokens."""
    budgeted = {chain.members[0].mode for chain in found if _has_budget(chain)}
    return [chain for chain in found if chain.members[0].mode not in budgeted or _has_budget(chain)]


def _has_budget(chain: Chain) -> bool:
    return "budget" in chain.members[0].knobs


def _combinations(sweep: Sweep, lossless: bool, most_tokens: bool) -> Iterator[dict[str, Any]]:
    tried = (
        values[-1:] if most_tokens and name in RISING else values
        for name, values in sweep.others.items()
    )
    for values in product(*tried):
        others = dict(zip(sweep.others, values, strict=True))
        if not lossless or others.get("cap", 1.0) == 1.0:
            yield others


def _makes_sense(sweep: Sweep, value: Any, others: Mapping[str, Any], block_size: int) -> bool:
    """Whether a value fits the blocks and is not the same as another candidate."""
    if sweep.knob == "steps":
        return bool(value < block_size)
    if sweep.knob == "k":
        least = max(others.get("window", 1), others.get("head_passes", 0) + 1)
        return bool(least <= value < block_size)
    return bool(others.get("k", 1) < block_size)


def _candidate(mode: str, head: str | None, options: Mapping[str, Any]) -> Candidate:
    given = tuple((n, options[n]) for n in OPTIONS if n in options and options[n] != OPTIONS[n])
    return Candidate(mode, given, head)


def _word(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def grid_line(candidate: Candidate) -> str:
    """The candidate as an entry of a suite's grid."""
    entry = {"mode": candidate.mode, "head": candidate.head, **candidate.knobs}
    given = {name: value for name, value in entry.items() if value is not None}
    written = yaml.safe_dump(given, default_flow_style=True, sort_keys=False, width=1000)
    return f"- {written.strip()}"
