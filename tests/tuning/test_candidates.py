"""The table of what is tried."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from mrp.config import load_suite
from mrp.decoding import make_mode
from mrp.grid import jobs
from mrp.schema import LOSSLESS, MODES, OPTIONS
from mrp.tuning.candidates import STATIC, chains, grid_line

ASSETS = Path(__file__).parents[2] / "assets/embedded"
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


LATTICES = [name for name in MODES if "budget" in MODES[name].optional]


def knobs_of(mode: str, block: int, most_tokens: bool = False) -> list[dict[str, Any]]:
    """All options of a mode's lossless candidates."""
    rows = chains(["k2"], block, lossless=True, most_tokens=most_tokens)
    members = [member for chain in rows for member in chain.members if member.mode == mode]
    return [{**OPTIONS, **member.knobs} for member in members]


@pytest.mark.parametrize("mode", LATTICES)
def test_budgets_are_tried_beside_windows(mode: str) -> None:
    found = {(knobs["budget"], knobs["window"], knobs["ahead"]) for knobs in knobs_of(mode, BLOCK)}
    assert found == {(*states, ahead) for states in [(0, 2), (0, 3), (16, 2)] for ahead in (0, 1)}


@pytest.mark.parametrize("mode", LATTICES)
def test_by_tokens_a_forward_a_window_is_tried_only_where_no_budget_fits(mode: str) -> None:
    (most,) = knobs_of(mode, BLOCK, most_tokens=True)
    assert (most["budget"], most["ahead"], most["head_passes"]) == (16, True, 0)
    short = knobs_of(mode, 4, most_tokens=True)
    assert {(knobs["budget"], knobs["window"]) for knobs in short} == {(0, 3)}


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


def test_a_grid_line_is_what_a_suite_takes(tmp_path: Path) -> None:
    (tmp_path / "tuned.yaml").write_text(
        f"name: tuned\n"
        f"backbones: {{S: {{path: {ASSETS / 'backbone'}}}}}\n"
        f"heads: {{k2: {{variant: k2, path: {ASSETS / 'heads/S/k2'}}}}}\n"
        "tasks: [[mini_math, mini_code]]\n"
        "grid:\n" + "\n".join(map(grid_line, MEMBERS))
    )
    found = jobs(load_suite(tmp_path / "tuned.yaml"))
    for job, member in zip(found, MEMBERS, strict=True):
        assert (job.mode, job.head) == (member.mode, member.head)
        assert {**OPTIONS, **job.options} == {**OPTIONS, **member.knobs}
