"""The records and the outcomes of many runs, read on several cores, a run at a time on each."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from datetime import datetime
from multiprocessing.connection import wait
from pathlib import Path
from typing import Any

from mrp.errors import UserError
from mrp.io import read_json
from mrp.report.outcomes import Outcome, read_outcomes

RECORD, SAMPLES = "record.json", "samples.jsonl"
# Bytes of samples below which starting processes takes longer than reading.
SMALL = 64_000_000


@dataclass(frozen=True)
class Run:
    """What a job left: its record, and what it answered on each task."""

    record: dict[str, Any]
    outcomes: dict[str, Outcome]


def read_runs(directories: Sequence[Path], workers: int = 1) -> Iterator[Run]:
    """The runs in these folders, in order; each worker holds one file of samples at a time.

    Raises:
        UserError: one is damaged; names the folder.
    """
    sizes = [path.stat().st_size for folder in directories if (path := folder / SAMPLES).is_file()]
    workers = min(workers, len(directories))
    if workers < 2 or sum(sizes) < SMALL:
        yield from map(read_run, directories)
        return
    # Not a fork of this process, whose libraries have threads of their own.
    ways = multiprocessing.get_all_start_methods()
    context = multiprocessing.get_context("forkserver" if "forkserver" in ways else "spawn")
    if "forkserver" in ways:
        context.set_forkserver_preload([__name__])
    with ProcessPoolExecutor(workers, mp_context=context, initializer=_begin) as pool:
        # The workers start here, deaf to Ctrl-C from their first moment: this process sees to it.
        mask = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
        try:
            found = pool.map(read_run, directories)
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        try:
            yield from found
        except BrokenProcessPool:
            raise UserError(
                "a process that read samples was killed, as when memory runs out: give --threads 1"
            ) from None


def read_run(directory: Path) -> Run:
    """The run in a folder; raises UserError likewise."""
    record = read_json(directory / RECORD)
    try:
        tasks = list(record["tasks"])
        check_record(record)
        return Run(record, read_outcomes(directory / SAMPLES, tasks))
    except (ArithmeticError, AttributeError, KeyError, TypeError, ValueError) as error:
        raise UserError(f"{directory}: damaged ({error!r}): delete it and run again") from None


def check_record(record: dict[str, Any]) -> None:
    """Raise what `origin` and `inputs` raise for a record that is none of ours."""
    origin([record])
    inputs(record)
    if datetime.fromisoformat(record["provenance"]["created"]).tzinfo is None:
        raise ValueError("provenance.created is of no time zone")
    for name in ("id", "digest", "backbone", "mode"):
        if not isinstance(record["job"][name], str):
            raise TypeError(f"job.{name} is no string")


def inputs(record: dict[str, Any]) -> Iterable[tuple[tuple[str, ...], str]]:
    """The hashes of what a job was decoded with, each by what must have the same one elsewhere."""
    job, facts = record["job"], record["provenance"]
    data = record.get("data", {})
    hashes: list[tuple[tuple[str, ...], Any]] = [
        (("backbone", job["backbone"]), facts.get("backbone_hash")),
        (("head", job["backbone"], str(job["head"])), facts.get("head_hash")),
        *((("data", task), entry["sha256"]) for task, entry in data.items()),
    ]
    return [(key, str(value)) for key, value in hashes if value is not None]


def origin(records: Iterable[dict[str, Any]]) -> dict[str, Any]:
    """Versions, commits, devices and times, from the records' own provenance."""
    records = list(records)
    known = [record["provenance"] for record in records]
    packages: dict[str, set[str]] = {}
    for facts in known:
        for name, version in facts.get("packages", {}).items():
            packages.setdefault(name, set()).add(str(version))
    created = sorted(str(facts["created"]) for facts in known)
    seconds = datetime.fromisoformat(created[-1]) - datetime.fromisoformat(created[0])
    decoding = sum(entry["decode_seconds"] for r in records for entry in r["tasks"].values())
    return {
        **{name: _different(facts.get(name) for facts in known) for name in ("mrp", "git")},
        **{name: _different(facts.get(name) for facts in known) for name in ("device", "python")},
        "packages": {name: sorted(found) for name, found in sorted(packages.items())},
        "created": [created[0], created[-1]],
        "hours_from_first_to_last": round(seconds.total_seconds() / 3600, 3),
        "hours_of_decoding": round(decoding / 3600, 3),
    }


def _different(values: Iterable[Any]) -> list[str]:
    return sorted({str(value) for value in values if value is not None})


def _begin() -> None:
    """A worker ends with the process that started it."""
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        wait([parent.sentinel])
        os._exit(1)
