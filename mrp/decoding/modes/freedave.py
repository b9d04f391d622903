"""FreeDave for threshold decoding: draft future states, verify them together. Equals `dynamic`.

A rival without a head (FreeDave, arXiv 2510.00294; cychomatica/FreeDave, generation/core.py). T is
one step of dynamic decoding at `tau`; a sample's block x has been denoised before, q being the
distribution at the state accepted last:

    drafts   q's best tokens at the masked positions, the most confident first: 1 ... k
    verify   C(0) = x, C(j) = x with the first j drafts revealed; one forward gives every T(C(j))
    at       0
    while    T(C(at)) is C(j) for some j: at = j
    commit   T(C(at))
    keep     the distribution at C(at) for the next round

Dynamic decoding passes through every state at which that walk stops by, so the text is the same. As
all that q is sure of was revealed with x, its further states are drafted token by token, as in the
script (its `draft_steps` is k + 1: x is its first draft). With static decoding as T this is
`self_speculative`: the same drafts, the same acceptance, the same forwards.

Two things of the script are left out. Its subset rule, C(j) part of T(C(at)), is not lossless: what
T(C(at)) has and C(j) has not may come out otherwise later. Its eager mode drafts across the block
border, where the next block's first forward is saved if the drafts hold.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from mrp.decoding.fused import fused
from mrp.decoding.modes.base import Mode
from mrp.decoding.modes.dynamic import above
from mrp.decoding.modes.speculative import (
    Drafts,
    arrival,
    chain,
    no_drafts,
    useful_drafts_of,
)
from mrp.decoding.pace import Pace, useful_drafts
from mrp.decoding.session import Session


@dataclass(frozen=True)
class FreeDave(Mode):
    """The text of `dynamic` at `tau` in fewer forwards, by `k` drafts of future states."""

    name: ClassVar[str] = "freedave"
    k: int
    tau: float

    @property
    def states(self) -> int:
        """C(0) ... C(k)."""
        return self.k + 1

    def plan(self, open_: Sequence[int], fresh: Sequence[bool], pace: Pace) -> int:
        """The most drafts that any lane can use."""
        return max(useful_drafts(open_, fresh, self.k))

    def round(self, session: Session, plan: int) -> None:
        """Draft, verify, walk, commit, keep."""
        block = session.ids
        useful = useful_drafts_of(block, session.fresh, session.mask_id, plan)
        drafts = self.draft(session, plan) if plan else no_drafts(block)
        states, read = chain(block, drafts.positions, drafts.tokens, useful)
        hidden = session.verify(states, read)
        picks = session.pick(hidden, states == session.mask_id)
        targets = torch.where(above(picks, self.tau), picks.tokens, states)

        at = steps_taken(states, targets, read)
        lane = session.every
        session.commit(states[lane, at], targets[lane, at])
        session.keep_state(hidden, at)
        session.count_drafts(useful, at)

    def draft(self, session: Session, plan: int) -> Drafts:
        """The `plan` most confident picks of the distribution kept; some may be of no use."""
        picks = session.pick(session.kept)
        return Drafts(*picks.surest(plan))


@fused
def steps_taken(states: Tensor, targets: Tensor, read: Tensor) -> Tensor:
    """Where the walk ends, [n]: from state 0 on to the state that equals the target, if there is.

    Args:
        states: the drafted states, [n, S, B].
        targets: the step from each of them, [n, S, B].
        read: which states count, [n, S].
    """
    count = states.shape[1]
    leads = (targets[:, :, None] == states[:, None]).all(dim=-1) & read[:, None]  # [n, S, S]
    stay = torch.arange(count, device=states.device)
    following = torch.where(leads.any(dim=2), leads.long().argmax(dim=2), stay)
    return arrival(following, count - 1)
