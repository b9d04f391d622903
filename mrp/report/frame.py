"""Records -> one tidy table: a row for each (job, task) that the suite expects.

Nothing here is looked up in a record that can be counted again: accuracy, tokens per forward and
head passes come from the numbers of right answers and the summed counters.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from mrp.config import OPTIONS, HeadsFrom, Suite
from mrp.errors import UserError
from mrp.grid import Job, Layout, jobs
from mrp.io import read_json
from mrp.report.statistics import Bools, Floats, ratio, wilson

SCHEMA = 1
ROLES = ("prefill", "denoise", "verify", "store")  # of the backbone; storing is no own forward
HEAD_ROLES = ("head_draft", "head_remask", "head_store")  # passes of the head
COUNTERS = (
    *ROLES,
    *HEAD_ROLES,
    *("proposed", "accepted", "bonus", "vetoed", "revealed", "generated", "answer_tokens"),
)
OUTDATED = "outdated"
AUTO = float("inf")  # K where a mode chose it itself: beyond all that were given
NUMERIC_OPTIONS = ("k", "steps", "tau", "scale", "delta", "shortlist", "cap")
# Every row has all columns, also where a mode has no such number (NaN) or a job has no record.
NUMBERS = (
    "head_layers",
    *("n", "correct", "accuracy", "accuracy_low", "accuracy_high", "paper_rule_correct"),
    *("tpf", "tpf_low", "tpf_high", "tpf_end_to_end"),
    *("forwards_per_answer", "other_forwards_per_answer", "head_per_token"),
    *("acceptance", "vetoed_per_token"),
    *("time_ratio", "time_ratio_low", "time_ratio_high", "tokens_per_second"),
    *COUNTERS,
)


@dataclass(frozen=True)
class Outcome:
    """What a job answered on one task, problem by problem in document order.

    Attributes:
        problems: their ids.
        correct: [n]; texts: the n answers.
        tokens: generated tokens [n], as the record counts them.
        forwards: denoising and verifying forwards [n].
        paper_rule: how many are right by the paper's own rule; None for a task without one.
    """

    problems: tuple[str, ...]
    correct: Bools
    texts: tuple[str, ...]
    tokens: Floats
    forwards: Floats
    paper_rule: int | None = None


@dataclass(frozen=True)
class Results:
    """A suite's results.

    Attributes:
        suite: its name.
        rows: the tidy table in the suite's order, indexed 0, 1, ...
        outcomes: by (job, task); none for a job without a record.
        provenance: of every record, in the suite's order, with the notes on each task's scores.
    """

    suite: str
    rows: pd.DataFrame
    outcomes: dict[tuple[str, str], Outcome]
    provenance: list[dict[str, Any]]


def load_results(suite: Suite, results: Path, heads: HeadsFrom = "released") -> Results:
    """Read what the suite's jobs left in `results`; `heads` as for `mrp.grid.jobs`.

    Raises:
        UserError: there is no record at all, or one is damaged; names the file.
    """
    layout = Layout(suite, Path(results))
    rows: list[dict[str, Any]] = []
    outcomes: dict[tuple[str, str], Outcome] = {}
    provenance: list[dict[str, Any]] = []
    for job in jobs(suite, heads):
        labels = _labels(suite, job)
        record, status, note = _find(layout, job)
        if record is None:
            rows += [{**labels, "task": task, "status": status, "note": note} for task in job.tasks]
            continue
        try:
            found = _read_samples(layout.run_dir(job.id) / "samples.jsonl", job.tasks)
            for task in job.tasks:
                entry = record["tasks"][task]
                done = {"status": "done", **_numbers(entry, found[task]), **_extent(record, entry)}
                rows.append({**labels, "task": task, "note": "", **done})
                outcomes[job.id, task] = found[task]
            notes = {task: record["tasks"][task].get("notes", []) for task in job.tasks}
            provenance.append({"job": job.id, "notes": notes, **record["provenance"]})
        except (KeyError, TypeError, ValueError, ZeroDivisionError) as error:
            raise UserError(_damaged(layout.record(job.id), error)) from None
    if not outcomes:
        outdated = sum(row["status"] == OUTDATED for row in rows)
        which = "" if heads == "released" else f" heads={heads}"
        what = "only records of other settings or other code" if outdated else "no record"
        raise UserError(
            f"--results {results}: {what} of suite {suite.name!r} in {layout.root / 'runs'}: "
            f"run `snakemake --config suite={suite.name}{which}` first, or give the folder it wrote"
        )
    return Results(suite.name, _frame(rows), outcomes, provenance)


def _frame(rows: list[dict[str, Any]]) -> pd.DataFrame:
    """The tidy table; columns of one kind lie together, which makes choosing rows fast."""
    raw = pd.DataFrame(rows, dtype=object)
    absent = [name for name in (*NUMERIC_OPTIONS, *NUMBERS) if name not in raw]
    raw[absent] = np.nan
    return raw.astype(dict.fromkeys((*NUMERIC_OPTIONS, *NUMBERS), float)).copy()


def _labels(suite: Suite, job: Job) -> dict[str, Any]:
    """What identifies a row; options that the mode lacks are None."""
    head = suite.heads[job.head] if job.head else None
    return {
        "suite": suite.name,
        "job": job.id,
        "backbone": job.backbone,
        "task": "",
        "mode": job.mode,
        "head": job.head,
        "head_variant": head.variant if head else None,
        "head_source": job.head_source,
        "head_seed_of": job.head_seed_of,
        **{name: job.options.get(name) for name in OPTIONS},
        **({"k": AUTO} if job.options.get("k") == "auto" else {}),
        "status": "",
        "note": "",
    }


def _find(layout: Layout, job: Job) -> tuple[dict[str, Any] | None, str, str]:
    """A job's record, or None with a status and the reason in words."""
    path = layout.record(job.id)
    if not path.exists():
        log = layout.log("decode", job.id)
        if log.exists():
            return None, "failed", f"failed: {log.as_posix()}"
        return None, "not run", "not run"
    record = read_json(path)
    try:
        schema, digest = record["schema"], record["job"]["digest"]
    except (KeyError, TypeError) as error:
        raise UserError(_damaged(path, error)) from None
    if schema != SCHEMA:
        raise UserError(
            f"{path}: schema {schema!r}, but this version reads {SCHEMA}: delete it and run again"
        )
    if digest != job.digest:
        return None, OUTDATED, "outdated: its record is of other settings or other code"
    return record, "done", ""


