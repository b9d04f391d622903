"""The fused forwards against the plain ones.

They run on a GPU, or, with TRITON_INTERPRET=1 and triton installed, in Triton's CPU interpreter.
"""

from __future__ import annotations

import os

import pytest
import torch
from torch.nn import functional as F

from mrp.decoding.blocks import Blocks, join, plain, with_shadows
from mrp.decoding.cache import KVCache
from mrp.decoding.forwards import EagerForwards
from mrp.decoding.picks import pick
from mrp.models import Backbone, BackboneConfig, Head, HeadConfig

pytest.importorskip("triton")
GPU = torch.cuda.is_available()
if not GPU and os.environ.get("TRITON_INTERPRET") != "1":
    pytest.skip("no GPU and no TRITON_INTERPRET=1", allow_module_level=True)

from mrp.decoding.fast import products, vocabulary  # noqa: E402
from mrp.decoding.fast.forwards import FastForwards  # noqa: E402
from mrp.decoding.fast.norms import Normed, residual_norm  # noqa: E402
from mrp.decoding.fast.products import gated_product, product  # noqa: E402
from mrp.decoding.fast.weights import merge_rows  # noqa: E402

pytestmark = pytest.mark.gpu if GPU else []
DEVICE = torch.device("cuda" if GPU else "cpu")
BLOCK, ROWS, LENGTH, MASK = 16, 4, 192, 2
HALF = torch.bfloat16 if GPU else torch.float16  # the interpreter has no bf16 product
HALF_ERROR = 0.02  # relative: a few layers of roundings in another order
DTYPES = {"argvalues": [torch.float32, HALF], "ids": ["fp32", "half"]}


def models(dtype: torch.dtype, vocabulary_size: int = 640) -> tuple[Backbone, Head]:
    """A random backbone and head with the proportions of the real ones."""
    config = BackboneConfig(
        vocab_size=vocabulary_size,
        hidden_size=256,
        intermediate_size=384,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=64,
        mask_token_id=MASK,
        pad_token_id=0,
        eos_token_ids=(1,),
        block_size=BLOCK,
        initializer_range=0.08,
    )
    backbone, head = Backbone(config), Head(HeadConfig(config, num_layers=2))
    backbone.reset_parameters(torch.Generator().manual_seed(0))
    head.reset_parameters("normal-0.02", torch.Generator().manual_seed(1))
    draw = torch.Generator().manual_seed(2)
    for name, parameter in [*backbone.named_parameters(), *head.named_parameters()]:
        if "norm" in name:
            parameter.data.uniform_(0.5, 1.5, generator=draw)
    return tuple(  # type: ignore[return-value]
        model.to(DEVICE, dtype).eval().requires_grad_(False) for model in (backbone, head)
    )


def caches(config: BackboneConfig, dtype: torch.dtype) -> tuple[KVCache, KVCache]:
    """A cache for each model with random contents: stands for prefixes."""
    draw = torch.Generator().manual_seed(3)
    made = []
    for layers in (config.num_hidden_layers, 2):
        cache = KVCache(config, layers, ROWS, LENGTH, DEVICE, dtype)
        for tensor in (*cache.keys, *cache.values):
            tensor.copy_(torch.randn(tensor.shape, generator=draw))
        made.append(cache)
    return made[0], made[1]


def blocks(*places: tuple[int, int, int, int]) -> Blocks:
    """Random ids at (row, position, slot, visible)."""
    ids = torch.randint(3, 640, (len(places), BLOCK), generator=torch.Generator().manual_seed(4))
    row, position, slot, visible = torch.tensor(places, device=DEVICE).unbind(1)
    return Blocks(ids.to(DEVICE), row, position, slot, visible)


