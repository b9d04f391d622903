"""Numbers with their bootstrap resamples, so that differences and means keep honest intervals.

All runs on equally many problems share their resamples (`statistics.weights`): in a difference of
two runs on the same problems what they have in common cancels, as in a paired test.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import TypeAlias

import numpy as np
import pandas as pd

from mrp.report.frame import Results
from mrp.report.settings import Line
from mrp.report.statistics import (
    RESAMPLES,
    Estimate,
    Floats,
    Z,
    percentile,
    wilson,
)

NO_WIDTH = 1e-9  # of an interval: resamples that agree but for rounding


@dataclass(frozen=True)
class Contrast:
    """A value of the full sample, and of every resample [RESAMPLES].

    Attributes:
        problems: that it was drawn from, the fewest of its parts; None for a measured time.
    """

    value: float
    replicates: Floats
    problems: int | None = None

    def __sub__(self, other: Contrast) -> Contrast:
        problems = _fewest([self, other])
        return Contrast(self.value - other.value, self.replicates - other.replicates, problems)

    def __truediv__(self, other: Contrast) -> Contrast:
        """The quotient; infinite or no number where `other` is zero."""
        with np.errstate(divide="ignore", invalid="ignore"):
            value = float(np.float64(self.value) / other.value)
            return Contrast(value, self.replicates / other.replicates, _fewest([self, other]))

    @property
    def estimate(self) -> Estimate:
        """With its percentile interval at 95 %."""
        return percentile(self.value, self.replicates)

    @property
    def flat(self) -> bool:
        """Whether all resamples agree: every problem says the same, or nothing was measured."""
        found = self.estimate
        return found.high - found.low < NO_WIDTH


def share_of(contrast: Contrast) -> Estimate:
    """An accuracy with its interval: Wilson's where all resamples agree, at 0 or 100 %."""
    if contrast.problems and contrast.flat:
        return wilson(contrast.value * contrast.problems, contrast.problems)
    return contrast.estimate


def mean(contrasts: Iterable[Contrast]) -> Contrast:
    """The mean of at least one."""
    listed = list(contrasts)
    value = float(np.mean([contrast.value for contrast in listed]))
    replicates = np.mean([contrast.replicates for contrast in listed], axis=0)
    return Contrast(value, replicates, _fewest(listed))


def _fewest(contrasts: Iterable[Contrast]) -> int | None:
    known = [contrast.problems for contrast in contrasts if contrast.problems is not None]
    return min(known, default=None)


def accuracy(results: Results, row: Line) -> Contrast:
    """A run's share of right answers."""
    point = results.points[row["job"], row["task"]]
    return Contrast(float(point.accuracy[0]), point.accuracies[:, 0], _problems(results, row))


def tpf(results: Results, row: Line) -> Contrast:
    """A run's tokens per forward."""
    point = results.points[row["job"], row["task"]]
    return Contrast(float(point.speed[0]), point.speeds[:, 0], _problems(results, row))


def _problems(results: Results, row: Line) -> int:
    return len(results.outcomes[row["job"], row["task"]].correct)


def time_ratio(results: Results, row: Line) -> Contrast | None:
    """A run's tokens per second over static's, 1 for static; None if it was not timed.

    The resamples are drawn from the log-normal distribution that the measured interval stands for,
    apart from the problems' resamples: timing noise is no noise of the answers.
    """
    if row["mode"] == "static" and pd.isna(row["steps"]) and pd.isna(row["time_ratio"]):
        return Contrast(1.0, np.ones(RESAMPLES))
    ratio, low, high = (row[f"time_ratio{end}"] for end in ("", "_low", "_high"))
    if pd.isna(ratio) or pd.isna(low):
        return None
    spread = np.log(high / low) / (2 * Z)
    return Contrast(float(ratio), ratio * np.exp(spread * _noise(f"{row['job']} {row['task']}")))


@cache
def _noise(name: str) -> Floats:
    """Standard normal noise of a run's timing, the same in every report [RESAMPLES]."""
    generator = np.random.default_rng(zlib.crc32(name.encode()))
    return generator.standard_normal(RESAMPLES)


Speed: TypeAlias = Callable[[Results, Line], Contrast | None]


def pooled(found: Sequence[Contrast | None]) -> Contrast | None:
    """The mean of those that there are; None if there are none."""
    known = [contrast for contrast in found if contrast is not None]
    return mean(known) if known else None
