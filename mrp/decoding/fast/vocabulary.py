# mypy: disable-error-code="no-untyped-def,untyped-decorator"
"""The greedy pick over the vocabulary in one pass, without a softmax.

The vocabulary is cut into tiles of 64 ids. A tile leaves its best logit, that token, and the sum of
exp(l - best) over its other tokens; merging the tiles gives the argmax and the odds against it (see
`mrp.decoding.picks.Picks`), whose sum never contains the best token's own 1. With few rows the
tiles come straight out of the product with W and no logit is ever stored.

Logits are rounded to the model's dtype before they are compared, as the plain product rounds them.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor
from torch.nn import functional as F
from triton.tools.tensor_descriptor import TensorDescriptor

from mrp.decoding.fast.invariant import invariant_product
from mrp.decoding.fast.launch import announce, overlap, wait
from mrp.decoding.fast.products import TILE_K, suits, tile_rows
from mrp.decoding.picks import Picks

TILE = 64


class Tiles(NamedTuple):
    """What is left of R rows of logits, T tiles (or single tokens) a row."""

    best: Tensor  # [R, T] fp32
    tokens: Tensor  # [R, T] int32
    others: Tensor  # [R, T] fp32: sum of exp(l - best) over the tile's other tokens


@triton.jit
def _reduce_tile(logits, ids, mask_id, size, AXIS: tl.constexpr):
    """Best, its lowest token and the others' sum along AXIS; `ids` are shaped to broadcast."""
    logits = tl.where(ids == mask_id, -float("inf"), logits)
    best = tl.max(logits, axis=AXIS)
    spread = tl.expand_dims(best, AXIS)
    tokens = tl.min(tl.where(logits == spread, ids, size), axis=AXIS)
    # Finite where a tile holds nothing but the mask token, whose exp is then zero too.
    finite = tl.maximum(spread, -1e30)
    others = tl.where(ids == tl.expand_dims(tokens, AXIS), 0.0, tl.exp(logits - finite))
    return best, tokens, tl.sum(others, axis=AXIS)


