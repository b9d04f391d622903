"""The table of what is tried."""

from __future__ import annotations

from itertools import pairwise

import pytest
import yaml

from mrp.decoding import make_mode
from mrp.schema import LOSSLESS, MODES, OPTIONS, GridEntry
from mrp.tuning.candidates import STATIC, Candidate, chains, grid_line

BLOCK = 16
MEMBERS = [member for chain in chains(["k2"], BLOCK, lossless=False) for member in chain.members]


def test_every_mode_is_tried() -> None:
    assert {member.mode for member in MEMBERS} == set(MODES)


def test_every_candidate_is_a_mode_of_its_own() -> None:
    modes = [make_mode(member.mode, **member.knobs) for member in MEMBERS]
    for mode, member in zip(modes, MEMBERS, strict=True):
        mode.check(BLOCK)
        assert mode.needs_head == (member.head is not None)
    assert len({(mode.name, mode) for mode in modes}) == len(modes)


@pytest.mark.parametrize("block", [2, 4, 8])
def test_shorter_blocks_leave_out_what_does_not_fit(block: int) -> None:
    for chain in chains(["k2"], block, lossless=False):
        for member in chain.members:
            make_mode(member.mode, **member.knobs).check(block)


def test_lossless_candidates_are_those_with_statics_text() -> None:
    found = {member for chain in chains(["k2"], BLOCK, lossless=True) for member in chain.members}
    assert found == {member for member in MEMBERS if member.text == STATIC}
    assert {member.mode for member in found} == set(LOSSLESS)


def test_without_a_head_only_modes_without_one_are_tried() -> None:
    found = [member for chain in chains([], BLOCK, lossless=False) for member in chain.members]
    assert found
    assert not any(MODES[member.mode].needs_head for member in found)


def test_a_chain_differs_in_one_knob_and_falls_only_where_its_text_changes() -> None:
    for chain in chains(["k2"], BLOCK, lossless=False):
        for one, two in pairwise(chain.members):
            knobs = [{**OPTIONS, **member.knobs} for member in (one, two)]
            assert sum(knobs[0][name] != knobs[1][name] for name in OPTIONS) == 1
            assert chain.falls == (one.text != two.text)


def test_a_grid_line_is_what_a_suite_takes() -> None:
    for member in MEMBERS:
        (entry,) = yaml.safe_load(grid_line(member))
        GridEntry.model_validate(entry)
        assert Candidate(entry.pop("mode"), head=entry.pop("head", None)).head == member.head
        assert entry == member.knobs
