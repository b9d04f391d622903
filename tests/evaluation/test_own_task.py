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


def failing(doc: Mapping[str, str], results: list[str]) -> dict[str, float]:
    return {"acc": 1 / len(results[1:])}


def leaving(doc: Mapping[str, str], results: list[str]) -> dict[str, float]:
    raise SystemExit(0)


def silent(doc: Mapping[str, str], results: list[str]) -> None:
    return None


def wordy(doc: Mapping[str, str], results: list[str]) -> dict[str, str]:
    return {"acc": "yes"}


GOOD = f"""task: own
custom_dataset: !function {__name__}.score
test_split: test
output_type: generate_until
doc_to_text: prompt
doc_to_target: target
process_results: !function {__name__}.score
"""


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(tasks, "TASKS_DIR", tmp_path)
    monkeypatch.setattr(run, "TASKS_DIR", tmp_path)
    named = f"process_results: !function {__name__}"
    (tmp_path / "own.yaml").write_text(f"task: own\n{named}.score\n")
    (tmp_path / "mute.yaml").write_text(f"task: mute\n{named}.no_score\n")
    for name in ("failing", "leaving", "silent", "wordy"):
        (tmp_path / f"{name}.yaml").write_text(f"task: {name}\n{named}.{name}\n")
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
        ("other", "task 'other' is unknown: choose among failing, leaving, mute"),
        ("failing", r"ZeroDivisionError: .* \(test_own_task.py, line \d+\): correct it and run"),
        ("leaving", "task 'leaving': its process_results failed: SystemExit: 0"),
        ("silent", "gives None: must be a mapping"),
        ("wordy", "gives {'acc': 'yes'}: must be a mapping of names to numbers"),
    ],
)
def test_what_cannot_score_is_said(own: Path, task: str, message: str) -> None:
    with pytest.raises(UserError, match=message):
        judge(task, [{}], ["a reply"])


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("task: own", "task: other", "says task: 'other': name it own"),
        (
            "generate_until",
            "loglikelihood",
            "'loglikelihood' is not allowed: must be generate_until",
        ),
        ("test_split: test", "", "test_split: None is not allowed"),
        ("doc_to_target: target\n", "", "doc_to_target: None is not allowed"),
        ("doc_to_text: prompt", "doc_to_text: 3", "doc_to_text: 3 is not allowed"),
        ("doc_to_text", "generation_kwargs: {do_sample: true}\ndoc_to_text", "without do_sample"),
        ("custom_dataset", "custom_datasets", "its file has no custom_dataset"),
        ("process_results", "process_result", "its file has no process_results"),
        (f"results: !function {__name__}.score", "results: 3", "3 is no function"),
        (f"results: !function {__name__}", "results: !function no.such", "No module named 'no'"),
        (".score\nt", ".scoer\nt", "custom_dataset: .*scoer cannot be imported: AttributeError"),
        ("test_split:", "test_split: [", "own.yaml: no valid YAML at line"),
        (GOOD, "", "own.yaml: None is no task: must be a mapping"),
        (GOOD, "[1]", r"own.yaml: \[1\] is no task"),
    ],
)
def test_a_mistake_in_its_file_is_one_line(own: Path, old: str, new: str, message: str) -> None:
    (own / "own.yaml").write_text(GOOD)
    tasks.check_task("own")
    (own / "own.yaml").write_text(GOOD.replace(old, new))
    with pytest.raises(UserError, match=message) as caught:
        tasks.check_task("own")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("documents", "message"),
    [
        ([], "there are no problems"),
        ([{"prompt": "x", "target": "1"}, {"target": "1"}], "problem 2: its prompt is None"),
        ([{"prompt": 3, "target": "1"}], "problem 1: its prompt is 3, no text"),
        ([{"prompt": " ", "target": "1"}], "its prompt is ' '"),
        ([{"prompt": "x"}], "problem 1 has no target"),
    ],
)
def test_a_problem_that_lacks_something(documents: list[dict[str, str]], message: str) -> None:
    with pytest.raises(UserError, match=message):
        tasks.check_documents("own", documents)


def test_answers_to_other_prompts_are_not_kept(own: Path) -> None:
    """A task file that changed may ask otherwise: what was decoded before it is not just scored."""
    cell = run.Cell("job", "suite", "S", ("own",), "static")
    job = run.Job(cell, Path("backbone"), None, {"own": {"sha256": "0"}}, None)
    before = job.whole_header({})
    assert job.whole_header({}) == before
    with open(own / "own.yaml", "a") as file:
        file.write("doc_to_text: 'Say it: {{prompt}}'\n")
    assert job.whole_header({}) != before