LISTS = {
    "one at the start": [(1, 0, 0, 0)],
    "one behind a long prefix": [(2, 150, 150, 150)],
    "store and next": [(0, 64, 64, 64), (0, 80, 80, 80), (3, 16, 16, 16)],
    "candidates": [(1, 96, 96, 96), (1, 96, 112, 96), (1, 96, 128, 96), (0, 5, 5, 5)],
    "many": [(i % 4, 16 * (i // 4), 16 * (i // 4), 16 * (i // 4)) for i in range(12)],
}


def relative_error(got: torch.Tensor, want: torch.Tensor) -> float:
    """Norm of the difference over the norm of what is right; NaN if anything is NaN."""
    return float((got.double() - want.double()).norm() / want.double().norm())


@pytest.mark.parametrize("dtype", **DTYPES)
@pytest.mark.parametrize("places", LISTS.values(), ids=LISTS.keys())
@torch.inference_mode()
def test_forwards_equal_the_plain_ones(
    dtype: torch.dtype, places: list[tuple[int, int, int, int]]
) -> None:
    """Hidden states, residuals, both caches, and every slot that was not to be written."""
    backbone, head = models(dtype)
    plain_caches, fast_caches = caches(backbone.config, dtype), caches(backbone.config, dtype)
    listed = blocks(*places)
    plain = EagerForwards(backbone, head, *plain_caches)
    want_hidden = plain.backbone(listed)
    want_residual = plain.head(listed, want_hidden)
    fast = FastForwards(backbone, head, *fast_caches)
    hidden = fast.backbone(listed)
    residual = fast.head(listed, want_hidden)

    limit = 2e-5 if dtype == torch.float32 else HALF_ERROR
    assert relative_error(hidden, want_hidden) < limit
    assert relative_error(residual, want_residual) < limit
    for plain_cache, fast_cache in zip(plain_caches, fast_caches, strict=True):
        for name in ("keys", "values"):
            pairs = zip(getattr(fast_cache, name), getattr(plain_cache, name), strict=True)
            for got, want in pairs:
                assert relative_error(got, want) < limit
    again = FastForwards(backbone, head, *fast_caches)  # merged weights are found, not made
    assert torch.equal(again.backbone(listed), hidden)


@pytest.mark.parametrize("dtype", **DTYPES)
@pytest.mark.parametrize("starts", [[0], [40, 56, 120]], ids=["alone", "several"])
@torch.inference_mode()
def test_shadows_equal_the_plain_ones(dtype: torch.dtype, starts: list[int]) -> None:
    """Blocks and their shadows, wherever the tiles of keys end, beside blocks without one."""
    backbone, _ = models(dtype)
    draw = torch.Generator().manual_seed(4)
    ids = torch.randint(3, 640, (len(starts) + 1, BLOCK), generator=draw).to(DEVICE)
    row, start = torch.arange(len(starts), device=DEVICE), torch.tensor(starts, device=DEVICE)
    pairs = with_shadows(ids[1:], torch.full_like(ids[1:], MASK), row, start)
    listed = join((pairs, plain(ids[:1], row[-1:] + 1, start[:1] + 16)))
    hidden = []
    for forwards in (EagerForwards, FastForwards):
        cache, _ = caches(backbone.config, dtype)
        hidden.append(forwards(backbone, None, cache, None).backbone(listed))
    assert relative_error(hidden[1], hidden[0]) < (2e-5 if dtype == torch.float32 else HALF_ERROR)


@torch.inference_mode()
def test_small_passes_do_not_depend_on_the_company() -> None:
    """In 16 bits a block's result is bit for bit the same alone and beside others."""
    backbone, _ = models(HALF)
    listed = blocks(*LISTS["candidates"])
    cache, _ = caches(backbone.config, HALF)
    together = FastForwards(backbone, None, cache, None).backbone(listed)
    cache, _ = caches(backbone.config, HALF)
    alone = FastForwards(backbone, None, cache, None).backbone(listed.take(slice(0, 1)))
    assert torch.equal(together[:1], alone)


@pytest.mark.parametrize("dtype", **DTYPES)
@pytest.mark.parametrize("size", [640, 24, 130])
@torch.inference_mode()
def test_picks_equal_the_plain_ones(dtype: torch.dtype, size: int) -> None:
    """Tokens exactly (on logits far apart), odds closely, infinite where nothing is masked."""
    backbone, _ = models(dtype, size)
    fast = FastForwards(backbone, None, caches(backbone.config, dtype)[0], None)
    hidden = 2 * torch.randn(3, BLOCK, 256, generator=torch.Generator().manual_seed(5))
    hidden = hidden.to(DEVICE, dtype)
    masked = (torch.rand(3, BLOCK, generator=torch.Generator().manual_seed(6)) < 0.5).to(DEVICE)
    logits = fast.logits(hidden)
    assert torch.isneginf(logits[..., MASK]).all()
    want = pick(logits, masked)
    got, listed = fast.pick_and_shortlist(hidden, masked, 8)
    top = logits.float().topk(2, dim=-1).values
    clear = top[..., 0] > top[..., 1]
    assert torch.equal(got.tokens[clear], want.tokens[clear])
    close = {"rtol": 1e-4, "atol": 1e-6} if dtype == torch.float32 else {"rtol": 0.3, "atol": 1e-3}
    torch.testing.assert_close(got.odds, want.odds, **close)

    assert torch.equal(listed, fast.shortlist(hidden, 8))
    assert (listed.diff(dim=-1) > 0).all()
    assert (listed == got.tokens[..., None]).any(dim=-1).all()
    few = fast.pick_shortlist(hidden, listed, masked)
    assert torch.equal(few.tokens[clear], want.tokens[clear])
    want_few = pick(logits.gather(-1, listed), masked)
    torch.testing.assert_close(few.odds, want_few.odds, **close)
    whole = torch.arange(size, device=DEVICE).expand(3, BLOCK, size)
    torch.testing.assert_close(
        fast.pick_shortlist(hidden, whole.contiguous(), masked).odds, want.odds, **close
    )


def test_picks_of_more_rows_than_a_tile() -> None:
    """Of a tiny vocabulary's product, tile for tile those of the stored logits."""
    draw = torch.Generator().manual_seed(11)
    hidden = torch.randn(80, 256, generator=draw).to(DEVICE, HALF)
    weight = torch.randn(128, 256, generator=draw).to(DEVICE, HALF)
    assert products.suits(hidden, weight)
    got = vocabulary.tiles_of_product(hidden, weight, MASK, invariant=False)
    want = vocabulary.tiles_of_logits(hidden @ weight.T, MASK)
    torch.testing.assert_close(got.best, want.best, rtol=2e-2, atol=2e-2)
    clear = (got.tokens == want.tokens).float().mean()
    assert clear > 0.95, "but for near ties"


@torch.inference_mode()
def test_ties_take_the_lowest_id_and_the_mask_token_never_wins() -> None:
    """Equal best logits in one tile and across tiles; the mask token above them all."""
    logits = torch.zeros(3, 200, device=DEVICE)
    logits[0, [70, 71, 150]] = 5.0
    logits[1, [9, 199]] = 5.0
    logits[:, MASK] = 50.0
    got = vocabulary.merge(
        vocabulary.tiles_of_logits(logits, MASK), torch.ones(3, dtype=torch.bool, device=DEVICE)
    )
    logits[:, MASK] = -torch.inf
    want = pick(logits, torch.ones(3, dtype=torch.bool, device=DEVICE))
    assert got.tokens.tolist() == [70, 9, 0]
    assert torch.equal(got.tokens, want.tokens)
    torch.testing.assert_close(got.odds, want.odds)


@torch.inference_mode()
def test_odds_keep_their_precision_when_the_model_is_sure() -> None:
    """Odds far below the precision of 1 still tell one position from another."""
    logits = torch.zeros(1, 128, device=DEVICE)
    logits[0, 100] = 40.0
    got = vocabulary.merge(
        vocabulary.tiles_of_logits(logits, MASK), torch.ones(1, dtype=torch.bool, device=DEVICE)
    )
    expected = 126 * torch.exp(torch.tensor(-40.0))
    torch.testing.assert_close(got.odds.cpu(), expected[None], rtol=1e-5, atol=0.0)


@pytest.mark.parametrize("tiny", [True, False], ids=["in tiles", "at once"])
@pytest.mark.parametrize("rows", [1, 16, 48, 64, 65, 128, 272])
@pytest.mark.parametrize("splits", [1, 3, 4])
def test_product_of_few_rows(
    rows: int, splits: int, tiny: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The parts add up to x W^T, with steps that do not divide evenly among the splits.

    Rows beyond a tile are no other rows: of a tiny weight as many are taken as one likes.
    """
    if not tiny:
        monkeypatch.setattr(products, "TINY", 0)
    if rows > (products.MOST_ROWS_TINY if tiny else products.MOST_ROWS_SMALL):
        pytest.skip("the library's product takes these")
    draw = torch.Generator().manual_seed(7)
    x = torch.randn(rows, 640, generator=draw).to(DEVICE, HALF)
    weight = torch.randn(256, 640, generator=draw).to(DEVICE, HALF)
    parts = product(Normed(x), weight, 1e-6, splits)
    assert parts.shape == (splits, rows, 256)
    assert relative_error(parts.sum(0), x.double() @ weight.double().T) < 1e-5


def test_which_products_are_for_the_kernels() -> None:
    """Few rows, more of a tiny weight, any number where the result must not depend on it."""

    def most(size_n: int, size_k: int, invariant: bool = False) -> int:
        weight = torch.empty(size_n, size_k, dtype=HALF, device="meta")
        rows = (1, 64, 65, 128, 129, 512, 513)
        fit = [
            count
            for count in rows
            if products.suits(torch.empty(count, size_k, dtype=HALF), weight, invariant)
        ]
        return max(fit, default=0)

    assert most(2048, 384) == 512
    assert most(2048, 2048) == 128
    assert most(12288, 4096) == 64
    assert most(12288, 4096, invariant=True) == 513
    assert most(2048, 130) == most(130, 384) == most(130, 384, invariant=True) == 0


@pytest.mark.parametrize("rows", [5, 70])
@pytest.mark.parametrize("fused", [True, False])
def test_a_deferred_norm_ends_in_the_product(
    rows: int, fused: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Sum, norm and product, and the gated product, as written down in double precision."""
    monkeypatch.setattr(products, "fuses", lambda size, size_k, processors: fused)
    draw = torch.Generator().manual_seed(8)
    parts = torch.randn(2, rows, 640, generator=draw).to(DEVICE)
    residual = torch.randn(rows, 640, generator=draw)
    norm_weight = torch.rand(640, generator=draw)
    residual, norm_weight = residual.to(DEVICE, HALF), norm_weight.to(DEVICE, HALF)
    weight = (torch.randn(2 * 128, 640, generator=draw) / 10).to(DEVICE, HALF)
    total, normed = residual_norm(parts, residual, norm_weight, 1e-6, defer=True)
    assert normed.squares is not None
    want_total = parts.double().sum(0) + residual.double()
    want = F.rms_norm(want_total, (640,), norm_weight.double(), 1e-6) @ weight.double().T
    assert relative_error(total, want_total) < 4e-3
    assert relative_error(product(normed, weight, 1e-6).sum(0), want) < 8e-3
    gate, up = want.chunk(2, dim=-1)
    assert relative_error(gated_product(normed, weight, 1e-6), F.silu(gate) * up) < 0.02


def test_merging_rebinds_the_modules() -> None:
    """Values stay, the modules read the merged storage, merging again finds it."""
    linears = [torch.nn.Linear(8, size, bias=False, device=DEVICE) for size in (3, 5)]
    want = torch.cat([linear.weight for linear in linears])
    merged = merge_rows(*linears)
    assert torch.equal(merged, want)
    assert merge_rows(*linears).data_ptr() == merged.data_ptr()
    with torch.no_grad():
        linears[1].weight.zero_()
    assert float(merged[3:].detach().abs().sum()) == 0.0
