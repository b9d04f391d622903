# mypy: disable-error-code="no-untyped-def,untyped-decorator"
"""The rules about drafts, states and their acceptance as kernels; see `mrp.decoding.fast.lanes`."""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from mrp.decoding.fast.lanes import lane_options, numbers_like, padded, state_options


def useful_drafts_of(block: Tensor, fresh: Tensor, mask_id: int, most: int) -> Tensor:
    """See `mrp.decoding.modes.speculative`."""
    n, size = block.shape
    out = numbers_like(block, n)
    _useful_drafts_kernel[(n,)](
        *(block, fresh.contiguous(), out),
        *(block.stride(0), mask_id, most),
        **lane_options(size),
    )
    return out


@triton.jit(do_not_specialize=["mask_id", "most"])
def _useful_drafts_kernel(
    BLOCK, FRESH, OUT, stride, mask_id, most, SIZE: tl.constexpr, PADDED: tl.constexpr
):
    lane, at = tl.program_id(0).to(tl.int64), tl.arange(0, PADDED)
    block = tl.load(BLOCK + lane * stride + at, mask=at < SIZE, other=-1)
    masks = tl.sum((block == mask_id).to(tl.int64), axis=0)
    useful = tl.minimum(tl.maximum(masks - 1, 0), most)
    tl.store(OUT + lane, tl.where(tl.load(FRESH + lane) != 0, 0, useful))


def masked_of(block: Tensor, mask_id: int, lanes: Tensor) -> Tensor:
    """See `mrp.decoding.modes.speculative`."""
    n, size = block.shape
    out = torch.empty((n, size), dtype=torch.bool, device=block.device)
    _masked_of_kernel[(n,)](
        *(block, lanes, out),
        *(block.stride(0), lanes.stride(0), mask_id),
        **lane_options(size),
    )
    return out


@triton.jit(do_not_specialize=["mask_id"])
def _masked_of_kernel(
    BLOCK, LANES, OUT, stride, lane_stride, mask_id, SIZE: tl.constexpr, PADDED: tl.constexpr
):
    lane, at = tl.program_id(0).to(tl.int64), tl.arange(0, PADDED)
    block = tl.load(BLOCK + lane * stride + at, mask=at < SIZE, other=-1)
    wanted = tl.load(LANES + lane * lane_stride) != 0
    tl.store(OUT + lane * SIZE + at, (block == mask_id) & wanted, mask=at < SIZE)


def revealed(block: Tensor, positions: Tensor, tokens: Tensor) -> Tensor:
    """See `mrp.decoding.modes.speculative`."""
    (n, size), count = block.shape, positions.shape[1]
    out = numbers_like(block, n, size)
    _revealed_kernel[(n,)](
        *(block, positions.contiguous(), tokens.contiguous(), out),
        block.stride(0),
        COUNT=count,
        **lane_options(size),
    )
    return out


@triton.jit
def _revealed_kernel(
    BLOCK,
    POSITIONS,
    TOKENS,
    OUT,
    stride,
    COUNT: tl.constexpr,
    SIZE: tl.constexpr,
    PADDED: tl.constexpr,
):
    lane, at = tl.program_id(0).to(tl.int64), tl.arange(0, PADDED)
    block = tl.load(BLOCK + lane * stride + at, mask=at < SIZE, other=0)
    for each in tl.static_range(COUNT):
        here = at == tl.load(POSITIONS + lane * COUNT + each)
        block = tl.where(here, tl.load(TOKENS + lane * COUNT + each), block)
    tl.store(OUT + lane * SIZE + at, block, mask=at < SIZE)


def chain(
    block: Tensor, positions: Tensor, tokens: Tensor, useful: Tensor
) -> tuple[Tensor, Tensor]:
    """See `mrp.decoding.modes.speculative`."""
    (n, size), k = block.shape, positions.shape[1]
    states = numbers_like(block, n, k + 1, size)
    read = torch.empty((n, k + 1), dtype=torch.bool, device=block.device)
    _chain_kernel[(n,)](
        *(block, positions.contiguous(), tokens.contiguous(), useful.contiguous(), states, read),
        block.stride(0),
        K=k,
        **state_options(k + 1, size),
    )
    return states, read


