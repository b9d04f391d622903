"""One decode job: a mode over its tasks, through lm-eval, into samples.jsonl and record.json."""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from functools import cache, partial
from pathlib import Path
from typing import Any

# Our tasks are local: nothing in a decode job may wait for a network.
os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("HF_DATASETS_OFFLINE", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")

import lm_eval.api.task
from lm_eval.tasks import TaskManager
from tqdm import tqdm

from mrp.decoding import make_mode
from mrp.decoding.modes.static import Static
from mrp.errors import UserError
from mrp.evaluation.adapter import MRPModel, find_device
from mrp.evaluation.identity import answer_identity
from mrp.evaluation.journal import Journal
from mrp.evaluation.problems import describe_data
from mrp.evaluation.provenance import provenance
from mrp.evaluation.record import (
    DECODED,
    JOURNAL,
    Sample,
    backbone_forwards,
    read_decoded,
    task_summary,
    write_decoded,
    write_run,
)
from mrp.evaluation.requests import parse_settings
from mrp.evaluation.scores import score_run
from mrp.evaluation.tasks import TASKS_DIR, blamed, check_documents, check_task
from mrp.io import sha256_file
from mrp.memory import with_halved_batch
from mrp.models import resolved_revision
from mrp.schema import OPTIONS
from mrp.source import code_version
from mrp.speed import paired_speeds

logger = logging.getLogger(__name__)

DEFAULT_LENGTH = 112  # new tokens where neither the job nor the task says how many


@dataclass(frozen=True)
class Speed:
    """How the paired speed measurement is made: see `mrp.speed.paired_speeds`.

    Without a `dtype` of its own, in the precision of the answers.
    """

    prompts: int
    batch_size: int
    repeats: int
    dtype: str | None = None


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
    invariant: bool = False
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
    allow_zero: bool = False,
) -> dict[str, Any]:
    """Decode and score `cell`; write the run to `out_dir` (None: write nothing).

    A job that was killed goes on from the journal in `out_dir`, and its numbers equal those of a
    run without a break. Where the decoding had ended, no model is loaded: only the scoring is done
    again. Without `data_dir` the generated tasks make their examples themselves.

    Returns:
        The record.

    Raises:
        UserError: unknown task or mode, missing data or checkpoint, another process in `out_dir`.
        ImpossibleZero: nothing of a benchmark is right though there are answers, unless
            `allow_zero`; decoded.jsonl stays.
    """
    if cell.limit is not None and cell.limit < 1:
        raise UserError(f"limit {cell.limit} leaves no examples: at least 1, or no limit")
    with quiet_lm_eval():
        tasks = load_tasks(cell.tasks, data_dir)
        documents = {task: list(tasks["tasks"][task].test_docs()) for task in cell.tasks}
        for task in cell.tasks:
            check_documents(task, documents[task])
        data = {task: describe_data(task, data_dir, documents[task]) for task in cell.tasks}
        job = Job(cell, Path(backbone_path), head_path and Path(head_path), data, device)
        decoded = job.kept(out_dir) or job.decode(tasks, out_dir)
    samples, record = score_run(*decoded, documents, data, allow_zero)
    if out_dir is not None:
        write_run(Path(out_dir), samples, record)
    return record


