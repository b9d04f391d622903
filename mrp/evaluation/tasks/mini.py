"""Data and scoring of the generated tasks, as lm-eval's task files name them.

The examples are handed to lm-eval in memory: parallel jobs share no cache and nothing is written
outside a job's own directory.
"""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import datasets

from mrp.data import test_examples
from mrp.errors import UserError
from mrp.evaluation.scoring import score

# Without a data directory the examples are generated: the embedded suite's first ones.
SEED, LEVEL, COUNT = 0, "embedded", 128


def load_mini_math(data_dir: str | None = None, **_: Any) -> dict[str, datasets.Dataset]:
    """The test split of mini_math; lm-eval passes its task metadata as keywords."""
    return _load("mini_math", data_dir)


def load_mini_code(data_dir: str | None = None, **_: Any) -> dict[str, datasets.Dataset]:
    """The test split of mini_code; lm-eval passes its task metadata as keywords."""
    return _load("mini_code", data_dir)


def score_mini_math(doc: dict[str, str], results: list[str]) -> dict[str, float]:
    """acc: 1 where the number after the last `#` is the target."""
    return {"acc": float(score("mini_math", results[0], doc["target"]))}


def score_mini_code(doc: dict[str, str], results: list[str]) -> dict[str, float]:
    """acc: 1 where the program's output is the target."""
    return {"acc": float(score("mini_code", results[0], doc["target"]))}


def _load(task: str, data_dir: str | None) -> dict[str, datasets.Dataset]:
    if data_dir is None:
        examples = test_examples(task, SEED, COUNT, LEVEL)
        rows = [{"id": f"{task}-{i}", **asdict(example)} for i, example in enumerate(examples)]
    else:
        rows = _read_rows(Path(data_dir) / f"{task}.jsonl")
    return {"test": datasets.Dataset.from_list(rows)}


def _read_rows(path: Path) -> list[dict[str, str]]:
    """The examples of a data file written by `mrp data`.

    Raises:
        UserError: it is missing, empty, or a line lacks a column.
    """
    if not path.exists():
        raise UserError(f"{path}: no such data file; write it with `mrp data --suite ... --out`")
    try:
        lines = path.read_text("utf-8").splitlines()
    except UnicodeDecodeError as error:
        raise UserError(
            f"{path}: damaged ({error}); delete the file and run `mrp data` again"
        ) from None
    rows = []
    for number, line in enumerate(lines, start=1):
        try:
            row = json.loads(line)
            rows.append({column: row[column] for column in ("id", "prompt", "answer", "target")})
        except (ValueError, KeyError, TypeError) as error:
            raise UserError(
                f"{path}: line {number} is damaged ({error!r}); delete the file and run "
                "`mrp data` again"
            ) from None
    if not rows:
        raise UserError(f"{path}: holds no examples; delete the file and run `mrp data` again")
    return rows
