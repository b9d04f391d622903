"""Suite -> jobs, and the one place that knows every job's id, digest and path.

    suite = load_suite("embedded")
    for job in jobs(suite):
        print(job.id, Layout(suite).record(job.id))

Pure functions of the suite and of this package's source, but for `missing_pieces`, which looks at
the disk: the workflow, the commands and the reports all ask here and so agree. Paths stand in
`mrp.layout`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

import mrp
from mrp.config import (
    GENERATED,
    HEADS_FROM,
    MODES,
    OPTIONS,
    TASKS,
    BackboneSpec,
    GridEntry,
    HeadsFrom,
    HeadSpec,
    Suite,
    heads_from,
    load_suite,
    one_of,
    suite_file,
    training,
)
from mrp.errors import UserError
from mrp.layout import RECORD_FILES, Layout, missing_parts
from mrp.source import (
    DATA_CODE,
    DECODE_CODE,
    GUEST_CODE,
    code_version,
    mode_code,
    reached_files,
    short_digest,
)

__all__ = [
    "GENERATED",
    "Job",
    "Layout",
    "Suite",
    "check_paths",
    "check_pieces",
    "find_job",
    "heads_from",
    "jobs",
    "load_suite",
    "missing_pieces",
    "records_folder",
    "suite_file",
    "waiting",
]

FIGURES = ("headline", "pareto", "pareto_time", "lookahead", "remask", "acceptance", "depth")


@dataclass(frozen=True)
class Job:
    """One decode job: a mode with its options, on one backbone, over a group of tasks.

    `options` holds the mode's own options only, defaults filled in; `head_source` is "released" or
    "trained", `head_seed_of` the head of which `head` is a repetition. `digest` covers everything
    that changes the result but the bytes of the checkpoints and of a benchmark's data file. Those
    are for the workflow, which runs a job again whose data file changed: a digest of them could not
    be known before they are fetched, nor after they were removed to make room, when the records are
    still good.
    """

    id: str
    suite: str
    backbone: str
    tasks: tuple[str, ...]
    mode: str
    head: str | None
    head_source: str | None
    options: dict[str, Any]
    digest: str
    head_seed_of: str | None = None


def jobs(suite: Suite, heads: HeadsFrom = "released") -> list[Job]:
    """All decode jobs of a suite, in the order of its backbones, tasks and grid.

    Where a head has a path and a recipe and `heads` is "train", the job's id says "+trained": the
    runs of both kinds live side by side, and those without a head are shared.

    Raises:
        UserError: two cells of the grid are the same job.
    """
    found: dict[str, Job] = {}
    entry_of: dict[str, int] = {}
    labels = task_labels(suite)
    cells = product(suite.backbones, zip(labels, suite.tasks, strict=True), enumerate(suite.grid))
    for backbone, (label, tasks), (index, entry) in cells:
        if entry.backbone is not None and backbone not in entry.backbone:
            continue
        for head, options in _cells(entry):
            source = suite.heads[head].source(heads) if head is not None else None
            either = head is not None and source != suite.heads[head].source()
            named = f"{head}+trained" if either else head
            job_id = _job_id(backbone, label, entry.mode, named, options)
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
                head_source=source,
                options=options,
                digest=short_digest(
                    {
                        **_decode_identity(suite, tasks, entry.mode),
                        "mode": entry.mode,
                        "head": head and [head, suite.heads[head].variant, source],
                        "options": options,
                    }
                ),
                head_seed_of=suite.heads[head].seed_of if head is not None else None,
            )
    return list(found.values())


def waiting(found: Iterable[Job], backbone: str, head: str | None = None) -> int:
    """How many of the jobs need this backbone, or this head of it."""
    return sum(job.backbone == backbone and head in (None, job.head) for job in found)


def find_job(suite: Suite, job_id: str) -> Job:
    """The job with this id, whichever heads it uses.

    Raises:
        UserError: the suite has no such job.
    """
    by_id = {job.id: job for heads in HEADS_FROM for job in jobs(suite, heads)}
    if job_id not in by_id:
        near = one_of(by_id, job_id).partition("allowed: ")[0]
        raise UserError(
            f"--job: suite {suite.name!r} has no job {job_id!r}: "
            f"{near}`mrp grid --suite {suite.name}` lists all {len(jobs(suite))}"
        )
    return by_id[job_id]


def missing_pieces(
    suite: Suite,
    heads: HeadsFrom = "released",
    wanted: Iterable[Job] | None = None,
    trainings: Iterable[tuple[str, str]] = (),
) -> list[str]:
    """Checkpoints and data files that are not here, each with where the suite names it.

    Args:
        suite: whose pieces.
        heads: as for `jobs`.
        wanted: the jobs to be run; all of them if not given.
        trainings: further (backbone, head) pairs to be trained.
    """
    layout = Layout(suite, heads=heads)
    wanted = jobs(suite, heads) if wanted is None else list(wanted)
    missing = [
        piece
        for backbone, head in dict.fromkeys((job.backbone, job.head) for job in wanted)
        for piece in layout.missing_checkpoints(backbone, head)
    ]
    for backbone, trained in trainings:
        missing += layout.missing_for_training(backbone, trained)
    found: dict[str, str] = {}  # what is missing -> the first key that asks for it
    for where, piece in missing:
        found.setdefault(piece, where)
    for task in dict.fromkeys(task for job in wanted for task in job.tasks):
        for path in layout.benchmark_files([task]):
            if not path.is_file():
                found.setdefault(f"{path}: no such file", "data.benchmarks")
    return [f"{where}: {piece}" for piece, where in found.items()]


def check_pieces(
    suite: Suite,
    heads: HeadsFrom = "released",
    wanted: Iterable[Job] | None = None,
    trainings: Iterable[tuple[str, str]] = (),
) -> None:
    """Check that nothing of `missing_pieces` is missing.

    Raises:
        UserError: something is; one line names all of it.
    """
    missing = missing_pieces(suite, heads, wanted, trainings)
    if missing:
        raise UserError(missing_message(suite, missing, heads))


def check_paths(suite: Suite, job: Job, backbone: str, head: str | None, data: Path) -> None:
    """Check that a job's checkpoints and data are where a command was told to find them.

    Raises:
        UserError: something is missing; one line names all of it.
    """
    missing = list(missing_parts("--backbone-path", backbone, "backbone"))
    if head is not None:
        missing += missing_parts("--head-path", head, "head")
    for task in job.tasks:
        if not (data / f"{task}.jsonl").is_file():
            fix = " (`mrp data` writes it)" if task in GENERATED else ""
            missing.append(("--data", f"{data / task}.jsonl: no such file{fix}"))
    if missing:
        raise UserError(missing_message(suite, [f"{flag}: {piece}" for flag, piece in missing]))


def missing_message(suite: Suite, missing: Sequence[str], heads: HeadsFrom = "released") -> str:
    """One line about all missing pieces, with what to do."""
    which = "" if heads == "released" else f" --heads {heads}"
    count = "1 piece is" if len(missing) == 1 else f"{len(missing)} pieces are"
    return (
        f"suite {suite.name!r}: {count} missing: {'; '.join(missing)}. Download what is on the hub "
        f"with `mrp fetch --suite {suite.name}{which}` where there is a network; correct other "
        "paths in the suite"
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


def records_folder(setting: object) -> Path | None:
    """The folder of records that the workflow's `results_from` names; None where it is empty.

    Raises:
        UserError: `mrp pack --records` did not write there.
    """
    if not setting:
        return None
    folder = Path(str(setting))
    for name in RECORD_FILES:
        if not (folder / name).is_file():
            raise UserError(
                f"results_from: {folder} holds no {name}: name a folder that "
                "`mrp pack --records DIR` wrote, or leave results_from out to run the jobs here"
            )
    return folder


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
        options.pop("floor" if options.get("rule") == "residual" else "delta", None)  # not its own
        if options.get("passes") == "halves":
            options.pop("condition", None)  # half of the fresh tokens are there, half are not
        cells.append((head, options))
    return cells


def _job_id(backbone: str, label: str, mode: str, head: str | None, options: dict[str, Any]) -> str:
    """S.mini.remask.k2.tau0.5.masked: the options that differ from a mode's defaults are named."""
    parts = [backbone, label, mode]
    if head is not None:
        parts.append(head)
    for name, value in options.items():
        if value != OPTIONS[name]:
            parts.append(_in_id(name, value))
    return ".".join(parts)


