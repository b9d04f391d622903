"""Wide in, narrow out: over-reveal at a low threshold, and let the backbone itself take back.

A rival of remasking without a head (WINO, arXiv 2507.18578; Feng-Hong/WINO-DLLM,
LLaDA/decoding.py). Each forward runs the block x and behind it a shadow of masks: shadow token i
sees the prefix, the whole shadow, and x except for x(i).

    p, s     = distributions at x's masked positions, and at the shadow's
    new      = masked positions with confidence p > tau, at most `most`; else the best one
    doubtful = tokens revealed in earlier rounds with s(i) of x(i) < back
               none if |new| = 1; the worst few if as many as the last round's new ones or more
    reveal new; mask doubtful again

`most` is 0.7 of the masked positions, but at least 5 and at most 20. As fewer are taken back than
the round before revealed, a block takes no more rounds than it has tokens. A forward has twice the
tokens of others': it counts as one, and what it costs shows in the time. Prompt tokens, which may
stand in the first block, are never taken back.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from mrp.decoding.fused import fused
from mrp.decoding.modes.base import Mode
from mrp.decoding.modes.dynamic import above_odds
from mrp.decoding.picks import first_among, probability, ranks
from mrp.decoding.session import Session


@dataclass(frozen=True)
class Wino(Mode):
    """Drafts above `tau` and takes back what falls below `back`: the paper's tau1, 0.6, and tau2.

    With back = 0 nothing is taken back: dynamic decoding but for the cap on what is revealed.
    """

    name: ClassVar[str] = "wino"
    tau: float
    back: float = 0.9

    @property
    def states(self) -> int:
        """The block and its shadow."""
        return 2

    def round(self, session: Session, plan: int) -> None:
        """One forward of every sample's block and shadow."""
        hidden, shadow = session.denoise_with_shadows()
        picks = session.pick(hidden)
        new = wide(picks.odds, self.tau)
        trust = probability(session.forwards.logits(shadow), session.ids)
        session.remask(narrow(trust, session.age, new, self.back))
        session.reveal(new, picks.tokens, "backbone")


@fused
def wide(odds: Tensor, tau: float) -> Tensor:
    """The positions to reveal by the odds [n, B] against their picks, [n, B]."""
    masked = (odds < torch.inf).sum(dim=1)
    most = (masked * 0.7).long().clamp(5, 20)
    return above_odds(odds, tau) & first_among(odds, most)


@fused
def narrow(trust: Tensor, age: Tensor, new: Tensor, back: float) -> Tensor:
    """The positions to take back, [n, B]: `trust` below `back`, fewer than the last round revealed.

    Nothing where the round reveals one token alone. `age` [n, B]: see `Lanes.age`; `new` [n, B]:
    what the round reveals.
    """
    trust = trust.masked_fill(age == 0, torch.inf)
    before = (age == 1).sum(dim=1)
    doubtful = (trust < back) & (ranks(trust) < (before - 1)[:, None])
    return doubtful & (new.sum(dim=1) > 1)[:, None]
