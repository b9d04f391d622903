"""Direct decoding: the head reveals K further tokens a step, unverified."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from mrp.decoding.modes.base import Mode
from mrp.decoding.pace import Pace
from mrp.decoding.session import Session


@dataclass(frozen=True)
class Direct(Mode):
    """One backbone step, then `k` head passes, each revealing one more token (method: direct).

    `scale` multiplies each correction: acc += scale * r. `shortlist` n > 0 lets the head choose
    only among the backbone's n likeliest tokens of each position, which is cheaper. `prefix` False
    lets the head see the current block alone: no head passes for prompts and finished blocks.
    """

    name: ClassVar[str] = "direct"
    needs_head: ClassVar[bool] = True
    k: int
    scale: float = 1.0
    shortlist: int = 0
    prefix: bool = True

    def plan(self, open_: Sequence[int], fresh: Sequence[bool], pace: Pace) -> int:
        """Head passes until no block has a masked position left, at most `k`."""
        return min(self.k, max(open_) - 1)

    def reveals(self, plan: int) -> tuple[int, int]:
        """The backbone's and each pass's token."""
        return 1 + plan, 1 + plan

    def round(self, session: Session, plan: int) -> None:
        """One backbone step and the head's passes over what is still masked."""
        accumulated = session.denoise()
        picks, listed = session.pick_and_list(accumulated, self.shortlist)
        session.reveal(picks.first(), picks.tokens, "backbone")
        for _ in range(plan):
            still_open = session.masked().any(dim=1)
            accumulated = session.correct(
                session.ids, accumulated, still_open, "head_draft", self.scale
            )
            picks = session.pick(accumulated, shortlist=listed)
            session.reveal(picks.first(), picks.tokens, "head")
