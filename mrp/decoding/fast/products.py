# mypy: disable-error-code="no-untyped-def,untyped-decorator"
"""Matrix products of few rows: a weight is read once, at the memory's speed.

y = x W^T with x [R, K] of few rows and W [N, K] is bound by reading W. The kernels compute the
transpose, W x^T, so that W's rows fill the tensor cores' long side and x's few rows the short one.
A program takes 64 rows of W and, where N alone gives too few programs to keep the memory busy, a
part of K ("split"); whoever reads the result adds the parts up, in their order, as part of what it
does anyway. Of a tiny weight, which stays in the near cache, more rows of x are taken in tiles of
64 by programs of their own. Other products of more rows, and fp32, go to the library's, whose order
of summation depends on the number of rows.

For results that do not depend on it any number of rows is taken in tiles of 64, and what these
kernels do not take goes to `invariant_product`.
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
from mrp.decoding.fast.launch import announce, multiprocessors, overlap, wait
from mrp.decoding.fast.norms import Normed

MOST_ROWS = 64
MOST_ROWS_SMALL = 128  # of a product with a weight of at most
SMALL = 2**24  # elements, whose reading is too short for the library's product to get going
MOST_ROWS_TINY = 512  # in tiles of MOST_ROWS, of one with a weight of at most
TINY = 2**21  # elements
TILE_N = 64  # rows of W a program
TILE_K = 128  # columns a step


class Scale(NamedTuple):
    """What a kernel needs to finish a deferred norm; see `Normed`."""

    squares: Tensor
    chunks: int
    padded: int  # a power of two; 0 where there is nothing to do


@triton.jit
def row_scale(SQUARES, m, rows, chunks, size, eps, CHUNKS: tl.constexpr):
    """1 / root mean square of the rows m from their chunks' sums of squares."""
    chunk = tl.arange(0, CHUNKS)
    inside = (m < rows)[:, None] & (chunk < chunks)[None, :]
    squares = tl.load(SQUARES + m[:, None] * chunks + chunk[None, :], mask=inside, other=0.0)
    return tl.rsqrt(tl.sum(squares, axis=1) / size + eps)


