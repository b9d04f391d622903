"""Rescoring without decoding, the gate against impossible zeros, and what a job goes on from."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import mrp.evaluation.adapter as adapter
import mrp.evaluation.run as run_module
from mrp.cli import main
from mrp.data import build
from mrp.errors import UserError
from mrp.evaluation import answers, verdicts
from mrp.evaluation.run import Speed, run_job
from mrp.evaluation.scores import rescore
from tests.evaluation.test_paper_code import (
    CELL,
    GOOD,
    HUMANEVAL,
    MBPP,
    WRONG,
    answering,
    samples_of,
    write_data,
)

GSM8K = [{"question": f"How much is {n}?", "answer": f"#### {n}"} for n in range(8)]


def record_of(out: Path) -> dict[str, Any]:
    record: dict[str, Any] = json.loads((out / "record.json").read_text())
    return record


def without_scoring_time(record: dict[str, Any]) -> dict[str, Any]:
    scored = {k: v for k, v in record["scored"].items() if k not in ("created", "command")}
    return {**record, "scored": scored}


def forbid_models(monkeypatch: pytest.MonkeyPatch) -> None:
    """From here on, loading a model or decoding fails the test."""

    def refuse(*_: Any, **__: Any) -> Any:
        raise AssertionError("a model was loaded")

    monkeypatch.setattr(run_module, "MRPModel", refuse)
    monkeypatch.setattr(adapter, "load_backbone", refuse)
    monkeypatch.setattr(adapter, "decode", refuse)


@pytest.fixture
def data_dir(tmp_path: Path) -> Path:
    write_data(tmp_path / "data")
    build(tmp_path / "data", seed=0, n_test=2, level="embedded")
    lines = [json.dumps(row) for row in GSM8K]
    (tmp_path / "data" / "mrp_gsm8k.jsonl").write_text("\n".join(lines) + "\n")
    return tmp_path / "data"


@pytest.fixture
def finished(
    data_dir: Path, tmp_path: Path, backbone_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> Path:
    """A run over every kind of task, and no model from then on."""
    cell = replace(CELL, tasks=("mini_math", "mrp_gsm8k", *CELL.tasks), limit=2)
    replies = ["#1", "x", r"\boxed{0}", r"\boxed{5}. No: 1", GOOD[0], WRONG[1], GOOD[2]]
    monkeypatch.setattr(adapter, "decode", answering(replies, backbone_dir))
    run_job(cell, backbone_dir, None, data_dir, tmp_path / "out", "cpu")
    forbid_models(monkeypatch)
    return tmp_path / "out"


def test_nothing_changes_where_nothing_changed(finished: Path) -> None:
    """Record and samples are the same; a score that someone spoiled by hand comes back."""
    record, samples = record_of(finished), (finished / "samples.jsonl").read_bytes()
    rescore(finished)
    assert without_scoring_time(record_of(finished)) == without_scoring_time(record)
    assert (finished / "samples.jsonl").read_bytes() == samples
    (finished / "samples.jsonl").write_bytes(samples.replace(b'"correct":true', b'"correct":false'))
    rescore(finished)
    assert (finished / "samples.jsonl").read_bytes() == samples
    assert not list(finished.glob("*.tmp"))


def test_another_rule_gives_another_score(finished: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = record_of(finished)
    assert before["tasks"]["mrp_gsm8k"]["correct"] == 1
    assert [s["correct"] for s in samples_of(finished)][2:4] == [True, False]
    monkeypatch.setattr(answers, "is_right", lambda *_: True)
    after = rescore(finished)
    assert after["tasks"]["mrp_gsm8k"]["correct"] == 2
    assert record_of(finished) == {"schema": 1, **json.loads(json.dumps(after))}
    assert [s["correct"] for s in samples_of(finished)][2:4] == [True, True]
    for task, entry in before["tasks"].items():
        kept = {name: entry[name] for name in ("n", "counts", "tpf", "decode_seconds", "speed")}
        assert after["tasks"][task] | kept == after["tasks"][task]
    for name in ("job", "head", "provenance", "data"):
        assert after[name] == before[name]


def test_it_works_with_samples_and_record_alone(finished: Path) -> None:
    """As they are published: no journal, nothing else beside them."""
    before = record_of(finished)
    for path in finished.iterdir():
        if path.name not in ("record.json", "samples.jsonl"):
            path.unlink()
    assert without_scoring_time(
        json.loads(json.dumps({"schema": 1, **rescore(finished)}))
    ) == without_scoring_time(before)


def test_other_targets_and_tests_count(finished: Path, data_dir: Path, tmp_path: Path) -> None:
    other = [{**HUMANEVAL[0], "test": "def check(candidate):\n    assert candidate([4]) == 9\n"}]
    write_data(tmp_path / "other", [*other, *HUMANEVAL[1:]])
    for name in ("mini_math", "mrp_gsm8k"):
        (tmp_path / "other" / f"{name}.jsonl").write_bytes(
            (data_dir / f"{name}.jsonl").read_bytes().replace(b"#### 0", b"#### 77")
        )
    after = rescore(finished, tmp_path / "other")
    assert after["tasks"]["mrp_humaneval"]["correct"] == 0
    assert after["tasks"]["mrp_gsm8k"]["correct"] == 0
    assert samples_of(finished)[2]["target"] == "77"
    assert after["scored"]["data"]["mrp_humaneval"]["file"].startswith(str(tmp_path / "other"))
    assert after["data"]["mrp_humaneval"]["file"].startswith(str(data_dir))


def test_other_problems_are_refused(finished: Path, tmp_path: Path) -> None:
    before = (finished / "record.json").read_bytes()
    write_data(tmp_path / "other", [{**HUMANEVAL[0], "prompt": "def total(ys):\n    pass\n"}])
    for name in ("mini_math", "mrp_gsm8k"):
        source = tmp_path / "data" / f"{name}.jsonl"
        (tmp_path / "other" / source.name).write_bytes(source.read_bytes())
    with pytest.raises(UserError, match="problem 0 of mrp_humaneval is not the one"):
        rescore(finished, tmp_path / "other")
    (tmp_path / "data" / "mrp_mbpp.jsonl").unlink()
    with pytest.raises(UserError, match=r"tests of mrp_mbpp were here and are not: give --data"):
        rescore(finished)
    assert (finished / "record.json").read_bytes() == before


@pytest.mark.parametrize(
    ("name", "change", "message"),
    [
        ("record.json", lambda text: "{", "damaged or not JSON"),
        ("record.json", lambda text: text.replace('"schema": 1', '"schema": 9'), "no record of"),
        ("record.json", lambda text: text.replace('"n": 2', '"n": 3', 1), "not fit the samples"),
        ("samples.jsonl", lambda text: text.split("\n", 1)[1], "not fit the samples"),
        ("samples.jsonl", lambda text: text[:-30], "sample 7 is damaged"),
        ("samples.jsonl", lambda text: text.replace('"text":"', '"text":7,"x":"', 1), "sample 1"),
    ],
)  # fmt: skip
def test_damaged_runs_are_named(finished: Path, name: str, change: Any, message: str) -> None:
    path = finished / name
    path.write_text(change(path.read_text()))
    with pytest.raises(UserError, match=message):
        rescore(finished)


@pytest.mark.parametrize("text", ["{}", "[]", '{"tasks": {}}', '{"tasks": {"x": {"n": 1}}}'])
def test_a_record_that_is_none_is_one_line(
    finished: Path, text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (finished / "record.json").write_text(text)
    assert main(["score", "--run", str(finished)]) == 2
    assert "record.json: damaged" in capsys.readouterr().err


def test_the_command(finished: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["score", "--run", str(finished)]) in (0, None)
    shown = capsys.readouterr().out
    assert "mrp_gsm8k: 1 of 2 right (was 1), 1 strictly, 1 by the paper's rule" in shown
    assert record_of(finished)["scored"]["command"]
    assert main(["score", "--run", str(tmp_path / "nothing")]) == 2
    assert re.search(r"mrp: error: --run .*nothing: neither", capsys.readouterr().err)


# ---- a job whose decoding is complete ------------------------------------------------------------


def test_a_decoded_job_loads_no_model(
    finished: Path, data_dir: Path, backbone_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also after the workflow deleted the outputs, with another digest, and another rule."""
    cell = replace(CELL, tasks=("mini_math", "mrp_gsm8k", *CELL.tasks), limit=2, digest="new")
    before = record_of(finished)
    for name in ("record.json", "samples.jsonl"):
        (finished / name).unlink()
    monkeypatch.setattr(answers, "is_right", lambda *_: True)
    after = run_job(cell, backbone_dir, None, data_dir, finished, "cpu")
    assert after["tasks"]["mrp_gsm8k"]["correct"] == 2
    assert after["job"]["digest"] == record_of(finished)["job"]["digest"] == "new"
    assert after["provenance"] == before["provenance"]
    others = [
        {"limit": 1},
        {"seed": 5},
        {"max_new_tokens": 98},
        {"dtype": "bfloat16"},
        {"speed": Speed(1, 1, 1)},
        {"tasks": cell.tasks[:2]},
        {"options": {"steps": 4}},
    ]
    for change in others:
        with pytest.raises(AssertionError, match="a model was loaded"):
            run_job(replace(cell, **change), backbone_dir, None, data_dir, finished, "cpu")


