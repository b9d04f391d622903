"""`mrp status` tells running from failed from stopped from done."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from mrp.cli import main
from mrp.commands.status import _duration
from mrp.grid import Layout, jobs, load_suite
from mrp.locks import run_lock
from mrp.status import read_status, watch

SUITE = """\
name: mine
backbones: {S: {train: {steps: 5}}}
heads: {k2: {variant: k2, train: {steps: 5}}, idle: {variant: k2, train: {steps: 5}}}
tasks: [mini_math]
grid:
  - {mode: dynamic, tau: [0.5, 0.6, 0.7, 0.8]}
  - {mode: direct, head: k2, k: 1}
"""


@pytest.fixture
def layout(tmp_path: Path) -> Layout:
    (tmp_path / "mine.yaml").write_text(SUITE)
    return Layout(load_suite(tmp_path / "mine.yaml"), tmp_path / "results")


def write_record(layout: Layout, number: int, digest: str | None = None) -> str:
    job = jobs(layout.suite)[number]
    path = layout.record(job.id)
    path.parent.mkdir(parents=True)
    tasks = {"mini_math": {"decode_seconds": 50.0 + number}}
    path.write_text(json.dumps({"job": {"digest": digest or job.digest}, "tasks": tasks}))
    return job.id


def write_log(layout: Layout, rule: str, name: str, text: str) -> None:
    log = layout.log(rule, name)
    log.parent.mkdir(parents=True, exist_ok=True)
    log.write_text(text)


def states(layout: Layout) -> dict[str, str]:
    return {item.name: item.state for item in read_status(layout.suite, layout.results).items}


def test_nothing_has_begun(layout: Layout) -> None:
    found = states(layout)
    assert found.pop("S") == "left"
    assert found.pop("S.k2") == "left"  # "idle" is in no cell: the workflow does not train it
    assert found == {job.id: "left" for job in jobs(layout.suite)}
    assert read_status(layout.suite, layout.results).seconds_left is None


def test_each_state_is_told_from_the_others(
    layout: Layout, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    ids = [job.id for job in jobs(layout.suite)]
    done, outdated = write_record(layout, 0), write_record(layout, 1, "other")
    write_log(layout, "decode", ids[2], "one\nmrp: error: no such checkpoint\n")
    layout.run_dir(ids[3]).mkdir(parents=True)
    (layout.run_dir(ids[3]) / "journal.jsonl").write_text("{}")
    (layout.trained_backbone_dir("S")).mkdir(parents=True)
    (layout.trained_backbone_dir("S") / "model.safetensors").write_text("")
    write_log(layout, "train_head", "S.k2", "head k2: step 3/5, loss 1\n\n")
    with run_lock(layout.trained_head_dir("S", "k2")):
        found = states(layout)
        command = ["status", "--suite", str(tmp_path / "mine.yaml")]
        assert main([*command, "--results", str(layout.results)]) == 0
    assert found == {
        "S": "done",
        "S.k2": "running",
        done: "done",
        outdated: "outdated",
        ids[2]: "failed",
        ids[3]: "begun",
        ids[4]: "left",
    }
    out = capsys.readouterr().out
    assert "suite mine: 2 trainings: 1 done, 1 running\n" in out
    assert "5 decode jobs: 1 done, 1 left, 1 outdated, 1 begun, 1 failed\n" in out
    assert "decoding took 50 s, about 3 min 20 s left" in out
    assert "running  S.k2: head k2: step 3/5, loss 1\n" in out
    assert f"failed   {ids[2]}: mrp: error: no such checkpoint\n" in out
    assert done not in out
    assert states(layout)["S.k2"] == "left"  # the lock is gone, and nothing was left behind


def command(layout: Layout) -> list[str]:
    suite = layout.results.parent / "mine.yaml"
    return ["status", "--suite", str(suite), "--results", str(layout.results)]


def test_a_damaged_record_is_a_job_that_is_not_done(layout: Layout) -> None:
    job = write_record(layout, 0)
    endless = '{"job": {"digest": "x"}, "tasks": {"a": {"decode_seconds": %s}}}'
    deep, large, infinite = "[" * 10**5, endless % ("9" * 400), endless % "Infinity"
    for text in ("", "[]", "{}", '{"job": 3, "tasks": []}', deep, large, infinite):
        layout.record(job).write_text(text)
        assert states(layout)[job] == "left"
        assert main(command(layout)) == 0


def test_a_file_where_the_results_are_to_be(
    layout: Layout, capsys: pytest.CaptureFixture[str]
) -> None:
    layout.results.write_text("")
    for watching in ([], ["--watch"]):
        assert main([*command(layout), *watching]) == 2
        error = capsys.readouterr().err
        assert error.startswith(f"mrp: error: {layout.results}: a folder belongs here: ")
        assert error.count("\n") == 1


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(3.6, "4 s"), (59.6, "1 min 00 s"), (3599, "59 min 59 s"), (3725, "1 h 02 min")],
)
def test_durations(seconds: float, text: str) -> None:
    assert _duration(seconds) == text


def test_watching_ends_with_the_last_job(
    layout: Layout, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It keeps up with what appears on the disk, and says so in plain lines without a terminal."""
    left = list(range(len(jobs(layout.suite))))
    for directory in (layout.trained_backbone_dir("S"), layout.trained_head_dir("S", "k2")):
        directory.mkdir(parents=True)
        (directory / "model.safetensors").write_text("")
    monkeypatch.setattr("mrp.status.LINE_INTERVAL", 0.0)
    monkeypatch.setattr("mrp.status.time.sleep", lambda _: write_record(layout, left.pop()))
    watch(layout.suite, layout.results)
    assert left == []
    lines = capsys.readouterr().err.splitlines()
    assert lines[0] == "mine: 3 of 7 jobs"
    assert lines[-1] == "mine: 7 of 7 jobs"
