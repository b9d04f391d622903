"""Verdicts come from intervals by rule, for each task, each backbone and all of them."""

from __future__ import annotations

import json
import re
import shutil
from argparse import Namespace
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mrp.report.comparisons import compare
from mrp.report.contrasts import Contrast, mean
from mrp.report.findings import (
    CLAIMS,
    FAILS,
    HOLDS,
    INCOMPLETE,
    MIXED,
    OPEN,
    Finding,
    build_findings,
    unsaid_claims,
)
from mrp.report.findings.readings import (
    FEW,
    Counted,
    Measured,
    Quotient,
    agree,
    pool,
    verdict_of,
)
from mrp.report.findings.remasking import _by_the_other_half
from mrp.report.frame import Results, load_results
from mrp.report.markdown import write_findings
from mrp.report.statistics import RESAMPLES
from mrp.schema import LOSSLESS
from tests.report.conftest import N
from tests.report.synthetic import Written, write_results


def by_claim(findings: list[Finding], start: str) -> Finding:
    (found,) = [finding for finding in findings if finding.claim.startswith(start)]
    return found


@pytest.fixture(scope="module")
def partial(results: Results, rows: pd.DataFrame) -> list[Finding]:
    """Of records that two jobs are missing from."""
    return build_findings(results, rows)


@pytest.fixture(scope="module")
def findings(tmp_path_factory: pytest.TempPathFactory) -> list[Finding]:
    written = write_results(tmp_path_factory.mktemp("complete"), N)
    results = load_results(written.suite, written.results)
    return build_findings(results, compare(results))


@pytest.mark.parametrize(
    ("claim", "verdict"),
    [
        ("Without a head", HOLDS),
        ("A residual head", HOLDS),
        ("Direct decoding trades", HOLDS),
        ("Speculative decoding changes no answer", HOLDS),
        ("Speculative decoding saves forwards", HOLDS),
        ("Speculative decoding saves time", FAILS),
        ("A head drafts better", HOLDS),
        ("Dynamic decoding loses", HOLDS),
        ("Remasking recovers", HOLDS),
        ("Remasking gains at the same tokens", OPEN),
        ("Remasking gains in the same time", FAILS),
    ],
)
def test_verdicts_on_the_invented_grid(findings: list[Finding], claim: str, verdict: str) -> None:
    found = by_claim(findings, claim)
    assert found.verdict == verdict, found.overall.text


def test_each_claim_has_evidence_on_both_tasks(findings: list[Finding]) -> None:
    assert len(findings) == 16
    for finding in findings:
        assert {item.place for item in finding.evidence} == {"S · mini_math", "S · mini_code"}
        assert [part.place for part in finding.backbones] == ["S"]


def test_numbers_of_a_backbone_are_means_over_its_tasks(
    results: Results, rows: pd.DataFrame, partial: list[Finding]
) -> None:
    found = by_claim(partial, "Training on two chained reveals")
    (reading,) = found.backbones[0].readings
    assert isinstance(reading, Measured)
    assert reading.quantity.endswith("K = 2, 4")  # one job has no record

    def right(head: str, k: int, task: str) -> float:
        chosen = rows[(rows["mode"] == "direct") & (rows["head"] == head) & (rows["k"] == k)]
        return float(chosen[chosen["task"] == task]["accuracy"].iloc[0])

    gaps = [
        right("k2", k, task) - right("default", k, task)
        for k in (2, 4)
        for task in ("mini_math", "mini_code")
    ]
    assert reading.contrast.value == pytest.approx(np.mean(gaps))


def test_one_changed_answer_is_not_lossless(tmp_path: Path) -> None:
    written = write_results(tmp_path, 12)
    path = written.layout.run_dir("S.mini.speculative.k2.k2") / "samples.jsonl"
    first, rest = path.read_text("utf-8").split("\n", 1)
    line = json.loads(first)
    line["text"] += " "
    path.write_text(json.dumps(line) + "\n" + rest, encoding="utf-8")
    results = load_results(written.suite, written.results)
    found = by_claim(build_findings(results, compare(results)), "Speculative decoding changes no")
    assert found.verdict == FAILS
    assert "speculative, k2: 95 of 96" in found.overall.text
    (failed,) = [item for item in found.evidence if item.verdict == FAILS]
    assert failed.place == "S · mini_math"


