# mypy: disable-error-code="no-untyped-def,untyped-decorator"
"""Matrix products whose result for a row does not depend on how many rows stand beside it.

The library chooses its kernel, and with it the order of a sum, by the number of rows; so a near tie
may fall otherwise when a state is scored beside others. Here one kernel with one size of tile takes
every number of rows: the kernel is compiled once for a weight's shape, a program never learns how
many rows there are but for what it may store, and K is cut into parts by the weight's shape alone.

It is the price of that that few rows are padded to a tile and many are multiplied in small ones.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from mrp.decoding.fast.launch import announce, overlap, wait

TILE_ROWS = 64  # of x a program, for every number of rows
TILE_N = 64  # rows of W a program
TILE_K = 64  # columns a step, of 16 bits each; half as many of 32


@triton.jit(do_not_specialize=["rows"])
def _invariant_product_kernel(
    X,
    W,
    PARTS,
    rows,
    size_n,
    size_k,
    splits,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
    OVERLAP: tl.constexpr,
):
    # One program: W's rows [n, n + BLOCK_N) with x's rows [m, m + BLOCK_M), one part of K. As in
    # `products`, W's rows stand on the tensor cores' long side.
    announce(OVERLAP)
    n = tl.program_id(0).to(tl.int64) * BLOCK_N + tl.arange(0, BLOCK_N)
    split = tl.program_id(1)
    m = tl.program_id(2).to(tl.int64) * BLOCK_M + tl.arange(0, BLOCK_M)
    k = tl.arange(0, BLOCK_K)
    steps = tl.cdiv(size_k, BLOCK_K)
    total = tl.zeros([BLOCK_N, BLOCK_M], tl.float32)
    wait(OVERLAP)
    for step in range(split * steps // splits, (split + 1) * steps // splits):
        column = step * BLOCK_K + k
        inside = column < size_k
        w_inside = (n < size_n)[:, None] & inside[None, :]
        x_inside = (m < rows)[None, :] & inside[:, None]
        w = tl.load(W + n[:, None] * size_k + column[None, :], mask=w_inside, other=0.0)
        x = tl.load(X + m[None, :] * size_k + column[:, None], mask=x_inside, other=0.0)
        total = tl.dot(w, x, total, input_precision="ieee")
    out = PARTS + (split.to(tl.int64) * rows + m)[None, :] * size_n + n[:, None]
    there = (n < size_n)[:, None] & (m < rows)[None, :]
    tl.store(out, total.to(PARTS.dtype.element_ty), mask=there)


def invariant_product(
    x: Tensor, weight: Tensor, splits: int = 1, dtype: torch.dtype = torch.float32
) -> Tensor:
    """x W^T in parts that add up to it, each row's the same bit for bit beside any others.

    Args:
        x: [R, K].
        weight: W [N, K], contiguous; N and K need not be whole tiles.
        splits: parts of K; must not depend on R.
        dtype: what the sums of each part are rounded to.

    Returns:
        The parts, [splits, R, N].
    """
    x, rows, (size_n, size_k) = x.contiguous(), x.shape[0], weight.shape
    parts = torch.empty((splits, rows, size_n), device=x.device, dtype=dtype)
    tiles = (triton.cdiv(size_n, TILE_N), splits, triton.cdiv(rows, TILE_ROWS))
    _invariant_product_kernel[tiles](
        x,
        weight,
        parts,
        rows,
        size_n,
        size_k,
        splits,
        BLOCK_M=TILE_ROWS,
        BLOCK_N=TILE_N,
        BLOCK_K=TILE_K * 2 // x.element_size(),
        num_warps=4,
        num_stages=3,
        **overlap(),
    )
    return parts
