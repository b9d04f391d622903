# mypy: disable-error-code="no-untyped-def,untyped-decorator"
"""The rules about a lattice's sets of drafts as kernels; see `mrp.decoding.fast.lanes`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
import triton
import triton.language as tl
from torch import Tensor

from mrp.decoding.fast.lanes import numbers_like, padded, state_options
from mrp.decoding.fast.places import _rank, _read, row_options

if TYPE_CHECKING:
    from mrp.decoding.modes.branches import Branches


def rivals(odds: Tensor, tokens: Tensor, listed: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """See `mrp.decoding.modes.branches`."""
    n = len(odds)
    positions, there = numbers_like(odds, n, 2), numbers_like(odds, n, 2)
    against = torch.empty((n, 2), dtype=odds.dtype, device=odds.device)
    _rivals_kernel[(n,)](
        *(odds.contiguous(), tokens.contiguous(), listed.contiguous(), positions, there, against),
        **row_options(odds),
    )
    return positions, there, against


@triton.jit
def _rivals_kernel(
    ODDS, TOKENS, LISTED, POSITIONS, THERE, AGAINST, SIZE: tl.constexpr, PADDED: tl.constexpr
):
    lane, at = tl.program_id(0).to(tl.int64), tl.arange(0, PADDED)
    odds = _read(ODDS, lane, SIZE, PADDED)
    rank = _rank(odds, PADDED)
    first = tl.sum(tl.where(rank == 0, at, 0), axis=0)
    second = tl.sum(tl.where(rank == 1, at, 0), axis=0)
    tokens, listed = TOKENS + lane * SIZE, LISTED + (lane * SIZE + first) * 2
    likely, next_likely = tl.load(listed), tl.load(listed + 1)
    other = tl.where(likely == tl.load(tokens + first), next_likely, likely)
    tl.store(POSITIONS + lane * 2, second.to(tl.int64))
    tl.store(POSITIONS + lane * 2 + 1, first.to(tl.int64))
    tl.store(THERE + lane * 2, tl.load(tokens + second))
    tl.store(THERE + lane * 2 + 1, other)
    tl.store(AGAINST + lane * 2, tl.load(ODDS + lane * SIZE + second))
    tl.store(AGAINST + lane * 2 + 1, tl.div_rn(1.0, tl.load(ODDS + lane * SIZE + first)))


def likeliest(
    positions: Tensor,
    tokens: Tensor,
    odds: Tensor,
    useful: Tensor,
    tables: Branches,
    budget: int,
    ahead: bool,
) -> tuple[Tensor, Tensor, Tensor]:
    """See `mrp.decoding.modes.branches`."""
    (n, picks), count = positions.shape, len(tables.size)
    states = min(budget, count)
    sets, there = numbers_like(positions, n, states), numbers_like(positions, n, picks)
    read = torch.empty((n, states), dtype=torch.bool, device=positions.device)
    _likeliest_kernel[(n,)](
        *(positions.contiguous(), tokens.contiguous(), odds.contiguous(), useful.contiguous()),
        *(tables.size, tables.weight, tables.before, tables.gain, tables.rise, tables.below),
        *(tables.whole, sets, read, there),
        SURE=tables.sure,
        AHEAD=ahead,
        DRAFTS=len(tables.whole) - 1,
        PICKS=picks,
        SETS=count,
        STATES=states,
        PADDED_PICKS=padded(picks),
        PADDED_SETS=padded(count),
        num_warps=4,
    )
    return sets, read, there


@triton.jit
def _likeliest_kernel(
    POSITIONS,
    TOKENS,
    ODDS,
    USEFUL,
    SIZE,
    WEIGHT,
    BEFORE,
    GAIN,
    RISE,
    BELOW,
    WHOLE,
    CHOSEN,
    READ,
    THERE,
    SURE: tl.constexpr,
    AHEAD: tl.constexpr,
    DRAFTS: tl.constexpr,
    PICKS: tl.constexpr,
    SETS: tl.constexpr,
    STATES: tl.constexpr,
    PADDED_PICKS: tl.constexpr,
    PADDED_SETS: tl.constexpr,
):
    lane, pick = tl.program_id(0).to(tl.int64), tl.arange(0, PADDED_PICKS)
    inside, mine = pick < PICKS, lane * PICKS + pick
    useful = tl.load(USEFUL + lane)
    # Which picks there are: the useful drafts, and the first one's rivals.
    position = tl.load(POSITIONS + mine, mask=inside, other=-1)
    elsewhere = tl.load(POSITIONS + lane * PICKS + DRAFTS)
    drafted = (pick < DRAFTS) & (pick < useful)
    apart = tl.sum((drafted & (position == elsewhere)).to(tl.int32), axis=0) == 0
    rival = (pick == DRAFTS) & apart | (pick == DRAFTS + 1)
    live = drafted | (rival & (useful > 0))
    tokens = tl.load(TOKENS + mine, mask=inside, other=0)
    tl.store(THERE + mine, tl.where(live, tokens, -1), mask=inside)
    # How much each pick weighs.
    odds = tl.load(ODDS + mine, mask=inside, other=1.0)
    odds = tl.where(odds == odds, odds, float("inf"))
    logit = -tl.minimum(tl.maximum(tl.log(odds), -SURE), SURE)
    slope = tl.load(RISE + pick, mask=inside, other=0.0) * logit
    slope += tl.load(BELOW + pick, mask=inside, other=0.0) * tl.minimum(logit, 0.0)
    weighs = tl.where(live, tl.exp(slope), 0.0)
    # How likely each set is reached, in one step more every time.
    held = tl.arange(0, PADDED_SETS)
    known = (held < SETS)[:, None] & inside[None, :]
    cell = held[:, None] * PICKS + pick[None, :]
    weight = tl.load(WEIGHT + cell, mask=known, other=0.0)
    gain = tl.load(GAIN + cell, mask=known, other=0.0) * weighs[None, :]
    before = tl.load(BEFORE + cell, mask=known, other=0).to(tl.int32)
    before = tl.reshape(before, (PADDED_SETS * PADDED_PICKS,))
    total = 1.0 + tl.sum(weight * weighs[None, :], axis=1)
    size = tl.load(SIZE + held, mask=held < SETS, other=PICKS + 1)
    empty = tl.where(size == 0, 1.0, 0.0)
    likely = empty
    for _ in tl.static_range(DRAFTS):
        come = tl.gather(tl.div_rn(likely, total), before, 0)
        likely = empty + tl.sum(tl.reshape(come, (PADDED_SETS, PADDED_PICKS)) * gain, axis=1)
    likely = tl.where(held < SETS, tl.where(size > useful, 0.0, likely), -1.0)
    if AHEAD:  # the set of all drafts stands last
        whole = tl.load(WHOLE + useful)
        likely = tl.where((held == whole) & (useful > 0), 0.0, likely)
        tl.store(CHOSEN + lane * STATES + STATES - 1, whole)
        tl.store(READ + lane * STATES + STATES - 1, useful > 0)
    # The likeliest of them, one after the other; a static range would take long to compile.
    for state in range(STATES - AHEAD):
        best = tl.max(likely, axis=0)
        place = tl.min(tl.where(likely == best, held, PADDED_SETS), axis=0)
        tl.store(CHOSEN + lane * STATES + state, tl.where(best > 0.0, place, 0).to(tl.int64))
        tl.store(READ + lane * STATES + state, best > 0.0)
        likely = tl.where(held == place, -1.0, likely)


def branch_states(
    block: Tensor, positions: Tensor, tokens: Tensor, sets: Tensor, holding: Tensor
) -> Tensor:
    """See `mrp.decoding.modes.branches`."""
    (n, size), count, picks = block.shape, sets.shape[1], positions.shape[1]
    states = numbers_like(block, n, count, size)
    _branch_states_kernel[(n,)](
        *(block, positions.contiguous(), tokens.contiguous(), sets.contiguous(), holding, states),
        block.stride(0),
        PICKS=picks,
        COUNT=count,
        **state_options(count, size),
    )
    return states


@triton.jit
def _branch_states_kernel(
    BLOCK,
    POSITIONS,
    TOKENS,
    SETS,
    HOLDING,
    STATES,
    stride,
    PICKS: tl.constexpr,
    COUNT: tl.constexpr,
    SIZE: tl.constexpr,
    PADDED: tl.constexpr,
    PADDED_STATES: tl.constexpr,
):
    lane, at = tl.program_id(0).to(tl.int64), tl.arange(0, PADDED)
    state = tl.arange(0, PADDED_STATES)
    block = tl.load(BLOCK + lane * stride + at, mask=at < SIZE, other=0)
    made = block[None, :] + tl.zeros([PADDED_STATES, PADDED], tl.int64)
    held = tl.load(SETS + lane * COUNT + state, mask=state < COUNT, other=0)
    for pick in tl.static_range(PICKS):
        here = at == tl.load(POSITIONS + lane * PICKS + pick)
        holds = tl.load(HOLDING + held * PICKS + pick) != 0
        token = tl.load(TOKENS + lane * PICKS + pick)
        made = tl.where(holds[:, None] & here[None, :], token, made)
    out = STATES + (lane * COUNT + state[:, None]) * SIZE + at[None, :]
    tl.store(out, made, mask=(state < COUNT)[:, None] & (at < SIZE)[None, :])


def walk_sets(
    sets: Tensor,
    read: Tensor,
    picks: tuple[Tensor, Tensor],
    own: tuple[Tensor, Tensor],
    onto: Tensor,
    size: Tensor,
) -> tuple[Tensor, Tensor]:
    """See `mrp.decoding.modes.branches`."""
    (n, count), many = sets.shape, picks[0].shape[1]
    at, held = numbers_like(sets, n), numbers_like(sets, n)
    _walk_sets_kernel[(n,)](
        *(sets.contiguous(), read.contiguous()),
        *(each.contiguous() for each in (*picks, *own)),
        *(onto, size, at, held),
        STEPS=many,  # enough to arrive anywhere
        PICKS=many,
        COUNT=count,
        PADDED_PICKS=padded(many),
        PADDED=padded(count),
        num_warps=1,
    )
    return at, held


@triton.jit
def _walk_sets_kernel(
    SETS,
    READ,
    POSITIONS,
    TOKENS,
    OWN_POSITIONS,
    OWN_TOKENS,
    ONTO,
    SIZE,
    AT,
    HELD,
    STEPS: tl.constexpr,
    PICKS: tl.constexpr,
    COUNT: tl.constexpr,
    PADDED_PICKS: tl.constexpr,
    PADDED: tl.constexpr,
):
    lane, pick, place = (
        tl.program_id(0).to(tl.int64),
        tl.arange(0, PADDED_PICKS),
        tl.arange(0, PADDED),
    )
    mine, inside = lane * PICKS + pick, pick < PICKS
    positions = tl.load(POSITIONS + mine, mask=inside, other=-1)
    tokens = tl.load(TOKENS + mine, mask=inside, other=-1)
    there = lane * COUNT + place
    sets = tl.load(SETS + there, mask=place < COUNT, other=-1)
    read = tl.load(READ + there, mask=place < COUNT, other=0) != 0
    at = lane * 0
    for _ in tl.static_range(STEPS):
        own_position = tl.load(OWN_POSITIONS + lane * COUNT + at)
        own_token = tl.load(OWN_TOKENS + lane * COUNT + at)
        agrees = inside & (positions == own_position) & (tokens == own_token)
        which = tl.min(tl.where(agrees, pick, PICKS), axis=0)
        after = tl.load(ONTO + tl.load(SETS + lane * COUNT + at) * (PICKS + 1) + which)
        follows = tl.min(tl.where(read & (sets == after), place, PADDED), axis=0).to(tl.int64)
        at = tl.where(follows < COUNT, follows, at)
    tl.store(AT + lane, at)
    tl.store(HELD + lane, tl.load(SIZE + tl.load(SETS + lane * COUNT + at)))
