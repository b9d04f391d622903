# mypy: disable-error-code="no-untyped-def,untyped-decorator"
"""The rules of `mrp.decoding.fused` as kernels: same names, same arguments, same results.

Here those about lists of blocks and what lanes hold; `mrp.decoding.fast.places` and `drafts` have
the others. What each one computes is written where its rule is. A program has one lane, or one
row of a block's positions, whole: blocks, drafts and states are few enough for that. Sizes are
rounded up to powers of two, as Triton wants them, and what is beyond is masked out.

Unlike the forwards' kernels these neither start early nor let others: the next one reads their
result first thing. A NaN among the odds counts as infinite here; the engine stops at it either way.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from mrp.decoding.blocks import Blocks
from mrp.decoding.lanes import ACCEPTED, BONUS, DRAFT, PROPOSED, TALLY, VERIFY
from mrp.decoding.sample import SOURCES

COUNTERS, ALL_SOURCES = len(TALLY), len(SOURCES)
CHUNK = 1024  # numbers of a copy's program


def padded(size: int) -> int:
    """The power of two that a program computes so many as."""
    return 1 << (max(1, size) - 1).bit_length()


def warps(numbers: int) -> int:
    """Warps of a program that holds so many numbers: 32 a thread, as far as 8 warps go."""
    return min(8, max(1, numbers // 1024))


def lane_options(size: int) -> dict[str, int]:
    """Options of a kernel whose program has a lane's block of so many positions."""
    return {"SIZE": size, "PADDED": padded(size), "num_warps": 1}


def state_options(count: int, size: int) -> dict[str, int]:
    """Options of one whose program has `count` states of a lane's block."""
    shape = {"SIZE": size, "PADDED": padded(size), "PADDED_STATES": padded(count)}
    return {**shape, "num_warps": warps(padded(count) * padded(size))}


def numbers_like(tensor: Tensor, *shape: int) -> Tensor:
    """Whole numbers to be written, where the tensor is."""
    return torch.empty(shape, dtype=torch.int64, device=tensor.device)


# Lists of blocks ---------------------------------------------------------------------------------


def places_of_states(
    row: Tensor, start: Tensor, count: int, block: int
) -> tuple[Tensor, Tensor, Tensor]:
    """See `mrp.decoding.blocks`."""
    rows, starts, slots = (numbers_like(row, len(row) * count) for _ in range(3))
    _places_of_states_kernel[(len(row),)](
        *(row.contiguous(), start.contiguous(), rows, starts, slots),
        COUNT=count,
        SIZE=block,
        PADDED=padded(count),
        num_warps=1,
    )
    return rows, starts, slots


@triton.jit
def _places_of_states_kernel(
    ROW, START, ROWS, STARTS, SLOTS, COUNT: tl.constexpr, SIZE: tl.constexpr, PADDED: tl.constexpr
):
    lane, state = tl.program_id(0).to(tl.int64), tl.arange(0, PADDED)
    inside, out = state < COUNT, lane * COUNT + state
    start, nothing = tl.load(START + lane), tl.zeros([PADDED], tl.int64)
    tl.store(ROWS + out, tl.load(ROW + lane) + nothing, mask=inside)
    tl.store(STARTS + out, start + nothing, mask=inside)
    tl.store(SLOTS + out, start + SIZE * state, mask=inside)


def states_and_next(states: Tensor, row: Tensor, start: Tensor, mask_id: int) -> Blocks:
    """See `mrp.decoding.blocks`."""
    n, count, size = states.shape
    ids = numbers_like(states, n * count + n, size)
    fields = [numbers_like(states, n * count + n) for _ in range(4)]
    _states_and_next_kernel[(n, count + 1)](
        *(states.contiguous(), row.contiguous(), start.contiguous(), ids, *fields),
        mask_id,
        n,
        COUNT=count,
        **lane_options(size),
    )
    return Blocks(ids, *fields)


