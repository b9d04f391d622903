"""Decoding whose results do not depend, not even in the last bit, on what is computed beside."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from mrp.data import encode_prompt
from mrp.data import test_examples as examples_of
from mrp.decoding import Decoded, Decoder, make_mode
from mrp.decoding.blocks import Blocks
from mrp.decoding.cache import KVCache
from mrp.decoding.packed import PackedForwards
from mrp.errors import UserError
from mrp.evaluation.tokenizer import load_tokenizer
from mrp.models import Backbone, load_backbone, load_head
from tests.tiny import tiny_backbone, tiny_head

ROWS, LENGTH, SIZE = 8, 128, 16
EMBEDDED = Path(__file__).parents[2] / "assets" / "embedded"


def packed(backbone: Backbone) -> PackedForwards:
    """Over caches with random prefixes, always the same."""
    draw = torch.Generator().manual_seed(3)
    head, made = tiny_head(backbone), []
    for layers in (backbone.config.num_hidden_layers, 1):
        cache = KVCache(backbone.config, layers, ROWS, LENGTH, torch.device("cpu"), torch.float32)
        for tensor in (*cache.keys, *cache.values):
            tensor.copy_(torch.randn(tensor.shape, generator=draw))
        made.append(cache)
    return PackedForwards(backbone, head, made[0], made[1], invariant=True)


@given(st.data())
@settings(max_examples=12, deadline=None)
@torch.inference_mode()
def test_a_block_is_the_same_in_any_company_on_a_cpu(data: st.DataObject) -> None:
    """Backbone, head and picks, also where only a block's last open positions are asked for."""
    size = SIZE
    backbone = tiny_backbone(0, size)
    rows = data.draw(st.lists(st.integers(0, ROWS - 1), min_size=2, max_size=ROWS, unique=True))
    states = data.draw(st.integers(1, 3))
    starts = [size * data.draw(st.integers(0, LENGTH // size - states)) for _ in rows]
    places = [
        (row, start, start + size * state, start)
        for row, start in zip(rows, starts, strict=True)
        for state in range(states)
    ]
    draw = torch.Generator().manual_seed(data.draw(st.integers(0, 99)))
    ids = torch.randint(3, 24, (len(places), size), generator=draw)
    blocks = Blocks(ids, *torch.tensor(places).unbind(1))
    one = data.draw(st.integers(0, len(places) - 1))
    wanted = torch.arange(size)[None] < data.draw(st.integers(1, size))

    together, alone = packed(backbone), packed(backbone)
    want = together.backbone(blocks)
    hidden = alone.backbone(blocks.take(slice(one, one + 1)), wanted)
    assert torch.equal(hidden[wanted], want[one][wanted[0]])
    residual = together.head(blocks, want)
    mine = want[one : one + 1].clone()
    assert torch.equal(alone.head(blocks.take(slice(one, one + 1)), mine)[0], residual[one])
    picks = together.pick(want, torch.ones(want.shape[:2], dtype=torch.bool))
    got = alone.pick(mine, wanted)
    assert torch.equal(got.odds[wanted], picks.odds[one][wanted[0]])
    assert torch.equal(got.tokens[wanted], picks.tokens[one][wanted[0]])


def test_where_it_cannot_be_had_it_is_refused() -> None:
    """Rather than decoded as ever."""
    backbone = tiny_backbone().to(torch.bfloat16)
    decoder = Decoder(backbone, None, make_mode("static"), 2, invariant=True)
    with pytest.raises(UserError, match=r"invariant: .*torch.bfloat16 on cpu.*CPU and float32"):
        list(decoder.decode([[5, 6]], 4))


LOSSLESS: tuple[tuple[str, dict[str, Any]], ...] = (
    ("speculative", {"k": 1}),
    ("speculative", {"k": 4}),
    ("speculative", {"k": 4, "shortlist": 8}),
    ("speculative", {"k": 6, "head_passes": 2}),
    ("speculative", {"k": "auto"}),
    ("self_speculative", {"k": 4}),
    ("self_speculative", {"k": "auto"}),
    ("lattice", {"k": 4, "window": 2}),
    ("lattice", {"k": 4, "window": 3, "ahead": True}),
    ("self_lattice", {"k": 4, "window": 2}),
    ("self_lattice", {"k": 4, "window": 2, "ahead": True}),
)


def prompts(each: int) -> list[list[int]]:
    """Problems of the shipped checkpoints' own tasks, one of each task in turn."""
    tokenizer = load_tokenizer(EMBEDDED / "backbone")
    tasks = (examples_of(task, 0, each, "embedded") for task in ("mini_math", "mini_code"))
    pairs = zip(*tasks, strict=True)
    return [encode_prompt(tokenizer, example.prompt) for pair in pairs for example in pair]


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=["fp32", "bf16"])
def test_lossless_modes_equal_static_whatever_the_batch(dtype: torch.dtype) -> None:
    """Token for token with real near ties: the shipped checkpoints, batches of 1, 7 and 512."""
    backbone = load_backbone(EMBEDDED / "backbone", "cuda", dtype)
    head = load_head(EMBEDDED / "heads" / "S" / "k2", backbone, "cuda", dtype)
    asked = prompts(256)

    def decode(name: str, options: dict[str, Any], batch_size: int) -> list[Decoded]:
        some = asked[:48] if batch_size == 1 else asked[:256] if batch_size == 7 else asked
        mode = make_mode(name, **options)
        decoder = Decoder(backbone, head, mode, batch_size, invariant=True)
        return sorted(decoder.decode(some, 96), key=lambda sample: sample.index)

    static = decode("static", {}, 512)
    different = {}
    for batch_size in (1, 7, 512):
        for name, options in (("static", {}), *LOSSLESS):
            got = decode(name, options, batch_size)
            parted = [
                ours.index
                for ours, want in zip(got, static, strict=False)
                if ours.ids != want.ids or ours.trace.ids != want.trace.ids
            ]
            if parted:
                different[batch_size, name, str(options)] = parted
    assert different == {}
