"""Rounds stay short: every small operation is a kernel's launch on a GPU."""

from __future__ import annotations

import pytest

from benchmarks.operations import MODES, operations


@pytest.mark.parametrize(
    ("mode", "most"),
    [("static", 4), ("dynamic", 4), ("self_speculative", 13), ("self_lattice", 14)],
)
def test_a_round_has_no_more_operations_than_it_had(mode: str, most: int) -> None:
    lines = operations(mode, MODES[mode], kernels=True)
    # Tables that are made once count as a fraction.
    assert sum(number for number in lines.values() if number >= 1) <= most, lines


def test_rules_in_torch_count_as_what_they_are() -> None:
    lines = operations("static", {}, kernels=False)
    assert sum(lines.values()) > 2 * sum(operations("static", {}, kernels=True).values())
    assert not any("backbone" in line for line in lines)
