from __future__ import annotations

import json
import logging
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from mrp.data import build
from mrp.decoding import tokens_per_forward_end_to_end
from mrp.errors import UserError
from mrp.evaluation import run
from mrp.evaluation.run import Cell, Speed, run_job

CELL = Cell(
    id="S.mini.speculative.k2.k3",
    suite="test",
    backbone="S",
    tasks=("mini_math", "mini_code"),
    mode="speculative",
    options={"k": 3},
    head="k2",
    head_source="trained",
    digest="d1",
    batch_size=4,
    max_new_tokens=16,
    limit=6,
)


@pytest.fixture(scope="module")
def data_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("data")
    build(directory, seed=0, n_test=40, level="embedded")
    return directory


def samples_of(out: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (out / "samples.jsonl").read_text().splitlines()]


def without_times(record: dict[str, Any]) -> dict[str, Any]:
    """A record less what differs between two runs of the same job."""
    tasks = {
        name: {k: v for k, v in task.items() if k not in ("decode_seconds", "tokens_per_second")}
        for name, task in record["tasks"].items()
    }
    return {"job": record["job"], "head": record["head"], "tasks": tasks}


def test_record_and_samples_agree(
    tmp_path: Path, backbone_dir: Path, head_dir: Path, data_dir: Path
) -> None:
    cell = replace(CELL, speed=Speed(prompts=4, batch_size=2, repeats=1, dtype="bfloat16"))
    returned = run_job(cell, backbone_dir, head_dir, data_dir, tmp_path, "cpu")
    record = json.loads((tmp_path / "record.json").read_text())
    assert record == {"schema": 1, **json.loads(json.dumps(returned))}
    assert record["job"] | {"k": 3, "tau": None, "rule": None} == record["job"]
    assert record["head"] == {
        "name": "k2",
        "variant": "default",
        "objective": "residual",
        "source": "trained",
        "layers": 1,
    }
    samples = samples_of(tmp_path)
    places = [(sample["task"], sample["doc_id"]) for sample in samples]
    assert places == [(task, number) for task in cell.tasks for number in range(6)]
    for name in cell.tasks:
        ours = [sample for sample in samples if sample["task"] == name]
        task = record["tasks"][name]
        total: Counter[str] = Counter()
        for sample in ours:
            total.update(sample["counts"])
        assert task["counts"] == dict(total)
        assert task["n"] == len(ours)
        assert task["correct"] == sum(sample["correct"] for sample in ours)
        assert task["accuracy"] == task["correct"] / task["n"]
        forwards = total["denoise"] + total["verify"]
        assert task["tpf"] == pytest.approx(total["generated"] / forwards)
        assert task["tpf_end_to_end"] == pytest.approx(tokens_per_forward_end_to_end(total))
        assert task["answer_tokens_mean"] == pytest.approx(total["answer_tokens"] / len(ours))
        rounds = task["accepted_rounds"]
        assert len(rounds) <= 4  # of K = 3
        assert sum(rounds) == total["verify"]
        assert sum(size * often for size, often in enumerate(rounds)) == total["accepted"]
        assert task["speed"]["prompts"] == 4
        assert (task["speed"]["device"], task["speed"]["dtype"]) == ("cpu", "bfloat16")
    for sample in samples:
        n = sample["counts"]["generated"]
        trace = sample["trace"]
        assert len(trace["step"]) == len(trace["source"]) == len(trace["remasked"]) == n
        assert set(trace["source"]) <= set("bdn")
        assert len(sample["tokens"]) == n
    provenance = record["provenance"]
    assert provenance["packages"].keys() >= {"torch", "lm-eval"}
    assert provenance["resumed_from"] == 0
    assert len(provenance["head_hash"]) == 64


def test_data_files_and_generated_data_are_the_same(
    backbone_dir: Path, head_dir: Path, data_dir: Path
) -> None:
    from_files = run_job(CELL, backbone_dir, head_dir, data_dir, None, "cpu")
    generated = run_job(CELL, backbone_dir, head_dir, None, None, "cpu")
    assert without_times(from_files) == without_times(generated)


@pytest.mark.parametrize("lengths", [(16, 16), (16, 8)])
def test_tasks_of_one_length_are_timed_together(
    monkeypatch: pytest.MonkeyPatch, backbone_dir: Path, lengths: tuple[int, int]
) -> None:
    cell = replace(CELL, mode="dynamic", options={"tau": 0.5}, head=None, limit=2)
    cell = replace(cell, speed=Speed(prompts=1, batch_size=2, repeats=1))
    given, calls, measure = iter(lengths), [], run.paired_speeds

    def seen(*arguments: Any, **named: Any) -> dict[str, Any]:
        prompts, length = arguments[3:5]
        calls.append((list(prompts), length))
        return measure(*arguments, **named)

    monkeypatch.setattr(run, "parse_settings", lambda settings, default: ([], next(given)))
    monkeypatch.setattr(run, "paired_speeds", seen)
    record = run_job(cell, backbone_dir, None, None, None, "cpu")
    math, code = CELL.tasks
    apart = [([math], 16), ([code], 8)]
    assert calls == ([([math, code], 16)] if lengths[0] == lengths[1] else apart)
    means = [record["tasks"][task]["speed"]["answer_tokens_mean"] for task in CELL.tasks]
    assert all(0 < mean <= length for mean, length in zip(means, lengths, strict=True))


