"""What a generated task is made of: an example, the difficulty levels and reproducible draws."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeVar

from mrp.errors import UserError

Item = TypeVar("Item")
Setting = TypeVar("Setting")


@dataclass(frozen=True)
class Example:
    """One question: the user's message, a full reference answer and what scoring compares with."""

    prompt: str
    answer: str
    target: str


def for_level(settings: dict[str, Setting], level: str) -> Setting:
    """The settings of a difficulty level; raises UserError for a level that does not exist."""
    if level not in settings:
        raise UserError(f"data level {level!r} is unknown: choose one of {', '.join(settings)}")
    return settings[level]


# `random()` is the only draw that Python promises to keep the same between its versions, so every
# draw goes through it: a data set must not change with the interpreter.


def below(rng: random.Random, n: int) -> int:
    """A uniform integer in [0, n)."""
    return int(rng.random() * n)


def between(rng: random.Random, low: int, high: int) -> int:
    """A uniform integer in [low, high], both ends included."""
    return low + int(rng.random() * (high - low + 1))


def pick(rng: random.Random, items: Sequence[Item]) -> Item:
    """A uniform element of a non-empty sequence."""
    return items[int(rng.random() * len(items))]


def sample(rng: random.Random, items: Sequence[Item], n: int) -> list[Item]:
    """`n` elements without replacement, in uniformly random order (a partial Fisher-Yates)."""
    rest = list(items)
    for i in range(n):
        j = i + int(rng.random() * (len(rest) - i))
        rest[i], rest[j] = rest[j], rest[i]
    return rest[:n]
