"""The mask against its definition, flex_attention against the dense mask, samples apart."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from mrp.models import MaskedAttention
from mrp.training.losses import HeadObjective
from mrp.training.masks import FlexAttention, block_diffusion_mask, flex_mask
from tests.tiny import MASK, tiny_backbone, tiny_head
from tests.training.rows import BLOCK, batches, random_rows


def by_definition(sample: list[int], block: list[int], copies: int) -> list[list[bool]]:
    """Method: a noisy block sees itself and earlier clean blocks, clean what is not later."""
    length = len(sample)

    def sees(query: int, key: int) -> bool:
        (query_view, q), (key_view, k) = divmod(query, length), divmod(key, length)
        if sample[q] != sample[k]:
            return False
        if query_view == copies:  # clean
            return key_view == copies and block[k] <= block[q]
        if key_view == copies:
            return block[k] < block[q]
        return key_view == query_view and block[k] == block[q]

    total = range((copies + 1) * length)
    return [[sees(query, key) for key in total] for query in total]


@given(st.integers(0, 10_000), st.integers(1, 3), st.sampled_from([16, 24]))
@settings(max_examples=25, deadline=None)
def test_mask_is_the_definition(seed: int, copies: int, length: int) -> None:
    rows = random_rows(seed, 5, length)
    mask = block_diffusion_mask(rows.sample, rows.block, copies)
    assert mask.shape == (len(rows), 1, (copies + 1) * length, (copies + 1) * length)
    for row in range(len(rows)):
        wanted = by_definition(rows.sample[row].tolist(), rows.block[row].tolist(), copies)
        assert mask[row, 0].tolist() == wanted


@pytest.mark.filterwarnings("ignore:flex_attention called without torch.compile")
@pytest.mark.parametrize("copies", [1, 2])
def test_flex_attention_equals_the_dense_mask(copies: int) -> None:
    rows = random_rows(0, 20, 64)
    total = (copies + 1) * 64
    generator = torch.Generator().manual_seed(0)

    def heads(count: int) -> Tensor:
        return torch.randn(len(rows), count, total, 16, generator=generator)

    q, k, v = heads(4), heads(2), heads(2)
    dense = MaskedAttention(block_diffusion_mask(rows.sample, rows.block, copies))
    flex = FlexAttention(flex_mask(rows.sample, rows.block, copies), compiled=False)
    torch.testing.assert_close(flex(0, q, k, v), dense(0, q, k, v), atol=1e-5, rtol=0)


def test_samples_of_a_row_never_see_each_other() -> None:
    rows = random_rows(3, 12, 32)
    row = int(rows.samples_per_row.argmax())
    assert rows.samples_per_row[row] > 1
    batch = rows.take(torch.tensor([row]))
    other = batch.sample[0] != 0
    changed = torch.where(other, (batch.ids + 7) % 20 + 3, batch.ids)
    backbone = tiny_backbone(0, BLOCK)
    attend = MaskedAttention(block_diffusion_mask(batch.sample, batch.block))
    position = batch.position.repeat(1, 2)
    with torch.no_grad():
        one = backbone.hidden(batch.ids.repeat(1, 2), position, attend)
        two = backbone.hidden(changed.repeat(1, 2), position, attend)
    same = ~other.repeat(2)
    assert torch.equal(one[0, same], two[0, same])
    assert not torch.allclose(one[0, ~same], two[0, ~same])


def test_noisy_copies_in_one_forward_equal_forwards_of_their_own() -> None:
    rows = random_rows(1)
    batch, _ = batches(rows, reveals=2)(0)
    objective = HeadObjective(tiny_backbone(0, BLOCK), tiny_head(tiny_backbone(0, BLOCK), 1), False)
    (backbone,) = objective._frozen
    length = batch.clean.shape[1]
    views = [torch.where(mask, MASK, batch.clean) for mask in batch.masks]
    with torch.no_grad():
        ids = torch.cat([*views, batch.clean], dim=1)
        together = backbone.hidden(ids, batch.position.repeat(1, 4), batch.attend_views)
        for index, view in enumerate(views):
            ids = torch.cat([view, batch.clean], dim=1)
            alone = backbone.hidden(ids, batch.position.repeat(1, 2), batch.attend)
            part = slice(index * length, (index + 1) * length)
            torch.testing.assert_close(together[:, part], alone[:, :length], atol=1e-5, rtol=1e-5)
            clean = together[:, -length:]
            torch.testing.assert_close(clean, alone[:, length:], atol=1e-5, rtol=1e-5)
