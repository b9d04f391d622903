"""Factor-based parallel decoding: how many tokens are revealed depends on how sure they all are.

A rival without a head and without verification (Fast-dLLM, arXiv 2505.22618; NVlabs/Fast-dLLM,
llada/generate.py). Its other rule, a threshold on the confidence, is `dynamic` here.

    p, h     = backbone's picks and their confidences at the masked positions
    c(1) >= c(2) >= ...: the confidences in order
    n        = the largest n with (n + 1) (1 - c(n)) < factor, at least 1
    reveal the picks of c(1) ... c(n)

The rule is the paper's condition under which the likeliest tokens one by one are the likeliest
together. The public script reveals the last masked token along with the ones before it whether it
meets the condition or not; this follows the paper.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from mrp.decoding.fused import fused
from mrp.decoding.modes.base import Mode
from mrp.decoding.picks import ranks
from mrp.decoding.session import Session


@dataclass(frozen=True)
class Factor(Mode):
    """Each step reveals the n surest positions, n from the rule above; the script's factor is 1.

    Towards 0 it is static decoding.
    """

    name: ClassVar[str] = "factor"
    factor: float

    def round(self, session: Session, plan: int) -> None:
        """One denoising step of every sample."""
        picks = session.pick(session.denoise())
        session.reveal(picks.top(joint(picks.odds, self.factor)), picks.tokens, "backbone")


@fused
def joint(odds: Tensor, factor: float) -> Tensor:
    """How many positions, by their odds [n, B], are revealed together, [n]; at least 1."""
    doubt = 1 / (1 + 1 / odds)  # 1 - c without its rounding; 1 where nothing is masked
    # (n + 1) (1 - c(n)) rises with n, so that counting the n that pass gives the largest.
    return ((ranks(odds) + 2) * doubt < factor).sum(dim=1).clamp_min(1)
