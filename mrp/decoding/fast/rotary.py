# mypy: disable-error-code="no-untyped-def,untyped-decorator"
"""Queries, keys and values as attention reads them: normalised, rotated, the latter two stored."""

from __future__ import annotations

from typing import NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

from mrp.decoding.blocks import Blocks
from mrp.decoding.fast.launch import FEW_BLOCKS, announce, overlap, wait


class Heads(NamedTuple):
    """The heads of a model's attention."""

    queries: int
    keys: int  # and values
    size: int

    @property
    def padded(self) -> int:
        """Their size as kernels take it."""
        return max(16, int(triton.next_power_of_2(self.size)))


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


def rotate_and_store(
    parts: Tensor,
    q_norm: Tensor,
    k_norm: Tensor,
    cos: Tensor,
    sin: Tensor,
    blocks: Blocks,
    keys: Tensor,
    values: Tensor,
    heads: Heads,
    eps: float,
    invariant: bool,
) -> Tensor:
    """Split a layer's merged projection; its keys and values go to the cache.

    Args:
        parts: the product with the merged q, k and v weights, [S, M * B, (Hq + 2 Hkv) * D]: S
            partial sums.
        q_norm: weight of the queries' norm, [D].
        k_norm: weight of the keys' norm, [D].
        cos: rotary table [length, D] of every position of the cache.
        sin: likewise.
        blocks: M blocks of B tokens.
        keys: the layer's cache [rows, length, Hkv, D], written at the blocks' slots.
        values: the same of the values.
        heads: Hq, Hkv and D.
        eps: of both norms.
        invariant: whether the work is divided alike for any number of blocks.

    Returns:
        The queries, [M * B, Hq * D].
    """
    splits, rows, _ = parts.shape
    count, block = blocks.ids.shape
    queries = torch.empty((rows, heads.queries * heads.size), device=parts.device, dtype=keys.dtype)
    # Few rows: small programs for a short wait. Many: fewer, larger ones, for their number.
    limit, warps = (2, 2) if count <= FEW_BLOCKS and not invariant else (4, 1)
    group = _common_power_of_two(heads.queries, heads.keys, limit)
    _rotate_and_store_kernel[(rows, (heads.queries + 2 * heads.keys) // group)](
        parts,
        q_norm,
        k_norm,
        cos,
        sin,
        blocks.row,
        blocks.position,
        blocks.slot,
        queries,
        keys,
        values,
        rows,
        keys.shape[1],
        block,
        eps,
        Q_HEADS=heads.queries,
        KV_HEADS=heads.keys,
        DIM=heads.size,
        DIM_PADDED=heads.padded,
        GROUP=group,
        SPLITS=splits,
        num_warps=warps,
        **overlap(),
    )
    return queries


def _common_power_of_two(a: int, b: int, limit: int) -> int:
    """The largest power of two that divides both, at most `limit`."""
    power = 1
    while power < limit and a % (2 * power) == 0 and b % (2 * power) == 0:
        power *= 2
    return power
