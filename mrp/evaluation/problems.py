"""The paper's benchmarks: their problems from a local file or from the hub's cache.

A file `<dir>/<task>.jsonl` holds the test split with the hub data set's own columns, one JSON
object a line. Where the data set is on the hub stands in the task's YAML file.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import datasets

from mrp.errors import UserError
from mrp.evaluation.tasks import HubSource, hub_source
from mrp.io import read_json, sha256_file

Row = dict[str, Any]


def load_problems(
    task: str, data_dir: str | None, convert: Callable[[Row], Row]
) -> dict[str, datasets.Dataset]:
    """The test split as lm-eval takes it, in memory; every row also gets an `id`.

    Args:
        task: the task's name.
        data_dir: where `<task>.jsonl` is; None for the hub's cache.
        convert: makes a document of a row; KeyError, TypeError, ValueError and AttributeError mean
            that the row is damaged.

    Raises:
        UserError: the data is missing, empty or damaged.
    """
    hub = hub_source(task)
    if data_dir is not None:
        source = str(problem_file(task, data_dir))
        lines = _read_lines(Path(source), hub)
    else:
        source = f"data set {hub.id}"
        lines = _from_hub(hub, task)
    rows = []
    for number, line in enumerate(lines, start=1):
        try:
            row = json.loads(line) if isinstance(line, str) else line
            rows.append({"id": f"{task}-{number - 1}", **convert(row)})
        except (
            ValueError,
            KeyError,
            TypeError,
            AttributeError,
            RecursionError,
            UserError,
        ) as error:
            raise UserError(
                f"{source}: problem {number} is damaged ({error!r}); it must have the columns of "
                f"{hub.id}: run `mrp fetch` again"
            ) from None
    if not rows:
        raise UserError(f"{source}: holds no problems; run `mrp fetch` again")
    return {"test": datasets.Dataset.from_list(rows)}


def problem_file(task: str, data_dir: str | Path) -> Path:
    """Where a task's problems lie in a data directory."""
    return Path(data_dir) / f"{task}.jsonl"


def describe_data(
    task: str, data_dir: Path | None, docs: Iterable[Mapping[str, Any]]
) -> dict[str, Any]:
    """What the record says about the problems: the file, its SHA-256, what `mrp fetch` noted.

    Without a file the SHA-256 is that of the documents.
    """
    path = problem_file(task, data_dir) if data_dir is not None else None
    if path is None:
        text = json.dumps(list(docs), sort_keys=True, default=str)
        return {"file": None, "sha256": hashlib.sha256(text.encode()).hexdigest()}
    found: dict[str, Any] = {"file": str(path), "sha256": sha256_file(path)}
    fetched = path.with_suffix(".source.json")
    if fetched.exists():
        note = read_json(fetched)
        if isinstance(note, dict):
            found["source"] = {key: note.get(key) for key in ("id", "revision", "rows", "sha256")}
    return found


def _read_lines(path: Path, hub: HubSource) -> list[Any]:
    if not path.exists():
        raise UserError(
            f"{path}: no such data file; run `mrp fetch`, or write {hub.id}'s {hub.split} split "
            "there, one JSON object a line"
        )
    try:
        text = path.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"{path}: damaged ({error}); run `mrp fetch` again") from None
    # Not splitlines: JSON strings may hold other line separators.
    return [line for line in text.split("\n") if line.strip()]


def _from_hub(hub: HubSource, task: str) -> list[Any]:
    try:
        found = datasets.load_dataset(hub.id, hub.config, split=hub.split, revision=hub.revision)
        return list(found)
    except Exception as error:  # the library raises whatever its network or cache met
        first = next(iter(str(error).splitlines()), type(error).__name__)
        raise UserError(
            f"data set {hub.id} is not here ({first}): give a directory with {task}.jsonl as "
            "--data, or set HF_HUB_OFFLINE=0 and HF_DATASETS_OFFLINE=0 to load it from the hub"
        ) from None
