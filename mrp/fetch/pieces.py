"""What a suite needs from the hub: the checkpoints that its jobs use, and its benchmarks' data."""

from __future__ import annotations

from pathlib import Path

from mrp.config import GENERATED, HeadsFrom, Suite, training
from mrp.errors import UserError
from mrp.fetch.benchmarks import Benchmark
from mrp.fetch.checkpoints import Checkpoint
from mrp.grid import Layout, jobs
from mrp.models.hub import is_hub_id, parse_hub_id
from mrp.models.weights import Part


def pieces(suite: Suite, heads: HeadsFrom) -> list[Checkpoint | Benchmark]:
    """The hub's part of a suite, each once; a checkpoint that no job uses is left out."""
    layout = Layout(suite, heads=heads)
    used: dict[str, set[Part]] = {}
    tasks: dict[str, None] = {}
    for job in jobs(suite, heads):
        paths: list[tuple[str, Part]] = [(layout.backbone_path(job.backbone), "backbone")]
        if job.head is not None:
            paths.append((_head(suite, layout, job.backbone, job.head, heads), "head"))
        for path, part in paths:
            if is_hub_id(path):
                used.setdefault(str(parse_hub_id(path)), set()).add(part)
        tasks |= dict.fromkeys(task for task in job.tasks if task not in GENERATED)
    checkpoints = [Checkpoint(text, tuple(sorted(parts))) for text, parts in used.items()]
    directory = Path(suite.data.benchmarks)
    return [*checkpoints, *(found for task in tasks if (found := _benchmark(task, directory)))]


def _head(suite: Suite, layout: Layout, backbone: str, head: str, heads: HeadsFrom) -> str:
    """The head that a job loads, or the one that its training goes on from; may be empty."""
    if suite.heads[head].source(heads) == "released":
        return layout.head_path(backbone, head)
    return str(getattr(training(suite.heads[head]), "start", ""))


def _benchmark(task: str, directory: Path) -> Benchmark | None:
    """None for a task of the user's own whose problems are on no hub: `mrp decode` reads its file.

    Only benchmarks have a data set in their task file.
    """
    from mrp.evaluation.tasks import hub_source

    try:
        return Benchmark(task, hub_source(task), directory)
    except UserError:
        return None