def test_no_verdict_where_runs_are_missing(partial: list[Finding], findings: list[Finding]) -> None:
    """MISSING is a speculative run with the default head, FAILED a direct one with k2."""
    touched = {
        "A residual head is": ("direct", 12),
        "A head trained directly": ("direct", 12),
        "Training on two": ("direct", 8),
        "Direct decoding trades": ("direct", 13),
        "Speculative decoding changes": ("speculative", 10),
        "No lossless way": ("speculative", 14),
        "Speculative decoding saves forwards": ("speculative", 12),
        "Speculative decoding saves time": ("speculative", 12),
        "A head drafts better": ("speculative", 12),
        "The head pays": ("speculative", 12),
    }
    whole = {finding.claim: finding for finding in findings}
    for finding in partial:
        assert whole[finding.claim].verdict != INCOMPLETE
        start = next((start for start in touched if finding.claim.startswith(start)), None)
        if start is None:
            assert finding.verdict == whole[finding.claim].verdict
            continue
        assert finding.verdict == INCOMPLETE
        missing = f"1 of the {touched[start][1]} runs it rests on is missing"
        for part in (*finding.evidence, *finding.backbones, finding.overall):
            assert missing in part.note


def test_claims_without_runs_are_left_out(tmp_path: Path) -> None:
    written = write_results(tmp_path, 4)
    for directory in (written.results / "embedded" / "runs").iterdir():
        if directory.name != "S.mini.static":
            (directory / "record.json").unlink()
    results = load_results(written.suite, written.results)
    findings = build_findings(results, compare(results))
    assert [finding.claim for finding in findings] == [
        "Static decoding is good, and leaves room to lose"
    ]
    write_findings(results, tmp_path / "page.md")
    text = (tmp_path / "page.md").read_text("utf-8")
    (unsaid,) = re.findall(r"^Nothing can be said yet, .* of: (.*)\.$", text, re.MULTILINE)
    assert set(unsaid.split("; ")) == set(unsaid_claims(results, compare(results), findings))
    assert {"Speculative decoding saves forwards", "The head pays by the clock"} <= set(
        unsaid.split("; ")
    )


# ---- several backbones, seeds, ablations ---------------------------------------------------------


def test_backbones_and_all_of_them(replica_findings: list[Finding]) -> None:
    found = by_claim(replica_findings, "A residual head")
    assert [part.place for part in found.backbones] == ["S", "M"]
    values = [part.readings[0].contrast.value for part in found.backbones]  # type: ignore[union-attr]
    assert found.overall.readings[0].contrast.value == pytest.approx(np.mean(values))  # type: ignore[union-attr]


def test_lossless_runs_of_all_heads_are_counted(
    replica_rows: pd.DataFrame, replica_findings: list[Finding]
) -> None:
    rows = replica_rows
    lossless = rows[rows["mode"].isin(LOSSLESS)]
    assert "k2-seed1" in set(lossless["head"])
    answers = int(lossless["n"].sum())
    found = by_claim(replica_findings, "No lossless way")
    assert found.overall.text.startswith(f"{answers} of {answers} answers are static's")


def test_ablations_are_judged_where_they_ran(
    replica_findings: list[Finding],
) -> None:
    depth = by_claim(replica_findings, "Two or three layers")
    assert [part.place for part in depth.backbones] == ["S"]
    assert "3 layers" in depth.overall.text
    assert (
        by_claim(replica_findings, "Speculative decoding prefers a shallow head").verdict == HOLDS
    )
    assert by_claim(replica_findings, "Judging each half").verdict == HOLDS


def test_no_ablation_stands_in_for_a_head_that_is_missing(replica_results: Results) -> None:
    rows = replica_results.rows.copy()
    rows.loc[rows["head"] == "default", "status"] = "not run"
    assert {"layers-1", "gt-1-4"} <= set(rows[rows["status"] == "done"]["head"])
    results = replace(replica_results, rows=rows)
    depths = ("Two or three layers", "Speculative decoding prefers")
    for finding in build_findings(results, compare(results)):
        readings = [one for part in finding.evidence for one in part.readings]
        counts = any(isinstance(one, Counted) for one in readings)  # of every head, and say so
        if not counts and not finding.claim.startswith(depths):
            named = {one.subject.partition(" minus ")[0] for one in readings}
            assert not named & {"layers-1", "layers-8", "gt-1-4"}, finding.claim


