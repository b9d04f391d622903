"""The forwards that decoding is made of, behind one small protocol.

`EagerForwards` is plain torch on the model's own modules: the reference that every faster
implementation is tested against, and what runs where there is none.
"""

from __future__ import annotations

from typing import Protocol

import torch
from torch import Tensor

from mrp.decoding.blocks import Blocks
from mrp.decoding.cache import CachedAttention, KVCache
from mrp.decoding.picks import Picks, pick
from mrp.models.head import Head
from mrp.models.transformer import Backbone


class Forwards(Protocol):
    """Backbone, head and picks over lists of blocks; M blocks of B tokens, hidden size H."""

    def backbone(self, blocks: Blocks, wanted: Tensor | None = None) -> Tensor:
        """Final normed hidden states [M, B, H].

        `wanted` [M, B]: only these positions' hidden states will be read, the others may be
        anything; None wants all.
        """
        ...

    def head(self, blocks: Blocks, hidden: Tensor) -> Tensor:
        """The head's output [M, B, H] for the blocks' ids and the hidden states from before."""
        ...

    def logits(self, hidden: Tensor) -> Tensor:
        """W h [..., V], the mask token at -inf: it can never be picked."""
        ...

    def pick(self, hidden: Tensor, masked: Tensor) -> Picks:
        """The greedy picks at the positions `masked` [..., B] of hidden states [..., B, H]."""
        ...

    def shortlist(self, hidden: Tensor, count: int) -> Tensor:
        """The `count` tokens of largest logit at each position, [..., B, count], ids ascending."""
        ...

    def pick_and_shortlist(
        self, hidden: Tensor, masked: Tensor, count: int
    ) -> tuple[Picks, Tensor]:
        """`pick` and `shortlist` from one look at the vocabulary."""
        ...

    def pick_shortlist(self, hidden: Tensor, shortlist: Tensor, masked: Tensor) -> Picks:
        """The picks among each position's `shortlist` [..., B, n] alone, odds included."""
        ...


class EagerForwards:
    """Plain torch. With `length` set, no forward asks the device for anything (for capture)."""

    def __init__(
        self, backbone: Backbone, head: Head | None, cache: KVCache, head_cache: KVCache | None
    ) -> None:
        self.model, self.head_model = backbone, head
        self.cache, self.head_cache = cache, head_cache
        self.mask_id = backbone.config.mask_token_id
        self.length: int | None = None

    def backbone(self, blocks: Blocks, wanted: Tensor | None = None) -> Tensor:
        """See `Forwards`; every position is computed."""
        attend = CachedAttention(self.cache, blocks, self.length)
        return self.model.hidden(blocks.ids, _positions(blocks), attend)

    def head(self, blocks: Blocks, hidden: Tensor) -> Tensor:
        """See `Forwards`."""
        assert self.head_model is not None
        assert self.head_cache is not None
        length = self.length and min(self.length, self.head_cache.length)
        attend = CachedAttention(self.head_cache, blocks, length)
        embeddings = self.model.embed(blocks.ids)
        out: Tensor = self.head_model(embeddings, hidden, _positions(blocks), attend)
        return out

    def logits(self, hidden: Tensor) -> Tensor:
        """See `Forwards`."""
        logits = self.model.logits(hidden)
        logits[..., self.mask_id] = -torch.inf
        return logits

    def pick(self, hidden: Tensor, masked: Tensor) -> Picks:
        """See `Forwards`."""
        return pick(self.logits(hidden), masked)

    def shortlist(self, hidden: Tensor, count: int) -> Tensor:
        """See `Forwards`."""
        return self.logits(hidden).topk(count, dim=-1).indices.sort(dim=-1).values

    def pick_and_shortlist(
        self, hidden: Tensor, masked: Tensor, count: int
    ) -> tuple[Picks, Tensor]:
        """See `Forwards`."""
        return self.pick(hidden, masked), self.shortlist(hidden, count)

    def pick_shortlist(self, hidden: Tensor, shortlist: Tensor, masked: Tensor) -> Picks:
        """See `Forwards`."""
        weight = self.model.lm_head.weight[shortlist]  # [..., B, n, H]
        logits = (weight @ hidden[..., None]).squeeze(-1)
        places, odds = pick(logits.masked_fill(shortlist == self.mask_id, -torch.inf), masked)
        return Picks(shortlist.gather(-1, places[..., None]).squeeze(-1), odds)


def _positions(blocks: Blocks) -> Tensor:
    """Rotary positions [M, B]."""
    return blocks.position[:, None] + blocks.offsets()
