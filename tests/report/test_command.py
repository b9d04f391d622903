"""`mrp report` from the command line."""

from __future__ import annotations

import argparse
from pathlib import Path

import pytest

from mrp.commands import report
from mrp.errors import UserError
from tests.report.synthetic import Written


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