@triton.jit(do_not_specialize=["mask_id", "n"])
def _states_and_next_kernel(
    STATES,
    ROW,
    START,
    IDS,
    ROWS,
    POSITION,
    SLOT,
    VISIBLE,
    mask_id,
    n,
    COUNT: tl.constexpr,
    SIZE: tl.constexpr,
    PADDED: tl.constexpr,
):
    lane, state = tl.program_id(0).to(tl.int64), tl.program_id(1)
    at = tl.arange(0, PADDED)
    inside, following = at < SIZE, state == COUNT
    out = tl.where(following, n * COUNT + lane, lane * COUNT + state)
    known = tl.load(
        STATES + (lane * COUNT + state) * SIZE + at, mask=inside & (state < COUNT), other=0
    )
    tl.store(IDS + out * SIZE + at, tl.where(following, mask_id, known), mask=inside)
    start = tl.load(START + lane)
    position = tl.where(following, start + SIZE, start)
    far = tl.where(following, COUNT * SIZE, (COUNT - 1 - state) * SIZE)
    tl.store(ROWS + out, tl.load(ROW + lane))
    tl.store(POSITION + out, position)
    tl.store(SLOT + out, start + far)
    tl.store(VISIBLE + out, position)


def with_shadows(ids: Tensor, shadows: Tensor, row: Tensor, start: Tensor) -> Blocks:
    """See `mrp.decoding.blocks`."""
    n, size = ids.shape
    out = numbers_like(ids, 2 * n, size)
    fields = [numbers_like(ids, 2 * n) for _ in range(3)]
    shadow = torch.empty(2 * n, dtype=torch.bool, device=ids.device)
    _with_shadows_kernel[(n, 2)](
        *(ids, shadows.contiguous(), row.contiguous(), start.contiguous()),
        *(out, *fields, shadow, ids.stride(0)),
        **lane_options(size),
    )
    rows, position, slot = fields
    return Blocks(out, rows, position, slot, slot, shadow)


@triton.jit
def _with_shadows_kernel(
    IDS,
    SHADOWS,
    ROW,
    START,
    OUT,
    ROWS,
    POSITION,
    SLOT,
    SHADOW,
    stride,
    SIZE: tl.constexpr,
    PADDED: tl.constexpr,
):
    lane, second = tl.program_id(0).to(tl.int64), tl.program_id(1)
    at, out = tl.arange(0, PADDED), lane * 2 + second
    ids = tl.load(IDS + lane * stride + at, mask=(at < SIZE) & (second == 0), other=0)
    shadow = tl.load(SHADOWS + lane * SIZE + at, mask=(at < SIZE) & (second == 1), other=0)
    tl.store(OUT + out * SIZE + at, ids + shadow, mask=at < SIZE)
    start = tl.load(START + lane)
    tl.store(ROWS + out, tl.load(ROW + lane))
    tl.store(POSITION + out, start)
    tl.store(SLOT + out, start + second * SIZE)
    tl.store(SHADOW + out, second == 1)


# What lanes hold ---------------------------------------------------------------------------------


def ages(ids: Tensor, board: Tensor, tally: Tensor, mask_id: int) -> Tensor:
    """See `mrp.decoding.lanes`."""
    n, size = ids.shape
    out = numbers_like(ids, n, size)
    _ages_kernel[(n,)](
        *(ids, board, tally, out),
        *(ids.stride(0), mask_id),
        SOURCES=ALL_SOURCES,
        COUNTERS=COUNTERS,
        **lane_options(size),
    )
    return out


@triton.jit(do_not_specialize=["mask_id"])
def _ages_kernel(
    IDS,
    BOARD,
    TALLY,
    OUT,
    stride,
    mask_id,
    SOURCES: tl.constexpr,
    COUNTERS: tl.constexpr,
    SIZE: tl.constexpr,
    PADDED: tl.constexpr,
):
    lane, at = tl.program_id(0).to(tl.int64), tl.arange(0, PADDED)
    ids = tl.load(IDS + lane * stride + at, mask=at < SIZE, other=0)
    stamp = tl.load(BOARD + lane * 3 * SIZE + SIZE + at, mask=at < SIZE, other=0)
    since = tl.load(TALLY + lane * COUNTERS) - stamp // SOURCES
    none = (stamp == 0) | (ids == mask_id)
    tl.store(OUT + lane * SIZE + at, tl.where(none, 0, since), mask=at < SIZE)


