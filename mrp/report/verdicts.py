"""Ours against the paper's numbers, cell by cell: difference, interval, verdict.

The paper's accuracies are samples, too: each has the noise of its benchmark's size. Taking both
samples as independent is careful, since they are of the same problems: what is called "not
reproduced" here differs by more than that noise.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from mrp.report.cells import RowSeries, lookahead, percent, points, signed, times
from mrp.report.published import SIZES, join_published
from mrp.report.statistics import Estimate, independent_difference, wilson

REPRODUCED, WITHIN, FAILED, UNPUBLISHED = (
    "reproduced",
    "within noise",
    "not reproduced",
    "not published",
)
VERDICTS = (REPRODUCED, WITHIN, FAILED, UNPUBLISHED)
ACCURACY_ROUNDING = 0.0005  # published to a tenth of a percent
SPEEDUP_ROUNDING = 0.005  # published to two decimals
NEAR = 0.05  # of a ratio: what another engine and another GPU may make of it
NARROW = 0.10  # of a ratio: an interval that reaches farther tells too little to reproduce anything

ACCURACY_RULE = (
    "Accuracy is reproduced where the published value, rounding counted, lies in the measured "
    "Wilson interval and the run covers the whole benchmark; it is not reproduced where the "
    "difference is significant at 5 %, counting the sampling noise of both (Newcombe's interval "
    "for two independent proportions leaves out zero); in between it is within noise."
)
SPEEDUP_RULE = (
    f"A speedup is reproduced where the published ratio, rounding counted, lies in the measured "
    f"interval and that reaches no farther than {NARROW:.0%} from our ratio; it is within noise "
    f"where it lies in a wider interval, or the two differ by at most {NEAR:.0%}; else it is not "
    "reproduced. The paper's ratios are of SGLang on one H100."
)
SCORING_RULE = (
    "The column Accuracy counts right answers. Where a task also has the paper's own scoring rule, "
    "mistakes included, the comparison with the paper uses that."
)


@dataclass(frozen=True)
class Judged:
    """A published number beside ours: both, the difference with its interval, and the verdict."""

    measured: float
    published: float
    difference: Estimate
    verdict: str


@dataclass(frozen=True)
class Summary:
    """What the page says about all cells together.

    Attributes:
        tallies: (metric, [(verdict, cells)]) pairs, verdicts without cells left out.
        averages: a sentence for each of the paper's tables and metrics.
        failures: a sentence for each cell that is not reproduced.
        unmeasured: published numbers of this suite's backbones and tasks without a record.
        rules: how the verdicts are made, in sentences.
    """

    tallies: tuple[tuple[str, tuple[tuple[str, int], ...]], ...]
    averages: tuple[str, ...]
    failures: tuple[str, ...]
    unmeasured: int
    rules: tuple[str, ...] = (ACCURACY_RULE, SPEEDUP_RULE, SCORING_RULE)


def judge_accuracy(correct: int, n: int, published: float, published_n: int) -> Judged:
    """Judge `correct` of `n` right answers by a published share of `published_n`."""
    ours, theirs = wilson(correct, n), wilson(published * published_n, published_n)
    difference = independent_difference(ours, theirs)
    inside = ours.low - ACCURACY_ROUNDING <= published <= ours.high + ACCURACY_ROUNDING
    if inside:
        verdict = REPRODUCED if n >= published_n else WITHIN
    else:
        verdict = WITHIN if difference.low <= 0 <= difference.high else FAILED
    return Judged(ours.value, published, difference, verdict)


def judge_speedup(ours: Estimate, published: float) -> Judged:
    """Judge a measured ratio by a published one; without an interval its ends are NaN."""
    inside = ours.low - SPEEDUP_ROUNDING <= published <= ours.high + SPEEDUP_ROUNDING
    reach = max(ours.high - ours.value, ours.value - ours.low)
    if inside and reach <= NARROW * ours.value:
        verdict = REPRODUCED
    else:
        near = abs(ours.value - published) <= NEAR * published + SPEEDUP_ROUNDING
        verdict = WITHIN if inside or near else FAILED
    difference = Estimate(ours.value - published, ours.low - published, ours.high - published)
    return Judged(ours.value, published, difference, verdict)


def with_verdicts(
    rows: pd.DataFrame, published: pd.DataFrame | None, table: str | None = None
) -> pd.DataFrame:
    """Our rows with the published numbers beside them and the columns of `_judged`.

    Args:
        rows: of `comparisons.compare`.
        published: of `published.read_published`, or None.
        table: one of the paper's tables; all of them if not given.
    """
    if published is None:
        nothing = {"table": None, "note": None, "accuracy": np.nan, "speedup": np.nan}
        joined = rows.assign(**{f"published_{name}": value for name, value in nothing.items()})
    else:
        joined = join_published(rows, published, table)
    judged = pd.DataFrame([_judged(row) for _, row in joined.iterrows()], index=rows.index)
    return pd.concat([joined, judged], axis=1)


def summarize(rows: pd.DataFrame) -> Summary | None:
    """What comes out over all cells; None where the paper has no number for any of them.

    Args:
        rows: of `with_verdicts`, all tables.
    """
    done = rows[rows["status"] == "done"]
    if done["published_table"].isna().all():
        return None
    tallies = []
    for metric in ("accuracy", "speedup"):
        counts = Counter(str(verdict) for verdict in done[f"{metric}_verdict"])
        found = tuple((verdict, counts[verdict]) for verdict in VERDICTS if counts[verdict])
        tallies.append((metric, found))
    failures = [
        text
        for _, row in done.iterrows()
        for text in (_accuracy_failure(row), _speedup_failure(row))
        if text
    ]
    return Summary(tuple(tallies), tuple(_averages(done)), tuple(failures), _unmeasured(rows))


def _judged(row: RowSeries) -> dict[str, Any]:
    """The columns that compare a row with the paper.

    paper_rule: whether its accuracy there is by the paper's own rule. accuracy_here: that accuracy.
    accuracy_gap, speedup_gap (with _low and _high): ours minus theirs. accuracy_verdict,
    speedup_verdict: one of VERDICTS; empty without a measurement, and for the baseline's speedup,
    which is 1 by definition.
    """
    by_rule = not pd.isna(row["paper_rule_correct"])
    found: dict[str, Any] = {"paper_rule": by_rule, "accuracy_here": np.nan}
    for name in ("accuracy_gap", "speedup_gap"):
        found |= dict.fromkeys((name, f"{name}_low", f"{name}_high"), np.nan)
    found |= {"accuracy_verdict": "", "speedup_verdict": ""}
    if row["status"] != "done":
        return found
    correct, n = int(row["paper_rule_correct"] if by_rule else row["correct"]), int(row["n"])
    found["accuracy_here"] = correct / n
    if pd.isna(row["published_accuracy"]):
        found["accuracy_verdict"] = UNPUBLISHED
    else:
        size = SIZES.get(str(row["task"]).removeprefix("mrp_"), n)
        judged = judge_accuracy(correct, n, row["published_accuracy"], size)
        found |= {**_gap("accuracy_gap", judged), "accuracy_verdict": judged.verdict}
    if not pd.isna(row["time_ratio"]):
        if pd.isna(row["published_speedup"]):
            found["speedup_verdict"] = UNPUBLISHED
        else:
            ours = Estimate(row["time_ratio"], row["time_ratio_low"], row["time_ratio_high"])
            judged = judge_speedup(ours, row["published_speedup"])
            found |= {**_gap("speedup_gap", judged), "speedup_verdict": judged.verdict}
    return found


def _gap(name: str, judged: Judged) -> dict[str, float]:
    gap = judged.difference
    return {name: gap.value, f"{name}_low": gap.low, f"{name}_high": gap.high}


# ---- sentences -----------------------------------------------------------------------------------


def _accuracy_failure(row: RowSeries) -> str:
    if row["accuracy_verdict"] != FAILED:
        return ""
    span = f"{points(row['accuracy_gap_low'])} to {points(row['accuracy_gap_high'])}"
    return (
        f"{_setting(row)}: accuracy {percent(row['accuracy_here'])} %, the paper "
        f"{percent(row['published_accuracy'])} %: {points(row['accuracy_gap'])} points ({span})"
    )


def _speedup_failure(row: RowSeries) -> str:
    if row["speedup_verdict"] != FAILED:
        return ""
    return (
        f"{_setting(row)}: {times(row['time_ratio'])} static, the paper "
        f"{times(row['published_speedup'])}: {signed(row['speedup_gap'], 2)}"
    )


def _setting(row: RowSeries) -> str:
    """sdar-4b · mrp_gsm8k, direct, default, K = 1."""
    parts = [f"{row['backbone']} · {row['task']}", str(row["mode"]).replace("_", "-")]
    if not pd.isna(row["head"]):
        trained = " (trained here)" if row["head_source"] == "trained" else ""
        parts.append(f"{row['head']}{trained}")
    if not pd.isna(row["k"]):
        parts.append(f"K = {lookahead(row['k'])}")
    if not pd.isna(row["tau"]):
        parts.append(f"τ = {row['tau']:g}")
    return ", ".join(parts)


def _averages(done: pd.DataFrame) -> Iterator[str]:
    """The mean difference over each of the paper's tables."""
    for table, rows in done.groupby("published_table", sort=False):
        for metric, scale, places, unit in (("accuracy", 100, 1, " points"), ("speedup", 1, 2, "")):
            gaps = rows[f"{metric}_gap"].dropna()
            if gaps.empty:
                continue
            counts = Counter(str(verdict) for verdict in rows[f"{metric}_verdict"])
            yield (
                f"{str(table).replace('_', ' ')}, {metric}: ours minus the paper's is "
                f"{signed(scale * float(gaps.mean()), places)}{unit} on average over {len(gaps)}; "
                f"{counts[REPRODUCED]} reproduced, {counts[WITHIN]} within noise, "
                f"{counts[FAILED]} not"
            )


def _unmeasured(rows: pd.DataFrame) -> int:
    """Published numbers of the suite's jobs that have no record."""
    missing = rows[rows["status"] != "done"]
    return int(missing[["published_accuracy", "published_speedup"]].notna().sum().sum())
