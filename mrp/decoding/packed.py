"""Forwards for a CPU: the same arithmetic as the reference with fewer operations around it.

The weights are packed once a session: query, key and value as one product, each norm's weight
folded into the product that follows it, the q/k norms' into the rotary tables. The last layer is
computed only where its output is read. Attention reads the cache in place where the blocks' rows
are neighbours, and copies keys only for a few odd rows.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterator
from functools import cache
from typing import NamedTuple, cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from mrp.decoding.blocks import Blocks
from mrp.decoding.cache import KVCache
from mrp.decoding.forwards import EagerForwards
from mrp.decoding.picks import Picks, pick
from mrp.models.head import Head
from mrp.models.transformer import Backbone, DecoderLayer, RMSNorm, rotary

TABLE = 1 << 22  # numbers of the first layer's table, at most: 16 MB
FEW_ROWS = 16  # fewer than 4 the library multiplies by another kernel, summing in another order


class PackedForwards(EagerForwards):
    """`Forwards` in fp32 on a CPU; equal to the reference up to rounding.

    With `invariant` no product has so few rows that the library would sum in another order than it
    does for many: a block's result is the same, bit for bit, beside any others. That was found for
    blocks of 16 tokens; of shorter ones, attention sums over lengths that vectors do not divide.
    """

    def __init__(
        self,
        backbone: Backbone,
        head: Head | None,
        cache: KVCache,
        head_cache: KVCache | None,
        *,
        invariant: bool = False,
    ) -> None:
        self.least = FEW_ROWS if invariant else 1
        super().__init__(backbone, head, cache, head_cache)
        keep_freed_memory()
        tables = RotaryTables(backbone, cache.length)
        self.layers = pack(backbone.model.layers, tables)
        self.eps = backbone.config.rms_norm_eps
        self.norm = backbone.model.norm.weight
        # What the first layer makes of a token depends on the token alone: looked up, not computed.
        embedding, first = backbone.model.embed_tokens.weight, self.layers[0]
        small = len(embedding) * len(first.qkv) <= TABLE
        self.table = first.project(embedding) if small else None
        if head is not None:
            size = backbone.config.hidden_size
            norms = torch.cat((head.enorm.weight, head.hnorm.weight))
            fuse = head.eh_proj.weight * norms
            self.fuse_embedding, self.fuse_hidden = fuse.split(size, dim=1)
            self.head_layers = pack(head.layers, tables)

    @staticmethod
    def suits(backbone: Backbone) -> bool:
        """Whether this is the implementation for a backbone's device and dtype."""
        weight = backbone.lm_head.weight
        return weight.device.type == "cpu" and weight.dtype == torch.float32

    def backbone(self, blocks: Blocks, wanted: Tensor | None = None) -> Tensor:
        """See `Forwards`."""
        x = self.model.embed(blocks.ids).flatten(0, 1)
        heads = (
            self.layers[0].project(x) if self.table is None else self.table[blocks.ids.flatten()]
        )
        x, read = self._run(self.layers, self.cache, x, heads, blocks, wanted)
        x = normalise(x, self.eps) * self.norm
        if read is not None:
            x = x.new_zeros(blocks.ids.numel(), x.shape[1]).index_copy_(0, read, x)
        return x.view(*blocks.ids.shape, -1)

    def head(self, blocks: Blocks, hidden: Tensor) -> Tensor:
        """See `Forwards`."""
        assert self.head_model is not None
        assert self.head_cache is not None
        embeddings = self.model.embed(blocks.ids).flatten(0, 1)
        x = F.linear(normalise(embeddings, self.eps), self.fuse_embedding)
        x = torch.addmm(x, normalise(hidden.flatten(0, 1), self.eps), self.fuse_hidden.t())
        heads = self.head_layers[0].project(x)
        x, _ = self._run(self.head_layers, self.head_cache, x, heads, blocks, None)
        x = normalise(x, self.eps) * self.head_model.norm.weight
        return x.view(*blocks.ids.shape, -1)

    def pick(self, hidden: Tensor, masked: Tensor) -> Picks:
        """See `Forwards`; only the masked positions are looked at."""
        index = self._rows(masked)
        logits = self.logits(hidden.flatten(0, -2).index_select(0, index))
        some = pick(logits, torch.ones_like(index, dtype=torch.bool))
        tokens = torch.zeros(masked.numel(), dtype=torch.long)
        odds = torch.full((masked.numel(),), torch.inf)
        tokens.index_copy_(0, index, some.tokens)
        odds.index_copy_(0, index, some.odds)
        return Picks(tokens.view(masked.shape), odds.view(masked.shape))

    def _rows(self, chosen: Tensor) -> Tensor:
        """Which rows a mask chooses; the first of them again and again where they are too few."""
        index = chosen.flatten().nonzero().flatten()
        missing = max(0, self.least - len(index)) if len(index) else 0
        return torch.cat((index, index[:1].expand(missing))) if missing else index

    def _run(
        self,
        layers: list[Layer],
        cache: KVCache,
        x: Tensor,
        heads: Tensor,
        blocks: Blocks,
        wanted: Tensor | None,
    ) -> tuple[Tensor, Tensor | None]:
        """Through the layers: x [M * B, H], and which of its rows are left (None: all).

        `heads` [M * B, heads, D]: the first layer's projection of x.
        """
        positions = (blocks.position[:, None] + blocks.offsets()).flatten()
        attention = Attention(cache, blocks)
        read = None if wanted is None else self._rows(wanted)
        for number, layer in enumerate(layers):
            last = number == len(layers) - 1
            heads = layer.project(x) if number else heads
            x = layer(x, heads, positions, number, attention, read if last else None)
        return x, read


