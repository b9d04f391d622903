"""Remasking: over-reveal as dynamic decoding does, then let the head take tokens back.

A head is trained to predict masked positions: of a token that it can read itself it knows little.
So besides the paper's one pass there is a rule of our own, `passes: halves`. A step of it, for one
block x with hidden states h of the backbone:

    fresh = positions with confidence > tau, or the best one;  reveal them in x
    A, B  = every other fresh position, from the surest to the least sure
    for half in A, B:                           # both states in one call of the head
        y = x with half masked again
        q[half] = softmax(W (h + head(y, h)))[half, its tokens]
    veto  = fresh positions with q < floor, but one at least stays: the one of largest q
    mask them again in x

Each token is so judged as a guess, from what the other half says. Halves that take turns by
confidence are equally sure, so that each has something to say about the other; turns by position
recover as much, two stretches or the surer half against the rest less. `floor` is tau unless it is
given. At equal tokens per forward a low tau with a high floor, eager to reveal and strict to keep,
is the better use of the two. Two thresholds are wino's idea too, where the backbone is the judge, a
round later; here it is the head, within the step.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from torch import Tensor

from mrp.decoding.fused import fused
from mrp.decoding.modes.base import Mode
from mrp.decoding.modes.dynamic import above
from mrp.decoding.pace import Pace
from mrp.decoding.picks import probability
from mrp.decoding.session import Session

Condition = Literal["revealed", "masked"]
Rule = Literal["confidence", "residual"]
Passes = Literal["one", "halves"]


@dataclass(frozen=True)
class Remask(Mode):
    """Dynamic decoding with the head as judge of each step's fresh tokens (method: remask).

    `passes` "one": the head judges all fresh tokens at once, the paper's way; `condition`: whether
    it reads the ids after the over-reveal or before it. "halves": each half of them is judged with
    that half masked and the other revealed, our own way; `condition` has no part in it.
    `rule` "confidence": a token whose corrected probability is below `floor` is masked again, the
    paper's way below `tau` itself, which a floor of 0 stands for; "residual": one whose logit the
    correction moves by more than `delta`. At least one fresh token stays, the least doubtful.
    `prefix` False lets the head see the current block alone.
    """

    name: ClassVar[str] = "remask"
    needs_head: ClassVar[bool] = True
    tau: float
    passes: Passes = "one"
    condition: Condition = "revealed"
    rule: Rule = "confidence"
    delta: float = 1.0
    floor: float = 0.0
    prefix: bool = True

    @property
    def head_states(self) -> int:
        """A state for each half."""
        return 2 if self.passes == "halves" else 1

    def plan(self, open_: Sequence[int], fresh: Sequence[bool], pace: Pace) -> int:
        """One head pass."""
        return 1

    def round(self, session: Session, plan: int) -> None:
        """One denoising step of every sample; the head judges where several were revealed."""
        before = session.ids.clone()
        hidden = session.denoise()
        picks = session.pick(hidden)
        fresh = above(picks, self.tau)
        session.reveal(fresh, picks.tokens, "backbone")

        several = fresh.sum(dim=1) > 1  # a single fresh token stays in any case
        if session.any(several):
            if self.passes == "halves":
                where = halves(fresh, picks.rank())
                corrected = correct_by_halves(session, hidden, where, several)
            else:
                ids = session.ids if self.condition == "revealed" else before
                corrected = session.correct(ids, hidden, several, "head_remask")
            doubt, limit = self.doubt(session, corrected, hidden, picks.tokens)
            session.remask(veto(fresh, doubt, limit))

    def doubt(
        self, session: Session, corrected: Tensor, hidden: Tensor, tokens: Tensor
    ) -> tuple[Tensor, float]:
        """How doubtful the tokens [n, B] are, [n, B], and the limit above which one is vetoed."""
        if self.rule == "confidence":
            limit = self.floor or self.tau
            return -probability(session.forwards.logits(corrected), tokens), -limit
        moved = session.model.logits(corrected - hidden).gather(2, tokens[..., None])
        return moved.squeeze(2).abs().float(), self.delta


def correct_by_halves(session: Session, hidden: Tensor, halves: Tensor, where: Tensor) -> Tensor:
    """Corrected hidden states [n, B, H], each fresh token's with its own half masked.

    Args:
        session: its current blocks hold the fresh tokens.
        hidden: the backbone's hidden states [n, B, H] from before the reveal.
        halves: the positions revealed in this step, [n, 2, B].
        where: lanes [n] whose results are read.
    """
    states = session.ids[:, None].masked_fill(halves, session.mask_id)
    twice = hidden[:, None].repeat(1, 2, 1, 1)  # a view would be copied, twice
    corrected = session.correct(states, twice, where, "head_remask")
    return torch.where(halves[:, 1, :, None], corrected[:, 1], corrected[:, 0])


@fused
def halves(fresh: Tensor, rank: Tensor) -> Tensor:
    """Fresh positions [n, B] in two halves, [n, 2, B]: every other one by their `rank` [n, B].

    The fresh ones are the first ranks, so that the halves differ by one position at most.
    """
    second = rank % 2 == 1
    return torch.stack((fresh & ~second, fresh & second), dim=1)


@fused
def veto(fresh: Tensor, doubt: Tensor, limit: float) -> Tensor:
    """Fresh tokens [n, B] with doubt above the limit, less the least doubtful if all are."""
    vetoed = fresh & (doubt > limit)
    least = doubt.masked_fill(~fresh, torch.inf).argmin(dim=1, keepdim=True)
    everything = (vetoed == fresh).all(dim=1, keepdim=True)
    return vetoed.scatter(1, least, vetoed.gather(1, least) & ~everything)
