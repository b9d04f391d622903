"""Direct decoding: the head reveals K further tokens a step, unverified."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

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

    def plan(self, open_: Sequence[int], fresh: Sequence[bool]) -> int:
        """Head passes until no block has a masked position left, at most `k`."""
        return min(self.k, max(open_) - 1)

    def round(self, session: Session, plan: int) -> None:
        """One backbone step and the head's passes over what is still masked."""
        accumulated = session.denoise()
        reveal_best(session, accumulated, "backbone")
        for _ in range(plan):
            still_open = session.masked().any(dim=1)
            accumulated = session.correct(
                session.ids, accumulated, still_open, "head_draft", self.scale
            )
            reveal_best(session, accumulated, "head")


def reveal_best(session: Session, hidden: Tensor, source: Source) -> None:
    """Reveal the single most confident masked position of each block."""
    picks = session.pick(hidden)
    session.reveal(picks.first(), picks.tokens, source)
