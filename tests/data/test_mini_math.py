"""The arithmetic task against an independent reading of its derivations."""

from __future__ import annotations

import random
import re
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mrp.data import mini_math
from mrp.errors import UserError

PROMPT = re.compile(r"\((\d+)([-+*])(\d+)\)\+\((\d+)([-+*])(\d+)\)\+\((\d+)([-+*])(\d+)\)\?")
STEP = re.compile(r"(so |now |)(?:(\d+)([-+*])(\d+)=(\d+)|(\d+)=(\d+)([-+*])(\d+))")


def calculate(x: int, op: str, y: int) -> int:
    return {"+": x + y, "-": x - y, "*": x * y}[op]


def parse_step(step: str) -> tuple[int, str, int, int]:
    """(x, op, y, stated value) of a step."""
    match = STEP.fullmatch(step)
    assert match is not None, step
    _, x, op, y, value, value_first, x_last, op_last, y_last = match.groups()
    if value is None:
        return int(x_last), op_last, int(y_last), int(value_first)
    return int(x), op, int(y), int(value)


@given(seed=st.integers(0, 2**32), level=st.sampled_from(["embedded", "replica", "hard"]))
def test_derivation_is_right(seed: int, level: str) -> None:
    example = mini_math.generate(random.Random(seed), level)
    match = PROMPT.fullmatch(example.prompt)
    assert match is not None
    groups = match.groups()
    terms = [(int(groups[i]), groups[i + 1], int(groups[i + 2])) for i in (0, 3, 6)]
    *steps, result = example.answer.split(";")
    parsed = [parse_step(step) for step in steps]
    assert all(calculate(x, op, y) == value for x, op, y, value in parsed)
    # The first three steps are the terms in some order, up to swapped operands of + and *.
    unordered = [(op, sorted((x, y)) if op != "-" else [x, y]) for x, op, y in terms]
    shown = [(op, sorted((x, y)) if op != "-" else [x, y]) for x, op, y, _ in parsed[:3]]
    assert sorted(unordered) == sorted(shown)
    # Then two running sums, in the order in which the terms were worked out.
    first, second, third = (value for *_, value in parsed[:3])
    assert sorted(parsed[3][:3:2]) == sorted((first, second))
    assert sorted(parsed[4][:3:2]) == sorted((first + second, third))
    assert (parsed[3][1], parsed[4][1], len(parsed)) == ("+", "+", 5)
    assert result == f"#{first + second + third}"
    assert example.target == str(sum(calculate(*term) for term in terms))


@pytest.mark.parametrize(
    ("level", "addend", "minuend"), [("embedded", 19, 29), ("replica", 29, 44), ("hard", 49, 99)]
)
def test_operands_fill_their_ranges(level: str, addend: int, minuend: int) -> None:
    rng = random.Random(0)
    seen: dict[str, set[tuple[int, int]]] = {"+": set(), "-": set(), "*": set()}
    for _ in range(6000):
        prompt = mini_math.generate(rng, level).prompt
        for x, op, y in re.findall(r"\((\d+)([-+*])(\d+)\)", prompt):
            seen[op].add((int(x), int(y)))
    assert {x for pair in seen["+"] for x in pair} == set(range(1, addend + 1))
    assert {x for x, _ in seen["-"]} == set(range(10, minuend + 1))
    assert {y for _, y in seen["-"]} == set(range(1, 10))
    assert {x for pair in seen["*"] for x in pair} == set(range(2, 10))


def test_free_choices_have_the_documented_shares() -> None:
    rng = random.Random(0)
    examples = [mini_math.generate(rng, "embedded") for _ in range(3000)]
    steps = [step for example in examples for step in example.answer.split(";")[:-1]]
    prefixes = Counter(STEP.fullmatch(step)[1] for step in steps)  # type: ignore[index]
    share = {prefix: n / len(steps) for prefix, n in prefixes.items()}
    assert share == pytest.approx({"": 0.5, "so ": 0.3, "now ": 0.2}, abs=0.02)
    result_last = sum(bool(re.search(r"[-+*]\d+=", step)) for step in steps) / len(steps)
    assert result_last == pytest.approx(0.65, abs=0.02)
    kinds = Counter(op for ex in examples for op in re.findall(r"\d([-+*])\d", ex.prompt))
    assert [kinds[op] / 9000 for op in "+-*"] == pytest.approx([1 / 3] * 3, abs=0.02)


def test_one_question_has_many_answers() -> None:
    """The same terms are worked out in every order (the generator's draws, not the prompt's)."""
    orders = Counter(
        tuple(sorted(range(3), key=lambda i: step_of_term(example.prompt, example.answer)[i]))
        for example in (mini_math.generate(random.Random(i), "hard") for i in range(600))
    )
    assert len(orders) == 6
    assert min(orders.values()) > 60


def step_of_term(prompt: str, answer: str) -> list[int]:
    """For each term of the prompt, the index of the step that works it out."""
    steps = [parse_step(step) for step in answer.split(";")[:3]]
    keys = [(op, sorted((x, y))) for x, op, y, _ in steps]
    places = []
    for x, op, y in re.findall(r"\((\d+)([-+*])(\d+)\)", prompt):
        place = keys.index((op, sorted((int(x), int(y)))))
        keys[place] = ("", [])
        places.append(place)
    return places


def test_unknown_level_is_a_user_error() -> None:
    with pytest.raises(UserError, match=r"'easy'.*embedded, replica, hard"):
        mini_math.generate(random.Random(0), "easy")
