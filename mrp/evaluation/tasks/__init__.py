"""Task files for lm-eval (YAML, found by include path) and the functions that they name."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from mrp.errors import UserError

TASKS_DIR = Path(__file__).parent


@dataclass(frozen=True)
class HubSource:
    """Where a benchmark's problems are on the hub; `revision` is a commit."""

    id: str
    config: str
    split: str
    revision: str


def hub_source(task: str) -> HubSource:
    """The hub data set that a benchmark's task file names.

    Raises:
        UserError: there is no such task, or its problems are not on the hub.
    """
    settings = _settings(task)
    if "dataset_path" not in settings:
        raise UserError(f"task {task!r} has no data set on the hub")
    return HubSource(
        id=settings["dataset_path"],
        config=settings["dataset_name"],
        split=settings["test_split"],
        revision=settings["dataset_kwargs"]["revision"],
    )


def load_documents(task: str, data_dir: Path | None) -> list[dict[str, Any]]:
    """A task's problems, as lm-eval would load them, without lm-eval.

    Raises:
        UserError: unknown task, or its data is missing or damaged.
    """
    settings = _settings(task)
    load = _function(settings["custom_dataset"])
    options = {**settings.get("metadata", {}), **settings.get("dataset_kwargs", {})}
    found = load(data_dir=None if data_dir is None else str(data_dir), **options)
    return list(found[settings["test_split"]])


def scorer(task: str) -> Callable[[Mapping[str, Any], list[str]], Mapping[str, float]]:
    """A task file's `process_results`: (document, [reply]) -> metrics by name.

    Raises:
        UserError: there is no such task, or it names no function.
    """
    named = _settings(task).get("process_results")
    if named is None:
        raise UserError(f"task {task!r}: its file has no process_results: !function to score with")
    found: Callable[[Mapping[str, Any], list[str]], Mapping[str, float]] = _function(named)
    return found


def _function(path: str) -> Any:
    """package.module.name -> what it names."""
    module, _, name = path.rpartition(".")
    return getattr(importlib.import_module(module), name)


def _settings(task: str) -> dict[str, Any]:
    path = TASKS_DIR / f"{task}.yaml"
    if not path.exists():
        known = ", ".join(sorted(file.stem for file in TASKS_DIR.glob("*.yaml")))
        raise UserError(f"task {task!r} is unknown: choose among {known}")
    settings: dict[str, Any] = yaml.load(path.read_text("utf-8"), _PlainLoader)
    return settings


class _PlainLoader(yaml.SafeLoader):
    """Reads a task file without importing the functions that it names."""


def _function_name(loader: yaml.SafeLoader, node: yaml.ScalarNode) -> Any:
    return loader.construct_scalar(node)


_PlainLoader.add_constructor("!function", _function_name)
