"""The invariant fused forwards: right, and the same bit for bit in any company.

They run where those of `test_fast` do; what Triton's interpreter computes shows that they are
right, and only a GPU how they round.
"""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional as F

from mrp.decoding.blocks import Blocks, join, with_shadows
from mrp.decoding.cache import KVCache
from mrp.decoding.forwards import EagerForwards
from mrp.decoding.picks import Picks
from mrp.models import Backbone, Head
from tests.decoding.test_fast import (
    DEVICE,
    DTYPES,
    GPU,
    HALF_ERROR,
    LISTS,
    MASK,
    blocks,
    caches,
    models,
    relative_error,
)

from mrp.decoding.fast import products  # isort: skip
from mrp.decoding.fast.forwards import FastForwards  # isort: skip
from mrp.decoding.fast.invariant import invariant_product  # isort: skip
from mrp.decoding.fast.norms import Normed  # isort: skip
from mrp.decoding.fast.products import gated_product, product  # isort: skip

pytestmark = pytest.mark.gpu if GPU else []
BLOCK = 16
COMPANY = (3, 70, 600)  # blocks beside


def limit(dtype: torch.dtype) -> float:
    """How far from the plain forwards rounding may lead."""
    return 2e-5 if dtype == torch.float32 else HALF_ERROR


@pytest.mark.parametrize("dtype", **DTYPES)
@pytest.mark.parametrize(
    ("rows", "size_n", "size_k", "splits"),
    [(1, 128, 128, 1), (70, 130, 100, 1), (65, 96, 200, 3), (16, 24, 32, 1)],
)
@torch.inference_mode()
def test_product_of_any_shape(
    dtype: torch.dtype, rows: int, size_n: int, size_k: int, splits: int
) -> None:
    """The parts add up to x W^T, whole tiles or not; a row alone and in another place is equal."""
    draw = torch.Generator().manual_seed(7)
    x = torch.randn(rows, size_k, generator=draw).to(DEVICE, dtype)
    weight = torch.randn(size_n, size_k, generator=draw).to(DEVICE, dtype)
    parts = invariant_product(x, weight, splits)
    assert (parts.shape, parts.dtype) == ((splits, rows, size_n), torch.float32)
    want = x.double() @ weight.double().T
    assert relative_error(parts.sum(0), want) < 1e-6
    whole = invariant_product(x, weight, dtype=dtype)
    assert whole.dtype == dtype
    assert relative_error(whole[0], want) < (1e-6 if dtype == torch.float32 else 4e-3)
    assert torch.equal(invariant_product(x[-1:], weight, splits)[:, 0], parts[:, -1])
    assert torch.equal(invariant_product(x.flip(0), weight, splits).flip(1), parts)


