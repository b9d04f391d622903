"""Task files for lm-eval (YAML, found by include path) and the functions that they name."""

from __future__ import annotations

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
    path = TASKS_DIR / f"{task}.yaml"
    settings = yaml.load(path.read_text("utf-8"), _PlainLoader) if path.exists() else {}
    if "dataset_path" not in settings:
        raise UserError(f"task {task!r} has no data set on the hub")
    return HubSource(
        id=settings["dataset_path"],
        config=settings["dataset_name"],
        split=settings["test_split"],
        revision=settings["dataset_kwargs"]["revision"],
    )


class _PlainLoader(yaml.SafeLoader):
    """Reads a task file without importing the functions that it names."""


def _function_name(loader: yaml.SafeLoader, node: yaml.ScalarNode) -> Any:
    return loader.construct_scalar(node)


_PlainLoader.add_constructor("!function", _function_name)