def test_the_baseline_has_no_speed(backbone_dir: Path) -> None:
    cell = replace(CELL, mode="static", options={}, head=None, tasks=("mini_math",), limit=2)
    cell = replace(cell, speed=Speed(prompts=2, batch_size=2, repeats=1))
    for options, measured in (({}, False), ({"steps": 8}, False), ({"steps": 4}, True)):
        record = run_job(
            replace(cell, options=options), backbone_dir, None, None, None, device="cpu"
        )
        assert (record["tasks"]["mini_math"]["speed"] is not None) is measured
        assert record["head"] is None


KILLED = """
import sys, torch
from tests.evaluation.test_run import CELL
from mrp.evaluation.run import run_job
from dataclasses import replace
from pathlib import Path
torch.set_num_threads(1)
backbone, head, data, out = map(Path, sys.argv[1:])
run_job(replace(CELL, limit=24, batch_size=3), backbone, head, data, out, "cpu")
"""


def test_a_killed_job_goes_on(
    tmp_path: Path,
    backbone_dir: Path,
    head_dir: Path,
    data_dir: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """SIGKILL in the middle, and a line torn by it; then as if nothing had happened."""
    out = tmp_path / "killed"
    paths = [str(path) for path in (backbone_dir, head_dir, data_dir, out)]
    process = subprocess.Popen(
        [sys.executable, "-c", KILLED, *paths], cwd=Path(__file__).parents[2], env=os.environ
    )
    journal = out / "journal.jsonl"
    deadline = time.monotonic() + 60
    while not journal.exists() or journal.read_bytes().count(b"\n") < 9:
        assert process.poll() is None, "the job ended before it could be killed"
        assert time.monotonic() < deadline
        time.sleep(0.002)
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert not (out / "record.json").exists()
    kept = journal.read_bytes().count(b"\n") - 1
    assert 8 <= kept < 48
    with open(journal, "ab") as file:
        file.write(b'{"key":"torn')

    cell = replace(CELL, limit=24, batch_size=3)
    with caplog.at_level(logging.INFO):
        resumed = run_job(cell, backbone_dir, head_dir, data_dir, out, "cpu")
    assert f"resuming: {kept} of 48 samples" in caplog.text
    assert resumed["provenance"]["resumed_from"] == kept
    whole = run_job(cell, backbone_dir, head_dir, data_dir, tmp_path / "whole", "cpu")
    assert without_times(resumed) == without_times(whole)
    assert samples_of(out) == samples_of(tmp_path / "whole")


def test_another_job_does_not_take_the_answers(
    tmp_path: Path, backbone_dir: Path, head_dir: Path
) -> None:
    cell = replace(CELL, limit=2)
    run_job(cell, backbone_dir, head_dir, None, tmp_path, "cpu")
    (tmp_path / "decoded.jsonl").unlink()
    again = run_job(cell, backbone_dir, head_dir, None, tmp_path, "cpu")
    assert again["provenance"]["resumed_from"] == 4
    for change in ({"seed": 1}, {"options": {"k": 2}}):
        other = run_job(replace(cell, **change), backbone_dir, head_dir, None, tmp_path, "cpu")
        assert other["provenance"]["resumed_from"] == 0


def test_nothing_is_written_outside_the_run(
    tmp_path: Path, backbone_dir: Path, head_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = tmp_path / "home"
    home.mkdir()
    script = KILLED.replace("limit=24", "limit=1")
    out = tmp_path / "out"
    data = tmp_path / "data"
    build(data, seed=0, n_test=1, level="embedded")
    environment = {
        name: value for name, value in os.environ.items() if not name.startswith(("HF_", "XDG_"))
    }
    done = subprocess.run(
        [sys.executable, "-c", script, *map(str, (backbone_dir, head_dir, data, out))],
        cwd=Path(__file__).parents[2],
        env={**environment, "HOME": str(home)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert sorted(path.name for path in out.iterdir()) == [
        "decoded.jsonl",
        "journal.jsonl",
        "record.json",
        "samples.jsonl",
    ]
    assert [path for path in home.rglob("*") if path.is_file()] == []
    assert done.stdout == done.stderr == ""


@pytest.mark.parametrize(
    ("tasks", "content", "message"),
    [
        (("mini_golf",), None, "'mini_golf' is unknown: choose among mini_code, mini_math"),
        ((), None, "no task is named: choose among mini_code, mini_math"),
        (("mini_math",), None, "no such data file"),
        (("mini_math",), "", "holds no examples"),
        (("mini_math",), '{"prompt": "x"}\n', "line 1 is damaged"),
        (("mini_math",), "{\n", "line 1 is damaged"),
    ],
)
def test_bad_tasks_and_data(
    tmp_path: Path, backbone_dir: Path, tasks: tuple[str, ...], content: str | None, message: str
) -> None:
    if content is not None:
        (tmp_path / "mini_math.jsonl").write_text(content)
    cell = replace(CELL, mode="static", options={}, head=None, tasks=tasks)
    with pytest.raises(UserError, match=message):
        run_job(cell, backbone_dir, None, tmp_path, None, "cpu")


@pytest.mark.parametrize("limit", [0, -1])
def test_a_limit_must_leave_something(backbone_dir: Path, limit: int) -> None:
    with pytest.raises(UserError, match="leaves no examples"):
        run_job(replace(CELL, limit=limit), backbone_dir, None, None, None, "cpu")
