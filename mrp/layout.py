"""Where a suite's files are: the one place that knows its paths.

Relative paths count from the repository's root. A checkpoint is named by text, a directory or a hub
id ("owner/name", "owner/name@revision"), as everywhere else.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from mrp.config import GENERATED, HeadsFrom, Suite, training
from mrp.errors import UserError
from mrp.models.hub import is_hub_id, local_checkpoint
from mrp.models.weights import CONFIG, WEIGHTS, Part, missing_weight_file

if TYPE_CHECKING:
    from mrp.grid import Job

FIGURES_DIR = Path("figures")
# Of `mrp pack --records`.
RECORD_FILES = ("manifest.json", "records.jsonl", "samples.csv.gz")
TOKENIZERS = ("tokenizer.json", "vocab.json")  # one of them stands beside a backbone


@dataclass(frozen=True)
class Layout:
    """The paths of a suite; `heads` says which heads are used that are both there and trainable."""

    suite: Suite
    results: Path = Path("results")
    heads: HeadsFrom = "released"

    @property
    def root(self) -> Path:
        """All that belongs to this suite alone."""
        return self.results / self.suite.name

    # ---- data ------------------------------------------------------------------------------------

    @property
    def data_dir(self) -> Path:
        """The generated tasks' test files."""
        return self.root / "data"

    @property
    def data_files(self) -> list[Path]:
        """Always all of them, so that adding a task to a suite does not change the others' data."""
        return [self.data_dir / f"{task}.jsonl" for task in GENERATED]

    def task_data_dir(self, tasks: Iterable[str]) -> Path:
        """Where a job finds `<task>.jsonl`; a suite's groups are all generated or all not."""
        generated = any(task in GENERATED for task in tasks)
        return self.data_dir if generated else Path(self.suite.data.benchmarks)

    def benchmark_files(self, tasks: Iterable[str]) -> list[Path]:
        """The data files of those of the tasks that are not generated."""
        directory = Path(self.suite.data.benchmarks)
        return [directory / f"{task}.jsonl" for task in tasks if task not in GENERATED]

    def data_inputs(self, tasks: Iterable[str]) -> list[Path]:
        """The data files that a workflow job waits for, or that run it again when they change."""
        tasks = list(tasks)
        generated = [self.data_dir / f"{task}.jsonl" for task in tasks if task in GENERATED]
        return generated + _there(self.benchmark_files(tasks))

    # ---- what the workflow writes ----------------------------------------------------------------

    def run_dir(self, job: str) -> Path:
        """A decode job's record.json, samples.jsonl and journal.jsonl."""
        return self.root / "runs" / job

    def record(self, job: str) -> Path:
        """What marks a decode job as complete."""
        return self.run_dir(job) / "record.json"

    def log(self, rule: str, name: str) -> Path:
        """The log of a workflow job."""
        return self.root / "logs" / rule / f"{name}.log"

    # ---- what the reports read: the runs here, or the records in small of runs elsewhere --------

    @property
    def pages(self) -> Path:
        """The list of the pages that show the runs."""
        return self.root / "html" / "index.html"

    def report_inputs(self, jobs: Iterable[str], records: Path | None) -> list[Path]:
        """What tables and figures wait for."""
        if records is None:
            return [self.record(job) for job in jobs]
        return [records / name for name in RECORD_FILES]

    def report_pages(self, records: Path | None) -> list[Path]:
        """The pages that the tables link to; records in small hold no texts to show."""
        return [self.pages] if records is None else []

    def report_source(self, records: Path | None) -> str:
        """The option that tells `mrp report` where to read."""
        return f"--results {self.results}" if records is None else f"--records {records}"

    def trained_backbone_dir(self, backbone: str) -> Path:
        """Where the workflow trains a backbone to."""
        return self.root / "backbones" / backbone

    def trained_head_dir(self, backbone: str, head: str) -> Path:
        """Where the workflow trains a head to."""
        return self.root / "heads" / backbone / head

    def folders(self, jobs: Iterable[str]) -> list[Path]:
        """Every folder that a workflow run with these jobs writes into."""
        suite = self.suite
        return [
            *map(self.run_dir, jobs),
            *map(self.trained_backbone_dir, suite.backbones),
            *(self.trained_head_dir(b, h) for b in suite.backbones for h in suite.heads),
            *(self.log(rule, "").parent for rule in ("data", "decode", "report")),
            self.data_dir,
            FIGURES_DIR,
        ]

    # ---- checkpoints -----------------------------------------------------------------------------

    def backbone_path(self, backbone: str) -> str:
        """The backbone that is used."""
        path = self.suite.backbones[backbone].path
        return path if path is not None else str(self.trained_backbone_dir(backbone))

    def head_path(self, backbone: str, head: str) -> str:
        """The head that is used."""
        if self._trains(head):
            return str(self.trained_head_dir(backbone, head))
        path = self.suite.heads[head].path
        assert path is not None  # a head has a path or a recipe
        return path.replace("{backbone}", backbone)

    def backbone_inputs(self, backbone: str) -> list[Path]:
        """The files of the used backbone that a workflow job waits for."""
        if self.suite.backbones[backbone].path is None:
            return [self.trained_backbone_dir(backbone) / WEIGHTS]
        return _released_inputs(self.backbone_path(backbone))

    def head_inputs(self, backbone: str, head: str | None) -> list[Path]:
        """The files of the used head that a workflow job waits for; none without a head."""
        if head is None:
            return []
        if self._trains(head):
            return [self.trained_head_dir(backbone, head) / WEIGHTS]
        return _released_inputs(self.head_path(backbone, head))

    def head_option(self, job: Job) -> str:
        """The option that gives `mrp decode` the job's head; empty without a head."""
        return f"--head-path {self.head_path(job.backbone, job.head)}" if job.head else ""

    def missing_checkpoints(self, backbone: str, head: str | None) -> Iterator[tuple[str, str]]:
        """What decoding with a backbone, and a head if there is one, lacks on this machine.

        For a head that is still to be trained that is the recipe's data, not the head.

        Yields:
            (key of the suite, what is missing there).
        """
        if self.suite.backbones[backbone].path is not None:
            yield from missing_parts(
                f"backbones.{backbone}.path", self.backbone_path(backbone), "backbone"
            )
        if head is None:
            return
        if not self._trains(head):
            yield from missing_parts(f"heads.{head}.path", self.head_path(backbone, head), "head")
        elif not (self.trained_head_dir(backbone, head) / WEIGHTS).is_file():
            yield from self.missing_for_training(backbone, head)

    def missing_for_training(self, backbone: str, head: str) -> Iterator[tuple[str, str]]:
        """What training a head lacks on this machine, likewise."""
        yield from self.missing_checkpoints(backbone, None)
        source = getattr(training(self.suite.heads[head]), "source", "mini")
        if source != "mini" and not Path(source).is_file():
            yield f"heads.{head}.train.source", f"{source}: no such file"

    def _trains(self, head: str) -> bool:
        return self.suite.heads[head].source(self.heads) == "trained"