@triton.jit(do_not_specialize=["rows"])  # one kernel for any number: see `suits`
def _product_kernel(
    X,
    W,
    SQUARES,
    PARTS,
    rows,
    size_n,
    size_k,
    splits,
    chunks,
    eps,
    CHUNKS: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
    OVERLAP: tl.constexpr,
):
    announce(OVERLAP)
    n_first = tl.program_id(0) * BLOCK_N
    split = tl.program_id(1)
    m_first = tl.program_id(2) * BLOCK_M
    steps = size_k // BLOCK_K
    n = n_first + tl.arange(0, BLOCK_N)
    m = m_first + tl.arange(0, BLOCK_M)
    total = tl.zeros([BLOCK_N, BLOCK_M], tl.float32)
    wait(OVERLAP)
    for step in range(split * steps // splits, (split + 1) * steps // splits):
        w = W.load([n_first, step * BLOCK_K])
        x = X.load([m_first, step * BLOCK_K])
        total = tl.dot(w, x.T, total)
    if CHUNKS > 0:
        total *= row_scale(SQUARES, m, rows, chunks, size_k, eps, CHUNKS)[None, :]
    out = PARTS + (split.to(tl.int64) * rows + m)[None, :] * size_n + n[:, None]
    tl.store(out, total, mask=(m < rows)[None, :])


@triton.jit
def _silu_product(gate, up, dtype: tl.constexpr):
    """SiLU(gate) * up of fp32 values, rounded to `dtype` where the plain modules round."""
    gate = gate.to(dtype).to(tl.float32)
    up = up.to(dtype).to(tl.float32)
    return ((gate * tl.sigmoid(gate)).to(dtype).to(tl.float32) * up).to(dtype)


@triton.jit(do_not_specialize=["rows"])
def _gated_product_kernel(
    X,
    W,
    SQUARES,
    OUT,
    rows,
    size_n,
    size_k,
    chunks,
    eps,
    CHUNKS: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
    OVERLAP: tl.constexpr,
):
    announce(OVERLAP)
    n_first = tl.program_id(0) * BLOCK_N
    m_first = tl.program_id(1) * BLOCK_M
    n = n_first + tl.arange(0, BLOCK_N)
    m = m_first + tl.arange(0, BLOCK_M)
    gate = tl.zeros([BLOCK_N, BLOCK_M], tl.float32)
    up = tl.zeros([BLOCK_N, BLOCK_M], tl.float32)
    wait(OVERLAP)
    for step in range(size_k // BLOCK_K):
        gate_w = W.load([n_first, step * BLOCK_K])
        up_w = W.load([size_n + n_first, step * BLOCK_K])
        x = X.load([m_first, step * BLOCK_K])
        gate = tl.dot(gate_w, x.T, gate)
        up = tl.dot(up_w, x.T, up)
    if CHUNKS > 0:
        scale = row_scale(SQUARES, m, rows, chunks, size_k, eps, CHUNKS)[None, :]
        gate *= scale
        up *= scale
    out = OUT + m.to(tl.int64)[None, :] * size_n + n[:, None]
    tl.store(out, _silu_product(gate, up, OUT.dtype.element_ty), mask=(m < rows)[None, :])


@triton.jit
def _gate_kernel(
    PARTS, OUT, rows, size, SPLITS: tl.constexpr, BLOCK: tl.constexpr, OVERLAP: tl.constexpr
):
    announce(OVERLAP)
    row = tl.program_id(0).to(tl.int64)
    column = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside = column < size
    gate = tl.zeros([BLOCK], tl.float32)
    up = tl.zeros([BLOCK], tl.float32)
    wait(OVERLAP)
    for split in tl.static_range(SPLITS):
        base = PARTS + (split * rows + row) * 2 * size + column
        gate += tl.load(base, mask=inside, other=0.0).to(tl.float32)
        up += tl.load(base + size, mask=inside, other=0.0).to(tl.float32)
    out = OUT + row * size + column
    tl.store(out, _silu_product(gate, up, OUT.dtype.element_ty), mask=inside)


def product(
    x: Normed, weight: Tensor, eps: float, splits: int | None = None, *, invariant: bool = False
) -> Tensor:
    """x W^T in parts that add up to it.

    Args:
        x: [R, K]; its norm may be deferred where the product `suits`.
        weight: W [N, K], contiguous.
        eps: of the deferred norm.
        splits: overrides the choice for this shape.
        invariant: whether a row's result must not depend on their number.

    Returns:
        [S, R, N]: S fp32 parts, or the library's product (S = 1, the dtype of x).
    """
    values = x.values
    rows, (size_n, size_k) = values.shape[0], weight.shape
    suited = suits(values, weight, invariant)
    assert suited or x.squares is None
    if not suited and not invariant:
        return F.linear(values, weight).unsqueeze(0)
    splits = splits or choose_splits(size_n, size_k, multiprocessors(values))
    if not suited:
        return invariant_product(values, weight, splits)
    parts = torch.empty((splits, rows, size_n), device=values.device, dtype=torch.float32)
    scale = scale_of(x)
    padded = tile_rows(rows, weight, invariant)
    columns, warps = (TILE_K, 4) if padded <= MOST_ROWS else (TILE_K // 2, 8)
    _product_kernel[(size_n // TILE_N, splits, triton.cdiv(rows, padded))](
        TensorDescriptor.from_tensor(values, [padded, columns]),
        TensorDescriptor.from_tensor(weight, [TILE_N, columns]),
        scale.squares,
        parts,
        rows,
        size_n,
        size_k,
        splits,
        scale.chunks,
        eps,
        CHUNKS=scale.padded,
        BLOCK_M=padded,
        BLOCK_N=TILE_N,
        BLOCK_K=columns,
        num_warps=warps,
        num_stages=stages(padded),
        **overlap(),
    )
    return parts


def gated_product(x: Normed, weight: Tensor, eps: float, *, invariant: bool = False) -> Tensor:
    """SiLU(x G^T) * (x U^T).

    Args:
        x: [R, K]; its norm may be deferred where the product `suits`.
        weight: G above U, [2 I, K], contiguous.
        eps: of the deferred norm.
        invariant: see `product`.

    Returns:
        [R, I], the dtype of x.
    """
    values = x.values
    rows, size, size_k = values.shape[0], weight.shape[0] // 2, weight.shape[1]
    out = torch.empty((rows, size), device=values.device, dtype=values.dtype)
    if suits(values, weight, invariant) and fuses(size, size_k, multiprocessors(values)):
        scale = scale_of(x)
        padded, columns = tile_rows(rows, weight, invariant), TILE_K // 2
        _gated_product_kernel[(size // TILE_N, triton.cdiv(rows, padded))](
            TensorDescriptor.from_tensor(values, [padded, columns]),
            TensorDescriptor.from_tensor(weight, [TILE_N, columns]),
            scale.squares,
            out,
            rows,
            size,
            size_k,
            scale.chunks,
            eps,
            CHUNKS=scale.padded,
            BLOCK_M=padded,
            BLOCK_N=TILE_N,
            BLOCK_K=columns,
            num_warps=4,
            num_stages=4,
            **overlap(),
        )
        return out
    parts = product(x, weight, eps, invariant=invariant)
    block = 1024
    _gate_kernel[(rows, triton.cdiv(size, block))](
        parts, out, rows, size, SPLITS=parts.shape[0], BLOCK=block, num_warps=4, **overlap()
    )
    return out


def suits(x: Tensor, weight: Tensor, invariant: bool = False) -> bool:
    """Whether x W^T is one for the kernels here: 16 bits a number, whole tiles, not too many rows.

    Any number of rows will do where the result must be `invariant`.
    """
    size_n, size_k = weight.shape
    return (
        (invariant or x.shape[0] <= most_rows(weight))
        and x.dtype in (torch.bfloat16, torch.float16)
        and size_n % (2 * TILE_N) == 0
        and size_k % TILE_K == 0
    )


def most_rows(weight: Tensor) -> int:
    """Rows of x up to which the kernels here are the faster ones."""
    if weight.numel() <= TINY:
        return MOST_ROWS_TINY
    return MOST_ROWS_SMALL if weight.numel() <= SMALL else MOST_ROWS


def tile_rows(rows: int, weight: Tensor, invariant: bool = False) -> int:
    """Rows of x a program multiplies: a power of two that the tensor cores take.

    All of them, so that a weight is read once, but for one that is cheap to read again; and always
    equally many for a result that must not depend on their number.
    """
    if invariant:
        return MOST_ROWS
    return padded_rows(min(rows, MOST_ROWS) if weight.numel() <= TINY else rows)


def scale_of(x: Normed) -> Scale:
    """The arguments that finish a deferred norm."""
    if x.squares is None:
        return Scale(x.values, 0, 0)
    chunks = x.squares.shape[1]
    return Scale(x.squares, chunks, triton.next_power_of_2(chunks))


def padded_rows(rows: int) -> int:
    """The next number of rows that the tensor cores take, a power of two."""
    return max(16, int(triton.next_power_of_2(rows)))


def stages(padded: int) -> int:
    """Steps in flight that let two programs share a multiprocessor's memory."""
    return {16: 5, 64: 3}.get(padded, 4)


def choose_splits(size_n: int, size_k: int, processors: int) -> int:
    """Parts of K such that two programs a multiprocessor are at work, all at once.

    With fewer, those that start early would crowd onto the multiprocessors that are free first. It
    does not depend on the number of rows: a row's result is the same beside any others.
    """
    return max(1, min(16, 2 * processors // -(-size_n // TILE_N), size_k // (2 * TILE_K)))


def fuses(size: int, size_k: int, processors: int) -> bool:
    """Whether the gated product has enough programs without splitting K, or K is too short for it.

    It does not depend on the number of rows, as `choose_splits` does not.
    """
    return size // TILE_N >= processors or size_k < 4 * TILE_K
