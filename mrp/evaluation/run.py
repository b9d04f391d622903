"""One decode job: a mode over its tasks, through lm-eval, into samples.jsonl and record.json."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

# Our tasks are local: nothing in a decode job may wait for a network.
os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("HF_DATASETS_OFFLINE", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")

import lm_eval.api.task
from lm_eval.evaluator import evaluate
from lm_eval.tasks import TaskManager
from tqdm import tqdm

from mrp.decoding.modes.static import Static
from mrp.errors import UserError
from mrp.evaluation.adapter import MRPModel
from mrp.evaluation.journal import Journal
from mrp.evaluation.provenance import provenance
from mrp.evaluation.record import (
    JOURNAL,
    Sample,
    backbone_forwards,
    task_summary,
    write_run,
)
from mrp.evaluation.requests import parse_settings
from mrp.evaluation.tasks import TASKS_DIR
from mrp.models import resolved_revision
from mrp.speed import paired_speed

logger = logging.getLogger(__name__)

DEFAULT_LENGTH = 112  # new tokens where neither the job nor the task says how many
OPTIONS = ("k", "tau", "steps", "scale", "condition", "rule", "delta")


@dataclass(frozen=True)
class Speed:
    """How the paired speed measurement is made: see `mrp.speed.paired_speed`."""

    prompts: int
    batch_size: int
    repeats: int


@dataclass(frozen=True)
class Cell:
    """A decode job as this module needs it: a cell of the grid with its decoding settings.

    `head` names the head in the record, `head_source` says "released" or "trained", `head_variant`
    how it was trained where its checkpoint does not say. `digest` stands for the job's whole
    definition; `limit` takes the first documents of each task only. `max_new_tokens` goes before a
    task's own limit; None keeps that.
    """

    id: str
    suite: str
    backbone: str
    tasks: tuple[str, ...]
    mode: str
    options: dict[str, Any] = field(default_factory=dict)
    head: str | None = None
    head_source: str | None = None
    head_variant: str | None = None
    digest: str = ""
    batch_size: int = 32
    max_new_tokens: int | None = None
    dtype: str = "float32"
    seed: int = 0
    limit: int | None = None
    speed: Speed | None = None


def run_job(
    cell: Cell,
    backbone_path: Path,
    head_path: Path | None,
    data_dir: Path | None,
    out_dir: Path | None,
    device: str | None = None,
) -> dict[str, Any]:
    """Decode and score `cell`; write the run to `out_dir` (None: write nothing).

    A job that was killed goes on from the journal in `out_dir`, and its numbers equal those of a
    run without a break. Without `data_dir` the generated tasks make their examples themselves.

    Returns:
        The record.

    Raises:
        UserError: unknown task or mode, missing data or checkpoint, another process in `out_dir`.
    """
    if cell.limit is not None and cell.limit < 1:
        raise UserError(f"limit {cell.limit} leaves no examples: at least 1, or no limit")
    with _quiet_lm_eval():
        tasks = load_tasks(cell.tasks, data_dir)
        if cell.max_new_tokens is not None:
            _limit_lengths(tasks, cell.max_new_tokens)
        model = MRPModel(
            backbone_path,
            head_path,
            cell.mode,
            batch_size=cell.batch_size,
            max_new_tokens=cell.max_new_tokens or DEFAULT_LENGTH,
            device=device,
            dtype=cell.dtype,
            head_variant=cell.head_variant,
            **cell.options,
        )
        if out_dir is not None:
            header = {"job": cell.digest, "seed": cell.seed, **model.identity}
            model.journal = Journal(Path(out_dir) / JOURNAL, header)
        try:
            results = evaluate(
                lm=model,
                task_dict=tasks,
                limit=cell.limit,
                bootstrap_iters=0,
                log_samples=True,
                apply_chat_template=True,
                fewshot_as_multiturn=True,
            )
            logged = {task: results["samples"][task] for task in cell.tasks}
            samples = {task: _samples(model, task, logged[task]) for task in cell.tasks}
            record = _record(cell, model, samples, _speeds(cell, model, logged))
            if out_dir is not None:
                every = [sample for task in cell.tasks for sample in samples[task]]
                write_run(Path(out_dir), every, record)
        finally:
            if model.journal is not None:
                model.journal.close()
    return record


def load_tasks(names: Sequence[str], data_dir: Path | None) -> dict[str, Any]:
    """Our lm-eval tasks by name, as `evaluate` takes them.

    Raises:
        UserError: there is no such task, or its data is missing.
    """
    metadata = {"data_dir": str(data_dir)} if data_dir is not None else {}
    manager = TaskManager(include_path=str(TASKS_DIR), include_defaults=False, metadata=metadata)
    if not names:
        raise UserError(f"no task is named: choose among {', '.join(manager.all_tasks)}")
    for name in names:
        if name not in manager.all_tasks:
            raise UserError(
                f"task {name!r} is unknown: choose among {', '.join(manager.all_tasks)}"
            )
    loaded: dict[str, Any] = manager.load(list(names))
    return loaded


def _limit_lengths(loaded: dict[str, Any], length: int) -> None:
    """Ask every loaded task for at most `length` new tokens an answer."""
    for task in loaded["tasks"].values():
        task.set_config("generation_kwargs", {"max_gen_toks": length}, update=True)


def _samples(model: MRPModel, task: str, logged: list[dict[str, Any]]) -> list[Sample]:
    """The task's scored samples in document order."""
    samples = []
    for entry in sorted(logged, key=lambda entry: int(entry["doc_id"])):
        outcome = model.outcomes[task, entry["doc_id"]]
        ids = outcome.decoded.trace.ids
        samples.append(
            Sample(
                task=task,
                doc_id=entry["doc_id"],
                prompt=entry["doc"]["prompt"],
                text=outcome.text,
                target=str(entry["target"]),
                correct=entry["acc"] == 1.0,
                decoded=outcome.decoded,
                tokens=[model.tokenizer.decode([token]) for token in ids],
                paper_rule=entry["paper_rule"] == 1.0 if "paper_rule" in entry else None,
            )
        )
    return samples


