"""Intervals and tests against published or independently known values."""

from __future__ import annotations

import numpy as np
import pytest

from mrp.report.statistics import (
    Bools,
    curve,
    gain_at_equal_speed,
    independent_difference,
    interpolate,
    mcnemar,
    mean_of,
    paired_difference,
    percentile,
    wilson,
)


def paired(both: int, first: int, second: int, neither: int) -> tuple[Bools, Bools]:
    one = [True] * (both + first) + [False] * (second + neither)
    two = [True] * both + [False] * first + [True] * second + [False] * neither
    return np.array(one), np.array(two)


@pytest.mark.parametrize(
    ("correct", "n", "low", "high"),
    [
        (81, 263, 0.2553, 0.3662),  # Newcombe 1998, table I, method 3
        (15, 148, 0.0624, 0.1605),
        (0, 20, 0.0, 0.1611),
        (1, 29, 0.0061, 0.1718),
        (29, 29, 1 - 0.1170, 1.0),
    ],
)
def test_wilson(correct: int, n: int, low: float, high: float) -> None:
    found = wilson(correct, n)
    assert found.value == correct / n
    assert (found.low, found.high) == pytest.approx((low, high), abs=5e-5)


@pytest.mark.parametrize(
    ("table", "low", "high"),
    [
        ((36, 12, 2, 0), 0.0569, 0.3404),  # Newcombe 1998 (paired), method 10
        ((0, 0, 0, 30), -0.1135, 0.1135),  # both limits from Wilson's 0/30
    ],
)
def test_paired_difference(table: tuple[int, int, int, int], low: float, high: float) -> None:
    found = paired_difference(*paired(*table))
    assert found.value == pytest.approx((table[1] - table[2]) / sum(table))
    # Where phi is 0 the half widths are the root of the sum of squares of Wilson's.
    expected = (low, high) if table[0] else (-wilson(0, 30).high, wilson(0, 30).high)
    assert (found.low, found.high) == pytest.approx(expected, abs=5e-5)


@pytest.mark.parametrize(
    ("one", "two", "low", "high"),
    [
        ((56, 70), (48, 80), 0.0524, 0.3339),  # Newcombe 1998 (independent), method 10
        ((9, 10), (3, 10), 0.1705, 0.8090),
        ((5, 56), (0, 29), -0.0381, 0.1926),
    ],
)
def test_independent_difference(
    one: tuple[int, int], two: tuple[int, int], low: float, high: float
) -> None:
    found = independent_difference(wilson(*one), wilson(*two))
    assert found.value == pytest.approx(one[0] / one[1] - two[0] / two[1])
    assert (found.low, found.high) == pytest.approx((low, high), abs=5e-5)


def test_paired_difference_turns_with_its_sides() -> None:
    one, two = paired(20, 9, 3, 8)
    there, back = paired_difference(one, two), paired_difference(two, one)
    assert (there.low, there.high) == pytest.approx((-back.high, -back.low))


def test_mcnemar() -> None:
    assert mcnemar(9, 3) == pytest.approx(0.14599609375)  # scipy.stats.binomtest(3, 12).pvalue
    assert mcnemar(0, 5) == mcnemar(5, 0) == 0.0625
    assert mcnemar(4, 4) == mcnemar(0, 0) == 1.0
    assert 0 < mcnemar(900, 700) < 1e-5  # no overflow at a benchmark's size


def test_mean_of() -> None:
    found = mean_of(np.array([1.0, 2.0, 3.0, 4.0]))
    assert found.value == 2.5
    assert found.high - found.value == pytest.approx(1.959964 * 1.290994 / 2, rel=1e-5)


def test_interpolate() -> None:
    speed, accuracy = np.array([3.0, 1.0, 2.0]), np.array([0.2, 0.9, 0.7])
    assert interpolate(1.5, speed, accuracy) == pytest.approx(0.8)
    assert interpolate(2.0, speed, accuracy) == pytest.approx(0.7)
    assert interpolate(0.99, speed, accuracy) is None
    assert interpolate(3.01, speed, accuracy) is None
    assert interpolate(1.0, speed[:0], accuracy[:0]) is None


def test_ratio_is_of_totals_and_its_interval_holds_it() -> None:
    tokens, forwards = np.array([16.0, 32.0, 48.0] * 20), np.array([8.0, 30.0, 20.0] * 20)
    nothing_right = np.zeros(60, dtype=np.bool_)
    point = curve([nothing_right], [tokens], [forwards])
    found = percentile(float(point.speed[0]), point.speeds[:, 0])
    assert found.value == pytest.approx(96 / 58)
    assert found.low < found.value < found.high


def test_gain_at_equal_speed() -> None:
    n = 200
    right = np.arange(n) < 150
    fast, slow = np.arange(n) < 100, np.arange(n) < 180
    tokens = np.full(n, 30.0)
    base = curve([slow, fast], [tokens, tokens], [np.full(n, 30.0), np.full(n, 10.0)])
    run = curve([right], [tokens], [np.full(n, 15.0)])
    found = gain_at_equal_speed(run, base)
    assert found is not None
    there, gain, replicates = found
    assert there == pytest.approx(0.7)  # halfway between 0.9 at 1 and 0.5 at 3
    assert gain == pytest.approx(0.05)
    interval = percentile(gain, replicates)
    assert interval.low < gain < interval.high
    assert gain_at_equal_speed(curve([right], [tokens], [np.full(n, 9.0)]), base) is None
    slower = gain_at_equal_speed(curve([right], [tokens], [np.full(n, 60.0)]), base)
    assert slower is not None  # than all: compared with the slowest, which is as accurate for less
    assert slower[:2] == (pytest.approx(0.9), pytest.approx(-0.15))
    assert percentile(slower[1], slower[2]).high < 0


def test_gain_of_a_run_over_itself_is_nothing() -> None:
    generator = np.random.default_rng(1)
    right, tokens = generator.random(60) < 0.6, generator.integers(16, 64, 60).astype(float)
    forwards = tokens / generator.uniform(1.5, 2.5, 60)
    other = curve([right, right], [tokens, tokens], [forwards, tokens])
    found = gain_at_equal_speed(curve([right], [tokens], [forwards]), other)
    assert found is not None
    assert found[1] == pytest.approx(0)
    assert np.allclose(found[2], 0)
