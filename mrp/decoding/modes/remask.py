"""Remasking: over-reveal as dynamic decoding does, then let the head take tokens back."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from torch import Tensor

from mrp.decoding.modes.base import Mode
from mrp.decoding.modes.dynamic import above
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

    def round(self, session: Session) -> None:
        """One denoising step of every sample, and one head pass where several were revealed."""
        rows = session.rows()
        before = session.block(rows)
        hidden = session.denoise(rows)
        picks = session.picks(rows, hidden)
        fresh = above(picks, self.tau)
        session.reveal(rows, fresh, picks.tokens, "backbone")

        several = fresh.sum(dim=1) > 1  # a single fresh token stays in any case
        if several.any():
            rows, fresh, hidden = rows[several], fresh[several], hidden[several]
            ids = session.block(rows) if self.condition == "revealed" else before[several]
            corrected = session.correct(rows, ids, hidden, "head_remask")
            doubt, limit = self.doubt(session, corrected, hidden, picks.tokens[several])
            session.remask(rows, veto(fresh, doubt, limit))

    def doubt(
        self, session: Session, corrected: Tensor, hidden: Tensor, tokens: Tensor
    ) -> tuple[Tensor, float]:
        """How doubtful the tokens [n, B] are, [n, B], and the limit above which one is vetoed."""
        if self.rule == "confidence":
            return -probability(session.logits(corrected), tokens), -self.tau
        moved = session.backbone.logits(corrected - hidden).gather(2, tokens[..., None])
        return moved.squeeze(2).abs().float(), self.delta


def veto(fresh: Tensor, doubt: Tensor, limit: float) -> Tensor:
    """Fresh tokens [n, B] with doubt above the limit, less the least doubtful if all are."""
    vetoed = fresh & (doubt > limit)
    least = doubt.masked_fill(~fresh, torch.inf).argmin(dim=1, keepdim=True)
    everything = (vetoed == fresh).all(dim=1, keepdim=True)
    return vetoed.scatter(1, least, vetoed.gather(1, least) & ~everything)
