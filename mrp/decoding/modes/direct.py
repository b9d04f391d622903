"""Direct decoding: the head reveals K further tokens a step, unverified."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from mrp.decoding.modes.base import Mode
from mrp.decoding.sample import Source
from mrp.decoding.session import Session


@dataclass(frozen=True)
class Direct(Mode):
    """One backbone step, then `k` head passes, each revealing one more token (method: direct).

    `scale` multiplies each correction: acc += scale * r.
    """

    name: ClassVar[str] = "direct"
    needs_head: ClassVar[bool] = True
    k: int
    scale: float = 1.0

    def round(self, session: Session) -> None:
        """One backbone step and the head's passes over what is still masked."""
        rows = session.rows()
        accumulated = session.denoise(rows)
        reveal_best(session, rows, accumulated, "backbone")
        for _ in range(self.k):
            open_ = session.masked(rows).any(dim=1)
            rows, accumulated = rows[open_], accumulated[open_]
            if not len(rows):
                break
            accumulated = session.correct(
                rows, session.block(rows), accumulated, "head_draft", self.scale
            )
            reveal_best(session, rows, accumulated, "head")


def reveal_best(session: Session, rows: Tensor, hidden: Tensor, source: Source) -> None:
    """Reveal the single most confident masked position of each block."""
    picks = session.picks(rows, hidden)
    session.reveal(rows, picks.top(torch.ones_like(rows)), picks.tokens, source)
