"""Static decoding: a fixed number of reveals a step. The baseline of every speedup."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch

from mrp.decoding.modes.base import Mode
from mrp.decoding.session import Session


@dataclass(frozen=True)
class Static(Mode):
    """`steps` denoising steps a block, the most confident positions first (method: static).

    0 steps stands for one step a token, the paper's setting. Fewer steps reveal several tokens from
    the same logits: parallel decoding without a head, the control that a head has to beat.
    """

    name: ClassVar[str] = "static"
    steps: int = 0

    def round(self, session: Session) -> None:
        """One denoising step of every sample."""
        rows = session.rows()
        schedule = torch.tensor(self._schedule(session.block_size), device=session.device)
        count = schedule[session.block_step[rows]]
        picks = session.picks(rows, session.denoise(rows))
        session.reveal(rows, picks.top(count), picks.tokens, "backbone")

    def _schedule(self, block: int) -> list[int]:
        """Reveals of each step: block / steps, the remainder going to the first steps."""
        steps = self.steps or block
        return [block // steps + (step < block % steps) for step in range(steps)]
