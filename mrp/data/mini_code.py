"""Programs with a prescribed output: `out 17 42 9 60` -> a straight-line program printing that.

    b=4+13
    f=6*7
    a=b-8
    c=63-3
    print(b,f,a,c)

A training program assigns the targets one after the other to distinct variables a..h, each as
`operand op operand`, and prints the variables in that order. Names, operators and decompositions
are free choices that exclude each other (a reuse has to name an earlier variable, and the print
line depends on all names), so tokens revealed in parallel conflict. `run_program` is the strict
interpreter of exactly this grammar; it accepts the assignments in any order.
"""

from __future__ import annotations

import random
import re
from dataclasses import dataclass

from mrp.data.example import Example, between, for_level, pick, sample

NAMES = "abcdefgh"
REUSE = 0.5  # probability of building on an earlier variable where that is possible
PRODUCT = 0.5  # probability that a target is drawn as a product (few uniform numbers are one)

# Bounds of the interpreter: its input is whatever a model wrote.
MAX_TEXT = 512  # characters
MAX_VALUE = 10**6  # magnitude of any intermediate value

# An operand is a literal of at most three digits without a leading zero, or a variable.
_OPERAND = r"([1-9][0-9]{0,2}|[a-h])"
_ASSIGNMENT = re.compile(rf"([a-h])={_OPERAND}([-+*]){_OPERAND}")
_PRINT = re.compile(r"print\(([a-h](?:,[a-h])*)\)")


@dataclass(frozen=True)
class Ranges:
    """How many targets there are and how large numbers get (all ends included).

    `related` is the share of examples whose targets may lie so close together that one can be built
    on another's variable; in the others no such way exists. `ordered`: variables stand in
    alphabetical order. Else that all differ is a rule over five lines, which small models learn
    late or never: of two trainings with the same settings one did.
    """

    targets: int
    related: float
    value: tuple[int, int]
    factors: tuple[tuple[int, int], tuple[int, int]]
    small: int  # largest literal that is added to or subtracted from something
    ordered: bool = False


LEVELS = {
    "embedded": Ranges(targets=4, related=0.2, value=(2, 99), factors=((2, 9), (2, 9)), small=9),
    "replica": Ranges(
        targets=4, related=0.4, value=(2, 149), factors=((2, 9), (2, 15)), small=15, ordered=True
    ),
    "hard": Ranges(targets=5, related=1.0, value=(2, 299), factors=((2, 9), (2, 29)), small=29),
}


def generate(rng: random.Random, level: str) -> Example:
    """Draw targets and one of the many right programs; raises UserError for an unknown level."""
    ranges = for_level(LEVELS, level)
    related = rng.random() < ranges.related
    targets: list[int] = []
    while len(targets) < ranges.targets:
        target = _target(rng, ranges)
        if target not in targets and (related or not _near(ranges, targets, target)):
            targets.append(target)
    names = sample(rng, NAMES, ranges.targets)
    if ranges.ordered:
        names.sort()
    lines: list[str] = []
    known: list[tuple[str, int]] = []
    for name, value in zip(names, targets, strict=True):
        lines.append(f"{name}={_right_side(rng, ranges, known, value)}")
        known.append((name, value))
    lines.append(f"print({','.join(names)})")
    target_text = " ".join(map(str, targets))
    return Example(f"out {target_text}", "\n".join(lines), target_text)


def run_program(text: str) -> str | None:
    """What the program prints, or None for anything off the grammar.

    Every variable is assigned once and printed once. White space around the program is ignored.
    The text is never evaluated as Python; MAX_TEXT and MAX_VALUE bound work and memory.
    """
    if len(text) > MAX_TEXT:
        return None
    *assignments, last = text.strip().split("\n")
    printed = _PRINT.fullmatch(last)
    if printed is None:
        return None
    values: dict[str, int] = {}
    for line in assignments:
        match = _ASSIGNMENT.fullmatch(line)
        if match is None or match[1] in values:
            return None
        left, right = _operand(values, match[2]), _operand(values, match[4])
        if left is None or right is None:
            return None
        value = _apply(left, match[3], right)
        if abs(value) > MAX_VALUE:
            return None
        values[match[1]] = value
    names = printed[1].split(",")
    if sorted(names) != sorted(values):
        return None
    return " ".join(str(values[name]) for name in names)


def _operand(values: dict[str, int], word: str) -> int | None:
    return int(word) if word[0] not in NAMES else values.get(word)


def _apply(left: int, op: str, right: int) -> int:
    return left * right if op == "*" else left + right if op == "+" else left - right


def _target(rng: random.Random, ranges: Ranges) -> int:
    if rng.random() < PRODUCT:
        first, second = ranges.factors
        return between(rng, *first) * between(rng, *second)
    return between(rng, *ranges.value)


def _near(ranges: Ranges, targets: list[int], target: int) -> bool:
    """Whether `target` could be built on variables with the values `targets`."""
    return bool(_reusing(ranges, [("a", value) for value in targets], target))


def _right_side(
    rng: random.Random, ranges: Ranges, known: list[tuple[str, int]], value: int
) -> str:
    """One of the decompositions of `value`, reusing an earlier variable now and then."""
    if known and rng.random() < REUSE:
        reusing = _reusing(ranges, known, value)
        if reusing:
            return pick(rng, reusing)
    return _from_literals(rng, ranges, value)


def _from_literals(rng: random.Random, ranges: Ranges, value: int) -> str:
    """A sum, a difference or, where `value` has fitting factors, a product of literals."""
    first, second = ranges.factors
    pairs = [
        (factor, value // factor)
        for factor in range(first[0], first[1] + 1)
        if value % factor == 0 and second[0] <= value // factor <= second[1]
    ]
    kind = pick(rng, "*+-" if pairs else "+-")
    if kind == "*":
        left, right = pick(rng, pairs)
    elif kind == "-":
        small = between(rng, 1, ranges.small)
        return f"{value + small}-{small}"
    else:
        right = between(rng, 1, min(ranges.small, value - 1))
        left = value - right
    if rng.random() < 0.5:
        left, right = right, left
    return f"{left}{kind}{right}"


def _reusing(ranges: Ranges, known: list[tuple[str, int]], value: int) -> list[str]:
    """Every way to write `value` with one or two earlier variables."""
    ways: list[str] = []
    low, high = ranges.factors[0]
    for name, other in known:
        gap = value - other
        if 0 < gap <= ranges.small:
            ways += (f"{name}+{gap}", f"{gap}+{name}")
        elif 0 < -gap <= ranges.small:
            ways.append(f"{name}-{-gap}")
        if value % other == 0 and low <= value // other <= high:
            ways += (f"{name}*{value // other}", f"{value // other}*{name}")
        for second, another in known:
            ways += (f"{name}{op}{second}" for op in "+-*" if _apply(other, op, another) == value)
    return ways
