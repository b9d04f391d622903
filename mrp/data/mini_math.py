"""Arithmetic with a written-out derivation: `(7*8)+(23-1)+(4+9)?` -> steps, then `#91`.

The order of the steps, their prefixes, the order of operands and the side of the result are free
choices. All of them are right, but they exclude each other, so tokens revealed in parallel from one
distribution conflict: the dependence that residual prediction is about.
"""

from __future__ import annotations

import random
from dataclasses import dataclass

from mrp.data.example import Example, below, between, for_level, sample

TERMS = 3
SWAP = 0.4  # probability that the operands of + and * change places
RESULT_LAST = 0.65  # probability of the form E=V; else V=E


@dataclass(frozen=True)
class Ranges:
    """Operand ranges (both ends included) of the three kinds of terms."""

    addend: tuple[int, int]
    minuend: tuple[int, int]
    factor: tuple[int, int] = (2, 9)
    subtrahend: tuple[int, int] = (1, 9)


LEVELS = {
    "embedded": Ranges(addend=(1, 19), minuend=(10, 29)),
    "replica": Ranges(addend=(1, 29), minuend=(10, 44)),
    "hard": Ranges(addend=(1, 49), minuend=(10, 99)),
}


def generate(rng: random.Random, level: str) -> Example:
    """Draw a question and one of its many right answers; raises UserError for an unknown level."""
    ranges = for_level(LEVELS, level)
    terms = [_term(rng, ranges) for _ in range(TERMS)]
    prompt = "+".join(f"({x}{op}{y})" for x, op, y in terms) + "?"
    order = sample(rng, terms, TERMS)
    steps = [_step(rng, *term) for term in order]
    total = _value(*order[0])
    for term in order[1:]:
        value = _value(*term)
        steps.append(_step(rng, total, "+", value))
        total += value
    return Example(prompt, "".join(steps) + f"#{total}", str(total))


def _term(rng: random.Random, ranges: Ranges) -> tuple[int, str, int]:
    kind = below(rng, 3)
    if kind == 0:
        return between(rng, *ranges.factor), "*", between(rng, *ranges.factor)
    if kind == 1:
        return between(rng, *ranges.addend), "+", between(rng, *ranges.addend)
    return between(rng, *ranges.minuend), "-", between(rng, *ranges.subtrahend)


def _value(x: int, op: str, y: int) -> int:
    return x * y if op == "*" else x + y if op == "+" else x - y


def _step(rng: random.Random, x: int, op: str, y: int) -> str:
    """One written step in a random one of its equivalent forms."""
    value = _value(x, op, y)
    draw = rng.random()
    prefix = "" if draw < 0.5 else "so " if draw < 0.8 else "now "
    if op != "-" and rng.random() < SWAP:
        x, y = y, x
    if rng.random() < RESULT_LAST:
        return f"{prefix}{x}{op}{y}={value};"
    return f"{prefix}{value}={x}{op}{y};"
