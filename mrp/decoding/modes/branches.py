"""Under a budget, the states that a lattice verifies: those the backbone most likely arrives at.

Besides the drafts 1..K the first one has two rivals: the second-best position of the first pass
with its own best token, and the second-best token at the first draft's position. Any set of up to
K of these K + 2 picks may be verified. How likely it is that the backbone arrives at a set m:

    weight i   exp(bias + rise x + below min(x, 0)) of a pick i that m lacks, x its logit, that is
               minus the log of its odds; the bias knows how many drafts before it are lacking too
    next       pick i comes next after m with probability weight i / (1 + sum of all weights at m);
               the 1 stands for whatever is none of the picks
    reached    of the empty set: 1; of m: the sum, over the picks i in m, of
               reached of m without i * probability of i after it
    verify     the `budget` sets reached most likely; walk through them as through the window's

The constants are fitted to what the backbone did by `benchmarks/lattice_drafts.py`. They decide
which states are looked at, never what is accepted.
"""

from __future__ import annotations

from functools import cache
from math import exp
from typing import NamedTuple

import torch
from torch import Tensor

MOST_DRAFTS = 6  # under a budget: 190 sets, each of which has a probability to be worked out
RIVALS = 2
# Of a draft, another position, another token: by the number of earlier drafts lacking (3: or more).
BIAS = ((0.77, -0.47, -1.25, -2.08), (-0.26, -0.52, -0.61, -0.16), (0.0, -0.06, 0.18, -1.35))
RISE, BELOW = (0.21, 0.23, -0.03), (0.85, 0.31, 1.47)
SURE = 9.0  # logits beyond it say no more


class Branches(NamedTuple):
    """The Z sets of M = K + 2 picks as tables, the empty one first; pick M stands for none.

    holding [Z, M]: whether a set holds a pick. onto [Z, M + 1]: the set that it is with that pick,
    or itself where that is not one. size [Z]: picks that it holds. weight [Z, M]: exp(bias) of a
    pick after that set, 0 where it cannot be. before [Z, M] and gain [Z, M]: the set without a pick
    that it holds, and that pick's weight there (0 where it does not hold it).
    rise, below [M]: each pick's constants.
    """

    holding: Tensor
    onto: Tensor
    size: Tensor
    weight: Tensor
    before: Tensor
    gain: Tensor
    rise: Tensor
    below: Tensor


def branch_sets(k: int) -> list[int]:
    """The sets, pick i being bit i: no more than K picks, and not two tokens at one position."""
    both = 1 | 1 << (k + 1)
    return [m for m in range(1 << (k + RIVALS)) if m.bit_count() <= k and m & both != both]


@cache
def branches_of(k: int, device: torch.device) -> Branches:
    """The tables for K drafts, made once and kept (see `sets_of`)."""
    sets, picks = branch_sets(k), range(k + RIVALS)
    number = {held: place for place, held in enumerate(sets)}
    kind = [0] * k + [1, 2]

    def weight(held: int, pick: int) -> float:
        if held >> pick & 1 or held | 1 << pick not in number:
            return 0.0
        earlier = (1 << min(pick, k)) - 1
        return exp(BIAS[kind[pick]][min(3, (earlier & ~held).bit_count())])

    without = [[held & ~(1 << pick) for pick in picks] for held in sets]
    return Branches(
        torch.tensor([[bool(held >> i & 1) for i in picks] for held in sets], device=device),
        torch.tensor(
            [
                [*(number.get(m | 1 << i, place) for i in picks), place]
                for m, place in number.items()
            ],
            device=device,
        ),
        torch.tensor([held.bit_count() for held in sets], device=device),
        torch.tensor([[weight(held, i) for i in picks] for held in sets], device=device),
        torch.tensor([[number[rest] for rest in row] for row in without], device=device),
        torch.tensor(
            [
                [weight(rest, i) if rest != held else 0.0 for i, rest in enumerate(row)]
                for held, row in zip(sets, without, strict=True)
            ],
            device=device,
        ),
        torch.tensor([RISE[each] for each in kind], device=device),
        torch.tensor([BELOW[each] for each in kind], device=device),
    )


def reached(tables: Branches, odds: Tensor, live: Tensor) -> Tensor:
    """How likely the backbone arrives at each of the sets, [n, Z].

    Args:
        tables: the sets.
        odds: against each pick, [n, M].
        live: which picks there are, [n, M].
    """
    logit = -odds.log().clamp(-SURE, SURE)
    weights = (tables.rise * logit + tables.below * logit.clamp(max=0)).exp() * live
    total = 1 + (tables.weight * weights[:, None]).sum(dim=2)
    gain = tables.gain * weights[:, None]
    empty = (tables.size == 0).to(total.dtype).expand_as(total)
    likely = empty
    for _ in range(odds.shape[1] - RIVALS):  # a set of K picks is reached in K steps
        likely = empty + ((likely / total)[:, tables.before] * gain).sum(dim=2)
    return likely
