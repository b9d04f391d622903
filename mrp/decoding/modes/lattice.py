"""Lattice decoding: drafts may be taken up in another order than they were made in. Lossless.

A chain of drafts breaks off where the backbone takes the second one before the first, though both
are right. Here the backbone may take up any of the next W drafts, the first one that is lacking and
the W - 1 made after it:

    drafts   (position, token) 1..K, as in speculative decoding
    sets     of drafts: for i = 1..K all that hold 1..i - 1, lack i, and hold none above i + W - 1;
             and the set of all K
    verify   x with the drafts of each set revealed; one forward scores all of these states
    at       the empty set
    while    the backbone's own pick at `at` is a draft d, and `at` with d is one of the sets:
                 at = `at` with d
    commit   the drafts in `at`, and the backbone's pick there for free
    keep     h of that state for the next round

Every step of that walk is static decoding's own pick, so the text is the same. W = 1 is the chain;
W = K has all 2^K subsets. In between are those that the backbone arrives at most often: K = 5,
W = 3 verifies 16 of 32 sets and keeps nearly nine tenths of what all of them would bring. To verify
more than one order is the idea of the draft graphs of lossless self-drafting (Spiffy, SSD,
FreeDave); the window is ours.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import ClassVar, NamedTuple

import torch
from torch import Tensor

from mrp.decoding.fused import fused
from mrp.decoding.modes.branches import (
    RIVALS,
    branch_sets,
    branch_states,
    branches_of,
    likeliest,
    rivals,
    walk_sets,
)
from mrp.decoding.modes.speculative import (
    Candidates,
    Drafts,
    SelfSpeculative,
    Speculative,
    Verified,
    arrival,
)
from mrp.decoding.picks import Picks
from mrp.decoding.session import Session
from mrp.errors import UserError

MOST_WINDOW = 6  # K = W = 6 has 64 states: more than any forward takes along for little


@dataclass(frozen=True)
class Windowed(Verified):
    """The verification of more orders than one; `window` is W.

    With `ahead`, a round that may finish a block takes the next block along, all masked, behind the
    block with all its drafts made. What the backbone would put there is drafted in the next block's
    first round, which otherwise has nothing to draft from.

    With a `budget`, so many states are verified, in place of the window's those that the backbone
    most likely arrives at, and the first draft has two rivals (see `branches`).
    """

    window: int = 2
    ahead: bool = False
    budget: int = 0

    @property
    def states(self) -> int:
        """The sets of a round with all drafts, or the budget; and the next block."""
        if self.budget:
            return min(self.budget, len(branch_sets(self.most))) + self.ahead
        return len(draft_sets(self.most, self.window)) + self.ahead

    def check(self, block_size: int) -> None:
        """Besides the usual: the states are a window's, or a budget's with room for a draft."""
        super().check(block_size)
        if self.budget == 1:
            raise UserError(f"mode {self.name!r}: budget=1 leaves no state for a draft: at least 2")
        if self.budget and self.window != Windowed.window:
            raise UserError(
                f"mode {self.name!r}: budget={self.budget} and window={self.window} do not go "
                "together: leave one of the two out"
            )

    @property
    def looks_ahead(self) -> bool:
        """As the mode was asked to."""
        return self.ahead

    def candidates(self, block: Tensor, drafts: Drafts, useful: Tensor) -> Candidates:
        """The states of all sets; those that hold no more than the `useful` drafts are read.

        With a budget, of the sets that are reached most likely; unread ones are the block as it is.
        """
        if drafts.odds is None:
            sets = sets_of(drafts.positions.shape[1], self.window, block.device)
            states, read, *placed = set_states(block, *drafts[:2], useful, sets.holding, sets.needs)
            return Candidates(states, read, Drafts(*placed))
        tables = branches_of(drafts.positions.shape[1] - RIVALS, block.device)
        chosen, read, tokens = likeliest(
            *drafts[:2], drafts.odds, useful, tables, self.budget, self.ahead
        )
        states = branch_states(block, *drafts[:2], chosen, tables.holding)
        return Candidates(states, read, Drafts(drafts.positions, tokens), chosen)

    def verify(self, session: Session, candidates: Candidates, useful: Tensor) -> Tensor:
        """One forward of all states, and of the next block where it is looked at."""
        states, read = candidates.states, candidates.read
        if not self.ahead:
            return session.verify(states, read)
        hidden, following = session.verify_ahead(states, read, useful)
        session.keep_ahead(following)
        return hidden

    def accept(
        self, own: Drafts, drafts: Drafts, useful: Tensor, candidates: Candidates
    ) -> tuple[Tensor, Tensor]:
        """Walk from the empty set as long as the pick is a draft and leads to another set."""
        picks, chosen = candidates.placed, candidates.sets
        assert picks is not None
        if chosen is None:
            sets = sets_of(drafts.positions.shape[1], self.window, useful.device)
            return walk(*picks[:2], *own[:2], sets.onto, sets.size)
        tables = branches_of(drafts.positions.shape[1] - RIVALS, useful.device)
        return walk_sets(chosen, candidates.read, picks[:2], own[:2], tables.onto, tables.size)


@fused
def set_states(
    block: Tensor, positions: Tensor, tokens: Tensor, useful: Tensor, holding: Tensor, needs: Tensor
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """The states of sets of drafts [n, K], on blocks [n, B]; the `useful` [n] first ones count.

    `holding` and `needs`: see `Sets`.

    Returns:
        The states [n, S, B], and which of them hold useful drafts alone, [n, S]; which draft stands
        at each position of the block, K where none, and the token there, [n, B] each.
    """
    (n, size), k = block.shape, positions.shape[1]
    number = torch.arange(k, device=block.device)
    position = positions.masked_fill(number >= useful[:, None], size)  # useless ones go aside
    which = block.new_full((n, size + 1), k).scatter_(1, position, number.expand(n, -1))
    there = torch.nn.functional.pad(block, (0, 1)).scatter_(1, position, tokens)
    which, there = which[:, :size], there[:, :size]
    states = torch.where(holding[which].mT, there[:, None], block[:, None])
    return states, needs <= useful[:, None], which, there


@fused
def walk(
    which: Tensor, there: Tensor, positions: Tensor, tokens: Tensor, onto: Tensor, size: Tensor
) -> tuple[Tensor, Tensor]:
    """Where the walk from the empty set ends, [n], and how many drafts that set holds, [n].

    `which` and `there` [n, B]: see `set_states`. `positions` and `tokens` [n, S]: the backbone's
    own pick at each set. `onto` and `size`: see `Sets`.
    """
    k = onto.shape[1] - 1
    # Which draft the pick is, [n, S], K if none.
    agrees = there.gather(1, positions) == tokens
    pick = which.gather(1, positions).masked_fill_(~agrees, k)
    at = arrival(onto.gather(1, pick.T).T, k)
    return at, size[at]


class Sets(NamedTuple):
    """The S sets that are verified, the empty one first, as tables; draft K stands for none.

    holding [K + 1, S]: whether a set holds a draft. onto [S, K + 1]: the set that it is with that
    draft, or itself where that is not one of them. needs [S]: drafts that there must be for it.
    size [S]: drafts that it holds.
    """

    holding: Tensor
    onto: Tensor
    needs: Tensor
    size: Tensor


@cache
def sets_of(k: int, window: int, device: torch.device) -> Sets:
    """The sets of K drafts with a window.

    Made once and kept: a round is run before it is captured, and its graph reads these tensors.
    """
    sets = draft_sets(k, window)
    number = {held: place for place, held in enumerate(sets)}
    holding = [[held >> draft & 1 for held in sets] for draft in range(k)] + [[0] * len(sets)]
    onto = [
        [*(number.get(held | 1 << draft, place) for draft in range(k)), place]
        for held, place in number.items()
    ]
    return Sets(
        torch.tensor(holding, dtype=torch.bool, device=device),
        torch.tensor(onto, device=device),
        torch.tensor([held.bit_length() for held in sets], device=device),
        torch.tensor([held.bit_count() for held in sets], device=device),
    )


def draft_sets(k: int, window: int) -> list[int]:
    """The sets of K drafts, draft i (from 0) being bit i: the empty one first, all K last."""
    sets = [
        (beyond << (lacking + 1)) + (1 << lacking) - 1
        for lacking in range(k)
        for beyond in range(1 << min(window - 1, k - 1 - lacking))
    ]
    return [*sets, (1 << k) - 1]


@dataclass(frozen=True)
class Lattice(Windowed, Speculative):
    """The head's drafts; the first ones of a block, if there are any, are the backbone's own."""

    name: ClassVar[str] = "lattice"

    def check(self, block_size: int) -> None:
        """Besides the usual, a shortlist is of the current block, so it does not go with ahead.

        Nor with a budget, which lists tokens itself.
        """
        super().check(block_size)
        for name, value in (("ahead", self.ahead), ("budget", self.budget)):
            if value and self.shortlist:
                raise UserError(
                    f"mode {self.name!r}: {name} and shortlist={self.shortlist} do not go "
                    "together: leave one of the two out"
                )

    def draft(self, session: Session, useful: Tensor, k: int) -> Drafts:
        """With a budget the rivals of the first draft come behind the drafts: K + 2 columns."""
        if not self.budget:
            return super().draft(session, useful, k)
        made: list[tuple[Tensor, ...]] = []
        others: list[tuple[Tensor, ...]] = []
        for (at, token), picks, listed in self.passes(session, useful, k):
            made.append((at, token, picks.odds.gather(1, at)))
            if listed is not None:  # the first pass
                others = [rivals(picks.odds, picks.tokens, listed)]
        return Drafts(*(torch.cat(each, 1) for each in zip(*made, *others, strict=True)))

    def look(
        self, session: Session, hidden: Tensor, masked: Tensor, number: int
    ) -> tuple[Picks, Tensor | None]:
        """With a budget the first pass lists two tokens a position."""
        if self.budget and number == 0:
            return session.pick_and_list(hidden, 2, masked)
        return super().look(session, hidden, masked, number)

    def judged(self, session: Session, lanes: Tensor) -> Tensor:
        """In a block's first round the head has no reveal to go by: what was kept stands."""
        return lanes & (session.block_step > 0) if self.ahead else lanes


@dataclass(frozen=True)
class SelfLattice(Windowed, SelfSpeculative):
    """Drafts from the backbone's own last distribution: no head, no training."""

    name: ClassVar[str] = "self_lattice"

    def draft(self, session: Session, useful: Tensor, k: int) -> Drafts:
        """With a budget the rivals of the first draft come behind the drafts: K + 2 columns.

        The second-best position is the second draft here, and no rival beside it.
        """
        if not self.budget:
            return super().draft(session, useful, k)
        found, listed = session.pick_and_list(session.kept, 2)
        assert listed is not None
        picks = found.capped(self.cap)
        at, token = picks.surest(k)
        made = (at, token, picks.odds.gather(1, at))
        others = rivals(picks.odds, picks.tokens, listed)
        return Drafts(*(torch.cat(each, 1) for each in zip(made, others, strict=True)))
