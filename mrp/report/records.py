"""A suite's records in small: all that tables, figures and findings need, to be kept in git.

`mrp pack --records DIR` writes three files, each the same bytes for the same runs:

- records.jsonl: every job's record.json, a line each, in the suite's order;
- samples.csv.gz: a line a job and task; a cell holds one number a problem, in document order;
- manifest.json: where they come from, the suite's settings, and the hashes of the other two.

Answers stand there as CRC-32, which says whether two runs answered alike, not what they answered.
"""

from __future__ import annotations

import gzip
import json
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, Literal

import numpy as np
from pydantic import BaseModel, ConfigDict, Field

from mrp.errors import UserError
from mrp.grid import Job, Layout, jobs, load_suite, suite_file
from mrp.io import atomic_write_bytes, atomic_write_json, read_json, sha256_file
from mrp.layout import RECORD_FILES
from mrp.report.outcomes import Hashes, Outcome, read_outcomes
from mrp.schema import HeadsFrom, Suite

FORMAT = 1
MANIFEST, RECORDS, SAMPLES = RECORD_FILES
COLUMNS = ("job", "task", "problems", "correct", "generated", "forwards", "like", "crc32")
TRAINING_FACTS = ("parameters", "seconds", "device", "processes", "final", "sha256")
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


class Manifest(BaseModel):
    """What reading relies on in manifest.json; the rest tells where the records come from."""

    model_config = ConfigDict(strict=True)
    format: int = Field(ge=FORMAT, le=FORMAT)
    suite: str
    heads: HeadsFrom
    settings: dict[str, Any]
    absent: dict[str, tuple[str, str] | list[str]]
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


# ---- writing -------------------------------------------------------------------------------------


def write_records(
    suite_name: str, results: Path, heads: HeadsFrom, command: str, out: Path
) -> dict[str, Any]:
    """Pack what a suite's jobs left in `results` into the folder `out`; returns the manifest.

    Args:
        suite_name: a suite file, or its name in config/suites.
        results: the folder that holds the suites' results.
        heads: as for `mrp.grid.jobs`.
        command: how the runs were started.
        out: where to write.

    Raises:
        UserError: there is no record at all, or one is damaged; names the file.
    """
    suite = load_suite(suite_name)
    layout = Layout(suite, Path(results))
    records: dict[str, dict[str, Any]] = {}
    outcomes: dict[Key, Outcome] = {}
    absent: dict[str, list[str]] = {}
    other_code = 0
    for job in jobs(suite, heads):
        path = layout.record(job.id)
        if not path.exists():
            absent[job.id] = list(absence(layout, job))
            continue
        record = read_json(path)
        try:
            other_code += record["job"]["digest"] != job.digest
            found = read_outcomes(layout.run_dir(job.id) / "samples.jsonl", list(record["tasks"]))
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise UserError(
                f"{layout.run_dir(job.id)}: damaged ({error!r}): delete it and run again"
            ) from None
        records[job.id] = record
        outcomes |= {(job.id, task): outcome for task, outcome in found.items()}
    if not records:
        raise UserError(f"--results {results}: no record of suite {suite.name!r} there to pack")
    out = Path(out)
    lines = (_compact(record) + "\n" for record in records.values())
    atomic_write_bytes(out / RECORDS, "".join(lines).encode("utf-8"))
    table = "".join(f"{line}\n" for line in _sample_lines(records, outcomes))
    atomic_write_bytes(out / SAMPLES, gzip.compress(table.encode("ascii"), 9, mtime=0))
    trained = _trained(layout)
    manifest = {
        "format": FORMAT,
        "suite": suite.name,
        "suite_sha256": sha256_file(suite_file(suite_name)),
        "settings": _settings(suite),
        "heads": heads,
        "command": command,
        "jobs": len(records),
        "answers": sum(len(outcome.problems) for outcome in outcomes.values()),
        "of_other_code": other_code,
        **_origin(records.values()),
        "hours_of_training": round(sum(one["seconds"] for one in trained.values()) / 3600, 3),
        "trained": trained,
        "absent": absent,
        "files": {name: sha256_file(out / name) for name in (RECORDS, SAMPLES)},
    }
    atomic_write_json(out / MANIFEST, manifest)
    return manifest