@dataclass(frozen=True)
class Job:
    """A cell with its checkpoints and problems: decodes, or finds what it decoded before."""

    cell: Cell
    backbone_path: Path
    head_path: Path | None
    data: dict[str, Any]
    device: str | None

    def header(self, identity: dict[str, Any]) -> dict[str, Any]:
        """What decides an answer of this job: the journal's first line."""
        hashes = {task: entry["sha256"] for task, entry in self.data.items()}
        return {"seed": self.cell.seed, **identity, "data": hashes}

    def whole_header(self, identity: dict[str, Any]) -> dict[str, Any]:
        """What decides all that decoding adds to the record: decoded.jsonl's header."""
        cell = self.cell
        names = ("tasks", "limit", "max_new_tokens", "batch_size", "speed", "head", "head_source")
        decoding = {name: asdict(cell)[name] for name in names}
        speed_code = code_version("speed/*.py") if cell.speed is not None else None
        # What a task file says of prompts and lengths; its functions only score.
        files = {task: sha256_file(TASKS_DIR / f"{task}.yaml") for task in cell.tasks}
        whole = {**self.header(identity), **decoding, "speed_code": speed_code, "files": files}
        # Through JSON and back, so that tuples compare equal to the lists that a file holds.
        restored: dict[str, Any] = json.loads(json.dumps(whole))
        return restored

    def kept(self, out_dir: Path | None) -> tuple[list[Sample], dict[str, Any]] | None:
        """The samples and the record of an earlier decoding of just this; None without one."""
        cell = self.cell
        if out_dir is None or not (Path(out_dir) / DECODED).exists():
            return None
        mode = make_mode(cell.mode, **cell.options)
        identity = answer_identity(
            cell.mode,
            mode,
            self.backbone_path,
            self.head_path if mode.needs_head else None,
            cell.head_variant,
            cell.dtype,
            find_device(self.device),
            cell.invariant,
        )
        try:
            header, samples, record = read_decoded(Path(out_dir))
        except UserError as error:
            logger.warning("%s; decoding again", error)
            return None
        if header != self.whole_header(identity):
            return None
        logger.info("all %d samples are decoded already; only scoring them", len(samples))
        return samples, {**record, "job": _job_entry(cell), "data": self.data}

    def decode(
        self, tasks: dict[str, Any], out_dir: Path | None
    ) -> tuple[list[Sample], dict[str, Any]]:
        """Answer every problem: unscored samples and their record, kept in decoded.jsonl."""
        cell = self.cell
        if cell.max_new_tokens is not None:
            limit_lengths(tasks, cell.max_new_tokens)
        model = MRPModel(
            self.backbone_path,
            self.head_path,
            cell.mode,
            batch_size=cell.batch_size,
            max_new_tokens=cell.max_new_tokens or DEFAULT_LENGTH,
            device=self.device,
            dtype=cell.dtype,
            invariant=cell.invariant,
            head_variant=cell.head_variant,
            **cell.options,
        )
        if out_dir is not None:
            model.journal = Journal(Path(out_dir) / JOURNAL, self.header(model.identity))
        try:
            asked = {
                task: requests_of(tasks["tasks"][task], model, cell.limit) for task in cell.tasks
            }
            # All tasks in one queue, so that no place in a batch stays empty between them.
            model.generate_until([instance for task in cell.tasks for instance in asked[task]])
            spell = cache(lambda token: str(model.tokenizer.decode([token])))
            samples = {
                task: [_sample(model, tasks["tasks"][task], one, spell) for one in asked[task]]
                for task in cell.tasks
            }
            record = _record(cell, model, samples, _speeds(cell, model, asked), self.data)
            every = [sample for task in cell.tasks for sample in samples[task]]
            if out_dir is not None:
                write_decoded(Path(out_dir), self.whole_header(model.identity), every, record)
        finally:
            if model.journal is not None:
                model.journal.close()
        return every, record


def load_tasks(
    names: Sequence[str], data_dir: Path | None, metadata: dict[str, Any] | None = None
) -> dict[str, Any]:
    """Our lm-eval tasks by name; `metadata` replaces values of the task files' own.

    Raises:
        UserError: there is no such task, its file is damaged, or its data is missing.
    """
    metadata = {**(metadata or {}), **({"data_dir": str(data_dir)} if data_dir else {})}
    manager = TaskManager(include_path=str(TASKS_DIR), include_defaults=False, metadata=metadata)
    if not names:
        raise UserError(f"no task is named: choose among {', '.join(manager.all_tasks)}")
    for name in names:
        check_task(name)
    with blamed(f"tasks {', '.join(names)}"):
        loaded: dict[str, Any] = manager.load(list(names))
    return loaded


def limit_lengths(loaded: dict[str, Any], length: int) -> None:
    """Ask every loaded task for at most `length` new tokens an answer."""
    for task in loaded["tasks"].values():
        task.set_config("generation_kwargs", {"max_gen_toks": length}, update=True)


