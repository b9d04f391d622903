"""A suite's records in small: all that tables, figures and findings need, to be kept in git.

`mrp pack --records DIR` writes three files, each the same bytes for the same runs:

- records.jsonl: every job's record.json, a line each, in the suite's order;
- samples.csv.gz: a line a job and task; a cell holds one number a problem, in document order;
- manifest.json: where they come from, the suite's settings, and the hashes of the other two. Of
  runs of several machines it lists each part: command, commit, device, hours, and which jobs.

Answers stand there as CRC-32, which says whether two runs answered alike, not what they answered.
`mrp.report.packing` writes them, `mrp.report.parts` puts those of several machines together.
"""

from __future__ import annotations

import gzip
import json
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
from pydantic import BaseModel, ConfigDict, Field

from mrp.errors import UserError
from mrp.grid import Job, Layout
from mrp.io import sha256_file
from mrp.layout import RECORD_FILES
from mrp.report.outcomes import Hashes, Outcome
from mrp.schema import HeadsFrom, Suite

FORMAT = 1
MANIFEST, RECORDS, SAMPLES = RECORD_FILES
COLUMNS = ("job", "task", "problems", "correct", "generated", "forwards", "like", "crc32")
SAME = "="  # in crc32: the answer is that of the job in `like`
Key = tuple[str, str]  # job, task
MOST_BYTES = 100  # of a problem in samples.csv; it takes 15 or so
# What reading a file of any content can raise.
DAMAGE = (
    OSError,
    ArithmeticError,
    AttributeError,
    EOFError,
    LookupError,
    RecursionError,
    TypeError,
    ValueError,
    zlib.error,
)


def absence(layout: Layout, job: Job) -> tuple[str, str]:
    """The status of a job without a record, and the reason in words."""
    log = layout.log("decode", job.id)
    return ("failed", f"failed: {log.as_posix()}") if log.exists() else ("not run", "not run")


def settings_of(suite: Suite) -> dict[str, Any]:
    """What changes the records beside what a job's id says; defaults are left out."""
    return suite.model_dump(include={"seed", "data", "decoding"}, exclude_defaults=True)


class Part(BaseModel):
    """Runs that one command started with one suite file."""

    model_config = ConfigDict(strict=True, frozen=True)
    command: str
    suite_sha256: str
    of: list[str]  # the jobs' ids


class Manifest(BaseModel):
    """What reading relies on in manifest.json; the rest tells where the records come from."""

    model_config = ConfigDict(strict=True)
    format: int = Field(ge=FORMAT, le=FORMAT)
    suite: str
    heads: HeadsFrom
    settings: dict[str, Any]
    command: str | list[str]
    suite_sha256: str
    absent: dict[str, Annotated[list[str], Field(min_length=2, max_length=2)]]
    parts: list[Part] = []
    files: dict[Literal["records.jsonl", "samples.csv.gz"], str] = Field(min_length=2)


@dataclass(frozen=True)
class Packed:
    """The packed records of a suite.

    Attributes:
        manifest: of manifest.json.
        records: by job; outcomes: by (job, task).
    """

    manifest: dict[str, Any]
    records: dict[str, dict[str, Any]]
    outcomes: dict[Key, Outcome]


# ---- lines and cells -----------------------------------------------------------------------------


def sample_lines(records: dict[str, dict[str, Any]], outcomes: dict[Key, Outcome]) -> Iterator[str]:
    """samples.csv, line by line."""
    yield ",".join(COLUMNS)
    bases: dict[Key, list[tuple[str, Outcome]]] = {}  # static's runs by backbone and task
    for (job, task), outcome in outcomes.items():
        described = records[job]["job"]
        known = bases.setdefault((described["backbone"], task), [])
        like, same = _nearest(outcome, known)
        if described["mode"] == "static":
            known.append((job, outcome))
        hashes = (
            SAME if again else f"{value:08x}"
            for value, again in zip(outcome.texts, same, strict=True)
        )
        cells = (
            *(job, task, _join(outcome.problems)),
            "".join("1" if right else "0" for right in outcome.correct),
            *(" ".join(map(str, x.astype(int))) for x in (outcome.tokens, outcome.forwards)),
            *(like, " ".join(hashes)),
        )
        yield ",".join(cells)


def _nearest(outcome: Outcome, known: list[tuple[str, Outcome]]) -> tuple[str, Any]:
    """The run of the same problems with most answers in common, and which those are [n]."""
    best: tuple[str, Any] = ("", np.zeros(len(outcome.problems), dtype=np.bool_))
    for job, other in known:
        if other.problems == outcome.problems:
            same = other.texts == outcome.texts
            if same.sum() > best[1].sum():
                best = (job, same)
    return best


