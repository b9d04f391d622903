"""Static decoding: a fixed number of reveals a step. The baseline of every speedup."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from mrp.decoding.modes.base import Mode
from mrp.decoding.session import Session


@dataclass(frozen=True)
class Static(Mode):
    """`steps` denoising steps a block, the most confident positions first (method: static).

    0 steps stands for one step a token, the paper's setting. Fewer steps reveal several tokens from
    the same logits: parallel decoding without a head, the control that a head has to beat.

    Confidences above `cap` count as equal and the leftmost of them is revealed first: what is
    certain anyway then comes in reading order, which is easier to draft. 1 stands for no cap.
    """

    name: ClassVar[str] = "static"
    steps: int = 0
    cap: float = 1.0

    def reveals(self, plan: int) -> tuple[int, int] | None:
        """One token in the paper's setting."""
        return None if self.steps else (1, 1)

    def round(self, session: Session, plan: int) -> None:
        """One denoising step of every sample: block / steps reveals, the rest to the first."""
        block, steps = session.block_size, self.steps
        picks = session.pick(session.denoise()).capped(self.cap)
        if not steps:
            where = picks.first()
        else:
            done = session.block_step - 1  # steps of this block before this one
            where = picks.top(block // steps + (done < block % steps).long())
        session.reveal(where, picks.tokens, "backbone")
