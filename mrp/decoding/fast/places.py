# mypy: disable-error-code="no-untyped-def,untyped-decorator"
"""The rules about places in a block as kernels; see `mrp.decoding.fast.lanes`."""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from mrp.decoding.fast.lanes import numbers_like, padded, warps


@triton.jit
def _read(ODDS, row, SIZE: tl.constexpr, PADDED: tl.constexpr):
    """A row of odds, what is beyond it or no number being infinite."""
    at = tl.arange(0, PADDED)
    odds = tl.load(ODDS + row * SIZE + at, mask=at < SIZE, other=float("inf"))
    return tl.where(odds == odds, odds, float("inf"))


@triton.jit
def _first(odds, PADDED: tl.constexpr):
    """Whether a place is that of the lowest odds, the leftmost one."""
    at = tl.arange(0, PADDED)
    return at == tl.min(tl.where(odds == tl.min(odds, axis=0), at, PADDED), axis=0)


@triton.jit
def _or_first(sure, odds, PADDED: tl.constexpr):
    """The places that are `sure`; where none is, that of the lowest odds, if finite."""
    none = tl.max(sure.to(tl.int32), axis=0) == 0
    return sure | (_first(odds, PADDED) & (odds < float("inf")) & none)


@triton.jit
def _before(odds, PADDED: tl.constexpr):
    """Whether another place (second dimension) comes before a place."""
    at = tl.arange(0, PADDED)
    others, there = odds[None, :], at[None, :]
    return (others < odds[:, None]) | ((others == odds[:, None]) & (there < at[:, None]))


@triton.jit
def _rank(odds, PADDED: tl.constexpr):
    return tl.sum(_before(odds, PADDED).to(tl.int32), axis=1)


def row_options(like: Tensor) -> dict[str, int]:
    """Options of a kernel with a program for every row of positions, each compared with each."""
    size = like.shape[-1]
    return {"SIZE": size, "PADDED": padded(size), "num_warps": warps(padded(size) ** 2)}


def first_place(odds: Tensor) -> Tensor:
    """See `mrp.decoding.picks`."""
    out = torch.empty(odds.shape, dtype=torch.bool, device=odds.device)
    _first_place_kernel[(odds[..., 0].numel(),)](odds.contiguous(), out, **row_options(odds))
    return out


@triton.jit
def _first_place_kernel(ODDS, OUT, SIZE: tl.constexpr, PADDED: tl.constexpr):
    row, at = tl.program_id(0).to(tl.int64), tl.arange(0, PADDED)
    odds = _read(ODDS, row, SIZE, PADDED)
    first = _first(odds, PADDED) & (odds < float("inf"))
    tl.store(OUT + row * SIZE + at, first, mask=at < SIZE)


