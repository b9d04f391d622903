"""`mrp pack --records`: writes what `mrp.report.records` reads.

The same runs give the same bytes, in one go or put together from parts.
"""

from __future__ import annotations

import gzip
import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from mrp.errors import UserError
from mrp.grid import Job, Layout, jobs, load_suite, suite_file
from mrp.io import atomic_write_bytes, atomic_write_json, read_json, sha256_file
from mrp.report.gathering import Run, check_record, origin, read_runs
from mrp.report.parts import Source, Together, put_together, source_of
from mrp.report.records import (
    DAMAGE,
    FORMAT,
    MANIFEST,
    RECORDS,
    SAMPLES,
    Part,
    absence,
    damaged_records,
    sample_lines,
    settings_of,
)
from mrp.schema import HeadsFrom, Suite

TRAINING_FACTS = ("parameters", "seconds", "device", "processes", "final", "sha256")


def write_records(
    suite_name: str,
    results: Path,
    heads: HeadsFrom,
    command: str,
    out: Path,
    add: Sequence[Path] = (),
    workers: int = 1,
) -> dict[str, Any]:
    """Pack what a suite's jobs left in `results` into the folder `out`; returns the manifest.

    Args:
        suite_name: a suite file, or its name in config/suites.
        results: the folder that holds the suites' results.
        heads: as for `mrp.grid.jobs`.
        command: how the runs were started.
        out: where to write; it may be one of `add`.
        add: folders of records in small, for the jobs that have no run in `results`.
        workers: processes that read runs.

    Raises:
        UserError: there is no record at all, or one is damaged; names the file.
    """
    suite = load_suite(suite_name)
    layout = Layout(suite, Path(results))
    grid = jobs(suite, heads)
    digests = {job.id: job.digest for job in grid}
    others = [_added(suite, Path(directory), digests) for directory in add]
    suite_sha256 = sha256_file(suite_file(suite_name))
    runs = _runs(layout, grid, workers)
    here = Source(
        f"--results {results}",
        runs,
        [Part(command=command, suite_sha256=suite_sha256, of=list(runs))],
        _trained(layout),
    )
    together = put_together(grid, here, others)
    if not together.runs:
        places = "".join(f", nor in {other.place}" for other in others)
        raise UserError(
            f"--results {results}: no record of suite {suite.name!r} there to pack{places}"
        )
    records = {job: run.record for job, run in together.runs.items()}
    contents = _contents(together.runs)
    trained = {name: together.trained[name] for name in _places(layout) if name in together.trained}
    commands = list(dict.fromkeys(part.command for part in together.parts))
    manifest = {
        "format": FORMAT,
        "suite": suite.name,
        "suite_sha256": suite_sha256,
        "settings": settings_of(suite),
        "heads": heads,
        "command": commands[0] if len(commands) == 1 else commands,
        "jobs": len(records),
        "answers": _answers(together.runs.values()),
        "of_other_code": sum(
            record["job"]["digest"] != digests[job] for job, record in records.items()
        ),
        **origin(records.values()),
        "hours_of_training": round(sum(one["seconds"] for one in trained.values()) / 3600, 3),
        "trained": trained,
        "absent": {
            job.id: _why(layout, job, together) for job in grid if job.id not in together.runs
        },
    }
    if together.added:
        parts = [_described(part, together.runs) for part in together.parts]
        manifest["parts"] = parts
        # Not from the first machine's first to the last one's last.
        hours = sum(part["hours_from_first_to_last"] for part in parts)
        manifest["hours_from_first_to_last"] = round(hours, 3)
    manifest["files"] = {name: hashlib.sha256(data).hexdigest() for name, data in contents.items()}
    for name, data in contents.items():
        atomic_write_bytes(Path(out) / name, data)
    atomic_write_json(Path(out) / MANIFEST, manifest)
    return manifest


def _runs(layout: Layout, grid: Sequence[Job], workers: int) -> dict[str, Run]:
    """The runs in the results folder, by job."""
    there = [job.id for job in grid if layout.record(job.id).exists()]
    found = {}
    seen: dict[tuple[str, ...], tuple[str, ...]] = {}  # most jobs answer the same problems
    for job, run in zip(there, read_runs([*map(layout.run_dir, there)], workers), strict=True):
        shared = {
            task: replace(outcome, problems=seen.setdefault(outcome.problems, outcome.problems))
            for task, outcome in run.outcomes.items()
        }
        found[job] = Run(run.record, shared)
    return found


def _added(suite: Suite, directory: Path, digests: Mapping[str, str]) -> Source:
    """The records in small in a folder, checked as for a report; `digests` of the grid's jobs."""
    from mrp.report.frame import checked_records  # brings pandas

    packed = checked_records(suite, directory, "--add")
    checked = {job.id for job in jobs(suite, packed.manifest["heads"])}
    try:
        for name, record in packed.records.items():
            check_record(record)
            if name in digests and name not in checked:
                raise ValueError(f"{name} is no job with its heads")
        return source_of(f"--add {directory}", packed)
    except DAMAGE as error:
        raise damaged_records(directory, error, "--add") from None


def _contents(runs: dict[str, Run]) -> dict[str, bytes]:
    """Both files beside the manifest."""
    records = {job: run.record for job, run in runs.items()}
    outcomes = {(job, task): one for job, run in runs.items() for task, one in run.outcomes.items()}
    lines = "".join(f"{_compact(record)}\n" for record in records.values())
    table = "".join(f"{line}\n" for line in sample_lines(records, outcomes))
    return {
        RECORDS: lines.encode("utf-8"),
        SAMPLES: gzip.compress(table.encode("ascii"), 9, mtime=0),
    }


def _compact(record: dict[str, Any]) -> str:
    return json.dumps(record, ensure_ascii=False, separators=(",", ":"))


def _answers(runs: Iterable[Run]) -> int:
    return sum(len(outcome.problems) for run in runs for outcome in run.outcomes.values())


def _described(part: Part, runs: dict[str, Run]) -> dict[str, Any]:
    """A part as it stands in the manifest."""
    its = [runs[job] for job in part.of]
    return {
        "command": part.command,
        "suite_sha256": part.suite_sha256,
        "jobs": len(its),
        "answers": _answers(its),
        **origin(run.record for run in its),
        "of": part.of,
    }


def _why(layout: Layout, job: Job, together: Together) -> list[str]:
    """Why a job has no record: as seen here, or else where it was to run."""
    status, note = absence(layout, job)
    return list(
        together.absent.get(job.id, (status, note)) if status == "not run" else (status, note)
    )


def _places(layout: Layout) -> dict[str, Path]:
    """The folders of the suite's own trainings: S is a backbone, S/k2 a head on it."""
    places = {name: layout.trained_backbone_dir(name) for name in layout.suite.backbones}
    for backbone in layout.suite.backbones:
        for head in layout.suite.heads:
            places[f"{backbone}/{head}"] = layout.trained_head_dir(backbone, head)
    return places


def _trained(layout: Layout) -> dict[str, dict[str, Any]]:
    """What the suite's own trainings say of themselves."""
    found = {}
    for name, directory in _places(layout).items():
        path = directory / "provenance.json"
        if path.is_file():
            facts = read_json(path)
            found[name] = {fact: facts[fact] for fact in TRAINING_FACTS if fact in facts}
            found[name].setdefault("seconds", 0.0)
    return found