def write(board: Tensor, tally: Tensor, where: Tensor, tokens: Tensor, source: int) -> None:
    """See `mrp.decoding.lanes`."""
    n, size = where.shape
    _write_kernel[(n,)](
        *(board, tally, where.contiguous(), tokens.contiguous(), source),
        SOURCES=ALL_SOURCES,
        COUNTERS=COUNTERS,
        **lane_options(size),
    )


@triton.jit(do_not_specialize=["source"])
def _write_kernel(
    BOARD,
    TALLY,
    WHERE,
    TOKENS,
    source,
    SOURCES: tl.constexpr,
    COUNTERS: tl.constexpr,
    SIZE: tl.constexpr,
    PADDED: tl.constexpr,
):
    lane, at = tl.program_id(0).to(tl.int64), tl.arange(0, PADDED)
    inside, read = at < SIZE, lane * SIZE + at
    where = inside & (tl.load(WHERE + read, mask=inside, other=0) != 0)
    stamp = tl.load(TALLY + lane * COUNTERS) * SOURCES + source + tl.zeros([PADDED], tl.int64)
    board = BOARD + lane * 3 * SIZE + at
    tl.store(board, tl.load(TOKENS + read, mask=inside, other=0), mask=where)
    tl.store(board + SIZE, stamp, mask=where)


def write_verified(
    board: Tensor, tally: Tensor, fresh: Tensor, drafted: Tensor, picked: Tensor
) -> None:
    """See `mrp.decoding.lanes`."""
    n, size = picked.shape
    _write_verified_kernel[(n,)](
        *(board, tally, fresh.contiguous(), drafted.contiguous(), picked.contiguous()),
        DRAFT=DRAFT,
        BONUS=BONUS,
        SOURCES=ALL_SOURCES,
        COUNTERS=COUNTERS,
        **lane_options(size),
    )


@triton.jit
def _write_verified_kernel(
    BOARD,
    TALLY,
    FRESH,
    DRAFTED,
    PICKED,
    DRAFT: tl.constexpr,
    BONUS: tl.constexpr,
    SOURCES: tl.constexpr,
    COUNTERS: tl.constexpr,
    SIZE: tl.constexpr,
    PADDED: tl.constexpr,
):
    lane, at = tl.program_id(0).to(tl.int64), tl.arange(0, PADDED)
    inside, read = at < SIZE, lane * SIZE + at
    board = BOARD + lane * 3 * SIZE + at
    block = tl.load(board, mask=inside, other=0)
    drafted = tl.load(DRAFTED + read, mask=inside, other=0)
    picked = tl.load(PICKED + read, mask=inside, other=0)
    own = tl.where(tl.load(FRESH + lane) != 0, 0, BONUS)
    stamp = tl.load(TALLY + lane * COUNTERS) * SOURCES
    anew = inside & (picked != block)
    tl.store(board, picked, mask=anew)
    tl.store(board + SIZE, stamp + tl.where(drafted != block, DRAFT, own), mask=anew)


def mask_again(board: Tensor, where: Tensor, mask_id: int) -> None:
    """See `mrp.decoding.lanes`."""
    n, size = where.shape
    _mask_again_kernel[(n,)](*(board, where.contiguous(), mask_id), **lane_options(size))


@triton.jit(do_not_specialize=["mask_id"])
def _mask_again_kernel(BOARD, WHERE, mask_id, SIZE: tl.constexpr, PADDED: tl.constexpr):
    lane, at = tl.program_id(0).to(tl.int64), tl.arange(0, PADDED)
    where = (tl.load(WHERE + lane * SIZE + at, mask=at < SIZE, other=0) != 0) & (at < SIZE)
    board = BOARD + lane * 3 * SIZE + at
    tl.store(board, mask_id + tl.zeros([PADDED], tl.int64), mask=where)
    often = board + 2 * SIZE
    tl.store(often, tl.load(often, mask=where, other=0) + 1, mask=where)


def advanced(
    before: Tensor, output: Tensor, where: Tensor | None, scale: float, replaces: bool
) -> Tensor:
    """See `mrp.decoding.session`."""
    numbers = before[0].numel()
    after = torch.empty(before.shape, dtype=before.dtype, device=before.device)
    _advanced_kernel[(len(before), triton.cdiv(numbers, CHUNK))](
        *(before.contiguous(), output.contiguous()),
        before if where is None else where.contiguous(),
        *(after, numbers, float(scale)),
        EVERYWHERE=where is None,
        SCALED=scale != 1.0,
        REPLACES=replaces,
        CHUNK=CHUNK,
        num_warps=4,
        enable_fp_fusion=False,  # the rule rounds the product before it adds
    )
    return after


