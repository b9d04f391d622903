"""Scoring of the mini tasks: exact on answers, calm on anything else."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mrp import data
from mrp.errors import UserError
from mrp.evaluation.scoring import extract_answer, score

LEVELS = st.sampled_from(["embedded", "hard"])


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("23-1=22;#51", "51"),
        ("#7;22+29=51;#51", "51"),
        ("#51\n", "51"),
        ("# 51 ", "51"),
        ("#51;so 3", "51"),
        ("#51 apples", "51"),
        ("#51.", "51"),
        ("#-5", "-5"),
        ("#051", "051"),
        ("#51.5", None),
        ("51", None),
        ("#", None),
        ("#51 #", None),
        ("#x51", None),
        ("#\u0665\u0661", None),
        ("", None),
        ("#" + "9" * 13, None),
    ],
)
def test_math_answer_follows_the_last_hash(text: str, answer: str | None) -> None:
    assert extract_answer("mini_math", text) == answer


def test_math_score_is_exact() -> None:
    assert score("mini_math", "22+29=51;#51", "51")
    assert not any(score("mini_math", text, "51") for text in ("#5", "#511", "#051", "#-51", "51"))


def test_code_answer_is_what_the_program_prints() -> None:
    program = "b=9+8\na=b*2"
    assert extract_answer("mini_code", program) == "a=34 b=17"
    assert score("mini_code", program, "a=34 b=17")
    assert not score("mini_code", program, "b=17 a=34")  # targets are alphabetical
    assert not score("mini_code", program, "a=17 b=34")
    assert not score("mini_code", program, "34 17")
    assert not score("mini_code", "a=34 b=17", "a=34 b=17")
    assert not score("mini_code", f"{program}\nprint(a,b)", "a=34 b=17")


def test_any_order_that_the_reuses_allow_is_right() -> None:
    target = "a=34 b=17 c=8"
    orders = ["b=9+8\na=b*2\nc=9-1", "b=9+8\nc=9-1\na=b*2", "c=9-1\nb=9+8\na=b*2"]
    assert all(score("mini_code", program, target) for program in orders)
    assert not score("mini_code", "a=b*2\nb=9+8\nc=9-1", target)


@given(index=st.integers(0, 2**40), level=LEVELS, draw=st.data())
def test_exactly_the_asked_variables_are_right(index: int, level: str, draw: st.DataObject) -> None:
    task, example = data.train_example(0, 2 * index + 1, level)
    assert task == "mini_code"
    lines = example.answer.split("\n")
    names = [line[0] for line in lines]
    assert score(task, "\n".join(lines), example.target)

    def is_right(changed: list[str]) -> bool:
        return score(task, "\n".join(changed), example.target)

    place = draw.draw(st.integers(0, len(lines) - 1))
    other = draw.draw(st.integers(0, len(lines) - 1).filter(lambda i: i != place))
    unasked = draw.draw(st.sampled_from([name for name in "abcdefgh" if name not in names]))
    missing = [*lines[:place], *lines[place + 1 :]]
    assert not is_right(missing)
    for name in (unasked, names[place]):  # surplus, duplicated
        assert not is_right([*lines[:place], f"{name}{lines[place][1:]}", *lines[place:]])
        assert not is_right([*lines, f"{name}{lines[place][1:]}"])
    # Another variable's name in place of its own; then an unasked name, and two names swapped.
    assert not is_right([*lines[:place], names[other] + lines[place][1:], *lines[place + 1 :]])
    for new in (unasked, names[other]):
        renamed = str.maketrans(names[place] + new, new + names[place])
        assert not is_right([line.translate(renamed) for line in lines])


@given(index=st.integers(0, 2**40), level=LEVELS, draw=st.data())
def test_a_changed_digit_or_a_cut_answer_is_wrong(
    index: int, level: str, draw: st.DataObject
) -> None:
    task, example = data.train_example(0, index, level)
    answer = example.answer
    start = answer.rfind("#") + 1 if task == "mini_math" else 0
    digits = [i for i in range(start, len(answer)) if answer[i].isdigit()]
    place = draw.draw(st.sampled_from(digits))
    digit = draw.draw(st.sampled_from([d for d in "123456789" if d != answer[place]]))
    assert not score(task, answer[:place] + digit + answer[place + 1 :], example.target)
    assert not score(task, answer[: draw.draw(st.integers(0, len(answer) - 1))], example.target)
    assert not score(task, answer, example.target + "0")


@pytest.mark.parametrize("task", ["mini_math", "mini_code"])
@pytest.mark.parametrize("piece", ["#", "9", "#9", " ", "\n", "a=1+1\n", "\u0660", "("])
def test_a_megabyte_is_scored_at_once(task: str, piece: str) -> None:
    start = time.perf_counter()
    extract_answer(task, piece * (1_000_000 // len(piece)))
    extract_answer(task, "#" + piece * (1_000_000 // len(piece)))
    assert time.perf_counter() - start < 2  # a runaway match would take minutes


@given(task=st.sampled_from(["mini_math", "mini_code"]), text=st.text(max_size=100))
def test_any_text_is_scored(task: str, text: str) -> None:
    assert not score(task, text, "no answer")


def test_other_tasks_are_user_errors() -> None:
    with pytest.raises(UserError, match="'gsm8k'"):
        score("gsm8k", "#1", "1")
