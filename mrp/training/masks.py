"""Who sees whom in the training input: noisy copies of a row followed by the clean row.

Method, "Training a head": a noisy block sees itself and earlier clean blocks; a clean block sees
clean blocks up to itself; samples of one row never see each other. The paper's input has one noisy
copy, [noisy ; clean]. Several noisy copies before one clean row, each blind to the others, give
the same hidden states as one [noisy ; clean] forward each, for fewer tokens.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any, cast

import torch
from torch import Tensor
from torch.nn.attention.flex_attention import BlockMask, create_block_mask, flex_attention

from mrp.models import Attend, MaskedAttention
from mrp.training.packing import PackedRows

# From this row length on, a dense mask costs more than flex_attention's block-sparse one.
FLEX_LENGTH = 1024


def block_diffusion_mask(sample: Tensor, block: Tensor, copies: int = 1) -> Tensor:
    """The mask of [noisy] * copies + [clean].

    Args:
        sample: sample number of each clean token [R, L]; equal numbers are one sample.
        block: block number of each clean token within its sample [R, L].
        copies: number c of noisy copies.

    Returns:
        Boolean [R, 1, (c+1)L, (c+1)L], True where the query (row) may see the key (column).
    """
    same_sample = sample[:, :, None] == sample[:, None, :]
    same_block = same_sample & (block[:, :, None] == block[:, None, :])
    earlier = same_sample & (block[:, :, None] > block[:, None, :])
    nothing = torch.zeros_like(same_block)
    rows = []
    for view in range(copies + 1):
        own = [same_block if other == view else nothing for other in range(copies)]
        to_clean = earlier | same_block if view == copies else earlier
        rows.append(torch.cat((*own, to_clean), dim=-1))
    return torch.cat(rows, dim=-2)[:, None]


class FlexAttention:
    """The same attention through flex_attention: skips the tiles of the mask that are empty."""

    def __init__(self, mask: BlockMask, compiled: bool) -> None:
        """Keep a block mask; `compiled` fuses the kernel (CUDA), else it runs as plain tensors."""
        self.mask = mask
        self.kernel = _compiled_flex() if compiled else cast(Callable[..., Any], flex_attention)

    def __call__(self, layer: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        """Return attention of q [N, Hq, T, D] over k, v [N, Hkv, T, D]."""
        # Under autocast the norms leave q and k in fp32; the kernel wants one dtype.
        q, k = q.to(v.dtype), k.to(v.dtype)
        out = self.kernel(q, k, v, block_mask=self.mask, enable_gqa=q.shape[1] != k.shape[1])
        return cast(Tensor, out)


def flex_mask(sample: Tensor, block: Tensor, copies: int = 1, compiled: bool = False) -> BlockMask:
    """`block_diffusion_mask` as flex_attention's block mask (same arguments)."""
    count, length = sample.shape

    def visible(row: Tensor, head: Tensor, query: Tensor, key: Tensor) -> Tensor:
        query_view, key_view = query // length, key // length
        query_token, key_token = query % length, key % length
        query_block, key_block = block[row, query_token], block[row, key_token]
        own = (query_view == key_view) & (query_block == key_block)
        clean = (key_view == copies) & (key_block < query_block)
        return (sample[row, query_token] == sample[row, key_token]) & (own | clean)

    total = (copies + 1) * length
    build: Callable[..., Any] = _compiled_create() if compiled else create_block_mask
    mask = build(visible, count, None, total, total, device=str(sample.device))
    return cast(BlockMask, mask)


def attention(rows: PackedRows, copies: int = 1) -> Attend:
    """Attention of [noisy] * copies + [clean]: flex for long rows on CUDA, else a dense mask."""
    length, cuda = rows.ids.shape[1], rows.ids.is_cuda
    if cuda and length >= FLEX_LENGTH:
        return FlexAttention(flex_mask(rows.sample, rows.block, copies, compiled=True), True)
    return MaskedAttention(block_diffusion_mask(rows.sample, rows.block, copies))


@cache
def _compiled_flex() -> Callable[..., Any]:
    return torch.compile(flex_attention)


@cache
def _compiled_create() -> Callable[..., Any]:
    return torch.compile(create_block_mask)
