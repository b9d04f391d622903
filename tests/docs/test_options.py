"""The table of options on the method page says what the code takes: modes, values, defaults."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import yaml

from mrp.config import load_suite
from mrp.decoding import make_mode
from mrp.errors import UserError
from mrp.schema import AUTO_K, MODES, OPTIONS
from tests.docs.pages import ROOT

BLOCK = 16
GIVEN = {"k": 6, "tau": 0.5, "factor": 1.0, "gamma": 1.0}  # where a mode needs them


class Row(NamedTuple):
    """A line of the table."""

    option: str
    of: str
    values: str
    default: str
    says: str


def table() -> list[Row]:
    text = (ROOT / "docs/method.md").read_text("utf-8").partition("### Options\n")[2]
    lines = text.partition("\n##")[0].splitlines()
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines if "|" in line]
    return [Row(option.strip("`"), *others) for option, *others in cells[2:]]


def number(text: str) -> float:
    """1e-6, B - 1 or k - 1."""
    name, minus, less = text.partition(" - ")
    values = {"B": BLOCK, "k": GIVEN["k"]}
    return values.get(name, 0) - int(less) if minus else values.get(name) or float(name)


def bounds(values: str) -> tuple[float, bool, float, bool]:
    """The least and the largest number that a cell names, each with whether it is allowed."""
    cell = values.partition(";")[0]
    if found := re.fullmatch(r"(\S+) to (.+)", cell):
        return number(found[1]), True, number(found[2]), True
    found = re.fullmatch(r"(above|from) (\S+?)(?:, below (\S+))?", cell)
    assert found, f"{values!r}: neither choices nor bounds"
    most = number(found[3]) if found[3] else float("inf")
    return number(found[2]), found[1] == "from", most, False


def probes(row: Row) -> Iterator[tuple[Any, bool]]:
    """Values at the ends of what the table allows and right outside, with whether it does."""
    if row.values.startswith("`"):
        yield from ((yaml.safe_load(each), True) for each in re.findall("`(.*?)`", row.values))
        yield "neither", False
        return
    least, with_least, most, with_most = bounds(row.values)
    whole = row.option in ("k", "steps", "head_passes", "shortlist", "window", "budget", "history")
    step: Any = 1 if whole else 1e-7
    if whole:
        least, most = int(least), most if most == float("inf") else int(most)
    yield from ((least, with_least), (least - step, False), (least + step, True))
    if most == float("inf"):
        yield (10**6 if whole else most), False
        yield 99_999, True
    else:
        yield from ((most, with_most), (most + step, False), (most - step, True))


def taken(mode: str, options: dict[str, Any], folder: Path) -> tuple[bool, bool]:
    """Whether a mode takes its options, and whether a suite does."""
    needs = {name: GIVEN[name] for name in MODES[mode].required}
    options = {**needs, **options}
    entry = {"mode": mode, **options, **({"head": "h"} if MODES[mode].needs_head else {})}
    suite = {
        "name": "mine",
        "backbones": {"S": {"train": {"block_size": BLOCK}}},
        "heads": {"h": {"variant": "k2", "path": "nowhere"}},
        "tasks": ["mini_math"],
        "grid": [entry],
    }
    path = folder / "mine.yaml"
    path.write_text(yaml.safe_dump(suite), "utf-8")
    found = []
    for take in (lambda: make_mode(mode, **options).check(BLOCK), lambda: load_suite(path)):
        try:
            take()
        except UserError:
            found.append(False)
        else:
            found.append(True)
    return found[0], found[1]


def test_every_option_is_in_the_table() -> None:
    assert sorted(row.option for row in table()) == sorted(OPTIONS)


@pytest.mark.parametrize("row", table(), ids=lambda row: row.option)
def test_modes_values_and_default_are_those_of_the_code(row: Row, tmp_path: Path) -> None:
    modes = row.of.split(", ")
    takes = {name: shape.required + shape.optional for name, shape in MODES.items()}
    assert sorted(modes) == sorted(name for name in takes if row.option in takes[name])
    if row.option == "steps":
        assert row.default == "B"
    else:
        assert (yaml.safe_load(row.default.strip("`")) if row.default else None) == OPTIONS[
            row.option
        ]
    # A bound only residual vetoes read.
    rule = {"rule": "residual"} if row.option == "delta" else {}
    for mode in modes:
        for value, allowed in probes(row):
            said = taken(mode, {**rule, row.option: value}, tmp_path)
            assert said == (allowed, allowed), f"{mode}: {row.option}={value}"


def test_which_modes_choose_k_themselves(tmp_path: Path) -> None:
    (row,) = (row for row in table() if row.option == "k")
    modes = row.values.partition("; `auto` for ")[2].split(", ")
    assert sorted(modes) == sorted(AUTO_K)
    for mode in row.of.split(", "):
        assert taken(mode, {"k": "auto"}, tmp_path) == (mode in modes, mode in modes)


@pytest.mark.parametrize(
    ("mode", "options"),
    [
        ("lattice", {"ahead": True, "shortlist": 3}),
        ("lattice", {"window": 3, "budget": 8}),
        ("lattice", {"budget": 8, "shortlist": 3}),
        ("lattice", {"k": 7, "budget": 8}),
        ("remask", {"condition": "masked", "passes": "halves"}),
        ("remask", {"floor": 0.5, "rule": "residual"}),
        ("lattice", {"k": 3, "window": 4}),
    ],
)
def test_what_does_not_go_together(mode: str, options: dict[str, Any], tmp_path: Path) -> None:
    assert taken(mode, options, tmp_path) == (False, False)
    for name in options:
        if name != "k":
            assert taken(mode, {name: options[name]}, tmp_path) == (True, True)