@cache
def keep_freed_memory() -> None:
    """Ask the C library to keep what is freed instead of handing it back to the system.

    Every forward frees and asks for the same megabytes; fetching their pages anew took a seventh
    of its time. Only the GNU library knows the call; elsewhere nothing happens.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None) if os.name == "posix" else None
    if mallopt is not None:
        mallopt(-1, 1 << 30)  # M_TRIM_THRESHOLD
        mallopt(-3, 1 << 25)  # M_MMAP_THRESHOLD: the largest that it takes


def normalise(x: Tensor, eps: float) -> Tensor:
    """x / rms(x) over the last dimension; the norm's weight is in what follows."""
    return F.rms_norm(x, (x.shape[-1],), None, eps)


class RotaryTables:
    """Cosines and sines of every position, for queries and keys with their norms' weights."""

    def __init__(self, backbone: Backbone, length: int) -> None:
        config = backbone.config
        angles = rotary(torch.arange(length)[None], config.head_dim, config.rope_theta, torch.float)
        self.cos, self.sin = (table.view(length, config.head_dim) for table in angles)

    def weighted(self, norm: RMSNorm) -> tuple[Tensor, Tensor]:
        """Tables [length, D] that also multiply by a norm's weight.

        rotate(w * x) = x * cos * w + swap(x) * sin * swap(w) with the sign of the first half.
        """
        weight = norm.weight
        first, second = weight.chunk(2)
        return self.cos * weight, self.sin * torch.cat((-second, first))


