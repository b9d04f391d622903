"""Scoring of the mini tasks: exact on answers, calm on anything else."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mrp import data
from mrp.errors import UserError
from mrp.evaluation.scoring import extract_answer, score


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
    program = "a=9+8\nb=a*2\nprint(b,a)"
    assert extract_answer("mini_code", program) == "34 17"
    assert score("mini_code", program, "34 17")
    assert not score("mini_code", program, "17 34")
    assert not score("mini_code", "34 17", "34 17")


@given(index=st.integers(0, 2**40), level=st.sampled_from(["embedded", "hard"]), draw=st.data())
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
