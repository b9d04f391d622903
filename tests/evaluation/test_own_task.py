"""A user's own task is scored by the function that its file names."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from mrp.errors import UserError
from mrp.evaluation import run, tasks
from mrp.evaluation.verdicts import Verdict, judge


def score(doc: Mapping[str, str], results: list[str]) -> dict[str, float]:
    """Right where the reply ends as the document says; nothing said is no answer."""
    return {"acc": float(results[0].endswith(doc["end"])), "answered": float(bool(results[0]))}


def no_score(doc: Mapping[str, str], results: list[str]) -> dict[str, float]:
    return {"strict": 1.0}


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(tasks, "TASKS_DIR", tmp_path)
    monkeypatch.setattr(run, "TASKS_DIR", tmp_path)
    named = f"process_results: !function {__name__}"
    (tmp_path / "own.yaml").write_text(f"task: own\n{named}.score\n")
    (tmp_path / "mute.yaml").write_text(f"task: mute\n{named}.no_score\n")
    (tmp_path / "none.yaml").write_text("task: none\n")
    return tmp_path


def test_its_function_sees_the_whole_document(own: Path) -> None:
    docs = [{"end": "!"}, {"end": "?"}, {"end": "."}]
    assert judge("own", docs, ["yes!", "yes!", ""]) == [
        Verdict(correct=True, answered=True),
        Verdict(correct=False, answered=True),
        Verdict(correct=False, answered=False),
    ]


@pytest.mark.parametrize(
    ("task", "message"),
    [
        ("mute", "task 'mute': its process_results gives no acc"),
        ("none", "task 'none': its file has no process_results"),
        ("other", "task 'other' is unknown: choose among mute, none, own"),
    ],
)
def test_what_cannot_score_is_said(own: Path, task: str, message: str) -> None:
    with pytest.raises(UserError, match=message):
        judge(task, [{}], ["a reply"])


def test_answers_to_other_prompts_are_not_kept(own: Path) -> None:
    """A task file that changed may ask otherwise: what was decoded before it is not just scored."""
    cell = run.Cell("job", "suite", "S", ("own",), "static")
    job = run.Job(cell, Path("backbone"), None, {"own": {"sha256": "0"}}, None)
    before = job.whole_header({})
    assert job.whole_header({}) == before
    with open(own / "own.yaml", "a") as file:
        file.write("doc_to_text: 'Say it: {{prompt}}'\n")
    assert job.whole_header({}) != before