def test_a_seed_that_says_otherwise_makes_a_claim_undecided(
    replica: Written, replica_findings: list[Finding], tmp_path: Path
) -> None:
    shutil.copytree(replica.results, tmp_path / "results")
    written = Written(replica.suite, replica.suite_file, tmp_path / "results")
    before = by_claim(replica_findings, "A residual head")
    for name, replaced in (("k2", True), ("k2-seed1", False)):
        path = written.layout.run_dir(f"S.mini.direct.{name}.k4")
        lines = [json.loads(line) for line in (path / "samples.jsonl").read_text().splitlines()]
        record = json.loads((path / "record.json").read_text())
        for line in lines:
            line["correct"] = replaced
        for entry in record["tasks"].values():
            entry["correct"] = entry["n"] if replaced else 0
        (path / "samples.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
        (path / "record.json").write_text(json.dumps(record))
    results = load_results(written.suite, written.results)
    after = by_claim(build_findings(results, compare(results)), "Training on two chained")
    assert before.backbones[0].verdict == HOLDS
    assert after.backbones[0].verdict == OPEN
    assert "another seed" in after.backbones[0].text
    assert after.backbones[1].note == ""


def test_what_the_paper_says_is_what_it_published() -> None:
    published = pd.read_csv(Path(__file__).parents[2] / "config" / "published.csv")
    said = {claim.name: claim.paper for claim in CLAIMS}

    def values(table: str, **wanted: object) -> pd.Series:  # type: ignore[type-arg]
        chosen = published[published["table"] == table]
        for name, value in wanted.items():
            chosen = chosen[chosen[name] == value]
        return chosen.set_index(["backbone", "task"])["value"]

    speedup = values("direct", metric="speedup", mode="direct", k=1).mean()
    assert (
        f"{speedup:.2f}\N{MULTIPLICATION SIGN} on average at K = 1"
        in said["Direct decoding trades accuracy for speed"]
    )
    gains = values("remask", metric="accuracy", mode="remask", tau=0.5)
    gains = gains - values("remask", metric="accuracy", mode="dynamic", tau=0.5)
    low = said["Remasking recovers accuracy at a low τ, at the same τ"]
    assert f"{gains.mean():+.1f} points on average" in low
    assert f"up to {gains.max():+.1f}" in low
    by_k = {
        k: values("residual_vs_direct", head="default", k=k).iloc[0]
        - values("residual_vs_direct", head="direct", k=k).iloc[0]
        for k in (1, 4)
    }
    assert f"{by_k[1]:+.1f}" in said["A residual head is more accurate than one trained directly"]
    assert (
        f"{by_k[4]:+.1f}" in said["A head trained directly falls behind a residual one as K grows"]
    )


# ---- recovery ------------------------------------------------------------------------------------


def test_recovery_by_halves_beside_one_pass(
    replica_rows: pd.DataFrame, replica_findings: list[Finding]
) -> None:
    """One variant only, so that nothing is chosen: the numbers are those of its runs."""
    found = by_claim(replica_findings, "Judging by halves recovers")
    rows = replica_rows[replica_rows["tau"] == 0.5].set_index(["backbone", "task"])

    def of(name: str, **wanted: str) -> pd.Series:  # type: ignore[type-arg]
        chosen = rows
        for column, value in wanted.items():
            chosen = chosen[chosen[column] == value]
        return chosen[name]

    dynamic = of("accuracy", mode="dynamic")
    gains = [of("accuracy", mode="remask", passes=passes) - dynamic for passes in ("halves", "one")]
    shown: list[tuple[str, str]] = []
    for part in found.evidence:
        backbone, task = part.place.split(" · ")
        two, one = (float(gain[backbone, task]) for gain in gains)
        by_quantity = {reading.quantity: reading for reading in part.readings}
        value = {
            quantity: reading.contrast.value
            for quantity, reading in by_quantity.items()
            if isinstance(reading, Measured)
        }
        assert value["recovered at τ = 0.5"] == pytest.approx(two)
        assert value["recovered by one pass"] == pytest.approx(one)
        assert value["beyond 1.5 times that"] == pytest.approx(two - 1.5 * one)
        if "of one pass's points" in value:  # not where one pass may have recovered nothing
            assert value["of one pass's points"] == pytest.approx(two / one)
            shown.append((backbone, task))
        time = of("time_ratio", mode="remask", passes="one")[backbone, task]
        time /= of("time_ratio", mode="remask", passes="halves")[backbone, task]
        assert value["of its time, at most 1.15"] == pytest.approx(time)
        goal = by_quantity["beyond 1.5 times that"]
        assert isinstance(goal, Measured)
        assert goal.against_limit == (
            ": met" if two >= 1.5 * one else f": missed by {100 * (1.5 * one - two):.1f} points"
        )
    both = [part.contrast for part in found.overall.readings if isinstance(part, Quotient)]
    assert len(shown) > 1
    expected = gains[0][shown].mean() / gains[1][shown].mean()
    assert both[0].value == pytest.approx(expected)  # of the means, not the mean of quotients


def test_a_variant_is_judged_on_the_other_half() -> None:
    right_of = {"even": np.array([True, False] * 10), "odd": np.array([False, True] * 10)}
    outcomes = {(name, ""): Namespace(correct=right) for name, right in right_of.items()}
    place = Namespace(results=Namespace(outcomes=outcomes))
    lines = [{"job": name, "task": ""} for name in ("even", "odd")]
    chosen, right = _by_the_other_half(place, lines)  # type: ignore[arg-type]
    assert [line["job"] for line in chosen] == ["odd", "even"]
    assert not right.any()  # each looks best on the half that it is not judged by


# ---- readings ------------------------------------------------------------------------------------


def test_a_goal_that_is_missed_by_less_than_is_shown_is_not_missed_by_nothing() -> None:
    def quotient(value: float) -> Quotient:
        whole = contrast_of(value)
        return Quotient.of("it", "of it", whole, contrast_of(1.0), above=1.15)

    assert quotient(1.151).against_limit == ": met"
    assert quotient(1.148).against_limit == ": just missed"
    assert quotient(1.10).against_limit == ": missed by 0.05\N{MULTIPLICATION SIGN}"


def contrast_of(value: float) -> Contrast:
    return Contrast(value, np.full(RESAMPLES, value))


def reading(low: float, high: float, subject: str = "it", **limits: float) -> Measured:
    replicates = np.linspace(low, high, 2000)
    return Measured(subject, "", Contrast((low + high) / 2, replicates), "points", **limits)


@given(st.floats(-1, 1), st.floats(0.01, 1), st.floats(-1, 1))
def test_a_limit_inside_the_interval_decides_nothing(
    low: float, width: float, limit: float
) -> None:
    found = reading(low, low + width, above=limit)
    estimate = found.contrast.estimate
    expected = HOLDS if estimate.low > limit else FAILS if estimate.high < limit else OPEN
    assert found.verdict == expected
    mirrored = reading(-low - width, -low, below=-limit)
    assert mirrored.verdict == expected


def alike(value: float, problems: int, unit: str, **limits: float) -> Measured:
    """Of problems that are all the same, so that every resample is."""
    return Measured("it", "", Contrast(value, np.full(2000, value), problems), unit, **limits)


def test_an_accuracy_of_few_problems_all_right_has_wilsons_interval() -> None:
    room = {"above": 0.8, "below": 0.98}
    assert alike(1.0, 4, "percent", **room).verdict == OPEN
    assert alike(1.0, 4, "percent", **room).number == "100.0 % (51.0\N{EN DASH}100.0)"
    assert alike(0.0, 4, "percent", **room).verdict == FAILS  # at most 49 %
    assert alike(1.0, 1000, "percent", **room).verdict == FAILS


@given(st.floats(-1, 1), st.integers(1, 2 * FEW), st.sampled_from(["points", "tpf", "times"]))
def test_a_difference_without_width_needs_problems_behind_it(
    value: float, problems: int, unit: str
) -> None:
    found = alike(value, problems, unit, above=0)
    other = alike(0.0, 10 * FEW, unit)
    both = replace(found, contrast=mean([found.contrast, other.contrast]))
    assert both.contrast.problems == (found.contrast - other.contrast).problems == problems
    if problems < FEW:
        assert found.verdict == both.verdict == OPEN
        assert f"(no interval: {problems} problems, all alike)" in found.number
    else:
        assert found.verdict == (HOLDS if value > 0 else FAILS if value < 0 else OPEN)
        assert "all alike" not in found.number


def test_no_firm_verdict_of_accuracy_from_four_problems_all_alike(tmp_path: Path) -> None:
    written = write_results(tmp_path, 4)
    results = load_results(written.suite, written.results)
    for finding in build_findings(results, compare(results)):
        for part in (*finding.evidence, *finding.backbones, finding.overall):
            for one in part.readings:
                if isinstance(one, Measured) and one.verdict in (HOLDS, FAILS):
                    assert one.contrast.problems is None or one.estimate.low < one.estimate.high


def test_verdicts_of_several_readings() -> None:
    good, bad = reading(1, 2, above=0), reading(-2, -1, above=0)
    open_ = reading(-1, 1, above=0)
    other = reading(-2, -1, "other", above=0)
    assert verdict_of([good]) == HOLDS
    assert verdict_of([good, open_]) == OPEN  # one subject: all of it has to hold
    assert verdict_of([good, bad]) == FAILS
    assert verdict_of([good, other]) == MIXED
    assert verdict_of([good, Counted("count", "", 3, 4)]) == FAILS
    control = reading(-2, -1, "control")
    assert control.verdict == ""
    assert verdict_of([good, control]) == HOLDS
    assert agree([HOLDS, OPEN]) == OPEN
    assert agree([HOLDS, MIXED]) == MIXED


def test_pooling() -> None:
    one, two = reading(0, 1), reading(2, 3)
    (found,) = pool([one, two])
    assert isinstance(found, Measured)
    assert found.contrast.value == mean([one.contrast, two.contrast]).value == pytest.approx(1.5)
    counts = pool([Counted("a", "", 3, 4), Counted("b", "", 1, 1), Counted("a", "", 4, 4)])
    assert counts == [Counted("a", "", 7, 8), Counted("b", "", 1, 1)]
