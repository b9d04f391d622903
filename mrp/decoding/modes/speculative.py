"""Speculative decoding: draft K picks, verify all of them in one backbone forward. Lossless.

A round, for a sample whose block x has been denoised before, h being the hidden states of the
state accepted last:

    draft    (position, token) 1..K, one after the other
    verify   C(0) = x, C(k) = x with the first k drafts revealed; one forward scores them all
    accept   while the backbone's own pick at C(k) is draft k+1, position and token
    commit   the a accepted drafts, and the backbone's pick at C(a) for free
    keep     h of C(a) for the next round

Static decoding would have taken exactly these picks one by one, so the text is the same.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import torch
from torch import Tensor

from mrp.decoding.modes.base import Mode
from mrp.decoding.modes.direct import reveal_best
from mrp.decoding.picks import pick
from mrp.decoding.session import Session


class Drafts(NamedTuple):
    """Draft picks: position in the block and token, each [n, K]."""

    positions: Tensor
    tokens: Tensor


@dataclass(frozen=True)
class Verified(Mode):
    """The verification shared by all drafting modes; where the drafts come from is the mode."""

    k: int

    @property
    def states(self) -> int:
        """C(0) ... C(K)."""
        return self.k + 1

    @abstractmethod
    def draft(self, session: Session, rows: Tensor, useful: Tensor) -> Drafts:
        """Draft `useful` [n] picks for the current blocks; columns behind those are not read."""

    def round(self, session: Session) -> None:
        """Open fresh blocks with a plain step; draft and verify in the others."""
        rows = session.rows()
        kept = session.has_kept[rows]
        fresh, rows = rows[~kept], rows[kept]
        if len(fresh):
            hidden = session.denoise(fresh)
            reveal_best(session, fresh, hidden, "backbone")
            session.keep(fresh, hidden)
        if len(rows):
            self.draft_and_verify(session, rows)

    def draft_and_verify(self, session: Session, rows: Tensor) -> None:
        """One round of samples that have kept hidden states."""
        # The last masked position is the bonus of the state before it: it needs no draft.
        useful = (session.masked(rows).sum(dim=1) - 1).clamp(max=self.k)
        drafts = self.draft(session, rows, useful)
        k = drafts.positions.shape[1]
        states = candidates(session.block(rows), drafts)
        hidden = session.verify(rows, states)
        picks = pick(session.logits(hidden), states == session.mask_id)
        best = picks.best()
        best_token = picks.tokens.gather(2, best[..., None]).squeeze(2)

        agrees = (best[:, :k] == drafts.positions) & (best_token[:, :k] == drafts.tokens)
        agrees &= torch.arange(k, device=rows.device) < useful[:, None]
        accepted = agrees.long().cumprod(dim=1).sum(dim=1)

        each = torch.arange(len(rows), device=rows.device)
        committed = states[each, accepted]
        from_draft = committed != session.block(rows)
        bonus = torch.zeros_like(from_draft)
        bonus[each, best[each, accepted]] = True
        session.reveal(rows, from_draft, committed, "draft")
        session.reveal(rows, bonus, best_token[each, accepted, None].expand_as(bonus), "bonus")
        session.keep(rows, hidden[each, accepted])
        session.count(rows, "proposed", useful)
        session.count(rows, "accepted", accepted)
        session.count(rows, "bonus", torch.ones_like(accepted))


def candidates(block: Tensor, drafts: Drafts) -> Tensor:
    """The states C(0) ... C(K), [n, K+1, B], of a block [n, B]: its first 0 ... K drafts made."""
    k = drafts.positions.shape[1]
    states = block[:, None].repeat(1, k + 1, 1)
    for number in range(k):
        position = drafts.positions[:, number, None, None].expand(-1, k - number, 1)
        token = drafts.tokens[:, number, None, None].expand(-1, k - number, 1)
        states[:, number + 1 :].scatter_(2, position, token)
    return states


@dataclass(frozen=True)
class Speculative(Verified):
    """Drafts from the head, as direct decoding makes them (method: speculative)."""

    name: ClassVar[str] = "speculative"
    needs_head: ClassVar[bool] = True

    def draft(self, session: Session, rows: Tensor, useful: Tensor) -> Drafts:
        """One head pass a draft; it takes the best masked position under the corrected logits."""
        block, accumulated = session.block(rows), session.kept(rows)
        positions = rows.new_zeros(len(rows), int(useful.max()))
        tokens = torch.zeros_like(positions)
        drafting = torch.arange(len(rows), device=rows.device)
        for number in range(positions.shape[1]):
            going_on = useful[drafting] > number
            drafting, block = drafting[going_on], block[going_on]
            accumulated = session.correct(
                rows[drafting], block, accumulated[going_on], "head_draft"
            )
            picks = pick(session.logits(accumulated), block == session.mask_id)
            position = picks.best()[:, None]
            token = picks.tokens.gather(1, position)
            block = block.scatter(1, position, token)
            positions[drafting, number] = position.squeeze(1)
            tokens[drafting, number] = token.squeeze(1)
        return Drafts(positions, tokens)


@dataclass(frozen=True)
class SelfSpeculative(Verified):
    """Drafts from the backbone's own last distribution: no head, no training (the rival)."""

    name: ClassVar[str] = "self_speculative"

    def draft(self, session: Session, rows: Tensor, useful: Tensor) -> Drafts:
        """The most confident of the still-masked positions, from the logits one token stale."""
        picks = session.picks(rows, session.kept(rows))
        positions = picks.odds.sort(dim=1, stable=True).indices[:, : int(useful.max())]
        return Drafts(positions, picks.tokens.gather(1, positions))
