"""Dynamic decoding: reveal whatever the backbone is sure enough of."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from mrp.decoding.modes.base import Mode
from mrp.decoding.picks import Picks
from mrp.decoding.session import Session


@dataclass(frozen=True)
class Dynamic(Mode):
    """Each step reveals every position with confidence above `tau`, or the best one (method)."""

    name: ClassVar[str] = "dynamic"
    tau: float

    def round(self, session: Session) -> None:
        """One denoising step of every sample."""
        rows = session.rows()
        picks = session.picks(rows, session.denoise(rows))
        session.reveal(rows, above(picks, self.tau), picks.tokens, "backbone")


def above(picks: Picks, tau: float) -> Tensor:
    """Positions [n, B] with confidence > tau; where there is none, the most confident one."""
    sure = picks.confidence > tau
    alone = ~sure.any(dim=1)
    sure[alone.nonzero().flatten(), picks.best()[alone]] = True
    return sure