class Layer:
    """A decoder layer with packed weights."""

    def __init__(self, layer: DecoderLayer, tables: RotaryTables) -> None:
        attention, mlp = layer.self_attn, layer.mlp
        projections = (attention.q_proj, attention.k_proj, attention.v_proj)
        weight = torch.cat([each.weight for each in projections])
        self.qkv = weight * layer.input_layernorm.weight
        self.out = attention.o_proj.weight.detach()
        self.gate = mlp.gate_proj.weight * layer.post_attention_layernorm.weight
        self.up = mlp.up_proj.weight * layer.post_attention_layernorm.weight
        self.down = mlp.down_proj.weight.detach()
        self.head_dim, self.eps = attention.head_dim, layer.input_layernorm.eps
        self.queries, self.keys = (
            each.weight.shape[0] // self.head_dim for each in projections[:2]
        )
        self.rotations = [tables.weighted(attention.q_norm), tables.weighted(attention.k_norm)]

    def project(self, x: Tensor) -> Tensor:
        """Queries, keys and values of x [T, H], neither normed nor rotated: [T, heads, D]."""
        projected: Tensor = F.linear(normalise(x, self.eps), self.qkv)
        return projected.view(len(x), -1, self.head_dim)

    def __call__(
        self,
        x: Tensor,
        heads: Tensor,
        positions: Tensor,
        number: int,
        attend: Attention,
        read: Tensor | None,
    ) -> Tensor:
        """Map x [T, H] and its projection to [T, H], or to the rows `read` alone."""
        queries = self.queries
        rotated = normalise(heads[:, : queries + self.keys], self.eps)
        swapped = rotated.roll(self.head_dim // 2, dims=2)
        q, k = rotated[:, :queries], rotated[:, queries:]
        for part, half, (cos, sin) in (
            (q, swapped[:, :queries], self.rotations[0]),
            (k, swapped[:, queries:], self.rotations[1]),
        ):
            cos, sin = cos.index_select(0, positions), sin.index_select(0, positions)
            part.mul_(cos[:, None]).addcmul_(half, sin[:, None])
        mixed = attend(number, q, k, heads[:, queries + self.keys :])
        if read is not None:
            mixed, x = mixed.index_select(0, read), x.index_select(0, read)
        x = torch.addmm(x, mixed, self.out.t())
        inner = normalise(x, self.eps)
        gated = F.silu(F.linear(inner, self.gate), inplace=True).mul_(F.linear(inner, self.up))
        return torch.addmm(x, gated, self.down.t())


def pack(layers: nn.ModuleList, tables: RotaryTables) -> list[Layer]:
    """Layers with packed weights."""
    return [Layer(cast(DecoderLayer, layer), tables) for layer in layers]


class Run(NamedTuple):
    """Neighbouring blocks of a list whose rows ascend: one attention call.

    tokens: which tokens of the list. rows: cache rows, a slice where they are neighbours.
    per_row: blocks of each row [R] where some have several, padded to `width`; else None.
    place [m]: each block's place among R * width. mask [R, 1, width * B, length], 0 or -inf.
    """

    tokens: slice
    rows: slice | Tensor
    width: int
    place: Tensor | None
    mask: Tensor


class Attention:
    """One forward's attention over a `KVCache` on the CPU."""

    def __init__(self, cache: KVCache, blocks: Blocks) -> None:
        self.cache, self.block = cache, blocks.ids.shape[1]
        first = blocks.row * cache.length + blocks.slot
        self.places = (first[:, None] + blocks.offsets()).flatten()  # among all rows' slots
        self.runs = [self._run(blocks, begin, end) for begin, end in ascending(blocks.row.tolist())]

    def __call__(self, layer: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        """Write k and v [T, Hkv, D]; q [T, Hq, D] attends: [T, Hq * D]."""
        keys, values = self.cache.keys[layer], self.cache.values[layer]
        keys.flatten(0, 1).index_copy_(0, self.places, k)
        values.flatten(0, 1).index_copy_(0, self.places, v)
        outs = [self._attend(run, q[run.tokens], keys, values) for run in self.runs]
        return outs[0] if len(outs) == 1 else torch.cat(outs)

    def _attend(self, run: Run, q: Tensor, keys: Tensor, values: Tensor) -> Tensor:
        count, length = run.mask.shape[0], run.mask.shape[-1]
        heads = q.shape[1:]
        if run.place is not None:
            padded = q.new_zeros(count * run.width, self.block * heads.numel())
            q = padded.index_copy_(0, run.place, q.reshape(-1, padded.shape[1]))
        q = q.reshape(count, run.width * self.block, *heads).transpose(1, 2)
        k, v = keys[run.rows, :length].transpose(1, 2), values[run.rows, :length].transpose(1, 2)
        gqa = q.shape[1] != k.shape[1]
        out = F.scaled_dot_product_attention(q, k, v, attn_mask=run.mask, enable_gqa=gqa)
        out = out.transpose(1, 2).reshape(count * run.width, -1)
        if run.place is not None:
            out = out.index_select(0, run.place)
        return out.view(-1, heads.numel())

    def _run(self, blocks: Blocks, begin: int, end: int) -> Run:
        part, size = blocks.take(slice(begin, end)), self.block
        rows, number = part.row.unique_consecutive(return_inverse=True)
        width, place = 1, None
        order = torch.arange(len(number))
        first = order.new_empty(len(rows)).scatter_reduce_(
            0, number, order, "amin", include_self=False
        )
        within = order - first[number]
        width = int(within.max()) + 1
        if width > 1:
            place = number * width + within
        length = int(part.slot.max()) + size
        key = torch.arange(length)
        slot, visible = part.slot[:, None], part.visible[:, None]
        seen = (key < visible) | ((key >= slot) & (key < slot + size))  # [m, length]
        mask = torch.full((len(rows) * width, length), 0.0)
        target = order if place is None else place
        mask.index_copy_(0, target, torch.zeros(seen.shape).masked_fill_(~seen, -torch.inf))
        mask = mask.view(len(rows), 1, width, 1, length).expand(-1, -1, -1, size, -1)
        if part.shadow is not None:
            unseen = torch.zeros(len(rows) * width, size, length)
            own = (key == part.own_place()[..., None]).float()  # [m, size, length]
            mask = mask.masked_fill(
                unseen.index_copy_(0, target, own).view(mask.shape).bool(), -torch.inf
            )
        low, high = int(rows[0]), int(rows[-1])
        neighbours = high - low + 1 == len(rows)
        return Run(
            slice(begin * size, end * size),
            slice(low, high + 1) if neighbours else rows,
            width,
            place,
            mask.reshape(len(rows), 1, width * size, length),
        )


def ascending(rows: list[int]) -> Iterator[tuple[int, int]]:
    """Begin and end of the longest stretches in which rows do not descend."""
    begin = 0
    for place in range(1, len(rows) + 1):
        if place == len(rows) or rows[place] < rows[place - 1]:
            yield begin, place
            begin = place
