"""Intervals and paired tests for right/wrong outcomes on the same problems.

All intervals are at 95 %. Modes are compared on the problems that both answered, because a gap of
three points on a few hundred problems is about one standard error of an unpaired comparison.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

Z = 1.959963984540054  # two-sided 95 % point of the normal distribution
RESAMPLES = 2000
SEED = 0

Bools: TypeAlias = NDArray[np.bool_]
Floats: TypeAlias = NDArray[np.float64]


@dataclass(frozen=True)
class Estimate:
    """A value with the ends of its 95 % interval."""

    value: float
    low: float
    high: float


def wilson(correct: float, n: int) -> Estimate:
    """Wilson's score interval of a proportion; it stays inside [0, 1] and is sane at 0 and n."""
    p, z2 = correct / n, Z * Z
    centre = (p + z2 / (2 * n)) / (1 + z2 / n)
    half = Z * math.sqrt(p * (1 - p) / n + z2 / (4 * n * n)) / (1 + z2 / n)
    return Estimate(p, min(p, max(0.0, centre - half)), max(p, min(1.0, centre + half)))


def mcnemar(won: int, lost: int) -> float:
    """Two-sided exact p-value that two paired outcomes are equally often right.

    Only the problems on which they disagree count: under the null each goes either way with
    probability 1/2.

    Args:
        won, lost: problems that only the first, only the second got right.
    """
    n = won + lost
    tail = sum(math.comb(n, i) for i in range(min(won, lost) + 1))
    return min(1.0, 2 * tail / (1 << n))


def paired_difference(first: Bools, second: Bools) -> Estimate:
    """Difference of two accuracies on the same problems [n], first minus second.

    The interval is Newcombe's for paired proportions (1998, method 10, with his continuity
    correction of phi): Wilson's limits of both, joined by their correlation.
    """
    n = len(first)
    both, only_first = int((first & second).sum()), int((first & ~second).sum())
    only_second = int((~first & second).sum())
    neither = n - both - only_first - only_second
    one, two = wilson(both + only_first, n), wilson(both + only_second, n)
    product = math.prod((both + only_first, only_second + neither))
    product *= math.prod((both + only_second, only_first + neither))
    cross = both * neither - only_first * only_second
    corrected = max(cross - n / 2, 0.0) if cross > 0 else float(cross)
    phi = corrected / math.sqrt(product) if product else 0.0

    def half(down: float, up: float) -> float:
        return math.sqrt(max(0.0, down * down - 2 * phi * down * up + up * up))

    value = (only_first - only_second) / n
    return Estimate(
        value,
        value - half(one.value - one.low, two.high - two.value),
        value + half(two.value - two.low, one.high - one.value),
    )


def independent_difference(first: Estimate, second: Estimate) -> Estimate:
    """Difference of two independent proportions, each with its Wilson interval, first minus second.

    Newcombe's hybrid score interval (1998, independent proportions, method 10). It holds zero
    wherever either interval holds the other's value.
    """
    value = first.value - second.value
    return Estimate(
        value,
        value - math.hypot(first.value - first.low, second.high - second.value),
        value + math.hypot(first.high - first.value, second.value - second.low),
    )


def mean_of(values: Floats) -> Estimate:
    """Mean of one number a problem [n] with its normal interval (for contrasts of paired runs)."""
    mean = float(values.mean())
    half = Z * float(values.std(ddof=1)) / math.sqrt(len(values)) if len(values) > 1 else math.inf
    return Estimate(mean, mean - half, mean + half)


# ---- bootstrap over problems ---------------------------------------------------------------------


@cache
def weights(n: int) -> Floats:
    """How often each of n problems is drawn in each resample: [RESAMPLES, n].

    The draws are the same for every run on n problems, so differences between runs are paired.
    """
    generator = np.random.default_rng(SEED)
    return generator.multinomial(n, np.full(n, 1 / n), size=RESAMPLES).astype(np.float64)