def _join(problems: tuple[str, ...]) -> str:
    """The ids; the usual 0, 1, 2, ... as their number."""
    counted = all(problem == str(number) for number, problem in enumerate(problems))
    return f"n={len(problems)}" if counted else " ".join(problems)


# ---- reading -------------------------------------------------------------------------------------


def read_records(directory: Path, suite: Suite, option: str = "--records") -> Packed:
    """The packed records of `suite` in a folder, which `option` gave.

    Raises:
        UserError: they are missing, damaged, or of another suite or other settings.
    """
    directory = Path(directory)
    if not (directory / MANIFEST).is_file():
        raise UserError(
            f"{option} {directory}: no {MANIFEST} there: give a folder that "
            f"`mrp pack --suite {suite.name} --records DIR` wrote"
        )
    try:
        manifest = json.loads(_text(directory / MANIFEST))
        Manifest.model_validate(manifest)
        for name, digest in manifest["files"].items():
            if sha256_file(directory / name) != digest:
                raise ValueError(f"{name} is not the file that was written")
        _check_suite(f"{option} {directory}", manifest, suite)
        listed = [json.loads(line) for line in _text(directory / RECORDS).split("\n") if line]
        records = {str(record["job"]["id"]): record for record in listed}
        outcomes = _read_samples(directory / SAMPLES, records)
    except DAMAGE as error:
        raise damaged_records(directory, error, option) from None
    return Packed(manifest, records, outcomes)


def damaged_records(directory: Path, error: Exception, option: str = "--records") -> UserError:
    """What to say of records that were not written by `mrp pack`, or changed since."""
    what = str(error).partition("\n")[0]
    return UserError(f"{option} {directory}: damaged ({what}): write it again with `mrp pack`")


def _check_suite(place: str, manifest: dict[str, Any], suite: Suite) -> None:
    if manifest["suite"] != suite.name:
        raise UserError(
            f"{place}: records of suite {manifest['suite']!r}, but --suite is {suite.name!r}"
        )
    here = settings_of(suite)
    for name in sorted(here.keys() | manifest["settings"].keys()):
        then, now = manifest["settings"].get(name), here.get(name)
        if then != now:
            raise UserError(
                f"{place}: its runs had {name} = {then}, the suite file has {now}: "
                "run the suite again and pack it, or take the suite file that the records are of"
            )


def _text(path: Path) -> str:
    return path.read_text("utf-8")


def _read_samples(path: Path, records: dict[str, dict[str, Any]]) -> dict[Key, Outcome]:
    problems_in_all = sum(
        int(entry["n"]) for record in records.values() for entry in record["tasks"].values()
    )
    most = 2**20 + MOST_BYTES * problems_in_all
    with gzip.open(path) as file:
        text = file.read(most + 1)
    if len(text) > most:
        raise ValueError(f"{path.name} is longer than {problems_in_all} answers can be")
    heading, *lines = text.decode("ascii").splitlines()
    if heading != ",".join(COLUMNS):
        raise ValueError(f"{path.name} has other columns")
    found: dict[Key, Outcome] = {}
    for line in lines:
        job, task, problems, correct, generated, forwards, like, hashes = line.split(",")
        if (job, task) in found:
            raise ValueError(f"{path.name} holds {job}, {task} twice")
        entry = records[job]["tasks"][task]
        rule = entry.get("paper_rule")
        base = found[like, task].texts if like else None
        outcome = found[job, task] = Outcome(
            problems=_split(problems, int(entry["n"])),
            correct=np.frombuffer(correct.encode(), dtype=np.uint8) == ord("1"),
            texts=_hashes(hashes.split(" "), base),
            tokens=np.array(generated.split(" "), dtype=np.float64),
            forwards=np.array(forwards.split(" "), dtype=np.float64),
            paper_rule=None if rule is None else int(rule["correct"]),
        )
        columns = (outcome.correct, outcome.texts, outcome.tokens, outcome.forwards)
        if any(len(column) != len(outcome.problems) for column in columns):
            raise ValueError(f"{path.name}: the cells of {job}, {task} are of different lengths")
    return found


def _split(problems: str, n: int) -> tuple[str, ...]:
    if problems == f"n={n}":
        return tuple(map(str, range(n)))
    return tuple(problems.split(" "))


def _hashes(cells: list[str], base: Hashes | None) -> Hashes:
    if base is None:
        return np.array([int(cell, 16) for cell in cells], dtype=np.uint32)
    pairs = zip(cells, base.tolist(), strict=True)
    return np.array([same if cell == SAME else int(cell, 16) for cell, same in pairs], np.uint32)