@triton.jit
def _product_tiles_kernel(
    X,
    W,
    BEST,
    TOKENS,
    OTHERS,
    rows,
    size,
    size_k,
    mask_id,
    BLOCK_M: tl.constexpr,
    BLOCK_K: tl.constexpr,
    TILE: tl.constexpr,
    OVERLAP: tl.constexpr,
):
    announce(OVERLAP)
    tile = tl.program_id(0)
    m_first = tl.program_id(1) * BLOCK_M
    n = tile * TILE + tl.arange(0, TILE)
    m = m_first + tl.arange(0, BLOCK_M)
    total = tl.zeros([TILE, BLOCK_M], tl.float32)
    wait(OVERLAP)
    for step in range(size_k // BLOCK_K):
        w = W.load([tile * TILE, step * BLOCK_K])
        x = X.load([m_first, step * BLOCK_K])
        total = tl.dot(w, x.T, total)
    logits = total.to(X.dtype).to(tl.float32)
    best, tokens, others = _reduce_tile(logits, n[:, None], mask_id, size, 0)
    at = m * tl.num_programs(0) + tile
    tl.store(BEST + at, best, mask=m < rows)
    tl.store(TOKENS + at, tokens, mask=m < rows)
    tl.store(OTHERS + at, others, mask=m < rows)


@triton.jit
def _logit_tiles_kernel(
    LOGITS,
    BEST,
    TOKENS,
    OTHERS,
    size,
    tiles,
    mask_id,
    GROUP: tl.constexpr,
    TILE: tl.constexpr,
    OVERLAP: tl.constexpr,
):
    announce(OVERLAP)
    row = tl.program_id(0).to(tl.int64)
    tile = tl.program_id(1) * GROUP + tl.arange(0, GROUP)
    ids = tile[:, None] * TILE + tl.arange(0, TILE)[None, :]
    wait(OVERLAP)
    logits = tl.load(LOGITS + row * size + ids, mask=ids < size, other=-float("inf"))
    best, tokens, others = _reduce_tile(logits.to(tl.float32), ids, mask_id, size, 1)
    at = row * tiles + tile
    tl.store(BEST + at, best, mask=tile < tiles)
    tl.store(TOKENS + at, tokens, mask=tile < tiles)
    tl.store(OTHERS + at, others, mask=tile < tiles)


@triton.jit
def _merge_tiles_kernel(
    BEST,
    TOKENS,
    OTHERS,
    MASKED,
    PICKED,
    ODDS,
    tiles,
    BLOCK: tl.constexpr,
    OVERLAP: tl.constexpr,
):
    announce(OVERLAP)
    row = tl.program_id(0).to(tl.int64)
    tile = tl.arange(0, BLOCK)
    inside = tile < tiles
    wait(OVERLAP)
    bests = tl.load(BEST + row * tiles + tile, mask=inside, other=-float("inf"))
    tokens = tl.load(TOKENS + row * tiles + tile, mask=inside, other=2147483647)
    others = tl.load(OTHERS + row * tiles + tile, mask=inside, other=0.0)
    best = tl.max(bests, axis=0)
    token = tl.min(tl.where(bests == best, tokens, 2147483647), axis=0)
    whole = (1.0 + others) * tl.exp(bests - best)
    odds = tl.sum(tl.where(tokens == token, others, whole), axis=0)
    masked = tl.load(MASKED + row) != 0
    tl.store(PICKED + row, token.to(tl.int64))
    tl.store(ODDS + row, tl.where(masked, odds, float("inf")))


@triton.jit
def _listed_logits_kernel(
    X,
    W,
    IDS,
    LOGITS,
    count,
    size_k,
    mask_id,
    GROUP: tl.constexpr,
    BLOCK_K: tl.constexpr,
    OVERLAP: tl.constexpr,
):
    announce(OVERLAP)
    row = tl.program_id(0).to(tl.int64)
    place = tl.program_id(1) * GROUP + tl.arange(0, GROUP)
    k = tl.arange(0, BLOCK_K)
    wait(OVERLAP)
    ids = tl.load(IDS + row * count + place, mask=place < count, other=0).to(tl.int64)
    total = tl.zeros([GROUP, BLOCK_K], tl.float32)
    for start in range(0, size_k, BLOCK_K):
        inside = start + k < size_k
        x = tl.load(X + row * size_k + start + k, mask=inside, other=0.0).to(tl.float32)
        w_at = W + ids[:, None] * size_k + (start + k)[None, :]
        total += tl.load(w_at, mask=inside[None, :], other=0.0).to(tl.float32) * x[None, :]
    logits = tl.sum(total, axis=1).to(X.dtype.element_ty).to(tl.float32)
    logits = tl.where(ids == mask_id, -float("inf"), logits)
    tl.store(LOGITS + row * count + place, logits, mask=place < count)


def logits_of(hidden: Tensor, weight: Tensor, invariant: bool) -> Tensor:
    """The logits W h of hidden [..., H]: [..., V]; `invariant`: see `product`."""
    if not invariant:
        return F.linear(hidden, weight)
    rows = hidden.reshape(-1, hidden.shape[-1])
    logits = invariant_product(rows, weight, dtype=hidden.dtype)
    return logits.view(*hidden.shape[:-1], len(weight))


def tiles_of_product(hidden: Tensor, weight: Tensor, mask_id: int, invariant: bool) -> Tiles:
    """Tiles of the logits W h of hidden [R, H]; the mask token's count as minus infinity."""
    if invariant or not suits(hidden, weight):
        return tiles_of_logits(logits_of(hidden, weight, invariant), mask_id)
    rows, (size, size_k) = hidden.shape[0], weight.shape
    tiles = _new_tiles(hidden, size // TILE)
    padded = tile_rows(rows, weight)
    _product_tiles_kernel[(size // TILE, triton.cdiv(rows, padded))](
        TensorDescriptor.from_tensor(hidden, [padded, TILE_K]),
        TensorDescriptor.from_tensor(weight, [TILE, TILE_K]),
        *tiles,
        rows,
        size,
        size_k,
        mask_id,
        BLOCK_M=padded,
        BLOCK_K=TILE_K,
        TILE=TILE,
        num_warps=4,
        num_stages=3,
        **overlap(),
    )
    return tiles


def tiles_of_logits(logits: Tensor, mask_id: int) -> Tiles:
    """Tiles of stored logits [R, V]."""
    rows, size = logits.shape
    count = triton.cdiv(size, TILE)
    tiles = _new_tiles(logits, count)
    group = 32
    _logit_tiles_kernel[(rows, triton.cdiv(count, group))](
        logits,
        *tiles,
        size,
        count,
        mask_id,
        GROUP=group,
        TILE=TILE,
        num_warps=4,
        **overlap(),
    )
    return tiles


def tiles_of_list(hidden: Tensor, weight: Tensor, ids: Tensor, mask_id: int) -> Tiles:
    """Logits of the tokens `ids` [R, n] alone, as tiles of one token each."""
    rows, count = ids.shape
    tiles = Tiles(
        torch.empty((rows, count), device=hidden.device, dtype=torch.float32),
        ids.to(torch.int32),
        torch.zeros((rows, count), device=hidden.device, dtype=torch.float32),
    )
    group = 4
    _listed_logits_kernel[(rows, triton.cdiv(count, group))](
        hidden,
        weight,
        ids,
        tiles.best,
        count,
        hidden.shape[1],
        mask_id,
        GROUP=group,
        BLOCK_K=min(1024, triton.next_power_of_2(hidden.shape[1])),
        num_warps=4,
        **overlap(),
    )
    return tiles


def merge(tiles: Tiles, masked: Tensor) -> Picks:
    """The picks over a row's tiles; tokens and odds are shaped like `masked` (R elements)."""
    rows, count = tiles.best.shape
    tokens = torch.empty(masked.shape, device=masked.device, dtype=torch.int64)
    odds = torch.empty(masked.shape, device=masked.device, dtype=torch.float32)
    _merge_tiles_kernel[(rows,)](
        *tiles,
        masked.contiguous(),
        tokens,
        odds,
        count,
        BLOCK=triton.next_power_of_2(count),
        num_warps=8 if count > 1024 else 4,
        **overlap(),
    )
    return Picks(tokens, odds)


def _new_tiles(like: Tensor, count: int) -> Tiles:
    shape = (like.shape[0], count)
    return Tiles(
        torch.empty(shape, device=like.device, dtype=torch.float32),
        torch.empty(shape, device=like.device, dtype=torch.int32),
        torch.empty(shape, device=like.device, dtype=torch.float32),
    )
