"""`mrp compare`: equal runs show nothing, a real change shows and sets the exit code."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from mrp.cli import main
from mrp.errors import UserError
from mrp.report.drift import Change, _judge, compare_folders
from tests.report.synthetic import Written

JOB = "S.mini.dynamic.tau0.5"


@pytest.fixture
def folders(written: Written, tmp_path: Path) -> tuple[Path, Path]:
    """A results folder and its copy, of three jobs."""
    for name in ("a", "b"):
        for job in (JOB, "S.mini.static", "S.mini.speculative.k2.k4"):
            shutil.copytree(written.layout.run_dir(job), tmp_path / name / "runs" / job)
    return tmp_path / "a", tmp_path / "b"


def edit_samples(folder: Path, edit: Callable[[dict[str, Any]], None], job: str = JOB) -> None:
    path = folder / "runs" / job / "samples.jsonl"
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    for line in lines:
        edit(line)
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))


def edit_record(folder: Path, edit: Callable[[dict[str, Any]], None], job: str = JOB) -> None:
    path = folder / "runs" / job / "record.json"
    record = json.loads(path.read_text())
    edit(record)
    path.write_text(json.dumps(record))


def compare(folders: tuple[Path, Path], *more: str) -> int:
    return main(["compare", *map(str, folders), *more])


def test_equal_runs_show_nothing(
    folders: tuple[Path, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    assert compare(folders) == 0
    assert capsys.readouterr().out == (
        "0 of 6 cells moved beyond noise; 240 of 240 answers are the same\n"
    )


def test_a_mode_that_broke_shows(
    folders: tuple[Path, Path], capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    def wrong(line: dict[str, Any]) -> None:
        line.update(correct=False, text="?")

    edit_samples(folders[1], wrong, "S.mini.static")
    with pytest.raises(SystemExit) as ended:
        compare(folders, "--html", str(tmp_path / "c.html"))
    assert ended.value.code == 1
    out = capsys.readouterr().out
    assert re.search(r"S\.mini\.static mini_math: accuracy \d\d\.\d -> 0\.0, ", out)
    assert "2 of 6 cells moved beyond noise; 160 of 240 answers are the same" in out
    page = (tmp_path / "c.html").read_text()
    assert page.count(">moved<") == 2
    assert "160" not in page.split("<h1>")[0]
    assert "<script" not in page


def test_one_answer_more_is_noise(folders: tuple[Path, Path]) -> None:
    def flip(line: dict[str, Any]) -> None:
        if line["doc_id"] == 3:
            line["correct"] = not line["correct"]

    edit_samples(folders[1], flip)
    assert compare(folders) == 0


def test_more_forwards_show_as_tpf(
    folders: tuple[Path, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    def slower(line: dict[str, Any]) -> None:
        line["counts"]["denoise"] += line["counts"]["denoise"] // 4

    edit_samples(folders[1], slower)
    with pytest.raises(SystemExit):
        compare(folders)
    assert f"{JOB} mini_code: TPF" in capsys.readouterr().out


def test_times_of_different_devices_are_not_compared(folders: tuple[Path, Path]) -> None:
    def faster(record: dict[str, Any]) -> None:
        for entry in record["tasks"].values():
            entry["speed"].update(ratio=9.0, low=8.9, high=9.1)

    edit_record(folders[1], faster)
    moved = compare_folders(*folders).moved
    assert [change.what for pair in moved for change in pair.changes if change.moved] == [
        "time ratio",
        "time ratio",
    ]
    edit_record(folders[1], lambda record: record["provenance"].update(device="NVIDIA H200"))
    drift = compare_folders(*folders)
    assert drift.moved == []
    assert ("device", "cpu", "NVIDIA H200, cpu") in drift.facts


def test_other_problems_and_missing_jobs_are_said(
    folders: tuple[Path, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    edit_samples(folders[1], lambda line: line.update(prompt="another"))
    shutil.rmtree(folders[1] / "runs" / "S.mini.static")
    assert compare(folders) == 0
    out = capsys.readouterr().out
    assert f"{JOB} mini_math: other problems: not comparable" in out
    assert f"S.mini.static: no record in {folders[1]}" in out
    assert "0 of 2 cells" in out


def test_a_gate_does_not_pass_where_nothing_is_comparable(
    folders: tuple[Path, Path], capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    for job in runs(folders[1]):
        edit_samples(folders[1], lambda line: line.update(prompt="another"), job.name)
    page = tmp_path / "c.html"
    assert compare(folders, "--html", str(page)) == 2  # a move is 1
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.count("\n") == 1
    assert "none of the 3 jobs in both answered the same problems" in said.err
    assert not page.exists()


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        (lambda b: shutil.rmtree(b), "no runs/*/record.json here"),
        (lambda b: (b / "runs" / JOB / "samples.jsonl").unlink(), "no such file, though"),
        (lambda b: (b / "runs" / JOB / "samples.jsonl").write_text("{}\n"), "damaged"),
        (lambda b: (b / "runs" / JOB / "record.json").write_text("[]"), "damaged"),
        (
            lambda b: [path.rename(b / "runs" / f"x{i}") for i, path in enumerate(runs(b))],
            "no job in common",
        ),
    ],
)
def test_bad_folders_are_one_line(
    folders: tuple[Path, Path], spoil: Callable[[Path], Any], words: str
) -> None:
    spoil(folders[1])
    with pytest.raises(UserError, match=re.escape(words)):
        compare_folders(*folders)


def runs(folder: Path) -> list[Path]:
    return list((folder / "runs").iterdir())


def test_holm_calls_the_smallest_ones_moved_until_the_first_that_is_not() -> None:
    changes = [Change("x", "", "", "", p) for p in (0.04, 0.001, 0.012, 0.9)]
    _judge(changes)
    assert [change.moved for change in changes] == [False, True, True, False]
