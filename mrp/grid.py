"""Suite -> jobs, and the one place that knows every job's id, digest and path.

    suite = load_suite("embedded")
    for job in jobs(suite):
        print(job.id, Layout(suite).record(job.id))

Pure functions of the suite and of this package's source: the workflow, the commands and the
reports all ask here and so agree.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

import mrp
from mrp.config import (
    MODES,
    OPTIONS,
    TASKS,
    BackboneSpec,
    GridEntry,
    HeadSpec,
    Suite,
    load_suite,
    one_of,
    suite_file,
    training,
)
from mrp.errors import UserError
from mrp.source import DATA_CODE, DECODE_CODE, code_version, short_digest

__all__ = [
    "Job",
    "Layout",
    "Suite",
    "check_checkpoints",
    "find_job",
    "jobs",
    "load_suite",
    "suite_file",
]

FIGURES = ("pareto", "lookahead", "remask")
GENERATED = ("mini_math", "mini_code")  # the tasks whose data files `mrp data` writes


@dataclass(frozen=True)
class Job:
    """One decode job: a mode with its options, on one backbone, over a group of tasks.

    `options` holds the mode's own options only, defaults filled in. `digest` covers everything
    that changes the result but the checkpoints' bytes.
    """

    id: str
    suite: str
    backbone: str
    tasks: tuple[str, ...]
    mode: str
    head: str | None
    options: dict[str, Any]
    digest: str


def jobs(suite: Suite) -> list[Job]:
    """All decode jobs of a suite, in the order of its backbones, tasks and grid.

    Raises:
        UserError: two cells of the grid are the same job.
    """
    found: dict[str, Job] = {}
    entry_of: dict[str, int] = {}
    labels = task_labels(suite)
    cells = product(suite.backbones, zip(labels, suite.tasks, strict=True), enumerate(suite.grid))
    for backbone, (label, tasks), (index, entry) in cells:
        for head, options in _cells(entry):
            job_id = _job_id(backbone, label, entry.mode, head, options)
            if job_id in found:
                raise UserError(
                    f"suite {suite.name!r}: grid[{index}]: job {job_id} is there already, from "
                    f"grid[{entry_of[job_id]}]: remove one of the two"
                )
            entry_of[job_id] = index
            found[job_id] = Job(
                id=job_id,
                suite=suite.name,
                backbone=backbone,
                tasks=tuple(tasks),
                mode=entry.mode,
                head=head,
                options=options,
                digest=short_digest(_decode_identity(suite, tasks, entry.mode, head, options)),
            )
    return list(found.values())


def find_job(suite: Suite, job_id: str) -> Job:
    """The job with this id.

    Raises:
        UserError: the suite has no such job.
    """
    by_id = {job.id: job for job in jobs(suite)}
    if job_id not in by_id:
        near = one_of(by_id, job_id).partition("allowed: ")[0]
        raise UserError(
            f"--job: suite {suite.name!r} has no job {job_id!r}: "
            f"{near}`mrp grid --suite {suite.name}` lists all {len(by_id)}"
        )
    return by_id[job_id]


def check_checkpoints(suite: Suite) -> None:
    """Check that the released checkpoints of a suite's jobs are there.

    Snakemake would take the tables of an earlier run for the results of a suite that cannot run.

    Raises:
        UserError: one is missing; names its key in the suite.
    """
    layout = Layout(suite)
    for job in jobs(suite):
        needed = [(f"backbones.{job.backbone}", suite.backbones[job.backbone].path)]
        files = [layout.backbone_inputs(job.backbone)]
        if job.head is not None:
            needed.append((f"heads.{job.head}", suite.heads[job.head].path))
            files.append(layout.head_inputs(job.backbone, job.head))
        for (key, path), inputs in zip(needed, files, strict=True):
            missing = [file for file in inputs if path is not None and not file.exists()]
            if missing:
                raise UserError(
                    f"suite {suite.name!r}: {key}.path: {missing[0].parent}: no checkpoint here "
                    f"({missing[0].name} is missing); correct the path, or leave it out and give "
                    "train"
                )


def task_labels(suite: Suite) -> list[str]:
    """A short name for each group of tasks: its common prefix if there is one, else all names.

    [mini_math, mini_code] is "mini"; a second group with that prefix gets its full "a+b".
    """
    labels: list[str] = []
    for group in suite.tasks:
        prefixes = {task.split("_")[0] for task in group}
        full = "+".join(group)
        short = prefixes.pop() if len(group) > 1 and len(prefixes) == 1 else full
        labels.append(full if short in labels else short)
    return labels


def _cells(entry: GridEntry) -> list[tuple[str | None, dict[str, Any]]]:
    """The (head, options) pairs of a grid entry, its lists multiplied out."""
    mine = MODES[entry.mode].required + MODES[entry.mode].optional
    names = [name for name in OPTIONS if name in mine]
    values = [getattr(entry, name) or [OPTIONS[name]] for name in names]
    heads: list[str | None] = [*entry.head] if entry.head else [None]
    cells = []
    for head, *chosen in product(heads, *values):
        options = {
            name: float(value) if isinstance(OPTIONS[name], float) else value
            for name, value in zip(names, chosen, strict=True)
            if value is not None
        }
        if options.get("rule") != "residual":
            options.pop("delta", None)  # the confidence rule has none
        cells.append((head, options))
    return cells


def _job_id(backbone: str, label: str, mode: str, head: str | None, options: dict[str, Any]) -> str:
    """S.mini.remask.k2.tau0.5.masked: the options that differ from a mode's defaults are named."""
    parts = [backbone, label, mode]
    if head is not None:
        parts.append(head)
    for name, value in options.items():
        if value != OPTIONS[name]:
            parts.append(value if isinstance(value, str) else f"{name}{value:g}")
    return ".".join(parts)


