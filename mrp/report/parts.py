"""Runs of one suite from several places, put together for one set of records in small.

A grid may run in parts on machines that are lent for minutes. The runs here come first, then those
of each added folder in order; a job is taken once. One goes with the others only if it is the
suite's job of today (its digest) and was decoded by the weights and on the data of those before it.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from mrp.grid import Job
from mrp.report.gathering import Run, inputs
from mrp.report.records import Packed, Part

logger = logging.getLogger(__name__)
CODE = "of other settings or other code"
WEIGHTS = "of other weights or other data than the same backbone, head or task has before"
FOREIGN = "not in the suite's grid"


@dataclass(frozen=True, eq=False)
class Source:
    """Runs of one place; equal is only the same.

    Attributes:
        place: the option that named it.
        runs: by job; parts: who started them; trained, absent: as in the manifest.
    """

    place: str
    runs: dict[str, Run]
    parts: Sequence[Part]
    trained: dict[str, dict[str, Any]]
    absent: dict[str, Sequence[str]] = field(default_factory=dict)


def source_of(place: str, packed: Packed) -> Source:
    """What the records in small of one place hold.

    Raises:
        ValueError and others of mrp.report.records.DAMAGE: their manifest does not fit them.
    """
    manifest = packed.manifest
    outcomes: dict[str, dict[str, Any]] = {}
    for (job, task), outcome in packed.outcomes.items():
        outcomes.setdefault(job, {})[task] = outcome
    for job, record in packed.records.items():
        if outcomes[job].keys() != record["tasks"].keys():
            raise ValueError(f"record and samples of {job} are of different tasks")
    if "parts" in manifest:
        parts = [Part.model_validate(part) for part in manifest["parts"]]
    else:
        started = {name: manifest[name] for name in ("command", "suite_sha256")}
        parts = [Part(**started, of=list(packed.records))]
    if sorted(job for part in parts for job in part.of) != sorted(packed.records):
        raise ValueError("its parts are not of its records")
    trained = manifest.get("trained", {})
    for facts in trained.values():
        facts["seconds"] = float(facts["seconds"])
    runs = {job: Run(record, outcomes[job]) for job, record in packed.records.items()}
    return Source(place, runs, parts, trained, manifest["absent"])


@dataclass(frozen=True)
class Together:
    """The runs that were taken.

    Attributes:
        runs: in the grid's order; parts: who started them, from the first place to the last.
        added: whether any is from elsewhere.
        trained, absent: as in the manifest, without the jobs that lack a log here.
    """

    runs: dict[str, Run]
    parts: list[Part]
    added: bool
    trained: dict[str, dict[str, Any]]
    absent: dict[str, Sequence[str]]


def put_together(grid: Sequence[Job], here: Source, others: Sequence[Source]) -> Together:
    """The runs here and those of other places that they lack; says what was left out, and why.

    A run here of other code gives way to one of today's; the workflow would run it again.
    """
    digests = {job.id: job.digest for job in grid}
    taken: dict[str, Source] = {
        job: here for job, run in here.runs.items() if _digest(run) == digests[job]
    }
    known: dict[tuple[str, ...], set[str]] = {}
    _learn(known, (here.runs[job] for job in taken))
    for other in others:
        left_out: dict[str, list[str]] = {}
        differing: dict[str, list[str]] = {}
        new = []
        for job, run in other.runs.items():
            if job not in digests:
                left_out.setdefault(FOREIGN, []).append(job)
            elif _digest(run) != digests[job]:
                left_out.setdefault(CODE, []).append(job)
            elif job in taken:
                if unlike := _unlike(taken[job].runs[job], run):
                    told = f"{job}: {unlike} of {_answers(run)} answers"
                    differing.setdefault(taken[job].place, []).append(told)
            elif any(value not in known.get(key, {value}) for key, value in inputs(run.record)):
                left_out.setdefault(WEIGHTS, []).append(job)
            else:
                new.append(job)
        taken |= dict.fromkeys(new, other)
        _learn(known, (other.runs[job] for job in new))
        _tell(other, left_out, differing)
    for job in here.runs:
        taken.setdefault(job, here)
    order = [job.id for job in grid if job.id in taken]
    sources = [here, *(each for each in others if each in taken.values())]
    trained: dict[str, dict[str, Any]] = {}
    absent: dict[str, Sequence[str]] = {}
    for source in sources:
        trained = {**source.trained, **trained}
    for source in others:
        absent = {
            **{job: why for job, why in source.absent.items() if why[0] != "not run"},
            **absent,
        }
    return Together(
        runs={job: taken[job].runs[job] for job in order},
        parts=[part for source in sources for part in _parts(source, order, taken)],
        added=len(sources) > 1,
        trained=trained,
        absent=absent,
    )


def _parts(source: Source, order: Sequence[str], taken: dict[str, Source]) -> Iterable[Part]:
    """The parts of a source as far as their jobs were taken from there."""
    for part in source.parts:
        its = set(part.of)
        jobs = [job for job in order if job in its and taken[job] is source]
        if jobs:
            yield part.model_copy(update={"of": jobs})


def _digest(run: Run) -> str:
    return str(run.record["job"]["digest"])


def _learn(known: dict[tuple[str, ...], set[str]], runs: Iterable[Run]) -> None:
    for run in runs:
        for key, value in inputs(run.record):
            known.setdefault(key, set()).add(value)


def _unlike(one: Run, other: Run) -> int:
    """How many answers of two runs differ; all, where they are of different problems."""
    count = 0
    for task, outcome in other.outcomes.items():
        mine = one.outcomes.get(task)
        if mine is None or mine.problems != outcome.problems:
            count += len(outcome.problems)
        else:
            count += int((mine.texts != outcome.texts).sum())
    return count


def _answers(run: Run) -> int:
    return sum(len(outcome.problems) for outcome in run.outcomes.values())


def _tell(other: Source, left_out: dict[str, list[str]], differing: dict[str, list[str]]) -> None:
    if left_out:
        reasons = ", ".join(f"{len(jobs)} {why} ({jobs[0]})" for why, jobs in left_out.items())
        count = sum(map(len, left_out.values()))
        logger.warning(
            "%s: %d of %d jobs left out: %s", other.place, count, len(other.runs), reasons
        )
    for place, told in differing.items():
        more = f", and {len(told) - 1} more jobs" if len(told) > 1 else ""
        logger.warning(
            "warning: %s answers otherwise than %s, whose runs stay, by the same settings and code "
            "(%s%s): another device, or other weights",
            *(other.place, place, told[0], more),
        )
