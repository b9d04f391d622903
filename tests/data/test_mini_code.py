"""The code task: its generator against Python itself, its interpreter against hostile text."""

from __future__ import annotations

import contextlib
import io
import random
import re
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mrp.data import mini_code
from mrp.data.mini_code import MAX_TEXT, run_program

LEVELS = st.sampled_from(["embedded", "replica", "hard"])


def run_in_python(program: str) -> str:
    """The oracle: only for programs that our own generator wrote or that the grammar accepted."""
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        exec(program, {})
    return out.getvalue().rstrip("\n")


@given(seed=st.integers(0, 2**32), level=LEVELS)
def test_program_prints_the_targets(seed: int, level: str) -> None:
    example = mini_code.generate(random.Random(seed), level)
    assert example.prompt == f"out {example.target}"
    assert run_in_python(example.answer) == example.target
    assert run_program(example.answer) == example.target
    values = [int(word) for word in example.target.split()]
    ranges = mini_code.LEVELS[level]
    assert len(set(values)) == len(values) == ranges.targets
    assert all(ranges.value[0] <= value <= ranges.value[1] for value in values)


@given(seed=st.integers(0, 2**32), level=LEVELS, data=st.data())
def test_interpreter_agrees_with_python_on_edited_programs(
    seed: int, level: str, data: st.DataObject
) -> None:
    program = list(mini_code.generate(random.Random(seed), level).answer)
    for _ in range(data.draw(st.integers(1, 3))):
        place = data.draw(st.integers(0, len(program) - 1))
        program[place] = data.draw(st.sampled_from("0123456789+-*=abcdefgh,()\n "))
    printed = run_program("".join(program))
    if printed is not None:
        assert printed == run_in_python("".join(program).strip())


def test_names_and_decompositions_are_free_and_lines_follow_the_targets() -> None:
    examples = [mini_code.generate(random.Random(i), "embedded") for i in range(800)]
    programs = [example.answer.split("\n") for example in examples]
    assert {line[0] for *lines, _ in programs for line in lines} == set("abcdefgh")
    for *lines, last in programs:
        assert last == f"print({','.join(line[0] for line in lines)})"
    operators = "".join(re.findall(r"[-+*]", "".join(example.answer for example in examples)))
    assert min(operators.count(op) / len(operators) for op in "+-*") > 0.15


def test_the_replica_s_variables_stand_in_alphabetical_order() -> None:
    answers = [mini_code.generate(random.Random(i), "replica").answer for i in range(200)]
    orders = ["".join(line[0] for line in answer.split("\n")[:-1]) for answer in answers]
    assert all(order == "".join(sorted(order)) for order in orders)
    assert len(set(orders)) > 50


@pytest.mark.parametrize(
    ("level", "least", "most"),
    [("embedded", 0.02, 0.05), ("replica", 0.02, 0.1), ("hard", 0.1, 0.3)],
)
def test_some_lines_build_on_an_earlier_variable(level: str, least: float, most: float) -> None:
    answers = [mini_code.generate(random.Random(i), level).answer for i in range(800)]
    lines = [line for answer in answers for line in answer.split("\n")[:-1]]
    reusing = sum(bool(re.search("=.*[a-h]", line)) for line in lines)
    assert least < reusing / len(lines) < most


@pytest.mark.parametrize(
    "program",
    [
        "",
        "print()",
        "print(a)",
        "print(17)",
        "a=17\nprint(a)",  # a bare literal
        "a=9+8",
        "a=9+8\nprint(b)",
        "a=9+8\nb=4+5\nprint(a)",  # a value that is not printed
        "a=9+8\nprint(a,a)",
        "a=9+8\na=9+8\nprint(a)",
        "a=b+8\nb=4+5\nprint(a,b)",  # used before it is assigned
        "a=a+8\nprint(a)",
        "a=9+8;print(a)",
        "a = 9+8\nprint(a)",
        "a=9+8\n\nprint(a)",
        "a=9+8\nprint(a)\nprint(a)",
        "a=9+8\nprint(a,)",
        "a=9+8 \nprint(a)",
        "a=9+8\r\nprint(a)",
        "a=9+8+0\nprint(a)",
        "a=(9+8)\nprint(a)",
        "a=-9+26\nprint(a)",
        "a=09+8\nprint(a)",
        "a=17+0\nprint(a)",
        "a=34/2\nprint(a)",
        "a=34//2\nprint(a)",
        "a=2**4\nprint(a)",
        "a=1000-983\nprint(a)",  # a literal of four digits
        "i=9+8\nprint(i)",
        "A=9+8\nprint(A)",
        "a=\uff19+8\nprint(a)",  # a full-width digit
        "a=\u0669+8\nprint(a)",  # an Arabic digit
        "\u0430=9+8\nprint(\u0430)",  # a Cyrillic letter
        "a=9+8\nprint(a)#",
        "import os\nprint(a)",
        "a=9+8\nprint(a,b)",
    ],
)
def test_anything_off_the_grammar_is_wrong(program: str) -> None:
    assert run_program(program) is None


def test_white_space_around_the_program_is_ignored() -> None:
    assert run_program("\n a=9+8\nprint(a)\n\n") == "17"


def test_numbers_are_bounded() -> None:
    assert run_program("a=999*999\nprint(a)") == "998001"
    assert run_program("a=999*999\nb=a*2\nprint(a,b)") is None
    squares = "a=999*999\n" + "".join(f"{y}={x}*{x}\n" for x, y in zip("abcdefg", "bcdefgh"))  # noqa: B905
    assert run_program(squares + "print(a,b,c,d,e,f,g,h)") is None


@pytest.mark.parametrize(
    "text",
    [
        "9" * 1_000_000,
        "a=" + "9" * 1_000_000 + "*" + "9" * 1_000_000 + "\nprint(a)",
        "a=" + "(" * 1_000_000,
        "print(" + "a," * 500_000 + "a)",
        "a=9+8\n" * 200_000 + "print(a)",
        "\n" * 1_000_000,
        "\u2028" * 1_000_000,
        "print(" + "a," * ((MAX_TEXT - 8) // 2) + "a)",
        "\x00\ud800",
    ],
    ids=lambda text: f"{text[:8]!r}",
)
def test_hostile_text_is_wrong_at_once(text: str) -> None:
    start = time.perf_counter()
    assert run_program(text) is None
    assert time.perf_counter() - start < 2  # a runaway match would take minutes


@given(st.text(max_size=200))
def test_any_text_is_handled(text: str) -> None:
    run_program(text)
