"""Ours against the paper: the rule of every verdict, and what the page says about all of them."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mrp.report.frame import Results
from mrp.report.page import write_tables
from mrp.report.published import SIZES, read_published
from mrp.report.statistics import Estimate, wilson
from mrp.report.verdicts import (
    FAILED,
    REPRODUCED,
    UNPUBLISHED,
    WITHIN,
    judge_accuracy,
    judge_speedup,
    summarize,
    with_verdicts,
)
from mrp.schema import OPTIONS

PUBLISHED = Path(__file__).parents[2] / "config" / "published.csv"


@pytest.mark.parametrize(
    ("correct", "n", "published", "of", "verdict"),
    [
        (118, 164, 0.726, 164, REPRODUCED),  # 72.0 against 72.6
        (106, 164, 0.726, 164, WITHIN),  # 64.6 (57.1-71.5): outside, yet noise of both
        (90, 164, 0.726, 164, FAILED),  # 54.9
        (150, 164, 0.726, 164, FAILED),  # better is another number, too
        (1186, 1319, 0.904, 1319, REPRODUCED),
        (1150, 1319, 0.904, 1319, FAILED),  # 3 points are much on GSM8K
        (3, 4, 0.726, 164, WITHIN),  # a few problems reproduce nothing
        (0, 40, 0.726, 164, FAILED),  # but they may contradict
        (0, 3, 0.416, 1319, WITHIN),
    ],
)
def test_accuracy(correct: int, n: int, published: float, of: int, verdict: str) -> None:
    found = judge_accuracy(correct, n, published, of)
    assert found.verdict == verdict
    assert found.difference.value == pytest.approx(correct / n - published)


def test_published_digits_are_not_more_than_they_are() -> None:
    """119 of 164 is 72.56 %, published as 72.6: it is the same."""
    found = wilson(1, 1000)
    edge = found.high + 0.0004
    assert judge_accuracy(1, 1000, edge, 1000).verdict == REPRODUCED
    assert judge_accuracy(1, 1000, found.high + 0.0006, 1000).verdict == WITHIN


@given(st.integers(1, 400), st.data())
def test_verdicts_get_worse_with_distance_and_never_contradict(n: int, data: st.DataObject) -> None:
    correct = data.draw(st.integers(0, n))
    order = [REPRODUCED, WITHIN, FAILED]
    above = [judge_accuracy(correct, n, p, n) for p in np.linspace(correct / n, 1, 25)]
    below = [judge_accuracy(correct, n, p, n) for p in np.linspace(correct / n, 0, 25)]
    for found in (above, below):
        ranks = [order.index(judged.verdict) for judged in found]
        assert ranks == sorted(ranks)
        assert ranks[0] == 0
    for judged in (*above, *below):
        excludes_zero = judged.difference.low > 0 or judged.difference.high < 0
        assert excludes_zero or judged.verdict != FAILED


@pytest.mark.parametrize(
    ("ratio", "low", "high", "published", "verdict"),
    [
        (1.38, 1.33, 1.43, 1.36, REPRODUCED),
        (1.365, 1.362, 1.368, 1.36, REPRODUCED),  # 1.36 may be 1.365
        (1.42, 1.40, 1.44, 1.36, WITHIN),  # outside of the interval, within 5 %
        (1.50, 1.47, 1.53, 1.36, FAILED),
        (1.10, 1.05, 1.15, 1.36, FAILED),
        (1.38, 0.80, 1.90, 1.36, WITHIN),  # so wide that it holds anything
        (1.70, 1.00, 2.40, 1.36, WITHIN),
        (1.38, math.nan, math.nan, 1.36, WITHIN),  # one repeat has no interval
        (0.40, math.nan, math.nan, 1.36, FAILED),
    ],
)
def test_speedup(ratio: float, low: float, high: float, published: float, verdict: str) -> None:
    found = judge_speedup(Estimate(ratio, low, high), published)
    assert found.verdict == verdict
    assert found.difference.value == pytest.approx(ratio - published)


def row(task: str, correct: int, **changes: object) -> dict[str, object]:
    """A finished row of the tidy table, dynamic at tau 0.5 on 8B if nothing else is said."""
    n = SIZES[task]
    return {
        "job": f"sdar-8b.mrp_{task}",
        "backbone": "sdar-8b",
        "task": f"mrp_{task}",
        "mode": "dynamic",
        "head": None,
        "head_variant": None,
        "head_source": None,
        **dict.fromkeys(OPTIONS),
        "tau": 0.5,
        "status": "done",
        "n": n,
        "correct": correct,
        "accuracy": correct / n,
        "paper_rule_correct": np.nan,
        "time_ratio": 2.0,
        "time_ratio_low": 1.9,
        "time_ratio_high": 2.1,
        **changes,
    }


SPECULATIVE = {"mode": "speculative", "head": "default", "head_variant": "default", "k": 3}
SPECULATIVE |= {"tau": None, "head_source": "trained", "time_ratio": 1.41}
SPECULATIVE |= {"time_ratio_low": 1.36, "time_ratio_high": 1.46}


def test_cells_find_their_published_number() -> None:
    rows = pd.DataFrame(
        [
            row("gsm8k", 896),  # 67.9
            row("gsm8k", 1192, **SPECULATIVE),  # 90.4, 1.40
            row("humaneval", 20),  # 12.2 against 32.3
            row("mbpp", 100, tau=0.55),
            row("math500", 226, status="not run"),
        ]
    )
    found = with_verdicts(rows, read_published(PUBLISHED))
    assert list(found["accuracy_verdict"]) == [REPRODUCED, REPRODUCED, FAILED, UNPUBLISHED, ""]
    assert list(found["speedup_verdict"]) == [UNPUBLISHED, REPRODUCED, *[UNPUBLISHED] * 2, ""]
    assert found["accuracy_gap"][2] == pytest.approx(20 / 164 - 0.323)

    said = summarize(found)
    assert said is not None
    assert dict(said.tallies) == {
        "accuracy": ((REPRODUCED, 2), (FAILED, 1), (UNPUBLISHED, 1)),
        "speedup": ((REPRODUCED, 1), (UNPUBLISHED, 3)),
    }
    assert said.unmeasured == 1
    (failure,) = said.failures
    assert failure.startswith(
        "sdar-8b · mrp_humaneval, dynamic, τ = 0.5: accuracy 12.2 %, the paper 32.3 %: "
    )
    assert any(text.startswith("speculative, speedup: ours minus") for text in said.averages)


def test_the_papers_own_rule_is_compared_with_the_paper() -> None:
    rows = pd.DataFrame([row("gsm8k", 1000, paper_rule_correct=896)])
    found = with_verdicts(rows, read_published(PUBLISHED)).iloc[0]
    assert found["accuracy_here"] == pytest.approx(896 / 1319)
    assert found["accuracy_verdict"] == REPRODUCED
    assert found["accuracy"] == pytest.approx(1000 / 1319)


def test_without_published_cells_there_is_nothing_to_say() -> None:
    rows = pd.DataFrame([row("gsm8k", 896, backbone="S")])
    assert summarize(with_verdicts(rows, read_published(PUBLISHED))) is None
    assert summarize(with_verdicts(rows, None)) is None


def test_every_published_number_has_one_place() -> None:
    """The paper gives a setting at most one accuracy and one speedup, in all its tables."""
    raw = pd.read_csv(PUBLISHED)
    assert len(raw) == 168
    keys = ["backbone", "head", "mode", "k", "tau", "task", "metric"]
    assert not raw.duplicated(keys).any()


def test_the_page_says_it(results: Results, tmp_path: Path) -> None:
    text = """\
table,backbone,head,mode,k,tau,task,metric,value
speculative,S,default,speculative,1,,mini_math,accuracy,92.5
speculative,S,default,speculative,1,,mini_math,speedup,9.9
remask,S,,dynamic,,0.5,mini_math,accuracy,99.0
"""
    (tmp_path / "published.csv").write_text(text, encoding="utf-8")
    write_tables(results, read_published(tmp_path / "published.csv"), tmp_path)
    page = (tmp_path / "tables.html").read_text("utf-8")
    assert 'id="against-the-paper"' in page
    assert "1 not reproduced" in page
    assert "Does not replicate" in page
    assert "dynamic, τ = 0.5: accuracy" in page
    assert "Newcombe's interval" in page.replace("&#39;", "'")
    csv = pd.read_csv(tmp_path / "tables.csv")
    judged = csv[csv["published_accuracy"].notna()].set_index(["mode", "task"])
    assert judged.loc[("speculative", "mini_math"), "accuracy_verdict"] == REPRODUCED
    assert judged.loc[("speculative", "mini_math"), "speedup_verdict"] == FAILED
    assert judged.loc[("dynamic", "mini_math"), "accuracy_verdict"] == FAILED
    assert len(judged) == 2
