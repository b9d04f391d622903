# mypy: disable-error-code="no-untyped-def,untyped-decorator"
"""RMS norms with what stands before them: the residual sum, or the embedding's lookup.

Sums are taken in fp32 and rounded where the plain modules round: the residual stream and the
normalised value before its weight. A deferred norm leaves the division by the root mean square to
the product that follows, which can scale a whole row of its result: so many programs can share a
row, and none waits for the others.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

from mrp.decoding.fast.launch import announce, overlap, wait

CHUNK = 128  # columns a program of a deferred norm


class Normed(NamedTuple):
    """A norm's output [R, H], or, with `squares`, that output times each row's root mean square.

    squares [R, C]: sums of squares of the norm's input over C chunks of the row, or None.
    """

    values: Tensor
    squares: Tensor | None = None


@triton.jit
def _normalise(x, weight, size, eps):
    scaled = x * tl.rsqrt(tl.sum(x * x, axis=0) / size + eps)
    return (scaled.to(weight.dtype).to(tl.float32) * weight.to(tl.float32)).to(weight.dtype)


@triton.jit
def _residual_norm_kernel(
    PARTS,
    RESIDUAL,
    WEIGHT,
    SUM,
    OUT,
    SQUARES,
    rows,
    size,
    out_stride,
    eps,
    SPLITS: tl.constexpr,
    HAS_RESIDUAL: tl.constexpr,
    KEEP_SUM: tl.constexpr,
    DEFER: tl.constexpr,
    BLOCK: tl.constexpr,
    OVERLAP: tl.constexpr,
):
    # One program: a row, or with DEFER a chunk of one.
    announce(OVERLAP)
    row = tl.program_id(0).to(tl.int64)
    column = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside = column < size
    weight = tl.load(WEIGHT + column, mask=inside, other=0.0)
    wait(OVERLAP)
    x = tl.zeros([BLOCK], tl.float32)
    for split in tl.static_range(SPLITS):
        part = tl.load(PARTS + (split * rows + row) * size + column, mask=inside, other=0.0)
        x += part.to(tl.float32)
    if HAS_RESIDUAL:
        x += tl.load(RESIDUAL + row * size + column, mask=inside, other=0.0).to(tl.float32)
    x = x.to(weight.dtype).to(tl.float32)
    if KEEP_SUM:
        tl.store(SUM + row * size + column, x.to(weight.dtype), mask=inside)
    if DEFER:
        y = (x * weight.to(tl.float32)).to(weight.dtype)
        tl.store(SQUARES + row * tl.num_programs(1) + tl.program_id(1), tl.sum(x * x, axis=0))
    else:
        y = _normalise(x, weight, size, eps)
    tl.store(OUT + row * out_stride + column, y, mask=inside)


@triton.jit
def _embed_norm_kernel(
    IDS,
    TABLE,
    WEIGHT,
    EMBEDDED,
    OUT,
    size,
    out_stride,
    eps,
    KEEP: tl.constexpr,
    BLOCK: tl.constexpr,
    OVERLAP: tl.constexpr,
):
    # The first kernel of a pass: those behind it may read the blocks before their own wait.
    wait(OVERLAP)
    announce(OVERLAP)
    row = tl.program_id(0).to(tl.int64)
    column = tl.arange(0, BLOCK)
    inside = column < size
    weight = tl.load(WEIGHT + column, mask=inside, other=0.0)
    token = tl.load(IDS + row)
    x = tl.load(TABLE + token * size + column, mask=inside, other=0.0)
    if KEEP:
        tl.store(EMBEDDED + row * size + column, x, mask=inside)
    y = _normalise(x.to(tl.float32), weight, size, eps)
    tl.store(OUT + row * out_stride + column, y, mask=inside)


def residual_norm(
    parts: Tensor, residual: Tensor | None, weight: Tensor, eps: float, defer: bool
) -> tuple[Tensor, Normed]:
    """Add up a matrix product's parts and the residual stream, and normalise the sum.

    Args:
        parts: [S, R, H], fp32 partial sums (or S = 1 of any float type).
        residual: [R, H] or None for zero.
        weight: of the norm, [H]; its dtype is that of both results.
        eps: of the norm.
        defer: leave the root mean square to the product that reads the result.

    Returns:
        The sum [R, H] and its norm.
    """
    splits, rows, size = parts.shape
    total = torch.empty((rows, size), device=parts.device, dtype=weight.dtype)
    values = torch.empty_like(total)
    block = CHUNK if defer else triton.next_power_of_2(size)
    chunks = triton.cdiv(size, block)
    squares = torch.empty((rows, chunks), device=parts.device, dtype=torch.float32)
    _residual_norm_kernel[(rows, chunks)](
        parts,
        parts if residual is None else residual,
        weight,
        total,
        values,
        squares,
        rows,
        size,
        size,
        eps,
        SPLITS=splits,
        HAS_RESIDUAL=residual is not None,
        KEEP_SUM=True,
        DEFER=defer,
        BLOCK=block,
        num_warps=1 if defer else _warps(block),
        **overlap(),
    )
    return total, Normed(values, squares if defer else None)


def norm(x: Tensor, weight: Tensor, eps: float, out: Tensor) -> None:
    """Write the RMS norm of x [R, H] to `out` [R, H], whose rows are contiguous."""
    rows, size = x.shape
    block = triton.next_power_of_2(size)
    _residual_norm_kernel[(rows, 1)](
        x,
        x,
        weight,
        x,
        out,
        x,
        rows,
        size,
        out.stride(0),
        eps,
        SPLITS=1,
        HAS_RESIDUAL=False,
        KEEP_SUM=False,
        DEFER=False,
        BLOCK=block,
        num_warps=_warps(block),
        **overlap(),
    )


def embed_norm(
    ids: Tensor, table: Tensor, weight: Tensor, eps: float, out: Tensor | None = None
) -> tuple[Tensor, Normed]:
    """Embeddings E[ids] [R, H] of ids [R], and their RMS norm: a pass begins with it.

    With `out` ([R, H], rows contiguous) the norm goes there and the embeddings are not kept.

    Returns:
        The embeddings (or `out`, where they are not kept) and their norm.
    """
    rows, size = ids.numel(), table.shape[1]
    normed = torch.empty((rows, size), device=ids.device, dtype=table.dtype) if out is None else out
    embedded = torch.empty_like(normed) if out is None else out
    block = triton.next_power_of_2(size)
    _embed_norm_kernel[(rows,)](
        ids,
        table,
        weight,
        embedded,
        normed,
        size,
        normed.stride(0),
        eps,
        KEEP=out is None,
        BLOCK=block,
        num_warps=_warps(block),
        **overlap(),
    )
    return embedded, Normed(normed)


def _warps(block: int) -> int:
    return 8 if block >= 2048 else 4
