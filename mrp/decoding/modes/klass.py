"""KL-adaptive stability sampling: reveal what is confident and has stopped changing.

A rival without a head and without verification (KLASS, arXiv 2511.05664; shkim0116/KLASS,
src/model/llada_klass.py).

    p(i)     = backbone's distribution at each masked position i, q(i) the one a step before
    d(i)     = KL(p(i) || q(i)); before a block's first step q counts as 1e-12 for every token
    stable   = positions with d < kl in each of the last `history` steps
    reveal the likeliest tokens of all stable positions with confidence > tau;
    the most confident position alone where there is none

The script also falls back to a fixed number of tokens a step, which is one at a step a token, the
setting here. Its q goes on from block to block, since a model that attends to the whole answer has
seen the next block before; a block-diffusion model has not.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from mrp.decoding.fused import fused
from mrp.decoding.modes.base import Mode
from mrp.decoding.picks import or_first
from mrp.decoding.session import Session

LEAST = math.log(1e-12)  # log-probabilities are clamped here


@dataclass(frozen=True)
class Klass(Mode):
    """Dynamic decoding of stable positions; the paper's tau is 0.9, its kl 0.01, its history 2.

    Costs a second product with the vocabulary, since it looks at two whole distributions. With no
    bound on the divergence and a history of 1 it is dynamic decoding.
    """

    name: ClassVar[str] = "klass"
    tau: float
    kl: float = 0.01
    history: int = 2

    def round(self, session: Session, plan: int) -> None:
        """One denoising step of every sample."""
        hidden = session.denoise()
        picks = session.pick(hidden)
        new, old = session.forwards.logits(torch.stack((hidden, session.kept))).float()
        stable = divergence(new, old, session.fresh) < self.kl
        # Stable steps in a row up to this one; a block that was never denoised has had none.
        runs = torch.zeros_like(session.ids)
        if session.kept_numbers is not None:
            runs = session.kept_numbers[..., 0].masked_fill(session.fresh[:, None], 0)
        runs = (runs + 1) * stable
        session.reveal(ready(picks.odds, runs >= self.history, self.tau), picks.tokens, "backbone")
        session.keep(hidden, runs[..., None])


def divergence(new: Tensor, old: Tensor, fresh: Tensor) -> Tensor:
    """KL of the softmax of logits `new` against that of `old`, both [n, B, V]: [n, B] in nats.

    In lanes that are `fresh` [n] there is no old one, and all its probabilities count as 1e-12.
    """
    log_new, log_old = (each.log_softmax(-1).clamp_min(LEAST) for each in (new, old))
    log_old = log_old.masked_fill(fresh[:, None, None], LEAST)
    return (log_new.exp() * (log_new - log_old)).sum(dim=-1)


@fused
def ready(odds: Tensor, stable: Tensor, tau: float) -> Tensor:
    """Stable positions [n, B] with confidence > tau; where there is none, the most confident."""
    return or_first(stable & (1.0 / (1.0 + odds) > tau), odds)