@pytest.mark.parametrize("fused", [True, False], ids=["gated at once", "gated after"])
@pytest.mark.parametrize("dtype", **DTYPES)
@torch.inference_mode()
def test_the_number_of_parts_does_not_depend_on_the_rows(
    dtype: torch.dtype, fused: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nor does the library take over where there are many, or another kernel where few."""
    monkeypatch.setattr(products, "fuses", lambda size, size_k, processors: fused)
    draw = torch.Generator().manual_seed(8)
    x = torch.randn(700, 512, generator=draw).to(DEVICE, dtype)
    weight = (torch.randn(256, 512, generator=draw) / 20).to(DEVICE, dtype)
    few, many = (product(Normed(x[:n]), weight, 1e-6, invariant=True) for n in (1, 700))
    assert few.shape[0] == many.shape[0] > 1
    assert torch.equal(few[:, 0], many[:, 0])
    gate, up = (x.double() @ weight.double().T).chunk(2, dim=-1)
    gated = gated_product(Normed(x), weight, 1e-6, invariant=True)
    assert relative_error(gated, F.silu(gate) * up) < limit(dtype)
    assert torch.equal(gated_product(Normed(x[5:6]), weight, 1e-6, invariant=True), gated[5:6])


def make(backbone: Backbone, head: Head | None, made: tuple[KVCache, KVCache]) -> FastForwards:
    """The invariant forwards."""
    return FastForwards(backbone, head, *made, invariant=True)


@pytest.mark.parametrize("dtype", **DTYPES)
@torch.inference_mode()
def test_forwards_equal_the_plain_ones(dtype: torch.dtype) -> None:
    """Hidden states, residuals, logits and picks, with a shadow in the list."""
    backbone, head = models(dtype, 130)
    draw = torch.Generator().manual_seed(4)
    ids = torch.randint(3, 130, (1, BLOCK), generator=draw).to(DEVICE)
    place = torch.tensor([3], device=DEVICE), torch.tensor([56], device=DEVICE)
    listed = blocks(*LISTS["store and next"])
    listed = join((listed._replace(ids=listed.ids % 130), with_shadows(ids, ids, *place)))
    plain = EagerForwards(backbone, head, *caches(backbone.config, dtype))
    want_hidden = plain.backbone(listed)
    want_residual = plain.head(listed, want_hidden)
    fast = make(backbone, head, caches(backbone.config, dtype))
    hidden = fast.backbone(listed)
    assert relative_error(hidden, want_hidden) < limit(dtype)
    assert relative_error(fast.head(listed, want_hidden), want_residual) < limit(dtype)
    logits = fast.logits(hidden).float()
    assert torch.isneginf(logits[..., MASK]).all()
    masked = torch.ones(hidden.shape[:-1], dtype=torch.bool, device=DEVICE)
    picked = fast.pick(hidden, masked)
    assert torch.equal(picked.tokens, logits.argmax(dim=-1))
    want_odds = logits.logsumexp(-1) - logits.amax(-1)
    torch.testing.assert_close((1 + picked.odds).log(), want_odds, rtol=1e-3, atol=1e-4)


def crowd(count: int) -> Blocks:
    """`count` blocks behind prefixes in all rows, their slots apart from those of row 0's."""
    row = torch.arange(count, device=DEVICE) % 3 + 1
    slot = 16 * (torch.arange(count, device=DEVICE) % 11)
    ids = torch.randint(3, 640, (count, BLOCK), generator=torch.Generator().manual_seed(9))
    return Blocks(ids.to(DEVICE), row, slot, slot, slot)


@pytest.mark.skipif(not GPU, reason="says something of a GPU only, and is slow elsewhere")
@pytest.mark.parametrize("dtype", **DTYPES)
@pytest.mark.parametrize("company", COMPANY)
@torch.inference_mode()
def test_a_block_is_the_same_in_any_company(dtype: torch.dtype, company: int) -> None:
    """Backbone, head and picks bit for bit: alone, beside others, in a longer cache, shadowed."""
    backbone, head = models(dtype)
    alone = blocks((0, 96, 96, 96))

    def run(
        listed: Blocks, made: tuple[KVCache, KVCache]
    ) -> tuple[torch.Tensor, torch.Tensor, Picks]:
        fast = make(backbone, head, made)
        hidden = fast.backbone(listed)
        residual = fast.head(listed, hidden)
        masked = torch.ones(hidden.shape[:-1], dtype=torch.bool, device=DEVICE)
        return hidden, residual, fast.pick(hidden + residual, masked)

    def longer() -> tuple[KVCache, KVCache]:
        made = caches(backbone.config, dtype)
        for cache in made:
            for tensors in (cache.keys, cache.values):
                tensors[:] = [torch.cat((t, t), dim=1) for t in tensors]
        return made

    hidden, residual, picks = run(alone, caches(backbone.config, dtype))
    others = crowd(company)
    shadows = with_shadows(others.ids[:1], others.ids[:1], others.row[:1], others.slot[:1] + 160)
    cases = (
        (join((alone, others)), 0, caches(backbone.config, dtype)),
        (join((others, alone)), company, caches(backbone.config, dtype)),
        (join((others.take(slice(1, None)), alone)), company - 1, longer()),
        (join((shadows, alone)), 2, caches(backbone.config, dtype)),
    )
    for listed, place, made in cases:
        got_hidden, got_residual, got = run(listed, made)
        assert torch.equal(got_hidden[place], hidden[0])
        assert torch.equal(got_residual[place], residual[0])
        assert torch.equal(got.tokens[place], picks.tokens[0])
        assert torch.equal(got.odds[place], picks.odds[0])
