# mypy: disable-error-code="no-untyped-def,untyped-decorator"
"""Attention of blocks to their cache row's prefix and to themselves, and what feeds it.

`rotate_and_store` turns the merged projection into normalised, rotated queries and writes keys and
values to the cache; `attend` reads them. They are two kernels because a block may see slots that
another block of the same pass writes.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from mrp.decoding.blocks import Blocks
from mrp.decoding.fast.launch import announce, multiprocessors, overlap, wait

TILE = 64  # keys a step
STAGES = 2
MAX_SPLITS = 16  # programs that share a block's keys, at most
FEW_BLOCKS = 4  # up to so many the work is divided in the same way, however many there are


@triton.jit
def _rotate_and_store_kernel(
    PARTS,
    Q_NORM,
    K_NORM,
    COS,
    SIN,
    ROW,
    POSITION,
    SLOT,
    QUERIES,
    KEYS,
    VALUES,
    rows,
    length,
    block,
    eps,
    Q_HEADS: tl.constexpr,
    KV_HEADS: tl.constexpr,
    DIM: tl.constexpr,
    DIM_PADDED: tl.constexpr,
    GROUP: tl.constexpr,
    SPLITS: tl.constexpr,
    OVERLAP: tl.constexpr,
):
    # One program: one token's heads [first, first + GROUP), all of them of one kind (q, k or v).
    announce(OVERLAP)
    token = tl.program_id(0)
    first = tl.program_id(1) * GROUP
    d = tl.arange(0, DIM_PADDED)
    inside = d < DIM
    partner_d = (d + DIM // 2) % DIM  # the other half of the rotated pair
    sign = tl.where(d < DIM // 2, -1.0, 1.0)
    is_query = first < Q_HEADS
    NORM = K_NORM
    if is_query:
        NORM = Q_NORM
    weight = tl.load(NORM + d, mask=inside, other=0.0)
    partner_weight = tl.load(NORM + partner_d, mask=inside, other=0.0)
    cache_row = tl.load(ROW + token // block, cache_modifier=".cg")
    position = tl.load(POSITION + token // block, cache_modifier=".cg") + token % block
    slot = tl.load(SLOT + token // block, cache_modifier=".cg") + token % block
    cos = tl.load(COS + position * DIM + d, mask=inside, other=0.0).to(tl.float32)
    sin = tl.load(SIN + position * DIM + d, mask=inside, other=0.0).to(tl.float32) * sign
    heads = first + tl.arange(0, GROUP)
    width = (Q_HEADS + 2 * KV_HEADS) * DIM
    x = tl.zeros([GROUP, DIM_PADDED], tl.float32)
    partner = tl.zeros([GROUP, DIM_PADDED], tl.float32)
    wait(OVERLAP)

    for split in tl.static_range(SPLITS):
        base = PARTS + (split * rows + token).to(tl.int64) * width + heads[:, None] * DIM
        x += tl.load(base + d[None, :], mask=inside[None, :], other=0.0).to(tl.float32)
        partner += tl.load(base + partner_d[None, :], mask=inside[None, :], other=0.0).to(
            tl.float32
        )
    x = x.to(weight.dtype).to(tl.float32)
    partner = partner.to(weight.dtype).to(tl.float32)
    cache = (cache_row * length + slot) * (KV_HEADS * DIM)
    if first >= Q_HEADS + KV_HEADS:
        head = (heads - Q_HEADS - KV_HEADS)[:, None] * DIM + d[None, :]
        tl.store(VALUES + cache + head, x.to(weight.dtype), mask=inside[None, :])
    else:
        scale = tl.rsqrt(tl.sum(x * x, axis=1) / DIM + eps)[:, None]
        x = (x * scale).to(weight.dtype).to(tl.float32) * weight.to(tl.float32)[None, :]
        partner = (partner * scale).to(weight.dtype).to(tl.float32)
        partner = partner * partner_weight.to(tl.float32)[None, :]
        # Rounded here as the plain modules do, whose norm returns the model's dtype.
        x = x.to(weight.dtype).to(tl.float32)
        partner = partner.to(weight.dtype).to(tl.float32)
        turned = (x * cos[None, :] + partner * sin[None, :]).to(weight.dtype)
        if is_query:
            head = (token * Q_HEADS + heads)[:, None] * DIM + d[None, :]
            tl.store(QUERIES + head, turned, mask=inside[None, :])
        else:
            head = (heads - Q_HEADS)[:, None] * DIM + d[None, :]
            tl.store(KEYS + cache + head, turned, mask=inside[None, :])


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
    """Attention of one model's layers; holds the rotary table."""

    def __init__(
        self, q_heads: int, kv_heads: int, head_dim: int, cos: Tensor, sin: Tensor, eps: float
    ) -> None:
        """Take the rotary table: cos and sin [length, head_dim] of every position of the cache."""
        self.q_heads, self.kv_heads, self.head_dim, self.eps = q_heads, kv_heads, head_dim, eps
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
        splits, rows, _ = parts.shape
        count, block = blocks.ids.shape
        queries = torch.empty(
            (rows, self.q_heads * self.head_dim), device=parts.device, dtype=keys.dtype
        )
        # Few rows: small programs for a short wait. Many: fewer, larger ones, for their number.
        limit, warps = (2, 2) if count <= FEW_BLOCKS else (4, 1)
        group = _common_power_of_two(self.q_heads, self.kv_heads, limit)
        padded = max(16, triton.next_power_of_2(self.head_dim))
        _rotate_and_store_kernel[(rows, (self.q_heads + 2 * self.kv_heads) // group)](
            parts,
            q_norm,
            k_norm,
            self.cos,
            self.sin,
            blocks.row,
            blocks.position,
            blocks.slot,
            queries,
            keys,
            values,
            rows,
            keys.shape[1],
            block,
            self.eps,
            Q_HEADS=self.q_heads,
            KV_HEADS=self.kv_heads,
            DIM=self.head_dim,
            DIM_PADDED=padded,
            GROUP=group,
            SPLITS=splits,
            num_warps=warps,
            **overlap(),
        )
        return self._attend(queries, blocks, keys, values, padded, count, block)

    def _attend(
        self,
        queries: Tensor,
        blocks: Blocks,
        keys: Tensor,
        values: Tensor,
        padded: int,
        count: int,
        block: int,
    ) -> Tensor:
        lines = max(16, triton.next_power_of_2(block * (self.q_heads // self.kv_heads)))
        splits = self._splits(count, keys.shape[1])
        out = torch.empty_like(queries)
        pieces = queries.shape[0] * self.q_heads * splits if splits > 1 else 0
        part = torch.empty((pieces, padded), device=out.device, dtype=torch.float32)
        best, total = torch.empty((2, pieces), device=out.device, dtype=torch.float32)
        _attend_kernel[(count, self.kv_heads, splits)](
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
            self.head_dim**-0.5 * 1.4426950408889634,  # the kernel works with powers of two
            keys.shape[1],
            SHADOWS=blocks.shadow is not None,
            ALONE=count == 1,
            BLOCK=block,
            Q_HEADS=self.q_heads,
            KV_HEADS=self.kv_heads,
            DIM=self.head_dim,
            DIM_PADDED=padded,
            LINES=lines,
            TILE=TILE,
            SPLIT=splits > 1,
            num_warps=_warps(lines, count),
            num_stages=STAGES,
            **overlap(),
        )
        if splits > 1:
            _merge_kernel[(queries.shape[0], self.q_heads)](
                part,
                best,
                total,
                blocks.visible,
                out,
                BLOCK=block,
                Q_HEADS=self.q_heads,
                DIM=self.head_dim,
                DIM_PADDED=padded,
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
        pairs = max(count, FEW_BLOCKS) * self.kv_heads
        wanted = (2 if count <= FEW_BLOCKS else 1) * self.multiprocessors // pairs
        return max(1, min(MAX_SPLITS, wanted, -(-keys // TILE)))


def _warps(lines: int, count: int) -> int:
    """Warps of an attention program.

    Four, which the widest tensor-core instruction takes, at 64 lines and in large passes; in a
    small one a few lines' many small instructions are spread over eight.
    """
    return 4 if lines >= 64 or count > FEW_BLOCKS else 8


def _common_power_of_two(a: int, b: int, limit: int) -> int:
    """The largest power of two that divides both, at most `limit`."""
    power = 1
    while power < limit and a % (2 * power) == 0 and b % (2 * power) == 0:
        power *= 2
    return power
