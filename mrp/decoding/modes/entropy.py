"""Entropy-bounded unmasking: reveal as many tokens as a budget of entropy allows.

A rival without a head and without verification (EB-Sampler, arXiv 2505.24857).

    p(i)     = backbone's distribution at each masked position i, H(i) its entropy in nats
    i1, i2, ... = masked positions, the most confident first
    n        = the largest n with H(i1) + ... + H(in) - max(H(i1) ... H(in)) <= gamma
    reveal the likeliest tokens at i1 ... in

The sum less the largest bounds how much the tokens can tell of each other, which is what revealing
them together ignores; one token costs nothing. The paper orders the positions by any proxy of their
error (entropy, confidence, margin) and samples; here it is the confidence, as in every other mode,
and the likeliest token.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from mrp.decoding.fused import fused
from mrp.decoding.modes.base import Mode
from mrp.decoding.session import Session


@dataclass(frozen=True)
class Entropy(Mode):
    """Each step reveals the surest positions within a budget of `gamma` nats.

    Towards 0 it is static decoding.
    """

    name: ClassVar[str] = "entropy"
    gamma: float

    def round(self, session: Session, plan: int) -> None:
        """One denoising step of every sample."""
        hidden = session.denoise()
        picks = session.pick(hidden)
        entropy = torch.special.entr(session.forwards.logits(hidden).float().softmax(-1)).sum(-1)
        session.reveal(picks.top(within(picks.odds, entropy, self.gamma)), picks.tokens, "backbone")


@fused
def within(odds: Tensor, entropy: Tensor, gamma: float) -> Tensor:
    """How many positions, by their odds [n, B], stay within the budget, [n]; at least 1.

    `entropy` [n, B] in nats. Positions that are not masked count as well, but come last.
    """
    order = odds.sort(dim=1, stable=True).indices
    ordered = entropy.gather(1, order)
    # Sum less maximum never falls as a position joins: counting those that pass gives the largest.
    excess = ordered.cumsum(dim=1) - ordered.cummax(dim=1).values
    return (excess <= gamma).sum(dim=1).clamp_min(1)
