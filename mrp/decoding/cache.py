"""The key/value cache: kept by overwriting.

A forward writes its keys and values at the slots it is told and attends to what its mask shows.
Denoising a block writes [start, start + B) again and again; storing the finished block is the same
forward with clean ids, after which `start` moves on. Candidate states of a verification are written
behind each other after `start` and see the prefix and themselves; nothing after `start` is ever
trusted later. So there are no flags, and rows may stand at different places.
"""

from __future__ import annotations

import torch
from torch import Tensor

from mrp.models.transformer import BackboneConfig, grouped_attention


class KVCache:
    """Keys and values of every layer: each [rows, length, kv_heads, head_dim]."""

    def __init__(
        self,
        config: BackboneConfig,
        layers: int,
        rows: int,
        length: int,
        device: torch.device,
        dtype: torch.dtype,
    ) -> None:
        shape = (rows, length, config.num_key_value_heads, config.head_dim)
        self.keys = [torch.zeros(shape, device=device, dtype=dtype) for _ in range(layers)]
        self.values = [torch.zeros(shape, device=device, dtype=dtype) for _ in range(layers)]
        self.rows = rows

    def attend(self, rows: Tensor, slots: Tensor, mask: Tensor) -> CachedAttention:
        """Attention of n rows' new tokens.

        Args:
            rows: cache rows [n], ascending.
            slots: where each new token's key and value are written, [n, T].
            mask: boolean [n, T, S]: which of the first S slots each new token sees.
        """
        return CachedAttention(self, rows, slots, mask)


class CachedAttention:
    """One forward's attention over a `KVCache`."""

    def __init__(self, cache: KVCache, rows: Tensor, slots: Tensor, mask: Tensor) -> None:
        self.cache, self.slots, self.mask = cache, slots, mask[:, None]
        self.row_index = rows[:, None]
        # Reading every row needs no copy; a part of them is gathered.
        self.selected = None if len(rows) == cache.rows else rows

    def __call__(self, layer: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        """Write k and v [n, Hkv, T, D], then attend q [n, Hq, T, D] to the visible slots."""
        keys, values = self.cache.keys[layer], self.cache.values[layer]
        keys[self.row_index, self.slots] = k.transpose(1, 2)
        values[self.row_index, self.slots] = v.transpose(1, 2)
        return grouped_attention(q, self._read(keys), self._read(values), self.mask)

    def _read(self, stored: Tensor) -> Tensor:
        stored = stored[:, : self.mask.shape[-1]]
        if self.selected is not None:
            stored = stored.index_select(0, self.selected)
        return stored.transpose(1, 2)


def state_layout(start: Tensor, states: int, block: int, length: int) -> tuple[Tensor, ...]:
    """Where `states` candidate copies of the current block stand and what they see.

    Args:
        start: first position of each row's block, [n].
        states: number S of copies (1: the block itself).
        block: block length B.
        length: number of cache slots to look at; at least max(start) + S * B.

    Returns:
        positions [n, S * B] (every copy at the block's own rotary positions), slots [n, S * B]
        (copies behind each other) and mask [n, S * B, length]: the prefix and the own copy.
    """
    device = start.device
    offset = torch.arange(states * block, device=device)
    slots = start[:, None] + offset
    positions = start[:, None] + offset % block
    key = torch.arange(length, device=device)
    own_copy = (slots - offset % block)[..., None]  # first slot of the query's own copy
    mask = (key < start[:, None, None]) | ((key >= own_copy) & (key < own_copy + block))
    return positions, slots, mask


def prefill_layout(rows: int, length: int, block: int, device: torch.device) -> tuple[Tensor, ...]:
    """Positions, slots and mask of whole clean blocks from position 0: block-causal attention."""
    positions = torch.arange(length, device=device)
    mask = positions[None, :] // block <= positions[:, None] // block
    return positions.expand(rows, -1), positions.expand(rows, -1), mask.expand(rows, -1, -1)