def _speeds(
    cell: Cell, model: MRPModel, logged: dict[str, list[dict[str, Any]]]
) -> dict[str, dict[str, Any] | None]:
    """The paired speed of every task; None for static, which is the baseline, and if not asked."""
    block = model.backbone.config.block_size
    is_baseline = isinstance(model.mode, Static) and model.mode.steps in (0, block)
    if cell.speed is None or is_baseline:
        return dict.fromkeys(cell.tasks)
    speeds: dict[str, dict[str, Any] | None] = {}
    for task in cell.tasks:
        asked = [entry["arguments"][0][0] for entry in logged[task][: cell.speed.prompts]]
        _, length = parse_settings(logged[task][0]["arguments"][0][1], model.max_new_tokens)
        measured = paired_speed(
            model.backbone,
            model.head,
            model.mode,
            [model.encode(text) for text in asked],
            length,
            cell.speed.batch_size,
            cell.speed.repeats,
            seed=cell.seed,
        )
        speeds[task] = measured
        logger.info("%s: %.2f x the tokens/s of static", task, measured["ratio"])
    return speeds


def _record(
    cell: Cell,
    model: MRPModel,
    samples: dict[str, list[Sample]],
    speeds: dict[str, dict[str, Any] | None],
) -> dict[str, Any]:
    """The record's content without the schema number."""
    head = model.head.config if model.head is not None else None
    forwards = {
        task: sum(backbone_forwards(sample.decoded.counts) for sample in samples[task])
        for task in cell.tasks
    }
    total = sum(forwards.values())
    return {
        "job": {
            "id": cell.id,
            "suite": cell.suite,
            "backbone": cell.backbone,
            "tasks": list(cell.tasks),
            "mode": cell.mode,
            "head": cell.head,
            **{name: cell.options.get(name) for name in OPTIONS},
            "digest": cell.digest,
        },
        "head": None
        if head is None
        else {
            "name": cell.head,
            "variant": head.variant,
            "objective": head.objective,
            "source": cell.head_source,
            "layers": head.num_layers,
        },
        # Tasks share one decoding queue, so a task's seconds are its share of the forwards.
        "tasks": {
            task: task_summary(samples[task], model.seconds * forwards[task] / total, speeds[task])
            for task in cell.tasks
        },
        "provenance": {
            **provenance(model.device),
            "seed": cell.seed,
            "dtype": cell.dtype,
            "batch_size": cell.batch_size,
            "backbone_hash": model.identity["backbone_hash"],
            "backbone_revision": resolved_revision(model.backbone_path),
            "head_hash": model.identity["head_hash"],
            "head_revision": resolved_revision(model.head_path) if model.head_path else None,
            "resumed_from": model.resumed_from,
        },
    }


@contextmanager
def _quiet_lm_eval() -> Iterator[None]:
    """Keep lm-eval's own log lines and bars out of a job's log; its errors still come through."""
    chatter = logging.getLogger("lm_eval")
    level = chatter.level
    chatter.setLevel(logging.ERROR)
    # A bar over the building of a few hundred prompts, which no setting of lm-eval turns off.
    lm_eval.api.task.tqdm = partial(tqdm, disable=True)
    try:
        yield
    finally:
        lm_eval.api.task.tqdm = tqdm
        chatter.setLevel(level)