def percentile(value: float, replicates: Floats) -> Estimate:
    """The percentile interval of bootstrap replicates around the value of the full sample."""
    low, high = np.percentile(replicates, [2.5, 97.5])
    return Estimate(value, float(low), float(high))


@dataclass(frozen=True)
class Curve:
    """Runs on the same problems as points (speed, accuracy), in each bootstrap resample too.

    Attributes:
        speed: tokens per forward [points].
        accuracy: share of right answers [points].
        speeds, accuracies: the same in every resample [RESAMPLES, points].
    """

    speed: Floats
    accuracy: Floats
    speeds: Floats
    accuracies: Floats

    def take(self, points: Sequence[int]) -> Curve:
        """Some of its points."""
        return Curve(
            self.speed[list(points)],
            self.accuracy[list(points)],
            self.speeds[:, list(points)],
            self.accuracies[:, list(points)],
        )


def join(curves: Sequence[Curve]) -> Curve:
    """The points of several curves, of the same problems, as one curve."""
    return Curve(
        np.concatenate([part.speed for part in curves]),
        np.concatenate([part.accuracy for part in curves]),
        np.concatenate([part.speeds for part in curves], axis=1),
        np.concatenate([part.accuracies for part in curves], axis=1),
    )


def curve(correct: Sequence[Bools], tokens: Sequence[Floats], forwards: Sequence[Floats]) -> Curve:
    """The points of runs given per problem: right or wrong, tokens and forwards, each [n]."""
    right = np.stack([row.astype(np.float64) for row in correct], axis=1)
    made, cost = np.stack(tokens, axis=1), np.stack(forwards, axis=1)
    drawn = weights(len(right))
    return Curve(
        made.sum(0) / cost.sum(0),
        right.mean(0),
        (drawn @ made) / (drawn @ cost),
        (drawn @ right) / len(right),
    )


def interpolate(at: float, speed: Floats, accuracy: Floats) -> float | None:
    """Accuracy at a speed by straight lines between points; None outside their range."""
    if not len(speed) or not speed.min() <= at <= speed.max():
        return None
    order = np.argsort(speed, kind="stable")
    return float(np.interp(at, speed[order], accuracy[order]))


def gain_at_equal_speed(run: Curve, base: Curve) -> tuple[float, float, Floats] | None:
    """A run's accuracy minus what the base curve has at the same speed.

    A run slower than every point of the base is compared with the slowest of them, which is there
    for less: it must not be left out of a mean for being slow. The interval of the difference has
    to hold the noise of both speeds as well, hence the bootstrap: each resample interpolates anew.

    Args:
        run: one point.
        base: the points to interpolate between.

    Returns:
        The base's accuracy at the run's speed, the difference and its replicates [RESAMPLES];
        None where the run is faster than every point of the base.
    """
    at = max(float(run.speed[0]), float(base.speed.min()))
    here = interpolate(at, base.speed, base.accuracy)
    if here is None:
        return None
    there = _interpolate_rows(run.speeds[:, 0], base.speeds, base.accuracies)
    return here, float(run.accuracy[0]) - here, run.accuracies[:, 0] - there


def _interpolate_rows(at: Floats, x: Floats, y: Floats) -> Floats:
    """np.interp of at[i] between the points x[i], y[i] for every row i; flat outside of them."""
    order = np.argsort(x, axis=1, kind="stable")
    x, y = np.take_along_axis(x, order, axis=1), np.take_along_axis(y, order, axis=1)
    at = np.clip(at, x[:, 0], x[:, -1])
    right = np.clip((x < at[:, None]).sum(axis=1), 1, x.shape[1] - 1)
    rows = np.arange(len(x))
    x0, x1, y0, y1 = x[rows, right - 1], x[rows, right], y[rows, right - 1], y[rows, right]
    part = np.divide(at - x0, x1 - x0, out=np.zeros_like(at), where=x1 > x0)
    between: Floats = y0 + part * (y1 - y0)
    return between