def absence(layout: Layout, job: Job) -> tuple[str, str]:
    """The status of a job without a record, and the reason in words."""
    log = layout.log("decode", job.id)
    return ("failed", f"failed: {log.as_posix()}") if log.exists() else ("not run", "not run")


def _compact(record: dict[str, Any]) -> str:
    return json.dumps(record, ensure_ascii=False, separators=(",", ":"))


def _settings(suite: Suite) -> dict[str, Any]:
    """What changes the records beside what a job's id says; defaults are left out."""
    return suite.model_dump(include={"seed", "data", "decoding"}, exclude_defaults=True)


def _origin(records: Iterable[dict[str, Any]]) -> dict[str, Any]:
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


def _trained(layout: Layout) -> dict[str, dict[str, Any]]:
    """What the suite's own trainings say of themselves: S is a backbone, S/k2 a head on it."""
    places = {name: layout.trained_backbone_dir(name) for name in layout.suite.backbones}
    for backbone in layout.suite.backbones:
        for head in layout.suite.heads:
            places[f"{backbone}/{head}"] = layout.trained_head_dir(backbone, head)
    found = {}
    for name, directory in places.items():
        path = directory / "provenance.json"
        if path.is_file():
            facts = read_json(path)
            found[name] = {fact: facts[fact] for fact in TRAINING_FACTS if fact in facts}
            found[name].setdefault("seconds", 0.0)
    return found


def _different(values: Iterable[Any]) -> list[str]:
    return sorted({str(value) for value in values if value is not None})


def _sample_lines(
    records: dict[str, dict[str, Any]], outcomes: dict[Key, Outcome]
) -> Iterator[str]:
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


def read_records(directory: Path, suite: Suite) -> Packed:
    """The packed records of `suite` in a folder.

    Raises:
        UserError: they are missing, damaged, or of another suite or other settings.
    """
    directory = Path(directory)
    if not (directory / MANIFEST).is_file():
        raise UserError(
            f"--records {directory}: no {MANIFEST} there: give a folder that "
            f"`mrp pack --suite {suite.name} --records DIR` wrote"
        )
    try:
        manifest = json.loads(_text(directory / MANIFEST))
        Manifest.model_validate(manifest)
        for name, digest in manifest["files"].items():
            if sha256_file(directory / name) != digest:
                raise ValueError(f"{name} is not the file that was written")
        _check_suite(directory, manifest, suite)
        listed = [json.loads(line) for line in _text(directory / RECORDS).split("\n") if line]
        records = {str(record["job"]["id"]): record for record in listed}
        outcomes = _read_samples(directory / SAMPLES, records)
    except DAMAGE as error:
        raise damaged_records(directory, error) from None
    return Packed(manifest, records, outcomes)


def damaged_records(directory: Path, error: Exception) -> UserError:
    """What to say of records that were not written by `mrp pack`, or changed since."""
    what = str(error).partition("\n")[0]
    return UserError(f"--records {directory}: damaged ({what}): write it again with `mrp pack`")


def _check_suite(directory: Path, manifest: dict[str, Any], suite: Suite) -> None:
    if manifest["suite"] != suite.name:
        raise UserError(
            f"--records {directory}: records of suite {manifest['suite']!r}, but --suite is "
            f"{suite.name!r}"
        )
    here = _settings(suite)
    for name in sorted(here.keys() | manifest["settings"].keys()):
        then, now = manifest["settings"].get(name), here.get(name)
        if then != now:
            raise UserError(
                f"--records {directory}: its runs had {name} = {then}, the suite file has {now}: "
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
        found[job, task] = Outcome(
            problems=_split(problems, int(entry["n"])),
            correct=np.frombuffer(correct.encode(), dtype=np.uint8) == ord("1"),
            texts=_hashes(hashes.split(" "), base),
            tokens=np.array(generated.split(" "), dtype=np.float64),
            forwards=np.array(forwards.split(" "), dtype=np.float64),
            paper_rule=None if rule is None else int(rule["correct"]),
        )
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