@triton.jit
def _chain_kernel(
    BLOCK,
    POSITIONS,
    TOKENS,
    USEFUL,
    STATES,
    READ,
    stride,
    K: tl.constexpr,
    SIZE: tl.constexpr,
    PADDED: tl.constexpr,
    PADDED_STATES: tl.constexpr,
):
    lane, at = tl.program_id(0).to(tl.int64), tl.arange(0, PADDED)
    state = tl.arange(0, PADDED_STATES)
    block = tl.load(BLOCK + lane * stride + at, mask=at < SIZE, other=0)
    made = block[None, :] + tl.zeros([PADDED_STATES, PADDED], tl.int64)
    for draft in tl.static_range(K):
        position = tl.load(POSITIONS + lane * K + draft)
        token = tl.load(TOKENS + lane * K + draft)
        made = tl.where((state[:, None] > draft) & (at[None, :] == position), token, made)
    out = STATES + (lane * (K + 1) + state[:, None]) * SIZE + at[None, :]
    tl.store(out, made, mask=(state[:, None] <= K) & (at[None, :] < SIZE))
    tl.store(READ + lane * (K + 1) + state, state <= tl.load(USEFUL + lane), mask=state <= K)


def agreement(
    useful: Tensor, positions: Tensor, tokens: Tensor, drafted_at: Tensor, drafted: Tensor
) -> Tensor:
    """See `mrp.decoding.modes.speculative`."""
    n, k = drafted.shape
    out = numbers_like(useful, n)
    _agreement_kernel[(n,)](
        *(useful.contiguous(), positions.contiguous(), tokens.contiguous()),
        *(drafted_at.contiguous(), drafted.contiguous(), out),
        K=k,
        PADDED=padded(k),
        num_warps=1,
    )
    return out


@triton.jit
def _agreement_kernel(
    USEFUL, POSITIONS, TOKENS, DRAFTED_AT, DRAFTED, OUT, K: tl.constexpr, PADDED: tl.constexpr
):
    lane, draft = tl.program_id(0).to(tl.int64), tl.arange(0, PADDED)
    useful = tl.load(USEFUL + lane)
    inside, own, drafts = draft < K, lane * (K + 1) + draft, lane * K + draft
    same = tl.load(POSITIONS + own, mask=inside, other=0) == tl.load(
        DRAFTED_AT + drafts, mask=inside, other=-1
    )
    same &= tl.load(TOKENS + own, mask=inside, other=0) == tl.load(
        DRAFTED + drafts, mask=inside, other=-1
    )
    agrees = inside & (draft < useful) & same
    tl.store(OUT + lane, tl.min(tl.where(agrees, K, draft), axis=0).to(tl.int64))


def arrived(states: Tensor, positions: Tensor, tokens: Tensor, at: Tensor) -> tuple[Tensor, Tensor]:
    """See `mrp.decoding.modes.speculative`."""
    n, count, size = states.shape
    drafted, picked = numbers_like(states, n, size), numbers_like(states, n, size)
    _arrived_kernel[(n,)](
        *(states.contiguous(), positions.contiguous(), tokens.contiguous()),
        *(at.contiguous(), drafted, picked),
        COUNT=count,
        **lane_options(size),
    )
    return drafted, picked


@triton.jit
def _arrived_kernel(
    STATES,
    POSITIONS,
    TOKENS,
    AT,
    DRAFTED,
    PICKED,
    COUNT: tl.constexpr,
    SIZE: tl.constexpr,
    PADDED: tl.constexpr,
):
    lane, place = tl.program_id(0).to(tl.int64), tl.arange(0, PADDED)
    inside, out = place < SIZE, lane * SIZE + place
    state = lane * COUNT + tl.load(AT + lane)
    drafted = tl.load(STATES + state * SIZE + place, mask=inside, other=0)
    own = place == tl.load(POSITIONS + state)
    tl.store(DRAFTED + out, drafted, mask=inside)
    tl.store(PICKED + out, tl.where(own, tl.load(TOKENS + state), drafted), mask=inside)


