"""The key/value cache: kept by overwriting.

A forward writes its keys and values at the slots it is told and attends to what it is told. While
a block is being denoised it is written at [start, start + B) again and again; storing it when it is
finished is the same with clean ids, after which `start` moves on. Candidate states of a
verification are written behind each other after `start` and see the prefix and themselves; nothing
after `start` is ever trusted later. So there are no flags, and rows may stand at different places.

"""

from __future__ import annotations

import torch
from torch import Tensor

from mrp.decoding.blocks import Blocks
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
        self.rows, self.length = rows, length

    def move(self, source: Tensor, target: Tensor, length: int) -> None:
        """Copy the first `length` slots of the rows `source` [m] to the rows `target` [m]."""
        for stored in (*self.keys, *self.values):
            stored[target, :length] = stored[source, :length]


class CachedAttention:
    """One forward's attention: the plain way, every block with its own view of its row.

    `length` is how many slots are looked at; None takes what the blocks need, which asks the
    device.
    """

    def __init__(self, cache: KVCache, blocks: Blocks, length: int | None) -> None:
        self.cache, self.row = cache, blocks.row
        self.slots = blocks.slot[:, None] + blocks.offsets()  # [M, B]
        self.length = int(self.slots.max()) + 1 if length is None else length
        key = torch.arange(self.length, device=self.slots.device)
        begin, end = self.slots[:, :1], self.slots[:, -1:]
        seen = (key < blocks.visible[:, None]) | ((key >= begin) & (key <= end))
        self.mask = seen[:, None, None]  # [M, 1, 1, length]
        if blocks.shadow is not None:
            self.mask = self.mask & (key != blocks.own_place()[:, None, :, None])

    def __call__(self, layer: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        """Write k and v [M, Hkv, B, D], then attend q [M, Hq, B, D] to what each block sees."""
        keys, values = self.cache.keys[layer], self.cache.values[layer]
        keys[self.row[:, None], self.slots] = k.transpose(1, 2)
        values[self.row[:, None], self.slots] = v.transpose(1, 2)
        return grouped_attention(q, self._read(keys), self._read(values), self.mask)

    def _read(self, stored: Tensor) -> Tensor:
        return stored[:, : self.length].index_select(0, self.row).transpose(1, 2)
