"""Records -> one tidy table: a row for each (job, task) that the suite expects.

Nothing here is looked up in a record that can be counted again: accuracy, tokens per forward and
head passes come from the numbers of right answers and the summed counters.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from mrp.config import OPTIONS, HeadsFrom, Suite, training
from mrp.errors import UserError
from mrp.grid import Job, Layout, jobs
from mrp.io import read_json
from mrp.report.outcomes import Outcome, read_outcomes
from mrp.report.records import DAMAGE, Key, Packed, absence, damaged_records, read_records
from mrp.report.statistics import Curve, curve, percentile, wilson

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
NUMERIC_OPTIONS = tuple(name for name, usual in OPTIONS.items() if type(usual) not in (str, bool))
# Every row has all columns, also where a mode has no such number (NaN) or a job has no record.
NUMBERS = (
    "head_layers",
    *("n", "correct", "accuracy", "accuracy_low", "accuracy_high", "paper_rule_correct"),
    *("tpf", "tpf_low", "tpf_high", "tpf_end_to_end"),
    *("forwards_per_answer", "other_forwards_per_answer", "head_per_token"),
    *("acceptance", "vetoed_per_token"),
    *("time_ratio", "time_ratio_low", "time_ratio_high", "time_batch", "tokens_per_second"),
    *COUNTERS,
)


@dataclass(frozen=True)
class Results:
    """A suite's results.

    Attributes:
        suite: its name.
        rows: the tidy table in the suite's order, indexed 0, 1, ...
        outcomes: by (job, task); none for a job without a record.
        points: TPF and accuracy with their resamples, likewise.
        provenance: of every record, in the suite's order, with the notes on each task's scores and
            how its time ratios were measured.
        manifest: of packed records; empty for a folder of runs.
    """

    suite: str
    rows: pd.DataFrame
    outcomes: dict[Key, Outcome]
    points: dict[Key, Curve]
    provenance: list[dict[str, Any]]
    manifest: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Run:
    """A job's record with its outcomes by task; without one, its status and the reason in words."""

    record: dict[str, Any] | None = None
    outcomes: Callable[[], dict[str, Outcome]] = dict
    status: str = "done"
    note: str = ""


def load_results(suite: Suite, results: Path, heads: HeadsFrom = "released") -> Results:
    """Read what the suite's jobs left in `results`; `heads` as for `mrp.grid.jobs`.

    Raises:
        UserError: there is no record at all, or one is damaged; names the file.
    """
    layout = Layout(suite, Path(results))
    runs = [(job, _find(layout, job)) for job in jobs(suite, heads)]
    if all(run.record is None for _, run in runs):
        outdated = any(run.status == OUTDATED for _, run in runs)
        which = "" if heads == "released" else f" heads={heads}"
        what = "only records of other settings or other code" if outdated else "no record"
        raise UserError(
            f"--results {results}: {what} of suite {suite.name!r} in {layout.root / 'runs'}: "
            f"run `snakemake --config suite={suite.name}{which}` first, or give the folder it wrote"
        )
    return _results(suite, runs, lambda job, error: damaged(layout.record(job.id), error))


def load_records(suite: Suite, directory: Path) -> Results:
    """Read what `mrp pack --records` wrote, also by earlier versions of the code.

    Raises:
        UserError: it is missing, damaged, or of another suite or other settings.
    """
    packed = read_records(directory, suite)
    runs = _packed_runs(suite, directory, packed)
    results = _results(suite, runs, lambda job, error: damaged_records(directory, error))
    return replace(results, manifest=packed.manifest)


def checked_records(suite: Suite, directory: Path, option: str = "--records") -> Packed:
    """The packed records that `option` gave, checked as `load_records` does; raises likewise."""
    packed = read_records(directory, suite, option)
    runs = _packed_runs(suite, directory, packed, option)
    _rows(suite, runs, lambda job, error: damaged_records(directory, error, option))
    return packed


