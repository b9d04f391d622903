"""Remasking: over-reveal as dynamic decoding does, then let the head take tokens back."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from torch import Tensor

from mrp.decoding.modes.base import Mode
from mrp.decoding.modes.dynamic import above
from mrp.decoding.pace import Pace
from mrp.decoding.picks import probability
from mrp.decoding.session import Session

Condition = Literal["revealed", "masked"]
Rule = Literal["confidence", "residual"]


@dataclass(frozen=True)
class Remask(Mode):
    """Dynamic decoding with the head as judge of each step's fresh tokens (method: remask).

    `condition`: whether the head reads the ids after the over-reveal or before it.
    `rule` "confidence": a token whose corrected probability is below `tau` is masked again;
    "residual": one whose logit the correction moves by more than `delta`. At least one fresh token
    stays, the least doubtful.
    """

    name: ClassVar[str] = "remask"
    needs_head: ClassVar[bool] = True
    tau: float
    condition: Condition = "revealed"
    rule: Rule = "confidence"
    delta: float = 1.0

    def plan(self, open_: Sequence[int], fresh: Sequence[bool], pace: Pace) -> int:
        """One head pass."""
        return 1

    def round(self, session: Session, plan: int) -> None:
        """One denoising step of every sample, and one head pass where several were revealed."""
        before = session.ids.clone()
        hidden = session.denoise()
        picks = session.pick(hidden)
        fresh = above(picks, self.tau)
        session.reveal(fresh, picks.tokens, "backbone")

        several = fresh.sum(dim=1) > 1  # a single fresh token stays in any case
        if session.any(several):
            ids = session.ids if self.condition == "revealed" else before
            corrected = session.correct(ids, hidden, several, "head_remask")
            doubt, limit = self.doubt(session, corrected, hidden, picks.tokens)
            session.remask(veto(fresh, doubt, limit) & several[:, None])

    def doubt(
        self, session: Session, corrected: Tensor, hidden: Tensor, tokens: Tensor
    ) -> tuple[Tensor, float]:
        """How doubtful the tokens [n, B] are, [n, B], and the limit above which one is vetoed."""
        if self.rule == "confidence":
            return -probability(session.forwards.logits(corrected), tokens), -self.tau
        moved = session.model.logits(corrected - hidden).gather(2, tokens[..., None])
        return moved.squeeze(2).abs().float(), self.delta


def veto(fresh: Tensor, doubt: Tensor, limit: float) -> Tensor:
    """Fresh tokens [n, B] with doubt above the limit, less the least doubtful if all are."""
    vetoed = fresh & (doubt > limit)
    least = doubt.masked_fill(~fresh, torch.inf).argmin(dim=1, keepdim=True)
    everything = (vetoed == fresh).all(dim=1, keepdim=True)
    return vetoed.scatter(1, least, vetoed.gather(1, least) & ~everything)