@triton.jit
def _advanced_kernel(
    BEFORE,
    OUTPUT,
    WHERE,
    AFTER,
    numbers,
    scale,
    EVERYWHERE: tl.constexpr,
    SCALED: tl.constexpr,
    REPLACES: tl.constexpr,
    CHUNK: tl.constexpr,
):
    lane = tl.program_id(0).to(tl.int64)
    each = tl.program_id(1) * CHUNK + tl.arange(0, CHUNK)
    inside, at = each < numbers, lane * numbers + each
    before = tl.load(BEFORE + at, mask=inside)
    after = tl.load(OUTPUT + at, mask=inside)
    if SCALED:  # rounded as the rule rounds
        after = (after.to(tl.float32) * scale).to(before.dtype)
    if not REPLACES:
        after = (before.to(tl.float32) + after.to(tl.float32)).to(before.dtype)
    if not EVERYWHERE:
        after = tl.where(tl.load(WHERE + lane) != 0, after, before)
    tl.store(AFTER + at, after, mask=inside)


def keep_state(hidden: Tensor, at: Tensor, kept: Tensor, fresh: Tensor) -> None:
    """See `mrp.decoding.lanes`."""
    n, states = hidden.shape[:2]
    numbers = hidden[0, 0].numel()
    _keep_state_kernel[(n, triton.cdiv(numbers, CHUNK))](
        *(hidden.contiguous(), at.contiguous(), kept, fresh),
        numbers,
        STATES=states,
        CHUNK=CHUNK,
        num_warps=4,
    )


@triton.jit
def _keep_state_kernel(HIDDEN, AT, KEPT, FRESH, numbers, STATES: tl.constexpr, CHUNK: tl.constexpr):
    lane = tl.program_id(0).to(tl.int64)
    each = tl.program_id(1) * CHUNK + tl.arange(0, CHUNK)
    state = lane * STATES + tl.load(AT + lane)
    values = tl.load(HIDDEN + state * numbers + each, mask=each < numbers)
    tl.store(KEPT + lane * numbers + each, values, mask=each < numbers)
    tl.store(FRESH + lane, 0)


def count_verification(tally: Tensor, fresh: Tensor) -> None:
    """See `mrp.decoding.lanes`."""
    _count_verification_kernel[(len(fresh),)](
        *(tally, fresh.contiguous()), VERIFY=VERIFY, COUNTERS=COUNTERS, num_warps=1
    )


@triton.jit
def _count_verification_kernel(TALLY, FRESH, VERIFY: tl.constexpr, COUNTERS: tl.constexpr):
    lane = tl.program_id(0).to(tl.int64)
    mine = TALLY + lane * COUNTERS
    verified = tl.load(FRESH + lane) == 0
    tl.store(mine, tl.load(mine) + 1)
    tl.store(mine + 1, tl.load(mine + 1) + 1)
    tl.store(mine + VERIFY, tl.load(mine + VERIFY) + verified.to(tl.int64))


def count_drafts(tally: Tensor, proposed: Tensor, accepted: Tensor) -> None:
    """See `mrp.decoding.lanes`."""
    _count_drafts_kernel[(len(proposed),)](
        *(tally, proposed.contiguous(), accepted.contiguous()),
        PROPOSED=PROPOSED,
        ACCEPTED=ACCEPTED,
        COUNTERS=COUNTERS,
        num_warps=1,
    )


@triton.jit
def _count_drafts_kernel(
    TALLY,
    MADE,
    TAKEN,
    PROPOSED: tl.constexpr,
    ACCEPTED: tl.constexpr,
    COUNTERS: tl.constexpr,
):
    lane = tl.program_id(0).to(tl.int64)
    proposed = TALLY + lane * COUNTERS + PROPOSED
    accepted = TALLY + lane * COUNTERS + ACCEPTED
    tl.store(proposed, tl.load(proposed) + tl.load(MADE + lane))
    tl.store(accepted, tl.load(accepted) + tl.load(TAKEN + lane))