def _numbers(entry: dict[str, Any], outcome: Outcome) -> dict[str, float | None]:
    """A row's numbers from its task's entry in the record.

    Raises:
        KeyError, ValueError: something is missing, or the entry and the samples disagree.
    """
    counts = {name: int(entry["counts"][name]) for name in COUNTERS}
    n, correct = int(entry["n"]), int(entry["correct"])
    made, decoding = counts["generated"], counts["denoise"] + counts["verify"]
    by_rule = int(entry["paper_rule"]["correct"]) if "paper_rule" in entry else None
    theirs = len(outcome.problems), outcome.correct.sum(), outcome.tokens.sum(), outcome.paper_rule
    if (n, correct, made, by_rule) != theirs or outcome.forwards.sum() != decoding:
        raise ValueError("it does not add up from the samples.jsonl beside it")
    other = counts["prefill"]  # finished blocks are stored by forwards already counted
    accuracy = wilson(correct, n)
    speed = entry["speed"] or {"ratio": None, "low": None, "high": None}
    tpf = ratio(outcome.tokens, outcome.forwards)
    return {
        "n": n,
        "correct": correct,
        "accuracy": accuracy.value,
        "accuracy_low": accuracy.low,
        "accuracy_high": accuracy.high,
        "paper_rule_correct": by_rule,
        "tpf": made / decoding,
        "tpf_low": tpf.low,
        "tpf_high": tpf.high,
        "tpf_end_to_end": made / (decoding + other),
        "forwards_per_answer": decoding / n,
        "other_forwards_per_answer": other / n,
        "head_per_token": sum(counts[role] for role in HEAD_ROLES) / made,
        "acceptance": counts["accepted"] / counts["proposed"] if counts["proposed"] else None,
        "vetoed_per_token": counts["vetoed"] / made,
        "time_ratio": speed["ratio"],
        "time_ratio_low": speed["low"],
        "time_ratio_high": speed["high"],
        "tokens_per_second": entry["tokens_per_second"],
        **counts,
    }


def _extent(record: dict[str, Any], entry: dict[str, Any]) -> dict[str, Any]:
    """The head's layers, and the rounds that accepted 0, 1, 2, ... drafts ("" if none was made)."""
    head = record["head"] or {"layers": None}
    rounds = " ".join(str(int(often)) for often in entry.get("accepted_rounds", ()))
    return {"head_layers": head.get("layers"), "accepted_rounds": rounds}


def _read_samples(path: Path, tasks: Sequence[str]) -> dict[str, Outcome]:
    """The outcomes of a job's tasks."""
    try:
        lines = sample_lines(path)
        return {task: _outcome([line for line in lines if line["task"] == task]) for task in tasks}
    except (KeyError, TypeError, ValueError) as error:
        raise UserError(_damaged(path, error)) from None


def sample_lines(path: Path) -> list[dict[str, Any]]:
    """The samples beside a record, as JSON values in the order of the file.

    Raises:
        UserError: the file is missing.
        ValueError: a line is not JSON, or the file is not UTF-8.
    """
    try:
        # Not splitlines(): an answer may hold other line breaks than the one that ends a line.
        return [json.loads(line) for line in path.read_text("utf-8").split("\n") if line]
    except FileNotFoundError:
        raise UserError(f"{path}: no such file, though its record is there: run again") from None


def _outcome(lines: list[dict[str, Any]]) -> Outcome:
    counts = [line["counts"] for line in lines]
    by_rule = bool(lines) and all(line.get("paper_rule") is not None for line in lines)
    return Outcome(
        problems=tuple(str(line["doc_id"]) for line in lines),
        correct=np.array([bool(line["correct"]) for line in lines]),
        texts=tuple(str(line["text"]) for line in lines),
        tokens=np.array([float(count["generated"]) for count in counts]),
        forwards=np.array([float(count["denoise"] + count["verify"]) for count in counts]),
        paper_rule=sum(bool(line["paper_rule"]) for line in lines) if by_rule else None,
    )


def _damaged(path: Path, error: Exception) -> str:
    what = f"{error} is missing" if isinstance(error, KeyError) else str(error)
    return f"{path}: damaged ({what}): delete it and run again"
