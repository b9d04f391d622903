"""Dynamic decoding: reveal whatever the backbone is sure enough of."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from mrp.decoding.fused import fused
from mrp.decoding.modes.base import Mode
from mrp.decoding.picks import Picks, or_first
from mrp.decoding.session import Session


@dataclass(frozen=True)
class Dynamic(Mode):
    """Each step reveals every position with confidence above `tau`, or the best one (method)."""

    name: ClassVar[str] = "dynamic"
    tau: float

    def round(self, session: Session, plan: int) -> None:
        """One denoising step of every sample."""
        picks = session.pick(session.denoise())
        session.reveal(above(picks, self.tau), picks.tokens, "backbone")


def above(picks: Picks, tau: float) -> Tensor:
    """Positions [..., B] with confidence > tau; where there is none, the most confident one."""
    return above_odds(picks.odds, tau)


@fused
def above_odds(odds: Tensor, tau: float) -> Tensor:
    """The same from odds [..., B]."""
    return or_first(1.0 / (1.0 + odds) > tau, odds)
