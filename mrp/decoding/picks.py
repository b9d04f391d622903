"""The greedy pick: for every masked position its best token, and an order among positions."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from mrp.decoding.fused import fused


class Picks(NamedTuple):
    """Best token and its confidence at each position of a block.

    tokens [..., B]: the argmax; an exact tie takes the lowest id.
    odds [..., B]: (1 - p) / p of that token under the full softmax at temperature 1; infinite at
        positions that are not masked.

    Positions are compared by these odds, not by p itself: the order is the same, but p rounds to
    exactly 1 for many positions of a trained model, and which of them came first would then be
    left to rounding noise. The odds keep their precision however sure the model is.
    """

    tokens: Tensor
    odds: Tensor

    @property
    def confidence(self) -> Tensor:
        """p of the best token, [..., B]; 0 where the position is not masked."""
        return 1.0 / (1.0 + self.odds)

    def capped(self, cap: float) -> Picks:
        """The same with every confidence above `cap` counted as `cap`.

        Positions that sure tie, so the leftmost of them comes first.
        """
        return self if cap >= 1 else Picks(self.tokens, self.odds.clamp_min((1 - cap) / cap))

    def best(self) -> Tensor:
        """The most confident masked position, [...]; a tie takes the lowest position."""
        return self.odds.argmin(dim=-1)

    def surest(self, count: int) -> tuple[Tensor, Tensor]:
        """The `count` most confident positions, masked ones and the best first, and their tokens.

        Both [..., count].
        """
        return first_places(self.odds, self.tokens, count)

    def first(self) -> Tensor:
        """Mask [..., B] of the most confident masked position alone; empty if none is masked."""
        return first_place(self.odds)

    def rank(self) -> Tensor:
        """How many positions come before each one, [..., B]: 0 is the most confident masked one."""
        return ranks(self.odds)

    def top(self, count: Tensor) -> Tensor:
        """Mask [..., B] of the `count` [...] most confident masked positions (all if fewer)."""
        return first_among(self.odds, count)


@fused
def first_place(odds: Tensor) -> Tensor:
    """Mask [..., B] of the lowest of the odds [..., B], the leftmost if several; none if inf."""
    first = torch.zeros_like(odds, dtype=torch.bool)
    return first.scatter_(-1, odds.argmin(dim=-1, keepdim=True), True) & (odds < torch.inf)


def or_first(sure: Tensor, odds: Tensor) -> Tensor:
    """The places `sure` [..., B]; where there is none, that of the lowest of the odds [..., B]."""
    return sure | (first_place(odds) & ~sure.any(dim=-1, keepdim=True))


@fused
def first_places(odds: Tensor, tokens: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """Places of the `count` lowest odds, in ascending order, and the tokens there; [..., count].

    Equal odds, infinite ones too, stand from left to right. Odds that are no number count as
    infinite: what is drafted or committed first is written wherever it is, and may then not be a
    masked position, so that a broken backbone comes to no end instead of to a text.
    """
    odds = odds.nan_to_num(torch.inf, torch.inf)
    if count == 1:
        places = odds.argmin(dim=-1, keepdim=True)
    else:
        places = odds.sort(dim=-1, stable=True).indices[..., :count]
    return places, tokens.gather(-1, places)


@fused
def first_among(odds: Tensor, count: Tensor) -> Tensor:
    """Mask [..., B] of the `count` [...] lowest odds, without infinite ones."""
    return (ranks(odds) < count[..., None]) & (odds < torch.inf)


@fused
def ranks(odds: Tensor) -> Tensor:
    """How many of the odds [..., B] come before each one."""
    order = odds.sort(dim=-1, stable=True).indices
    places = torch.arange(order.shape[-1], device=order.device).expand_as(order)
    return torch.empty_like(order).scatter_(-1, order, places)


def pick(logits: Tensor, masked: Tensor) -> Picks:
    """Choose tokens from logits.

    Args:
        logits: [..., B, V].
        masked: boolean [..., B]; only these positions may be revealed.

    Returns:
        The picks; see `Picks`.
    """
    logits = logits.float()
    best, tokens = logits.max(dim=-1, keepdim=True)
    others = (logits - best).exp_().scatter_(-1, tokens, 0.0).sum(dim=-1)
    return Picks(tokens.squeeze(-1), others.masked_fill(~masked, torch.inf))


def probability(logits: Tensor, tokens: Tensor) -> Tensor:
    """Probability of `tokens` [..., B] under the softmax of logits [..., B, V]."""
    return logits.float().log_softmax(-1).gather(-1, tokens[..., None]).squeeze(-1).exp()
