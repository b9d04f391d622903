"""Read a suite file and name the first mistake in it, in one line."""

from __future__ import annotations

from pathlib import Path

from pydantic import ValidationError

from mrp.errors import UserError
from mrp.schema import (
    GENERATED,
    HEADS_FROM,
    MODES,
    OPTIONS,
    TASKS,
    BackboneSpec,
    DataSpec,
    GridEntry,
    HeadsFrom,
    HeadSpec,
    Suite,
)
from mrp.strict_yaml import read_yaml
from mrp.suite_checks import block_size, describe, known_tasks, one_of, problems, training

__all__ = [
    "GENERATED",
    "HEADS_FROM",
    "MODES",
    "OPTIONS",
    "TASKS",
    "BackboneSpec",
    "DataSpec",
    "GridEntry",
    "HeadSpec",
    "HeadsFrom",
    "Suite",
    "block_size",
    "heads_from",
    "known_tasks",
    "load_suite",
    "one_of",
    "suite_file",
    "training",
]

SUITES = Path("config/suites")


def load_suite(suite: str | Path) -> Suite:
    """Read and check a suite: a YAML file, or the name of one in config/suites.

    Raises:
        UserError: there is no such file, or it has a mistake; names the file, key and value.
    """
    path = suite_file(suite)
    raw = read_yaml(path)
    try:
        loaded = Suite.model_validate(raw)
    except ValidationError as error:
        raise UserError(f"{path}: {describe(error.errors()[0], raw)}") from None
    problem = next(problems(loaded, path.stem), None)
    if problem is not None:
        raise UserError(f"{path}: {problem}")
    return loaded


def suite_file(suite: str | Path) -> Path:
    """The file of a suite, from its path or its name.

    Raises:
        UserError: there is none.
    """
    path = Path(suite)
    if path.suffix not in (".yaml", ".yml"):
        path = SUITES / f"{suite}.yaml"
    if path.is_file():
        return path
    known = sorted(file.stem for file in SUITES.glob("*.yaml"))
    raise UserError(f"suite {str(suite)!r}: no file {path}; {one_of(known, suite)}")


def heads_from(value: object, where: str = "heads") -> HeadsFrom:
    """The choice between released heads and those trained here; `where` names it in messages.

    Raises:
        UserError: it is another word.
    """
    for known in HEADS_FROM:
        if value == known:
            return known
    raise UserError(f"{where}: {value!r} is not allowed: {one_of(HEADS_FROM, value)}")
