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

from mrp.decoding.fused import fused
from mrp.decoding.modes.speculative import arrival
from mrp.decoding.picks import first_places

MOST_DRAFTS = 6  # under a budget: 190 sets, each of which has a probability to be worked out
RIVALS = 2
# Of a draft, another position, another token: by the number of earlier drafts lacking (3: or more).
BIAS = ((0.77, -0.47, -1.25, -2.08), (-0.26, -0.52, -0.61, -0.16), (0.0, -0.06, 0.18, -1.35))
RISE, BELOW = (0.21, 0.23, -0.03), (0.85, 0.31, 1.47)
SURE = 9.0  # logits beyond it say no more


class Branches(NamedTuple):
    """The Z sets of M = K + 2 picks as tables, the empty one first; pick M stands for none.

    holding [Z, M]: whether a set holds a pick. onto [Z, M + 1]: the set that it is with that pick,
    or itself where that is not one. size [Z]: picks that it holds. whole [K + 1]: the set of the
    first 0 ... K drafts. weight [Z, M]: exp(bias) of a pick after that set, 0 where it cannot be.
    before [Z, M] and gain [Z, M]: the set without a pick that it holds, and that pick's weight
    there (0 where it does not hold it). rise, below [M]: each pick's constants. sure: the largest
    logit.
    """

    holding: Tensor
    onto: Tensor
    size: Tensor
    whole: Tensor
    weight: Tensor
    before: Tensor
    gain: Tensor
    rise: Tensor
    below: Tensor
    sure: float


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
        torch.tensor([number[(1 << drafts) - 1] for drafts in range(k + 1)], device=device),
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
        SURE,
    )


def reached(tables: Branches, odds: Tensor, live: Tensor) -> Tensor:
    """How likely the backbone arrives at each of the sets, [n, Z].

    Args:
        tables: the sets.
        odds: against each pick, [n, M]; infinite where they are no number.
        live: which picks there are, [n, M].
    """
    logit = -odds.nan_to_num(torch.inf, torch.inf).log().clamp(-tables.sure, tables.sure)
    weights = (tables.rise * logit + tables.below * logit.clamp(max=0)).exp() * live
    total = 1 + (tables.weight * weights[:, None]).sum(dim=2)
    gain = tables.gain * weights[:, None]
    empty = (tables.size == 0).to(total.dtype).expand_as(total)
    likely = empty
    for _ in range(odds.shape[1] - RIVALS):  # a set of K picks is reached in K steps
        likely = empty + ((likely / total)[:, tables.before] * gain).sum(dim=2)
    return likely


@fused
def rivals(odds: Tensor, tokens: Tensor, listed: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """The first draft's rivals by the first pass's odds and tokens [n, B]: another place or token.

    `listed` [n, B, 2]: the two likeliest tokens of each position.

    Returns:
        Positions, tokens and odds, [n, 2] each.
    """
    places, best = first_places(odds, tokens, 2)
    first, second = places.chunk(2, dim=1)
    likely = listed.gather(1, first[..., None].expand(-1, -1, 2))[:, 0]
    other = torch.where(likely[:, :1] == best[:, :1], likely[:, 1:], likely[:, :1])
    against = odds.gather(1, places)
    return (
        torch.cat((second, first), 1),
        torch.cat((best[:, 1:], other), 1),
        torch.cat((against[:, 1:], 1 / against[:, :1]), 1),
    )


@fused
def likeliest(
    positions: Tensor,
    tokens: Tensor,
    odds: Tensor,
    useful: Tensor,
    tables: Branches,
    budget: int,
    ahead: bool,
) -> tuple[Tensor, Tensor, Tensor]:
    """The sets that are reached most likely, of picks [n, M] whose `useful` [n] first drafts count.

    With `ahead` the set of all these drafts is one of them and stands last, where there are any.

    Returns:
        Their numbers, 0 for one that cannot be reached, and which can, [n, S] each, S being the
        budget or all sets; the picks' tokens, -1 for one that does not count, [n, M].
    """
    k = positions.shape[1] - RIVALS
    live = torch.arange(k, device=positions.device) < useful[:, None]
    # A position that is drafted later on is no rival of the first one.
    apart = ((positions[:, :k] != positions[:, k : k + 1]) | ~live).all(dim=1)
    some = useful > 0
    live = torch.cat((live, torch.stack((apart & some, some), dim=1)), dim=1)
    likely = reached(tables, odds, live).masked_fill(tables.size > useful[:, None], 0)
    if ahead:  # the set of all drafts stands last
        whole = tables.whole[useful][:, None]
        likely = likely.scatter(1, whole, likely.gather(1, whole).masked_fill(some[:, None], 0))
    budget = min(budget, likely.shape[1]) - ahead
    best, sets = (each[:, :budget] for each in likely.sort(dim=1, descending=True, stable=True))
    read, sets = best > 0, sets * (best > 0)
    if ahead:
        read, sets = torch.cat((read, some[:, None]), 1), torch.cat((sets, whole), 1)
    return sets, read, tokens.masked_fill(~live, -1)


@fused
def branch_states(
    block: Tensor, positions: Tensor, tokens: Tensor, sets: Tensor, holding: Tensor
) -> Tensor:
    """The states [n, S, B] of `sets` [n, S] of picks [n, M] on blocks [n, B]."""
    place = torch.arange(block.shape[1], device=block.device)
    held = holding[sets][..., None] & (positions[..., None] == place)[:, None]
    there = (held * tokens[:, None, :, None]).sum(dim=2)
    return torch.where(held.any(dim=2), there, block[:, None])


@fused
def walk_sets(
    sets: Tensor,
    read: Tensor,
    picks: tuple[Tensor, Tensor],
    own: tuple[Tensor, Tensor],
    onto: Tensor,
    size: Tensor,
) -> tuple[Tensor, Tensor]:
    """Where the walk from the empty set ends, among each lane's own `sets` [n, S], and its size.

    Args:
        sets: their numbers, the empty one first.
        read: which of them there are, [n, S].
        picks: positions and tokens, [n, M] each, a token being -1 where there is no pick.
        own: positions and tokens of the backbone's own pick at each set, [n, S] each.
        onto: see `Branches`.
        size: likewise.

    Returns:
        The place among the lane's sets, and how many picks that set holds, [n] each.
    """
    (n, m), z = picks[0].shape, len(size)
    agrees = (own[0][..., None] == picks[0][:, None]) & (own[1][..., None] == picks[1][:, None])
    pick = m - (agrees * torch.arange(m, 0, -1, device=sets.device)).amax(dim=2)  # m if none
    places = torch.arange(sets.shape[1], device=sets.device).expand_as(sets)
    where = sets.new_full((n, z + 1), -1)
    where.scatter_(1, sets.masked_fill(~read, z), places)
    following = where.gather(1, onto[sets, pick])
    at = arrival(torch.where(following < 0, places, following), m - RIVALS)
    return at, size[sets.gather(1, at[:, None])[:, 0]]
