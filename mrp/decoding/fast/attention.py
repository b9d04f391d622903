# mypy: disable-error-code="no-untyped-def,untyped-decorator"
"""Attention of blocks to their cache row's prefix and to themselves.

What it reads, `rotate_and_store` has written before: in a kernel of its own, because a block may
see slots that another block of the same pass writes.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from mrp.decoding.blocks import Blocks
from mrp.decoding.fast.launch import FEW_BLOCKS, announce, multiprocessors, overlap, wait
from mrp.decoding.fast.rotary import Heads, rotate_and_store

TILE = 64  # keys a step
STAGES = 2
MAX_SPLITS = 16  # programs that share a block's keys, at most


@triton.jit
def _weigh(q, k, v, there, best, total, mixed, scale):
    """One step of the running softmax: keys k, values v [n, D].

    `there`, [n] or for each line of q, tells which keys count.
    """
    score = tl.dot(q, tl.trans(k), input_precision="ieee") * scale
    score = tl.where(there, score, -float("inf"))
    new_best = tl.maximum(best, tl.max(score, axis=1))
    weight = tl.exp2(score - new_best[:, None])
    shrink = tl.exp2(best - new_best)
    total = total * shrink + tl.sum(weight, axis=1)
    mixed = tl.dot(weight.to(v.dtype), v, mixed * shrink[:, None], input_precision="ieee")
    return new_best, total, mixed


@triton.jit
def _attend_kernel(
    QUERIES,
    KEYS,
    VALUES,
    ROW,
    SLOT,
    VISIBLE,
    SHADOW,
    OUT,
    PART,
    PART_BEST,
    PART_TOTAL,
    scale,
    length,
    SHADOWS: tl.constexpr,
    ALONE: tl.constexpr,
    BLOCK: tl.constexpr,
    Q_HEADS: tl.constexpr,
    KV_HEADS: tl.constexpr,
    DIM: tl.constexpr,
    DIM_PADDED: tl.constexpr,
    LINES: tl.constexpr,
    TILE: tl.constexpr,
    SPLIT: tl.constexpr,
    OVERLAP: tl.constexpr,
):
    # One program: the queries of one block that share one key/value head (BLOCK tokens times
    # Q_HEADS / KV_HEADS heads, LINES after padding) against a range of the keys they see: the
    # prefix and, right behind it, the block's own. A line of a shadow leaves out the key in its own
    # place; no tile consists of that key alone.
    announce(OVERLAP)
    m = tl.program_id(0)
    kv_head = tl.program_id(1)
    split = tl.program_id(2)
    SHARED: tl.constexpr = Q_HEADS // KV_HEADS
    SLOT_SIZE: tl.constexpr = KV_HEADS * DIM
    line = tl.arange(0, LINES)
    d = tl.arange(0, DIM_PADDED)
    inside = d < DIM
    place = ((m * BLOCK + line // SHARED) * Q_HEADS + kv_head * SHARED + line % SHARED)[:, None]
    lines_inside = (line < BLOCK * SHARED)[:, None] & inside[None, :]

    cache_row = tl.load(ROW + m, cache_modifier=".cg")
    slot = tl.load(SLOT + m, cache_modifier=".cg")
    visible = tl.load(VISIBLE + m, cache_modifier=".cg")
    own = tl.full([LINES], -1, tl.int32)
    if SHADOWS:
        is_shadow = tl.load(SHADOW + m, cache_modifier=".cg") != 0
        own = tl.where(is_shadow, (visible - BLOCK + line // SHARED).to(tl.int32), own)
    keys = visible + BLOCK
    tiles = tl.cdiv(keys, TILE)
    share = tl.cdiv(tiles, tl.num_programs(2))
    active = tl.cdiv(tiles, share)
    first = split * share
    last = tl.minimum(first + share, tiles)

    # A block alone in its pass sees a prefix that nobody writes, and may read it before the wait.
    base = (cache_row * length * KV_HEADS + kv_head) * DIM + d[None, :]
    key = first * TILE + tl.arange(0, TILE)
    there = key < keys
    at = base + tl.where(key < visible, key, slot + key - visible)[:, None] * SLOT_SIZE
    here = (there & (split < active))[:, None] & inside[None, :]
    early = ALONE & ((first + 1) * TILE <= visible)
    k = tl.load(KEYS + at, mask=here & early, other=0.0, cache_modifier=".cg")
    v = tl.load(VALUES + at, mask=here & early, other=0.0, cache_modifier=".cg")
    wait(OVERLAP)

    if split < active:
        q = tl.load(QUERIES + place * DIM + d[None, :], mask=lines_inside, other=0.0)
        if not early:
            k = tl.load(KEYS + at, mask=here, other=0.0)
            v = tl.load(VALUES + at, mask=here, other=0.0)
        best = tl.full([LINES], -float("inf"), tl.float32)
        total = tl.zeros([LINES], tl.float32)
        mixed = tl.zeros([LINES, DIM_PADDED], tl.float32)
        counts = there[None, :]
        if SHADOWS:
            counts = counts & (key[None, :] != own[:, None])
        best, total, mixed = _weigh(q, k, v, counts, best, total, mixed, scale)
        for tile in range(first + 1, last):
            key = tile * TILE + tl.arange(0, TILE)
            there = key < keys
            here = there[:, None] & inside[None, :]
            at = base + tl.where(key < visible, key, slot + key - visible)[:, None] * SLOT_SIZE
            k = tl.load(KEYS + at, mask=here, other=0.0)
            v = tl.load(VALUES + at, mask=here, other=0.0)
            counts = there[None, :]
            if SHADOWS:
                counts = counts & (key[None, :] != own[:, None])
            best, total, mixed = _weigh(q, k, v, counts, best, total, mixed, scale)
        mixed = mixed / total[:, None]
        if SPLIT:
            mine = place * tl.num_programs(2) + split
            tl.store(PART + mine * DIM_PADDED + d[None, :], mixed, mask=lines_inside)
            line_used = (line < BLOCK * SHARED)[:, None]
            tl.store(PART_BEST + mine, best[:, None], mask=line_used)
            tl.store(PART_TOTAL + mine, total[:, None], mask=line_used)
        else:
            tl.store(OUT + place * DIM + d[None, :], mixed.to(q.dtype), mask=lines_inside)


@triton.jit
def _merge_kernel(
    PART,
    PART_BEST,
    PART_TOTAL,
    VISIBLE,
    OUT,
    BLOCK: tl.constexpr,
    Q_HEADS: tl.constexpr,
    DIM: tl.constexpr,
    DIM_PADDED: tl.constexpr,
    TILE: tl.constexpr,
    SPLITS: tl.constexpr,
    SPLITS_PADDED: tl.constexpr,
    OVERLAP: tl.constexpr,
):
    # One program: one token's one head; its parts are averaged by their sums of weights.
    announce(OVERLAP)
    place = tl.program_id(0) * Q_HEADS + tl.program_id(1)
    visible = tl.load(VISIBLE + tl.program_id(0) // BLOCK, cache_modifier=".cg")
    tiles = tl.cdiv(visible + BLOCK, TILE)
    active = tl.cdiv(tiles, tl.cdiv(tiles, SPLITS))
    split = tl.arange(0, SPLITS_PADDED)
    d = tl.arange(0, DIM_PADDED)
    there = split < active
    here = there[:, None] & (d < DIM)[None, :]
    mine = place * SPLITS + split
    wait(OVERLAP)
    best = tl.load(PART_BEST + mine, mask=there, other=-float("inf"))
    total = tl.load(PART_TOTAL + mine, mask=there, other=0.0)
    part = tl.load(PART + mine[:, None] * DIM_PADDED + d[None, :], mask=here, other=0.0)
    weight = total * tl.exp2(best - tl.max(best, axis=0))
    out = tl.sum(part * weight[:, None], axis=0) / tl.sum(weight, axis=0)
    tl.store(OUT + place * DIM + d, out.to(OUT.dtype.element_ty), mask=d < DIM)


class BlockAttention:
    """Attention of one model's layers; holds the rotary table.

    An invariant one runs the same kernels, compiled alike, for any number of blocks and any length
    of the cache, and never shares a block's keys among programs: their number would depend on both.
    """

    def __init__(
        self,
        heads: Heads,
        cos: Tensor,
        sin: Tensor,
        eps: float,
        *,
        invariant: bool = False,
    ) -> None:
        """Take the rotary table: cos and sin [length, head_dim] of every position of the cache."""
        self.heads, self.eps, self.invariant = heads, eps, invariant
        self.cos, self.sin = cos, sin
        self.multiprocessors = multiprocessors(cos)

    def __call__(
        self,
        parts: Tensor,
        q_norm: Tensor,
        k_norm: Tensor,
        blocks: Blocks,
        keys: Tensor,
        values: Tensor,
    ) -> Tensor:
        """One layer: from its merged projection to its attention's output.

        Args:
            parts: the product with the merged q, k and v weights, [S, M * B, (Hq + 2 Hkv) * D]:
                S partial sums.
            q_norm: weight of the queries' norm, [D].
            k_norm: weight of the keys' norm, [D].
            blocks: M blocks of B tokens.
            keys: the layer's cache [rows, length, Hkv, D], written at the blocks' slots.
            values: the same of the values.

        Returns:
            [M * B, Hq * D].
        """
        queries = rotate_and_store(
            parts,
            q_norm,
            k_norm,
            self.cos,
            self.sin,
            blocks,
            keys,
            values,
            self.heads,
            self.eps,
            self.invariant,
        )
        return self._attend(queries, blocks, keys, values)

    def _attend(
        self,
        queries: Tensor,
        blocks: Blocks,
        keys: Tensor,
        values: Tensor,
    ) -> Tensor:
        heads, (count, block) = self.heads, blocks.ids.shape
        lines = max(16, triton.next_power_of_2(block * (heads.queries // heads.keys)))
        splits = self._splits(count, keys.shape[1])
        out = torch.empty_like(queries)
        pieces = queries.shape[0] * heads.queries * splits if splits > 1 else 0
        part = torch.empty((pieces, heads.padded), device=out.device, dtype=torch.float32)
        best, total = torch.empty((2, pieces), device=out.device, dtype=torch.float32)
        _attend_kernel[(count, heads.keys, splits)](
            queries,
            keys,
            values,
            blocks.row,
            blocks.slot,
            blocks.visible,
            blocks.visible if blocks.shadow is None else blocks.shadow,  # read if there are any
            out,
            part,
            best,
            total,
            heads.size**-0.5 * 1.4426950408889634,  # the kernel works with powers of two
            keys.shape[1],
            SHADOWS=blocks.shadow is not None,
            ALONE=count == 1 and not self.invariant,
            BLOCK=block,
            Q_HEADS=heads.queries,
            KV_HEADS=heads.keys,
            DIM=heads.size,
            DIM_PADDED=heads.padded,
            LINES=lines,
            TILE=TILE,
            SPLIT=splits > 1,
            num_warps=4 if self.invariant else _warps(lines, count),
            num_stages=STAGES,
            **overlap(),
        )
        if splits > 1:
            _merge_kernel[(queries.shape[0], heads.queries)](
                part,
                best,
                total,
                blocks.visible,
                out,
                BLOCK=block,
                Q_HEADS=heads.queries,
                DIM=heads.size,
                DIM_PADDED=heads.padded,
                TILE=TILE,
                SPLITS=splits,
                SPLITS_PADDED=triton.next_power_of_2(splits),
                num_warps=1,
                **overlap(),
            )
        return out

    def _splits(self, count: int, keys: int) -> int:
        """How many programs share a block's keys: enough to fill the GPU, none without a tile.

        Small passes all split alike, so that a block's result there does not depend on which
        other blocks stand beside it.
        """
        if self.invariant:
            return 1
        pairs = max(count, FEW_BLOCKS) * self.heads.keys
        wanted = (2 if count <= FEW_BLOCKS else 1) * self.multiprocessors // pairs
        return max(1, min(MAX_SPLITS, wanted, -(-keys // TILE)))


def _warps(lines: int, count: int) -> int:
    """Warps of an attention program.

    Four, which the widest tensor-core instruction takes, at 64 lines and in large passes; in a
    small one a few lines' many small instructions are spread over eight.
    """
    return 4 if lines >= 64 or count > FEW_BLOCKS else 8
