"""What is masked and revealed, and how often."""

from __future__ import annotations

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from mrp.training.noise import draw, generator_for, mask_answers, reveal
from mrp.training.packing import pack
from tests.tiny import PAD
from tests.training.rows import BLOCK, batches, random_rows


@given(st.integers(0, 10_000), st.sampled_from(["sample", "block"]), st.integers(0, 99))
@settings(max_examples=40, deadline=None)
def test_answers_alone_are_masked_at_least_one_a_sample(seed: int, per: str, step: int) -> None:
    pool = random_rows(seed)
    rows = pool.take(torch.arange(len(pool)))
    draws = draw((len(rows), 32), BLOCK, 0, generator_for(seed, step))
    masked, p = mask_answers(rows, draws, per, 0.0)  # type: ignore[arg-type]
    assert not (masked & ~rows.answer).any()
    assert ((p >= 1e-3) & (p <= 1)).all()
    for row in range(len(rows)):
        for number in range(int(rows.samples_per_row[row])):
            here = rows.sample[row] == number
            assert masked[row, here].any()
            unit = rows.block[row, here] if per == "block" else torch.zeros(int(here.sum()))
            for one in unit.unique():
                assert len(p[row, here][unit == one].unique()) == 1


@given(st.integers(0, 10_000), st.sampled_from(["gt-1", "gt-1-4"]))
@settings(max_examples=40, deadline=None)
def test_reveal_shows_what_its_name_says(seed: int, kind: str) -> None:
    generator = torch.Generator().manual_seed(seed)
    masked = torch.rand(3, 64, generator=generator) < torch.rand(3, 1, generator=generator)
    draws = draw((3, 64), 16, 1, generator)
    after = reveal(masked, draws.reveal[0], draws.count[0], kind)  # type: ignore[arg-type]
    assert not (after & ~masked).any()
    had, left = masked.view(3, 4, 16).sum(-1), after.view(3, 4, 16).sum(-1)
    shown = had - left
    most = torch.full_like(had, 1 if kind == "gt-1" else 4)
    assert (shown >= had.clamp(max=1)).all()
    assert (shown <= torch.minimum(had, most)).all()


def test_reveal_is_uniform_over_positions_and_counts() -> None:
    masked = torch.tensor([[True, False, True, True]]).repeat(6000, 1)
    draws = draw((6000, 4), 4, 1, torch.Generator().manual_seed(0))
    shown = masked & ~reveal(masked, draws.reveal[0], draws.count[0], "gt-1")
    torch.testing.assert_close(
        shown.float().mean(0), torch.tensor([1 / 3, 0, 1 / 3, 1 / 3]), atol=0.03, rtol=0
    )
    masked = torch.ones(6000, 16, dtype=torch.bool)
    draws = draw((6000, 16), 16, 1, torch.Generator().manual_seed(0))
    shown = masked & ~reveal(masked, draws.reveal[0], draws.count[0], "gt-1-4")
    counts = shown.sum(1).bincount(minlength=5) / 6000
    torch.testing.assert_close(counts, torch.tensor([0, 0.25, 0.25, 0.25, 0.25]), atol=0.03, rtol=0)


def test_tokens_are_masked_with_probability_p() -> None:
    pool = pack([([5] * 64, [False] * 4 + [True] * 60)] * 400, 64, BLOCK, PAD)
    rows = pool.take(torch.arange(400))
    draws = draw((400, 64), BLOCK, 0, torch.Generator().manual_seed(0))
    masked, p = mask_answers(rows, draws, "sample", 0.5)
    assert 0.5 <= float(p.min()) < float(p.max()) <= 1.0
    share = masked[rows.answer].float().mean()
    torch.testing.assert_close(share, p[rows.answer].mean(), atol=0.01, rtol=0)


def test_batches_depend_on_seed_and_step_alone() -> None:
    rows = random_rows(0, 40)
    one, two = batches(rows, reveals=2), batches(rows, reveals=2)
    two(0), two(5)
    for step in (3, 11):
        (a, tokens_a), (b, tokens_b) = one(step), two(step)
        assert torch.equal(a.clean, b.clean)
        assert torch.equal(a.masks, b.masks)
        assert torch.equal(a.weight, b.weight)
        assert tokens_a == tokens_b
    other, _ = batches(rows, reveals=2, seed=1)(3)
    assert not torch.equal(one(3)[0].masks, other.masks)


def test_an_epoch_takes_every_row_once() -> None:
    rows = random_rows(0, 40)
    source = batches(rows, size=2)
    flat = torch.cat([source.row_numbers(step) for step in range(len(rows))])
    assert sorted(flat[: len(rows)].tolist()) == list(range(len(rows)))
    assert sorted(flat[len(rows) :].tolist()) == list(range(len(rows)))
    assert flat[: len(rows)].tolist() != flat[len(rows) :].tolist()
