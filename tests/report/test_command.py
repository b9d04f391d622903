"""`mrp report` from the command line."""

from __future__ import annotations

import argparse
from pathlib import Path

import pytest

from mrp.commands import report
from mrp.errors import UserError
from mrp.report.cells import DASH
from mrp.report.frame import load_results
from tests.report.synthetic import Written

TIMES = "\N{MULTIPLICATION SIGN}"


def call(*words: str | Path) -> None:
    parser = argparse.ArgumentParser()
    report.add_arguments(parser)
    report.run(parser.parse_args([str(word) for word in words]))


def test_tables(written: Written, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    suite, results = written.suite_file, written.results
    call("tables", "--suite", suite, "--results", results, "--out", tmp_path / "new")
    written_files = {file.name for file in (tmp_path / "new").iterdir()}
    assert written_files == {"tables.html", "tables.tex", "tables.csv"}
    assert capsys.readouterr().out.startswith("49 of 51 jobs have a record")


def test_a_short_table(written: Written, capsys: pytest.CaptureFixture[str]) -> None:
    words = ("short", "--suite", written.suite_file, "--results", written.results, "--of")
    call(*words, "static", "dynamic.tau0.5", "speculative.default.k4", "speculative.k2.k4")
    head, _, static, dynamic, missing, speculative = capsys.readouterr().out.splitlines()
    assert head == "| accuracy in % @ tokens per forward, speed over static | S |"
    found = load_results(written.suite, written.results)
    runs = found.rows[found.rows["job"].str.endswith(".dynamic.tau0.5")]
    assert len(runs) == 2, "a row for each task"
    mean = runs[["accuracy", "tpf", "time_ratio"]].mean()
    cell = f"{100 * mean['accuracy']:.1f} @ {mean['tpf']:.2f}, {mean['time_ratio']:.2f}{TIMES}"
    assert dynamic == f"| dynamic, τ = 0.5 | {cell} |"
    accuracy = static.split("|")[2].split()[0]
    assert static == f"| static | {accuracy} @ 1.00, 1.00{TIMES} |"
    assert missing.endswith(f"| {DASH} |")
    assert speculative.startswith(f"| *lossless:* speculative, k2, K = 4 | {accuracy} @ ")
    with pytest.raises(UserError, match=r"--of dynamic.tau5: suite .* has no such setting"):
        call(*words, "dynamic.tau5")


def test_wrong_paths_are_one_line(written: Written, tmp_path: Path) -> None:
    suite, absent = written.suite_file, tmp_path / "absent"
    with pytest.raises(UserError, match=r"--results .*absent: no such folder"):
        call("figures", "--suite", suite, "--results", absent)
    with pytest.raises(UserError, match=r"--published .*absent: no such file"):
        call("tables", "--suite", suite, "--results", written.results, "--published", absent)


def test_help_is_complete(capsys: pytest.CaptureFixture[str]) -> None:
    for product in ("tables", "figures", "findings"):
        with pytest.raises(SystemExit):
            call(product, "--help")
        text = capsys.readouterr().out
        assert all(flag in text for flag in ("--suite", "--results", "--out"))
    with pytest.raises(SystemExit):
        call("--help")
    assert "tables.tex" in capsys.readouterr().out