def test_a_damaged_file_of_decoded_samples_is_decoded_again(
    finished: Path, data_dir: Path, backbone_dir: Path
) -> None:
    cell = replace(CELL, tasks=("mini_math", "mrp_gsm8k", *CELL.tasks), limit=2)
    path = finished / "decoded.jsonl"
    path.write_text(path.read_text()[:-30])
    with pytest.raises(AssertionError, match="a model was loaded"):
        run_job(cell, backbone_dir, None, data_dir, finished, "cpu")


def test_scoring_that_failed_goes_on_without_a_model(
    data_dir: Path, tmp_path: Path, backbone_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(adapter, "decode", answering(GOOD, backbone_dir))
    whole = verdicts.judge

    def broken(*_: Any) -> Any:
        raise RuntimeError("scoring broke")

    monkeypatch.setattr("mrp.evaluation.scores.judge", broken)
    out = tmp_path / "out"
    with pytest.raises(RuntimeError):
        run_job(CELL, backbone_dir, None, data_dir, out, "cpu")
    assert not (out / "record.json").exists()
    forbid_models(monkeypatch)
    monkeypatch.setattr("mrp.evaluation.scores.judge", whole)
    assert rescore(out)["tasks"]["mrp_mbpp"]["correct"] == 1
    assert record_of(out)["provenance"]["batch_size"] == 4


# ---- the gate ------------------------------------------------------------------------------------


def many(row: dict[str, Any], n: int = 6) -> list[dict[str, Any]]:
    return [{**row, "prompt": f"{row['prompt']}\n# {i}\n"} for i in range(n)]


@pytest.fixture
def run_with(tmp_path: Path, backbone_dir: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Runs a task whose replies are given."""

    def run_task(task: str, replies: list[str], **options: Any) -> dict[str, Any]:
        write_data(tmp_path / "data", many(HUMANEVAL[1]), many(MBPP[0]))
        lines = [json.dumps(row) for row in GSM8K[:6]]
        (tmp_path / "data" / "mrp_gsm8k.jsonl").write_text("\n".join(lines))
        monkeypatch.setattr(adapter, "decode", answering(replies, backbone_dir))
        cell = replace(CELL, tasks=(task,))
        return run_job(
            cell, backbone_dir, None, tmp_path / "data", tmp_path / "out", "cpu", **options
        )

    return run_task


@pytest.mark.parametrize(
    ("task", "reply", "why"),
    [
        ("mrp_humaneval", WRONG[1], r"most often: failed: AssertionError at `assert cand"),
        ("mrp_mbpp", WRONG[2], "most often: failed"),
        ("mrp_gsm8k", r"\boxed{99}", "replies hold an answer: the scoring"),
    ],
)  # fmt: skip
def test_zero_with_answers_is_an_error(
    run_with: Any, tmp_path: Path, task: str, reply: str, why: str
) -> None:
    with pytest.raises(UserError, match=rf"^{task}: 0 of 6 right although 6 .*{why}") as error:
        run_with(task, [reply] * 6)
    assert "--allow-zero" in str(error.value)
    assert "\n" not in str(error.value)
    assert not (tmp_path / "out" / "record.json").exists()
    with pytest.raises(UserError, match="0 of 6"):
        rescore(tmp_path / "out")
    record = rescore(tmp_path / "out", allow_zero=True)
    assert record["tasks"][task]["notes"] == ["a score of 0 was accepted (--allow-zero)"]
    assert record_of(tmp_path / "out")["tasks"][task]["correct"] == 0


@pytest.mark.parametrize("task", ["mrp_humaneval", "mrp_mbpp", "mrp_gsm8k"])
@pytest.mark.parametrize(
    "garbage", ["", "x = ((", "7 7 7 7", "def de f(", "\\boxed{}\n####\n", "aaa"]
)
def test_garbage_passes_the_gate_and_is_noted(run_with: Any, task: str, garbage: str) -> None:
    record = run_with(task, [garbage] * 6)
    entry = record["tasks"][task]
    assert (entry["correct"], entry["answered"]) == (0, 0)
    assert entry["notes"] == ["NO ANSWER was found in any of the 6 replies"]


@pytest.mark.parametrize(
    ("replies", "answered"),
    [
        ([r"\boxed{99}"] * 2 + ["x"] * 4, 2),
        ([r"\boxed{99}"] * 5 + [r"\boxed{5}"], 6),
    ],
)
def test_some_right_or_few_answers_pass(run_with: Any, replies: list[str], answered: int) -> None:
    assert run_with("mrp_gsm8k", replies)["tasks"]["mrp_gsm8k"]["answered"] == answered


def test_mrp_eval_prints_the_table_before_it_fails(
    tmp_path: Path,
    backbone_dir: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    write_data(tmp_path, many(HUMANEVAL[1]), many(MBPP[0]))
    monkeypatch.setattr(adapter, "decode", answering([WRONG[1]] * 6 + [WRONG[2]] * 6, backbone_dir))
    arguments = [
        "eval",
        "--backbone",
        str(backbone_dir),
        "--device",
        "cpu",
        "--data",
        str(tmp_path),
    ]
    arguments += ["--tasks", "mrp_humaneval,mrp_mbpp", "--max-new-tokens", "64"]
    assert main(arguments) == 2
    shown = capsys.readouterr()
    assert "0/6" in shown.out
    assert "mrp: error: mrp_humaneval: 0 of 6" in shown.err
    assert "; mrp_mbpp: 0 of 6" in shown.err
    assert main([*arguments, "--allow-zero"]) in (0, None)
    assert "a score of 0 was accepted" in capsys.readouterr().out


def test_allowed_from_the_start(run_with: Any) -> None:
    record = run_with("mrp_gsm8k", [r"\boxed{99}"] * 6, allow_zero=True)
    assert record["tasks"]["mrp_gsm8k"]["correct"] == 0