def _released_inputs(path: str) -> list[Path]:
    """The small config.json of a released checkpoint; nothing for one that is on the hub.

    The workflow compares small files by content, so a fresh clone's time stamps run nothing again,
    while a released checkpoint replaced by another, which says so in its config.json, does. A file
    that is missing is no input, so that a dry run plans on any machine; a run that needs it ends
    before it begins (`mrp.grid.check_pieces`).
    """
    return [] if is_hub_id(path) else _there([Path(path) / CONFIG])


def _there(paths: Iterable[Path]) -> list[Path]:
    return [path for path in paths if path.is_file()]


def missing_parts(where: str, path: str, part: Part) -> Iterator[tuple[str, str]]:
    """The place and the reason where a released checkpoint is not, or not all, on this machine."""
    try:
        directory = local_checkpoint(path)
    except UserError as error:
        yield where, f"{path} is not downloaded" if is_hub_id(path) else str(error)
        return
    if not (directory / CONFIG).is_file():
        yield where, f"{path}: no checkpoint here ({CONFIG} is missing)"
        return
    try:
        absent = missing_weight_file(directory, part)
    except UserError as error:  # a damaged index
        yield where, str(error)
        return
    if absent is not None:
        yield where, f"{path}: {absent.name} is missing"
    if part == "backbone" and not any((directory / name).is_file() for name in TOKENIZERS):
        yield where, f"{path}: no tokenizer here ({' or '.join(TOKENIZERS)})"
