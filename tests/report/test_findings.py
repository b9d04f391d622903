"""Verdicts come from intervals by rule."""

from __future__ import annotations

import json
from pathlib import Path

import pandas as pd
import pytest

from mrp.report.comparisons import compare
from mrp.report.findings import FAILS, HOLDS, MIXED, OPEN, Finding, build_findings
from mrp.report.frame import Results, load_results
from tests.report.synthetic import write_results


def by_claim(findings: list[Finding], start: str) -> Finding:
    (found,) = [finding for finding in findings if finding.claim.startswith(start)]
    return found


@pytest.fixture(scope="module")
def findings(results: Results, rows: pd.DataFrame) -> list[Finding]:
    return build_findings(results, rows)


@pytest.mark.parametrize(
    ("claim", "verdict"),
    [
        ("Without a head", HOLDS),
        ("Speculative decoding changes no answer", HOLDS),
        ("Speculative decoding saves forwards", HOLDS),
        ("Dynamic decoding loses", HOLDS),
        ("Remasking gains at the same speed", OPEN),
    ],
)
def test_verdicts_on_the_invented_grid(findings: list[Finding], claim: str, verdict: str) -> None:
    found = by_claim(findings, claim)
    assert found.verdict == verdict, found.evidence


def test_each_claim_has_evidence_on_both_tasks(findings: list[Finding]) -> None:
    assert len(findings) == 11
    for finding in findings:
        assert {item.place for item in finding.evidence} == {"S · mini_math", "S · mini_code"}


def test_verdicts_that_differ_are_mixed(findings: list[Finding]) -> None:
    found = by_claim(findings, "Fewer forwards are less time")
    assert {item.verdict for item in found.evidence} >= {HOLDS, FAILS}
    assert found.verdict == MIXED


def test_one_changed_answer_is_not_lossless(tmp_path: Path) -> None:
    written = write_results(tmp_path, 12)
    path = written.layout.run_dir("S.mini.speculative.k2.k2") / "samples.jsonl"
    first, rest = path.read_text("utf-8").split("\n", 1)
    line = json.loads(first)
    line["text"] += " "
    path.write_text(json.dumps(line) + "\n" + rest, encoding="utf-8")
    results = load_results(written.suite, written.results)
    found = by_claim(build_findings(results, compare(results)), "Speculative decoding changes no")
    assert found.verdict == MIXED
    (failed,) = [item for item in found.evidence if item.verdict == FAILS]
    assert failed.text.startswith("k2: 47 of 48")
    assert failed.place == "S · mini_math"


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
