"""From decoded samples to a scored record, at once after decoding or long after it.

record = rescore(run_dir)     # what `mrp score` does: no model, no decoding
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from mrp.errors import UserError
from mrp.evaluation.problems import describe_data
from mrp.evaluation.provenance import scoring_provenance
from mrp.evaluation.record import (
    DECODED,
    RECORD,
    SAMPLES,
    Sample,
    read_decoded,
    read_run,
    task_scores,
    without_scores,
    write_run,
)
from mrp.evaluation.tasks import load_documents
from mrp.evaluation.verdicts import BENCHMARKS, TARGET_TASKS, Doc, judge
from mrp.source import code_version

# The source that turns replies into scores.
SCORE_CODE = (
    "evaluation/answers.py",
    "evaluation/program*.py",
    "evaluation/sandbox.py",
    "evaluation/guest/*.py",
    "evaluation/scoring.py",
    "evaluation/scores.py",
    "evaluation/verdicts.py",
    "evaluation/tasks/*.*",
    "data/mini_*.py",
)
FEW = 5  # fewer answers that are all wrong may be chance


class ImpossibleZero(UserError):
    """Nothing of a benchmark is right although there are answers; `record` is what was scored."""

    def __init__(self, message: str, record: dict[str, Any]) -> None:
        super().__init__(message)
        self.record = record


def score_run(
    samples: Sequence[Sample],
    record: dict[str, Any],
    documents: Mapping[str, Sequence[Doc]],
    data: dict[str, Any],
    allow_zero: bool = False,
) -> tuple[list[Sample], dict[str, Any]]:
    """Score decoded samples.

    Args:
        samples: of all tasks; scores in them are not looked at.
        record: of their decoding, with or without scores.
        documents: the problems of each task by document id; one of TARGET_TASKS may be left out
            and is scored by its samples' own targets.
        data: what the record says about the documents, by task.
        allow_zero: accept a benchmark of which nothing is right.

    Returns:
        The samples and the record, both scored.

    Raises:
        UserError: the documents are not those of the samples, or no sandbox can be set up.
        ImpossibleZero: nothing of a benchmark is right although the replies hold answers.
    """
    scored: list[Sample] = []
    complaints: list[str] = []
    entries = {}
    for task, entry in without_scores(record)["tasks"].items():
        mine = [sample for sample in samples if sample.task == task]
        if task in documents:
            mine = [_with_target(sample, documents[task]) for sample in mine]
            docs = [documents[task][sample.doc_id] for sample in mine]
        else:
            docs = [{"target": sample.target} for sample in mine]
        verdicts = judge(task, docs, [sample.text for sample in mine])
        mine = [replace(s, **asdict(v)) for s, v in zip(mine, verdicts, strict=True)]
        scores = task_scores(mine)
        if _is_suspicious(task, mine):
            complaints.append(_complaint(task, mine))
            note = "a score of 0 was accepted (--allow-zero)" if allow_zero else complaints[-1]
            scores["notes"] = [*scores.get("notes", []), note]
        entries[task] = {**entry, **scores}
        scored += mine
    whole = {**without_scores(record), "tasks": entries}
    whole["scored"] = {**scoring_provenance(code_version(*SCORE_CODE)), "data": data}
    if complaints and not allow_zero:
        raise ImpossibleZero(
            f"{'; '.join(complaints)}: the scoring, the prompts or the data are likely wrong. "
            "Correct them and run `mrp score --run DIR`, or accept the score with --allow-zero "
            "(mrp decode, mrp eval, mrp score)",
            whole,
        )
    return scored, whole


def rescore(
    run_dir: Path, data_dir: Path | None = None, allow_zero: bool = False
) -> dict[str, Any]:
    """Score a run's saved samples again and replace samples.jsonl and record.json.

    Without a record the run's scoring did not end: then decoded.jsonl is scored. Counts, times and
    provenance of the decoding stay.

    Args:
        run_dir: where record.json and samples.jsonl, or decoded.jsonl, are.
        data_dir: the problems' files; None for those that the run was decoded from, which
            TARGET_TASKS do not need.
        allow_zero: accept a benchmark of which nothing is right.

    Returns:
        The new record.

    Raises:
        UserError, ImpossibleZero: as `score_run`, or the run or its data is missing or damaged.
    """
    run_dir = Path(run_dir)
    if (run_dir / RECORD).exists() and (run_dir / SAMPLES).exists():
        samples, record = read_run(run_dir)
    elif (run_dir / DECODED).exists():
        _, samples, record = read_decoded(run_dir)
    else:
        raise UserError(
            f"--run {run_dir}: neither {RECORD} with {SAMPLES} nor {DECODED} is here: give the "
            "directory that `mrp decode --out` wrote, or decode the job first"
        )
    documents: dict[str, list[Doc]] = {}
    data: dict[str, Any] = dict(record.get("data", {}))
    for task in record["tasks"]:
        if data_dir is None and task in TARGET_TASKS:
            continue
        place = data_dir if data_dir is not None else _decoded_from(record, task)
        documents[task] = list(load_documents(task, place))
        data[task] = describe_data(task, place, documents[task])
    try:
        scored, whole = score_run(samples, record, documents, data, allow_zero)
    except (KeyError, TypeError, AttributeError) as error:
        raise UserError(
            f"--run {run_dir}: damaged: its {RECORD} lacks something ({error!r}); decode again"
        ) from error
    write_run(run_dir, scored, whole)
    return whole


def _decoded_from(record: dict[str, Any], task: str) -> Path | None:
    """The data directory that a task's prompts came from; None for the hub's cache."""
    file = record.get("data", {}).get(task, {}).get("file")
    if file is not None and not Path(file).exists():
        raise UserError(f"{file}: the tests of {task} were here and are not: give --data DIR")
    return Path(file).parent if file is not None else None


def _with_target(sample: Sample, docs: Sequence[Doc]) -> Sample:
    """The sample with its document's target, if that is the document it answers."""
    doc = docs[sample.doc_id] if 0 <= sample.doc_id < len(docs) else None
    if doc is None or doc["prompt"] != sample.prompt:
        raise UserError(
            f"--data: problem {sample.doc_id} of {sample.task} is not the one that was answered: "
            "give the data that the run was decoded from, or decode again"
        )
    return replace(sample, target=str(doc["target"]))


# ---- a score that cannot be ----------------------------------------------------------------------


def _is_suspicious(task: str, samples: Sequence[Sample]) -> bool:
    """Whether nothing of a benchmark is right although most replies hold an answer.

    That is how a broken prompt, extraction or sandbox looks. Replies without answers are what a
    model that learned nothing gives, and pass.
    """
    answered = sum(bool(sample.answered) for sample in samples)
    wrong = not any(sample.correct for sample in samples)
    return task in BENCHMARKS and wrong and answered >= max(FEW, len(samples) / 2)


def _complaint(task: str, samples: Sequence[Sample]) -> str:
    answered = sum(bool(sample.answered) for sample in samples)
    reasons = Counter(s.program["reason"] for s in samples if s.program is not None)
    why = f" (most often: {reasons.most_common(1)[0][0]})" if reasons else ""
    return f"{task}: 0 of {len(samples)} right although {answered} replies hold an answer{why}"