def _packed_runs(
    suite: Suite, directory: Path, packed: Packed, option: str = "--records"
) -> list[tuple[Job, Run]]:
    by_job: dict[str, dict[str, Outcome]] = {}
    for (name, task), outcome in packed.outcomes.items():
        by_job.setdefault(name, {})[task] = outcome
    if packed.records.keys() != by_job.keys():
        error = ValueError("records and samples are of different jobs")
        raise damaged_records(directory, error, option)
    runs = []
    for job in jobs(suite, packed.manifest["heads"]):
        if job.id in packed.records:
            runs.append((job, Run(packed.records[job.id], partial(dict, by_job[job.id]))))
        else:
            status, note = packed.manifest["absent"].get(job.id, ("not run", "not run"))
            runs.append((job, Run(status=status, note=note)))
    return runs


def _results(
    suite: Suite, runs: Iterable[tuple[Job, Run]], told: Callable[[Job, Exception], UserError]
) -> Results:
    """The tidy table of all runs; `told` is what to raise where one is damaged."""
    rows, outcomes, provenance = _rows(suite, runs, told)
    points = _points(outcomes)
    for row in rows:
        if row["status"] == "done":
            point = points[row["job"], row["task"]]
            tpf = percentile(float(point.speed[0]), point.speeds[:, 0])
            row |= {"tpf_low": tpf.low, "tpf_high": tpf.high}
    return Results(suite.name, _frame(rows), outcomes, points, provenance)


def _rows(
    suite: Suite, runs: Iterable[tuple[Job, Run]], told: Callable[[Job, Exception], UserError]
) -> tuple[list[dict[str, Any]], dict[Key, Outcome], list[dict[str, Any]]]:
    """The table's rows without intervals, the outcomes and the provenance of all runs."""
    rows: list[dict[str, Any]] = []
    outcomes: dict[Key, Outcome] = {}
    provenance: list[dict[str, Any]] = []
    for job, run in runs:
        labels = {**_labels(suite, job), "status": run.status, "note": run.note}
        record = run.record
        if record is None:
            rows += [{**labels, "task": task} for task in job.tasks]
            continue
        try:
            found = run.outcomes()
            for task in job.tasks:
                entry = record["tasks"][task]
                numbers = {**_numbers(entry, found[task]), **_extent(record, entry)}
                rows.append({**labels, "task": task, **numbers})
                outcomes[job.id, task] = found[task]
            notes = {task: record["tasks"][task].get("notes", []) for task in job.tasks}
            timing = [_timing(entry["speed"]) for entry in record["tasks"].values()]
            facts = {"job": job.id, "notes": notes, "timing": timing[0]}
            provenance.append({**facts, **record["provenance"]})
        except DAMAGE as error:
            raise told(job, error) from None
    return rows, outcomes, provenance


def _points(outcomes: dict[Key, Outcome]) -> dict[Key, Curve]:
    """Every outcome as a point with its resamples, those of equally many problems in one go."""
    by_size: dict[int, list[Key]] = {}
    for key, outcome in outcomes.items():
        by_size.setdefault(len(outcome.problems), []).append(key)
    found: dict[Key, Curve] = {}
    for keys in by_size.values():
        listed = [outcomes[key] for key in keys]
        together = curve(
            [outcome.correct for outcome in listed],
            [outcome.tokens for outcome in listed],
            [outcome.forwards for outcome in listed],
        )
        found |= {key: together.take([place]) for place, key in enumerate(keys)}
    return found


def _frame(rows: list[dict[str, Any]]) -> pd.DataFrame:
    """The tidy table; columns of one kind lie together, which makes choosing rows fast."""
    raw = pd.DataFrame(rows, dtype=object)
    absent = [name for name in (*NUMERIC_OPTIONS, *NUMBERS) if name not in raw]
    raw[absent] = np.nan
    return raw.astype(dict.fromkeys((*NUMERIC_OPTIONS, *NUMBERS), float)).copy()