def first_places(odds: Tensor, tokens: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """See `mrp.decoding.picks`."""
    shape = (*odds.shape[:-1], count)
    places, there = numbers_like(odds, *shape), numbers_like(odds, *shape)
    _first_places_kernel[(odds[..., 0].numel(),)](
        *(odds.contiguous(), tokens.contiguous(), places, there), COUNT=count, **row_options(odds)
    )
    return places, there


@triton.jit
def _first_places_kernel(
    ODDS, TOKENS, PLACES, THERE, COUNT: tl.constexpr, SIZE: tl.constexpr, PADDED: tl.constexpr
):
    row, at = tl.program_id(0).to(tl.int64), tl.arange(0, PADDED)
    tokens = tl.load(TOKENS + row * SIZE + at, mask=at < SIZE, other=0)
    rank = _rank(_read(ODDS, row, SIZE, PADDED), PADDED)
    wanted = (at < SIZE) & (rank < COUNT)
    tl.store(PLACES + row * COUNT + rank, at.to(tl.int64), mask=wanted)
    tl.store(THERE + row * COUNT + rank, tokens, mask=wanted)


def first_among(odds: Tensor, count: Tensor) -> Tensor:
    """See `mrp.decoding.picks`."""
    out = torch.empty(odds.shape, dtype=torch.bool, device=odds.device)
    _first_among_kernel[(odds[..., 0].numel(),)](
        *(odds.contiguous(), count.expand(odds.shape[:-1]).contiguous(), out), **row_options(odds)
    )
    return out


@triton.jit
def _first_among_kernel(ODDS, MOST, OUT, SIZE: tl.constexpr, PADDED: tl.constexpr):
    row, at = tl.program_id(0).to(tl.int64), tl.arange(0, PADDED)
    odds = _read(ODDS, row, SIZE, PADDED)
    among = (_rank(odds, PADDED) < tl.load(MOST + row)) & (odds < float("inf"))
    tl.store(OUT + row * SIZE + at, among, mask=at < SIZE)


def ranks(odds: Tensor) -> Tensor:
    """See `mrp.decoding.picks`."""
    out = numbers_like(odds, *odds.shape)
    _ranks_kernel[(odds[..., 0].numel(),)](odds.contiguous(), out, **row_options(odds))
    return out


@triton.jit
def _ranks_kernel(ODDS, OUT, SIZE: tl.constexpr, PADDED: tl.constexpr):
    row, at = tl.program_id(0).to(tl.int64), tl.arange(0, PADDED)
    rank = _rank(_read(ODDS, row, SIZE, PADDED), PADDED)
    tl.store(OUT + row * SIZE + at, rank.to(tl.int64), mask=at < SIZE)


def above_odds(odds: Tensor, tau: float) -> Tensor:
    """See `mrp.decoding.modes.dynamic`."""
    out = torch.empty(odds.shape, dtype=torch.bool, device=odds.device)
    _above_odds_kernel[(odds[..., 0].numel(),)](
        odds.contiguous(), out, float(tau), **row_options(odds)
    )
    return out


@triton.jit
def _above_odds_kernel(ODDS, OUT, tau, SIZE: tl.constexpr, PADDED: tl.constexpr):
    row, at = tl.program_id(0).to(tl.int64), tl.arange(0, PADDED)
    odds = _read(ODDS, row, SIZE, PADDED)
    sure = tl.div_rn(1.0, 1.0 + odds) > tau
    tl.store(OUT + row * SIZE + at, _or_first(sure, odds, PADDED), mask=at < SIZE)


def joint(odds: Tensor, factor: float) -> Tensor:
    """See `mrp.decoding.modes.factor`."""
    out = numbers_like(odds, len(odds))
    _joint_kernel[(len(odds),)](odds.contiguous(), out, float(factor), **row_options(odds))
    return out


@triton.jit
def _joint_kernel(ODDS, OUT, factor, SIZE: tl.constexpr, PADDED: tl.constexpr):
    row, at = tl.program_id(0).to(tl.int64), tl.arange(0, PADDED)
    odds = _read(ODDS, row, SIZE, PADDED)
    doubt = tl.div_rn(1.0, 1.0 + tl.div_rn(1.0, odds))
    passes = (at < SIZE) & ((_rank(odds, PADDED) + 2).to(tl.float32) * doubt < factor)
    tl.store(OUT + row, tl.maximum(tl.sum(passes.to(tl.int64), axis=0), 1))


def within(odds: Tensor, entropy: Tensor, gamma: float) -> Tensor:
    """See `mrp.decoding.modes.entropy`."""
    out = numbers_like(odds, len(odds))
    _within_kernel[(len(odds),)](
        *(odds.contiguous(), entropy.contiguous(), out), float(gamma), **row_options(odds)
    )
    return out


@triton.jit
def _within_kernel(ODDS, ENTROPY, OUT, gamma, SIZE: tl.constexpr, PADDED: tl.constexpr):
    row, at = tl.program_id(0).to(tl.int64), tl.arange(0, PADDED)
    odds = _read(ODDS, row, SIZE, PADDED)
    entropy = tl.load(ENTROPY + row * SIZE + at, mask=at < SIZE, other=0.0)
    so_far = _before(odds, PADDED) | (at[None, :] == at[:, None])
    total = tl.sum(tl.where(so_far, entropy[None, :], 0.0), axis=1)
    largest = tl.max(tl.where(so_far, entropy[None, :], float("-inf")), axis=1)
    passes = (at < SIZE) & (total - largest <= gamma)
    tl.store(OUT + row, tl.maximum(tl.sum(passes.to(tl.int64), axis=0), 1))


def halves(fresh: Tensor, rank: Tensor) -> Tensor:
    """See `mrp.decoding.modes.remask`."""
    n, size = fresh.shape
    out = torch.empty((n, 2, size), dtype=torch.bool, device=fresh.device)
    _halves_kernel[(n,)](fresh.contiguous(), rank.contiguous(), out, **row_options(fresh))
    return out


@triton.jit
def _halves_kernel(FRESH, RANK, OUT, SIZE: tl.constexpr, PADDED: tl.constexpr):
    row, at = tl.program_id(0).to(tl.int64), tl.arange(0, PADDED)
    inside = at < SIZE
    fresh = tl.load(FRESH + row * SIZE + at, mask=inside, other=0) != 0
    second = tl.load(RANK + row * SIZE + at, mask=inside, other=0) % 2 == 1
    tl.store(OUT + row * 2 * SIZE + at, fresh & (second == 0), mask=inside)
    tl.store(OUT + (row * 2 + 1) * SIZE + at, fresh & second, mask=inside)


def veto(fresh: Tensor, doubt: Tensor, limit: float) -> Tensor:
    """See `mrp.decoding.modes.remask`."""
    out = torch.empty(fresh.shape, dtype=torch.bool, device=fresh.device)
    _veto_kernel[(len(fresh),)](
        *(fresh.contiguous(), doubt.contiguous(), out), float(limit), **row_options(fresh)
    )
    return out


@triton.jit
def _veto_kernel(FRESH, DOUBT, OUT, limit, SIZE: tl.constexpr, PADDED: tl.constexpr):
    row, at = tl.program_id(0).to(tl.int64), tl.arange(0, PADDED)
    fresh = tl.load(FRESH + row * SIZE + at, mask=at < SIZE, other=0) != 0
    doubt = tl.load(DOUBT + row * SIZE + at, mask=at < SIZE, other=0.0)
    vetoed = fresh & (doubt > limit)
    everything = tl.sum((fresh & (vetoed == 0)).to(tl.int32), axis=0) == 0
    least = _first(tl.where(fresh, doubt, float("inf")), PADDED)
    tl.store(OUT + row * SIZE + at, vetoed & ((least & everything) == 0), mask=at < SIZE)


def ready(odds: Tensor, stable: Tensor, tau: float) -> Tensor:
    """See `mrp.decoding.modes.klass`."""
    out = torch.empty(odds.shape, dtype=torch.bool, device=odds.device)
    _ready_kernel[(len(odds),)](
        *(odds.contiguous(), stable.contiguous(), out), float(tau), **row_options(odds)
    )
    return out


@triton.jit
def _ready_kernel(ODDS, STABLE, OUT, tau, SIZE: tl.constexpr, PADDED: tl.constexpr):
    row, at = tl.program_id(0).to(tl.int64), tl.arange(0, PADDED)
    odds = _read(ODDS, row, SIZE, PADDED)
    stable = tl.load(STABLE + row * SIZE + at, mask=at < SIZE, other=0) != 0
    sure = stable & (tl.div_rn(1.0, 1.0 + odds) > tau)
    tl.store(OUT + row * SIZE + at, _or_first(sure, odds, PADDED), mask=at < SIZE)


def wide(odds: Tensor, tau: float) -> Tensor:
    """See `mrp.decoding.modes.wino`."""
    out = torch.empty(odds.shape, dtype=torch.bool, device=odds.device)
    _wide_kernel[(len(odds),)](odds.contiguous(), out, float(tau), **row_options(odds))
    return out


@triton.jit
def _wide_kernel(ODDS, OUT, tau, SIZE: tl.constexpr, PADDED: tl.constexpr):
    row, at = tl.program_id(0).to(tl.int64), tl.arange(0, PADDED)
    odds = _read(ODDS, row, SIZE, PADDED)
    masked = odds < float("inf")
    most = (tl.sum(masked.to(tl.int32), axis=0).to(tl.float32) * 0.7).to(tl.int32)
    among = (_rank(odds, PADDED) < tl.minimum(tl.maximum(most, 5), 20)) & masked
    sure = tl.div_rn(1.0, 1.0 + odds) > tau
    tl.store(OUT + row * SIZE + at, _or_first(sure, odds, PADDED) & among, mask=at < SIZE)


def narrow(trust: Tensor, age: Tensor, new: Tensor, back: float) -> Tensor:
    """See `mrp.decoding.modes.wino`."""
    out = torch.empty(trust.shape, dtype=torch.bool, device=trust.device)
    _narrow_kernel[(len(trust),)](
        *(trust.contiguous(), age.contiguous(), new.contiguous(), out),
        float(back),
        **row_options(trust),
    )
    return out


@triton.jit
def _narrow_kernel(TRUST, AGE, NEW, OUT, back, SIZE: tl.constexpr, PADDED: tl.constexpr):
    row, at = tl.program_id(0).to(tl.int64), tl.arange(0, PADDED)
    age = tl.load(AGE + row * SIZE + at, mask=at < SIZE, other=0)
    new = tl.load(NEW + row * SIZE + at, mask=at < SIZE, other=0) != 0
    trust = tl.where(age == 0, float("inf"), _read(TRUST, row, SIZE, PADDED))
    before = tl.sum((age == 1).to(tl.int32), axis=0)
    several = tl.sum(new.to(tl.int32), axis=0) > 1
    doubtful = (trust < back) & (_rank(trust, PADDED) < before - 1) & several
    tl.store(OUT + row * SIZE + at, doubtful, mask=at < SIZE)