def set_states(
    block: Tensor, positions: Tensor, tokens: Tensor, useful: Tensor, holding: Tensor, needs: Tensor
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """See `mrp.decoding.modes.lattice`."""
    (n, size), k, count = block.shape, positions.shape[1], len(needs)
    states, which, there = (
        numbers_like(block, n, count, size),
        numbers_like(block, n, size),
        numbers_like(block, n, size),
    )
    read = torch.empty((n, count), dtype=torch.bool, device=block.device)
    _set_states_kernel[(n,)](
        *(block, positions.contiguous(), tokens.contiguous(), useful.contiguous(), holding, needs),
        *(states, read, which, there),
        block.stride(0),
        K=k,
        COUNT=count,
        **state_options(count, size),
    )
    return states, read, which, there


@triton.jit
def _set_states_kernel(
    BLOCK,
    POSITIONS,
    TOKENS,
    USEFUL,
    HOLDING,
    NEEDS,
    STATES,
    READ,
    WHICH,
    THERE,
    stride,
    K: tl.constexpr,
    COUNT: tl.constexpr,
    SIZE: tl.constexpr,
    PADDED: tl.constexpr,
    PADDED_STATES: tl.constexpr,
):
    lane, at = tl.program_id(0).to(tl.int64), tl.arange(0, PADDED)
    inside = at < SIZE
    block = tl.load(BLOCK + lane * stride + at, mask=inside, other=0)
    useful = tl.load(USEFUL + lane)
    which, there = tl.full([PADDED], K, tl.int64), block
    for draft in tl.static_range(K):
        stands = (at == tl.load(POSITIONS + lane * K + draft)) & (draft < useful)
        which = tl.where(stands, draft, which)
        there = tl.where(stands, tl.load(TOKENS + lane * K + draft), there)
    tl.store(WHICH + lane * SIZE + at, which, mask=inside)
    tl.store(THERE + lane * SIZE + at, there, mask=inside)
    state = tl.arange(0, PADDED_STATES)
    wanted = (state[:, None] < COUNT) & inside[None, :]
    held = tl.load(HOLDING + which[None, :] * COUNT + state[:, None], mask=wanted, other=0) != 0
    out = STATES + (lane * COUNT + state[:, None]) * SIZE + at[None, :]
    tl.store(out, tl.where(held, there[None, :], block[None, :]), mask=wanted)
    needs = tl.load(NEEDS + state, mask=state < COUNT, other=0)
    tl.store(READ + lane * COUNT + state, needs <= useful, mask=state < COUNT)


def walk(
    which: Tensor, there: Tensor, positions: Tensor, tokens: Tensor, onto: Tensor, size: Tensor
) -> tuple[Tensor, Tensor]:
    """See `mrp.decoding.modes.lattice`."""
    n, block = which.shape
    at, held = numbers_like(which, n), numbers_like(which, n)
    _walk_kernel[(n,)](
        *(which.contiguous(), there.contiguous(), positions.contiguous(), tokens.contiguous()),
        *(onto, size, at, held),
        K=onto.shape[1] - 1,
        COUNT=len(size),
        BLOCK=block,
        num_warps=1,
    )
    return at, held


@triton.jit
def _walk_kernel(
    WHICH,
    THERE,
    POSITIONS,
    TOKENS,
    ONTO,
    SIZE,
    AT,
    HELD,
    K: tl.constexpr,
    COUNT: tl.constexpr,
    BLOCK: tl.constexpr,
):
    lane = tl.program_id(0).to(tl.int64)
    at = lane * 0
    for _ in tl.static_range(K):
        place = lane * BLOCK + tl.load(POSITIONS + lane * COUNT + at)
        agrees = tl.load(THERE + place) == tl.load(TOKENS + lane * COUNT + at)
        draft = tl.where(agrees, tl.load(WHICH + place), K)
        at = tl.load(ONTO + at * (K + 1) + draft)
    tl.store(AT + lane, at)
    tl.store(HELD + lane, tl.load(SIZE + at))


def steps_taken(states: Tensor, targets: Tensor, read: Tensor) -> Tensor:
    """See `mrp.decoding.modes.freedave`."""
    n, count, size = states.shape
    out = numbers_like(states, n)
    _steps_taken_kernel[(n,)](
        *(states.contiguous(), targets.contiguous(), read.contiguous(), out),
        STEPS=1 << (count - 2).bit_length() if count > 1 else 0,  # as many as the rule takes
        COUNT=count,
        **state_options(count, size),
    )
    return out


@triton.jit
def _steps_taken_kernel(
    STATES,
    TARGETS,
    READ,
    OUT,
    STEPS: tl.constexpr,
    COUNT: tl.constexpr,
    SIZE: tl.constexpr,
    PADDED: tl.constexpr,
    PADDED_STATES: tl.constexpr,
):
    lane, place = tl.program_id(0).to(tl.int64), tl.arange(0, PADDED)
    state = tl.arange(0, PADDED_STATES)
    wanted = (state[:, None] < COUNT) & (place[None, :] < SIZE)
    at_states = (lane * COUNT + state[:, None]) * SIZE + place[None, :]
    states = tl.load(STATES + at_states, mask=wanted, other=0)
    read = tl.load(READ + lane * COUNT + state, mask=state < COUNT, other=0) != 0
    at = lane * 0
    for _ in range(STEPS):  # no static range: it takes minutes to compile for many states
        there = (lane * COUNT + at) * SIZE + place
        target = tl.load(TARGETS + there, mask=place < SIZE, other=0)
        differ = tl.sum((wanted & (states != target[None, :])).to(tl.int32), axis=1)
        leads = tl.min(tl.where((differ == 0) & read, state, COUNT), axis=0).to(tl.int64)
        at = tl.where(leads < COUNT, leads, at)
    tl.store(OUT + lane, at)