def _in_id(name: str, value: Any) -> str:
    if isinstance(value, bool):
        return name if value else f"no-{name}"
    shown = value if isinstance(value, str) else f"{value:g}"
    speaks = name in ("condition", "rule", "passes")  # its values speak for themselves
    return shown if speaks else f"{name}{shown}"


# ---- digests: what a result depends on -----------------------------------------------------------


def _decode_identity(suite: Suite, tasks: Iterable[str], mode: str) -> dict[str, Any]:
    """What changes a mode's record whatever its options, as JSON values."""
    code = (*DECODE_CODE, *mode_code(mode), *(f for task in tasks for f in _task_files(task)))
    generated = any(task in GENERATED for task in tasks)
    decoding = suite.decoding.model_dump()
    if not decoding["invariant"]:
        del decoding["invariant"]  # what was decoded before there was a choice stays
    return {
        "code": code_version(*code),
        "tasks": list(tasks),
        "seed": suite.seed,
        "decoding": decoding,
        "data": suite.data.generated() if generated else None,
    }


def data_digest(suite: Suite) -> str:
    """Covers what changes the generated data files."""
    return short_digest(
        {"code": code_version(*DATA_CODE), "seed": suite.seed, "data": suite.data.generated()}
    )


def training_digest(suite: Suite, spec: BackboneSpec | HeadSpec) -> str:
    """Covers what changes the weights that `spec` is trained to, but the backbone's bytes.

    The size of the test sets counts, since training leaves their prompts out.
    """
    from mrp.training.settings import identity

    recipe = training(spec)
    if recipe is None:
        raise ValueError("a checkpoint without a recipe has no training digest")
    data = {"seed": suite.seed, **suite.data.generated()}
    return short_digest(identity(recipe, data=data))


def _task_files(task: str) -> list[str]:
    """A task's YAML file and the modules whose functions it names, as patterns inside mrp.

    For a task that runs programs also what runs beside them in the sandbox.
    """
    path = TASKS / f"{task}.yaml"
    modules = re.findall(r"!function mrp\.([\w.]+)\.\w+", path.read_text("utf-8"))
    files = [f"{module.replace('.', '/')}.py" for module in sorted(set(modules))]
    if "evaluation/sandbox.py" in reached_files(*files):
        files += GUEST_CODE
    return [str(path.relative_to(Path(mrp.__file__).parent)), *files]