def _labels(suite: Suite, job: Job) -> dict[str, Any]:
    """What identifies a row; options that the mode lacks are None."""
    head = suite.heads[job.head] if job.head else None
    recipe = training(head) if head else None
    return {
        "suite": suite.name,
        "job": job.id,
        "backbone": job.backbone,
        "task": "",
        "mode": job.mode,
        "head": job.head,
        "head_variant": head.variant if head else None,
        "head_source": job.head_source,
        # Worth saying where other heads of the suite were released.
        "trained_here": job.head_source == "trained" and any(h.path for h in suite.heads.values()),
        "head_reveal": getattr(recipe, "reveal", None),
        "head_seed_of": job.head_seed_of,
        **{name: job.options.get(name) for name in OPTIONS},
        **({"k": AUTO} if job.options.get("k") == "auto" else {}),
        "status": "",
        "note": "",
    }


def _find(layout: Layout, job: Job) -> Run:
    """A job's record, or why there is none to show."""
    path = layout.record(job.id)
    if not path.exists():
        status, note = absence(layout, job)
        return Run(status=status, note=note)
    record = read_json(path)
    try:
        schema, digest = record["schema"], record["job"]["digest"]
    except (KeyError, TypeError) as error:
        raise damaged(path, error) from None
    if schema != SCHEMA:
        raise UserError(
            f"{path}: schema {schema!r}, but this version reads {SCHEMA}: delete it and run again"
        )
    if digest != job.digest:
        note = "outdated: its record is of other settings or other code"
        return Run(status=OUTDATED, note=note)
    return Run(record, lambda: _read_samples(path.with_name("samples.jsonl"), job))


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
        raise ValueError("it does not add up from its samples")
    other = counts["prefill"]  # finished blocks are stored by forwards already counted
    accuracy = wilson(correct, n)
    speed = entry["speed"] or dict.fromkeys(("ratio", "low", "high", "batch_size"))
    measured = (speed[name] for name in ("ratio", "low", "high", "batch_size"))
    for value in (*measured, entry["tokens_per_second"]):
        if value is not None and not isinstance(value, int | float):
            raise ValueError(f"{value!r} is no number")
    return {
        "n": n,
        "correct": correct,
        "accuracy": accuracy.value,
        "accuracy_low": accuracy.low,
        "accuracy_high": accuracy.high,
        "paper_rule_correct": by_rule,
        "tpf": made / decoding,
        "tpf_end_to_end": made / (decoding + other),
        "forwards_per_answer": decoding / n,
        "other_forwards_per_answer": other / n,
        "head_per_token": sum(counts[role] for role in HEAD_ROLES) / made,
        "acceptance": counts["accepted"] / counts["proposed"] if counts["proposed"] else None,
        "vetoed_per_token": counts["vetoed"] / made,
        "time_ratio": speed["ratio"],
        "time_ratio_low": speed["low"],
        "time_ratio_high": speed["high"],
        "time_batch": speed["batch_size"],
        "tokens_per_second": entry["tokens_per_second"],
        **counts,
    }


def _timing(speed: dict[str, Any] | None) -> str | None:
    """How a time ratio was measured, in words; None if it was not."""
    if speed is None:
        return None
    precision = f", {speed['dtype']}" if "dtype" in speed else ""
    return f"{speed['prompts']} prompts, {speed['batch_size']} at a time{precision}"


def _extent(record: dict[str, Any], entry: dict[str, Any]) -> dict[str, Any]:
    """The head's layers, and the rounds that accepted 0, 1, 2, ... drafts ("" if none was made)."""
    head = record["head"] or {"layers": None}
    rounds = " ".join(str(int(often)) for often in entry.get("accepted_rounds", ()))
    return {"head_layers": head.get("layers"), "accepted_rounds": rounds}


def _read_samples(path: Path, job: Job) -> dict[str, Outcome]:
    try:
        return read_outcomes(path, job.tasks)
    except (KeyError, TypeError, ValueError) as error:
        raise damaged(path, error) from None


def damaged(path: Path, error: Exception) -> UserError:
    """What to say of a run's file that is not what a run writes."""
    what = f"{error} is missing" if isinstance(error, KeyError) else str(error)
    return UserError(f"{path}: damaged ({what}): delete it and run again")
