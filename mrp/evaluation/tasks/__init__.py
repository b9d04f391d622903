"""Task files for lm-eval (YAML, found by include path) and the functions that they name."""

from __future__ import annotations

import importlib
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from mrp.errors import UserError
from mrp.strict_yaml import read_yaml

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


def check_task(task: str) -> None:
    """Check what a task file says, before anything slow: lm-eval's own messages are tracebacks.

    Raises:
        UserError: there is no such task, or its file is damaged, lacks something, or names a
            function that is not there.
    """
    settings, where = _settings(task), f"task {task!r}"
    if settings.get("task") != task:
        raise UserError(f"{where}: its file says task: {settings.get('task')!r}: name it {task}")
    if settings.get("output_type") != "generate_until":
        kind = settings.get("output_type")
        raise UserError(f"{where}: output_type: {kind!r} is not allowed: must be generate_until")
    for key in ("test_split", "doc_to_text", "doc_to_target"):
        if not isinstance(settings.get(key), str):
            raise UserError(f"{where}: {key}: {settings.get(key)!r} is not allowed: must be a text")
    generation = settings.get("generation_kwargs") or {}
    if not isinstance(generation, dict) or generation.get("do_sample"):
        raise UserError(f"{where}: generation_kwargs: a mapping without do_sample: true is allowed")
    for key in ("custom_dataset", "process_results"):
        _function(task, key)


def check_documents(task: str, documents: Sequence[Mapping[str, Any]]) -> None:
    """Check that there are problems, each with its prompt and target.

    Raises:
        UserError: there are none, or one lacks something.
    """
    if not documents:
        raise UserError(f"task {task!r}: there are no problems in its data: write some")
    for number, document in enumerate(documents, start=1):
        prompt = document.get("prompt")
        if not isinstance(prompt, str) or not prompt.strip():
            raise UserError(f"task {task!r}: problem {number}: its prompt is {prompt!r}, no text")
        if document.get("target") is None:
            raise UserError(f"task {task!r}: problem {number} has no target: give each one")


def load_documents(task: str, data_dir: Path | None) -> list[dict[str, Any]]:
    """A task's problems, as lm-eval would load them, without lm-eval.

    Raises:
        UserError: unknown task, or its data is missing or damaged.
    """
    settings = _settings(task)
    load = _function(task, "custom_dataset")
    options = {**settings.get("metadata", {}), **settings.get("dataset_kwargs", {})}
    with blamed(f"task {task!r}: its problems cannot be loaded"):
        found = load(data_dir=None if data_dir is None else str(data_dir), **options)
        return list(found[settings["test_split"]])


def scorer(task: str) -> Callable[[Mapping[str, Any], list[str]], Mapping[str, float]]:
    """A task file's `process_results`: (document, [reply]) -> metrics by name.

    Raises:
        UserError: there is no such task, it names no function, or later: what that gives is no
            mapping of names to numbers.
    """
    own = _function(task, "process_results")

    def score(document: Mapping[str, Any], replies: list[str]) -> Mapping[str, float]:
        with blamed(f"task {task!r}: its process_results failed"):
            scores = own(document, replies)
        numbers = isinstance(scores, Mapping) and all(
            isinstance(value, int | float) for value in scores.values()
        )
        if not numbers:
            raise UserError(
                f"task {task!r}: its process_results gives {scores!r:.60}: must be a mapping of "
                "names to numbers, such as {'acc': 1.0}"
            )
        found: Mapping[str, float] = scores
        return found

    return score


@contextmanager
def blamed(what: str) -> Iterator[None]:
    """Make one line of whatever goes wrong in a user's function or file; `what` begins it.

    Raises:
        UserError: something did.
    """
    try:
        yield
    except UserError:
        raise
    except (Exception, SystemExit) as error:
        words = " ".join(f"{type(error).__name__}: {error}".split())
        last = traceback.extract_tb(error.__traceback__)[-1]
        where = f"{Path(last.filename).name}, line {last.lineno}"
        raise UserError(
            f"{what}: {words:.200} ({where}): correct it and run again, answers are kept"
        ) from error


def _function(task: str, key: str) -> Any:
    """What a task file names under `key`, as package.module.name."""
    path = _settings(task).get(key)
    if path is None:
        raise UserError(f"task {task!r}: its file has no {key}: give {key}: !function module.name")
    module, dot, name = str(path).rpartition(".")
    if not dot:
        raise UserError(
            f"task {task!r}: {key}: {path!r} is no function: give !function module.name"
        )
    with blamed(f"task {task!r}: {key}: {path} cannot be imported"):
        return getattr(importlib.import_module(module), name)


def _settings(task: str) -> dict[str, Any]:
    path = TASKS_DIR / f"{task}.yaml"
    if not path.exists():
        known = ", ".join(sorted(file.stem for file in TASKS_DIR.glob("*.yaml")))
        raise UserError(f"task {task!r} is unknown: choose among {known}")
    settings = read_yaml(path, _PlainLoader)
    if not isinstance(settings, dict):
        raise UserError(f"{path}: {settings!r:.60} is no task: must be a mapping of keys to values")
    return settings


class _PlainLoader(yaml.SafeLoader):
    """Reads a task file without importing the functions that it names."""


def _function_name(loader: yaml.SafeLoader, node: yaml.ScalarNode) -> Any:
    return loader.construct_scalar(node)


_PlainLoader.add_constructor("!function", _function_name)
