"""Scoring of the mini tasks: exact, and bounded on whatever text a model wrote."""

from __future__ import annotations

import re

from mrp.data.mini_code import run_program
from mrp.errors import UserError

# The number after the last `#`; `#5` followed by a digit or a decimal fraction is another number.
_RESULT = re.compile(r"\s{0,8}(-?[0-9]{1,12})(?![0-9]|\.[0-9])")


def extract_answer(task: str, text: str) -> str | None:
    """The answer in a model's text, or None where there is none.

    mini_math: the digits after the last `#`. mini_code: what the program prints, None for anything
    off its grammar.

    Raises:
        UserError: the task is not a mini task.
    """
    if task == "mini_math":
        found = _RESULT.match(text, text.rfind("#") + 1) if "#" in text else None
        return found[1] if found else None
    if task == "mini_code":
        return run_program(text)
    raise UserError(f"task {task!r} has no scoring here: choose one of mini_math, mini_code")


def score(task: str, text: str, target: str) -> bool:
    """Whether the answer in `text` is exactly `target`; raises UserError for another task."""
    return extract_answer(task, text) == target
