"""Rows hold every sample whole, block-aligned and apart from the others."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from mrp.errors import UserError
from mrp.training.packing import pack
from tests.tiny import PAD
from tests.training.rows import BLOCK, random_samples


@given(st.integers(0, 10_000), st.integers(1, 30), st.sampled_from([16, 20, 64]))
@settings(max_examples=40, deadline=None)
def test_every_sample_is_in_one_row_with_its_fill(seed: int, count: int, length: int) -> None:
    samples = random_samples(seed, count)
    rows = pack(samples, length, BLOCK, PAD)
    found = []
    for row in range(len(rows)):
        here = torch.arange(length)
        for number in range(int(rows.samples_per_row[row])):
            places = here[rows.sample[row] == number]
            assert places[0] % BLOCK == 0
            assert torch.equal(places, torch.arange(int(places[0]), int(places[-1]) + 1))
            assert torch.equal(rows.position[row, places].long(), torch.arange(len(places)))
            answer = rows.answer[row, places]
            assert set(rows.answer_length[row, places].tolist()) == {int(answer.sum())}
            found.append((rows.ids[row, places].tolist(), answer.tolist()))
        padding = rows.sample[row] == -1
        assert not rows.answer[row, padding].any()
        assert (rows.ids[row, padding] == PAD).all()
    fill = [-len(ids) % BLOCK for ids, _ in samples]  # type: ignore[arg-type]
    wanted = [
        ([*ids, *[PAD] * extra], [*answer, *[True] * extra])  # type: ignore[misc]
        for (ids, answer), extra in zip(samples, fill, strict=True)
    ]
    assert sorted(found) == sorted(wanted)


def test_first_fit_puts_a_short_sample_into_the_room_that_is_left() -> None:
    short, long = ([5] * 4, [True] * 4), ([6] * 12, [True] * 12)
    rows = pack([long, long, short, short], 16, BLOCK, PAD)
    assert len(rows) == 2
    assert rows.samples_per_row.tolist() == [2, 2]


def test_fill_behind_a_prompt_is_no_answer_and_long_samples_are_cut() -> None:
    rows = pack([([5, 6, 7], [False, True, False])], 8, BLOCK, PAD)
    assert rows.answer[0].tolist() == [False, True, False, False] + [False] * 4
    rows = pack([([5] * 20, [False] * 4 + [True] * 16)], 8, BLOCK, PAD)
    assert rows.answer[0].tolist() == [False] * 4 + [True] * 4


def test_mistakes_are_named() -> None:
    with pytest.raises(UserError, match="packed_length is 10"):
        pack([([5], [True])], 10, BLOCK, PAD)
    with pytest.raises(UserError, match="no sample keeps an answer within packed_length 4"):
        pack([([5] * 5, [False] * 4 + [True])], 4, BLOCK, PAD)