# ---- digests: what a result depends on -----------------------------------------------------------


def _decode_identity(
    suite: Suite, tasks: Iterable[str], mode: str, head: str | None, options: dict[str, Any]
) -> dict[str, Any]:
    """Everything that changes a job's record, as JSON values."""
    generated = any(task in GENERATED for task in tasks)
    return {
        "code": code_version(*DECODE_CODE, *(f for task in tasks for f in _task_files(task))),
        "tasks": list(tasks),
        "mode": mode,
        "head": head and [head, suite.heads[head].variant],
        "options": options,
        "seed": suite.seed,
        "decoding": suite.decoding.model_dump(),
        "data": suite.data.model_dump() if generated else None,
    }


def data_digest(suite: Suite) -> str:
    """Covers what changes the generated data files."""
    return short_digest(
        {"code": code_version(*DATA_CODE), "seed": suite.seed, "data": suite.data.model_dump()}
    )


def training_digest(suite: Suite, spec: BackboneSpec | HeadSpec) -> str:
    """Covers what changes the weights that `spec` is trained to, but the backbone's bytes.

    The size of the test sets counts, since training leaves their prompts out.
    """
    from mrp.training.settings import identity

    recipe = training(spec)
    if recipe is None:
        raise ValueError("a checkpoint without a recipe has no training digest")
    data = {"seed": suite.seed, **suite.data.model_dump()}
    return short_digest(identity(recipe, data=data))


def _task_files(task: str) -> list[str]:
    """A task's YAML file and the modules whose functions it names, as patterns inside mrp."""
    path = TASKS / f"{task}.yaml"
    modules = re.findall(r"!function mrp\.([\w.]+)\.\w+", path.read_text("utf-8"))
    files = [f"{module.replace('.', '/')}.py" for module in sorted(set(modules))]
    return [str(path.relative_to(Path(mrp.__file__).parent)), *files]


# ---- paths ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Layout:
    """Where a suite's files are. Relative paths count from the repository's root."""

    suite: Suite
    results: Path = Path("results")

    @property
    def root(self) -> Path:
        """All that belongs to this suite alone."""
        return self.results / self.suite.name

    @property
    def data_dir(self) -> Path:
        """The generated tasks' test files."""
        return self.root / "data"

    @property
    def data_files(self) -> list[Path]:
        """Always all of them, so that adding a task to a suite does not change the others' data."""
        return [self.data_dir / f"{task}.jsonl" for task in GENERATED]

    def data_inputs(self, tasks: Iterable[str]) -> list[Path]:
        """The data files of those of the tasks that are generated."""
        return [self.data_dir / f"{task}.jsonl" for task in tasks if task in GENERATED]

    def run_dir(self, job: str) -> Path:
        """A decode job's record.json, samples.jsonl and journal.jsonl."""
        return self.root / "runs" / job

    def record(self, job: str) -> Path:
        """What marks a decode job as complete."""
        return self.run_dir(job) / "record.json"

    def log(self, rule: str, name: str) -> Path:
        """The log of a workflow job."""
        return self.root / "logs" / rule / f"{name}.log"

    def trained_backbone_dir(self, backbone: str) -> Path:
        """Where the workflow trains a backbone to."""
        return self.root / "backbones" / backbone

    def trained_head_dir(self, backbone: str, head: str) -> Path:
        """Where the workflow trains a head to."""
        return self.root / "heads" / backbone / head

    def backbone_dir(self, backbone: str) -> Path:
        """The backbone that is used: a directory, or a hub id as a path."""
        path = self.suite.backbones[backbone].path
        return Path(path) if path is not None else self.trained_backbone_dir(backbone)

    def head_dir(self, backbone: str, head: str) -> Path:
        """The head that is used, likewise."""
        path = self.suite.heads[head].path
        if path is not None:
            return Path(path.replace("{backbone}", backbone))
        return self.trained_head_dir(backbone, head)

    def backbone_inputs(self, backbone: str) -> list[Path]:
        """The files of the used backbone that a workflow job waits for."""
        trained = self.suite.backbones[backbone].path is None
        return _checkpoint_inputs(self.backbone_dir(backbone), trained)

    def head_inputs(self, backbone: str, head: str | None) -> list[Path]:
        """The files of the used head that a workflow job waits for; none without a head."""
        if head is None:
            return []
        return _checkpoint_inputs(
            self.head_dir(backbone, head), trained=self.suite.heads[head].path is None
        )

    def head_option(self, job: Job) -> str:
        """The option that gives `mrp decode` the job's head; empty without a head."""
        return f"--head-path {self.head_dir(job.backbone, job.head)}" if job.head else ""


def _checkpoint_inputs(directory: Path, trained: bool) -> list[Path]:
    """The weights of a checkpoint trained here; the small config.json of a released one.

    The workflow compares small files by content, so a fresh clone's time stamps run nothing again,
    while a released checkpoint replaced by another, which says so in its config.json, does. A hub
    id ("owner/name") has no files here.
    """
    if trained:
        return [directory / "model.safetensors"]
    if len(directory.parts) == 2 and not directory.is_absolute() and not directory.exists():
        return []
    return [directory / "config.json"]
