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
from typing import ClassVar

import torch
from torch import Tensor

from mrp.decoding.modes.speculative import (
    Candidates,
    Drafts,
    SelfSpeculative,
    Speculative,
    Verified,
    arrival,
)
from mrp.decoding.session import Session
from mrp.errors import UserError

MOST_WINDOW = 6  # K = W = 6 has 64 states: more than any forward takes along for little


@dataclass(frozen=True)
class Windowed(Verified):
    """The verification of more orders than one; `window` is W.

    With `ahead`, a round that may finish a block takes the next block along, all masked, behind the
    block with all its drafts made. What the backbone would put there is drafted in the next block's
    first round, which otherwise has nothing to draft from.
    """

    window: int = 2
    ahead: bool = False

    @property
    def states(self) -> int:
        """The sets of a round with all drafts, and the next block."""
        return len(draft_sets(self.most, self.window, torch.device("cpu"))) + self.ahead

    @property
    def looks_ahead(self) -> bool:
        """As the mode was asked to."""
        return self.ahead

    def candidates(self, block: Tensor, drafts: Drafts, useful: Tensor) -> Candidates:
        """The states of all sets; those that hold no more than the `useful` drafts are read."""
        n, k = drafts.positions.shape
        sets = draft_sets(k, self.window, block.device).expand(n, -1)
        number = torch.arange(k, device=block.device)
        # Which draft stands at each position of the block, k where none; useless ones go aside.
        aside = block.shape[1]
        position = drafts.positions.masked_fill(number >= useful[:, None], aside)
        place = block.new_full((n, aside + 1), k).scatter(1, position, number.expand(n, -1))
        drafted = torch.nn.functional.pad(block, (0, 1)).scatter(1, position, drafts.tokens)
        holds = (sets[:, :, None] >> place[:, None, :aside]) & 1
        states = torch.where(holds > 0, drafted[:, None, :aside], block[:, None])
        return Candidates(states, sets < (1 << useful)[:, None], sets)

    def verify(self, session: Session, candidates: Candidates, useful: Tensor) -> Tensor:
        """One forward of all states, and of the next block where it is looked at."""
        states, read, _ = candidates
        if not self.ahead:
            return session.verify(states, read)
        may_finish = session.masked().sum(dim=1) <= useful + 1  # by all drafts and the bonus
        hidden, following = session.verify_ahead(states, read, may_finish)
        session.keep_ahead(following)
        return hidden

    def accept(
        self, own: Drafts, drafts: Drafts, useful: Tensor, sets: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        """Walk from the empty set as long as the pick is a draft and leads to another set."""
        assert sets is not None
        k = drafts.positions.shape[1]
        number = torch.arange(k, device=useful.device)
        # Which draft the backbone's own pick at each state is, [n, S, K]: one of them at most.
        agrees = own.positions[:, :, None] == drafts.positions[:, None]
        agrees &= own.tokens[:, :, None] == drafts.tokens[:, None]
        agrees &= number < useful[:, None, None]
        with_pick = sets | (agrees.long() << number).sum(dim=2)
        # Where the walk goes from each state, [n, S]: it stays where the pick leads to no set.
        leads = with_pick[:, :, None] == sets[:, None]  # [n, S, S]
        stay = torch.arange(sets.shape[1], device=sets.device)
        following = torch.where(leads.any(dim=2), leads.long().argmax(dim=2), stay)
        at = arrival(following, k)
        accepted = ((sets.gather(1, at[:, None]) >> number) & 1).sum(dim=1)
        return at, accepted


@cache
def draft_sets(k: int, window: int, device: torch.device) -> Tensor:
    """The sets of K drafts, draft i (from 0) being bit i, [S]: the empty one first.

    Made once and kept: a round is run before it is captured, and its graph reads this tensor.
    """
    sets = [
        (beyond << (lacking + 1)) + (1 << lacking) - 1
        for lacking in range(k)
        for beyond in range(1 << min(window - 1, k - 1 - lacking))
    ]
    return torch.tensor([*sets, (1 << k) - 1], device=device)


@dataclass(frozen=True)
class Lattice(Windowed, Speculative):
    """The head's drafts; the first ones of a block, if there are any, are the backbone's own."""

    name: ClassVar[str] = "lattice"

    def check(self, block_size: int) -> None:
        """Besides the usual, a shortlist is of the current block, so it does not go with ahead."""
        super().check(block_size)
        if self.ahead and self.shortlist:
            raise UserError(
                f"mode {self.name!r}: ahead and shortlist={self.shortlist} do not go together: "
                "leave one of the two out"
            )

    def correct(
        self, session: Session, block: Tensor, accumulated: Tensor, drafting: Tensor
    ) -> Tensor:
        """In a block's first round the head has no reveal to go by: what was kept stands."""
        if not self.ahead:
            return super().correct(session, block, accumulated, drafting)
        first = session.block_step == 0
        corrected = super().correct(session, block, accumulated, drafting & ~first)
        return torch.where(first[:, None, None], accumulated, corrected)


@dataclass(frozen=True)
class SelfLattice(Windowed, SelfSpeculative):
    """Drafts from the backbone's own last distribution: no head, no training."""

    name: ClassVar[str] = "self_lattice"