def requests_of(task: Any, model: MRPModel, limit: int | None) -> list[Any]:
    """The task's requests in document order, its prompts in the model's chat template."""
    task.build_all_requests(
        limit=limit,
        apply_chat_template=True,
        fewshot_as_multiturn=True,
        chat_template=model.apply_chat_template,
        tokenizer_name=model.tokenizer_name,
    )
    return sorted(task.instances, key=lambda instance: int(instance.doc_id))


def _sample(model: MRPModel, task: Any, instance: Any, spell: Callable[[int], str]) -> Sample:
    """An answered request, not scored yet; `spell` gives a token's text."""
    outcome = model.outcomes[instance.task_name, instance.doc_id]
    return Sample(
        task=instance.task_name,
        doc_id=instance.doc_id,
        prompt=instance.doc["prompt"],
        text=outcome.text,
        target=str(task.doc_to_target(instance.doc)),
        correct=False,
        decoded=outcome.decoded,
        tokens=[spell(token) for token in outcome.decoded.trace.ids],
    )


def _speeds(
    cell: Cell, model: MRPModel, requests: dict[str, list[Any]]
) -> dict[str, dict[str, Any] | None]:
    """The paired speed of every task; None for static, which is the baseline, and if not asked."""
    block = model.backbone.config.block_size
    is_baseline = isinstance(model.mode, Static) and model.mode.steps in (0, block)
    if cell.speed is None or is_baseline:
        return dict.fromkeys(cell.tasks)
    dtype = cell.speed.dtype or model.dtype
    backbone, head = model.models(dtype)
    lengths = {
        task: parse_settings(requests[task][0].args[1], model.max_new_tokens)[1]
        for task in cell.tasks
    }
    speeds: dict[str, dict[str, Any] | None] = {}
    for length in dict.fromkeys(lengths.values()):
        tasks = [task for task in cell.tasks if lengths[task] == length]
        prompts = {
            task: [model.encode(each.args[0]) for each in requests[task][: cell.speed.prompts]]
            for task in tasks
        }
        measure = partial(
            paired_speeds,
            *(backbone, head, model.mode, prompts, length),
            repeats=cell.speed.repeats,
            seed=cell.seed,
        )
        # The entry's own batch_size says which it was.
        what = f"speed of {', '.join(tasks)}"
        for task, measured in with_halved_batch(measure, cell.speed.batch_size, what).items():
            speeds[task] = {**measured, "dtype": dtype}
            logger.info("%s: %.2f x the tokens/s of static", task, measured["ratio"])
    return speeds


def _record(
    cell: Cell,
    model: MRPModel,
    samples: dict[str, list[Sample]],
    speeds: dict[str, dict[str, Any] | None],
    data: dict[str, Any],
) -> dict[str, Any]:
    """The record's content without scores and schema number."""
    head = model.head.config if model.head is not None else None
    forwards = {
        task: sum(backbone_forwards(sample.decoded.counts) for sample in samples[task])
        for task in cell.tasks
    }
    total = sum(forwards.values())
    return {
        "job": _job_entry(cell),
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
        "data": data,
        "provenance": {
            **provenance(model.device),
            "seed": cell.seed,
            "dtype": cell.dtype,
            "invariant": cell.invariant,
            "batch_size": cell.batch_size,
            "batch_size_used": model.batch_size_used,
            "backbone_hash": model.identity["backbone_hash"],
            "backbone_revision": resolved_revision(model.backbone_path),
            "head_hash": model.identity["head_hash"],
            "head_revision": resolved_revision(model.head_path) if model.head_path else None,
            "resumed_from": model.resumed_from,
        },
    }


def _job_entry(cell: Cell) -> dict[str, Any]:
    return {
        "id": cell.id,
        "suite": cell.suite,
        "backbone": cell.backbone,
        "tasks": list(cell.tasks),
        "mode": cell.mode,
        "head": cell.head,
        **{name: cell.options.get(name) for name in OPTIONS},
        "digest": cell.digest,
    }


@contextmanager
def quiet_lm_eval() -> Iterator[None]:
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
