"""A page a run: its numbers, its provenance, its answers beside static's, and how each came about.

`tables.html` links its cells here. A page is self-contained; its samples stand in it as JSON and
are drawn by a script of its own.
"""

from __future__ import annotations

import json
import os
import shlex
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jinja2

from mrp.errors import UserError
from mrp.grid import Job, Layout, Suite, jobs
from mrp.io import atomic_write_text, read_json
from mrp.report.cells import percent
from mrp.report.outcomes import raw_lines, sample_lines
from mrp.report.statistics import wilson
from mrp.report.templating import environment_of_templates
from mrp.schema import LOSSLESS, OPTIONS, HeadsFrom

SHOWN = 120  # samples with their traces on a page: more would make it slow to open
ROLES = {
    "prefill": "forwards: reading prompts",
    "denoise": "forwards: denoising",
    "verify": "forwards: verifying drafts",
    "store": "finished blocks stored along with a forward",
    "head_draft": "head passes: drafting",
    "head_remask": "head passes: judging fresh tokens",
    "head_store": "head passes: reading clean blocks",
    "proposed": "drafts proposed",
    "accepted": "drafts accepted",
    "bonus": "tokens given by verification",
    "vetoed": "tokens masked again",
    "generated": "tokens generated",
    "answer_tokens": "tokens of answers",
}


@dataclass(frozen=True)
class Bar:
    """One bar of a histogram: its label, its count, and its share of the highest."""

    label: str
    count: int
    share: float


@dataclass(frozen=True)
class TaskPage:
    """What a page says of one task.

    Attributes:
        facts: (name, value) pairs; counts: the same of the counters.
        histograms: (title, bars) pairs.
        samples: total number; shown: those on the page, as JSON values.
    """

    name: str
    facts: tuple[tuple[str, str], ...]
    counts: tuple[tuple[str, str], ...]
    histograms: tuple[tuple[str, tuple[Bar, ...]], ...]
    samples: int
    shown: list[dict[str, Any]]


@dataclass(frozen=True)
class Pages:
    """What was written: the list of runs, and a page for each."""

    index: Path
    runs: tuple[Path, ...]


# The baseline that was read last, by its job, its samples by problem: the jobs of one backbone and
# group of tasks come one after the other, and all look at the same one.
Held = dict[str, dict[tuple[str, int], dict[str, Any]]]


def write_pages(suite: Suite, results: Path, heads: HeadsFrom = "released") -> Pages:
    """Write a page for every job of the suite that has a record, and the list of them.

    Raises:
        UserError: a record or its samples are damaged.
    """
    layout = Layout(suite, Path(results), heads)
    environment = environment_of_templates()
    everything = jobs(suite, heads)
    listed = []
    held: Held = {}
    for job in everything:
        if not layout.record(job.id).exists():
            continue
        record = read_json(layout.record(job.id))
        try:
            page = _page(environment, layout, job, _static_of(job, everything), held, record)
            scores = [(task, _accuracy(entry)) for task, entry in record["tasks"].items()]
        except (KeyError, TypeError, ValueError) as error:
            raise UserError(
                f"{layout.run_dir(job.id)}: damaged ({error!r}): delete it and run again"
            ) from None
        atomic_write_text(page_path(layout, job.id), page)
        listed.append((job.id, scores))
    index = layout.pages
    template = environment.get_template("runs.html.j2")
    atomic_write_text(index, template.render(suite=suite.name, runs=listed))
    return Pages(index, tuple(page_path(layout, job) for job, _ in listed))


def links(suite: Suite, results: Path, heads: HeadsFrom, origin: Path) -> dict[str, str]:
    """The jobs that have a page, each with the page's address relative to the folder `origin`."""
    layout = Layout(suite, Path(results))
    pages = {job.id: page_path(layout, job.id) for job in jobs(suite, heads)}
    return {
        job: Path(os.path.relpath(page, origin)).as_posix()
        for job, page in pages.items()
        if page.exists()
    }


def page_path(layout: Layout, job: str) -> Path:
    """Where a job's page is."""
    return layout.pages.with_name(f"{job}.html")


def _page(
    environment: jinja2.Environment,
    layout: Layout,
    job: Job,
    static: Job | None,
    held: Held,
    record: dict[str, Any],
) -> str:
    return environment.get_template("run.html.j2").render(
        suite=layout.suite.name,
        job=job.id,
        title=_title(record),
        tasks=list(_tasks(layout, job, static, held, record)),
        provenance=_provenance(record),
        command=_rerun(layout, job),
        static=static and static.id,
    )


def _static_of(job: Job, everything: Sequence[Job]) -> Job | None:
    """The baseline run of the same backbone and tasks, for a lossless mode of the same cap."""
    cap = job.options.get("cap", 1.0) if job.mode in LOSSLESS else 1.0
    for other in everything:
        same = (other.backbone, other.tasks) == (job.backbone, job.tasks)
        plain = other.mode == "static" and "steps" not in other.options
        if same and plain and other.options["cap"] == cap:
            return other
    return None


# ---- a task's part -------------------------------------------------------------------------------


def _tasks(
    layout: Layout, job: Job, static: Job | None, held: Held, record: dict[str, Any]
) -> Iterator[TaskPage]:
    raw = raw_lines(_samples_file(layout, job))
    samples = sample_lines(raw)
    tokens = {id(sample): line for sample, line in zip(samples, raw, strict=True)}
    beside: dict[tuple[str, int], dict[str, Any]] = {}
    if static is not None and static.id != job.id and layout.record(static.id).exists():
        if static.id not in held:
            held.clear()
            lines = sample_lines(raw_lines(_samples_file(layout, static)))
            held[static.id] = {(line["task"], line["doc_id"]): line for line in lines}
        beside = held[static.id]
    for task, entry in record["tasks"].items():
        mine = [line for line in samples if line["task"] == task]
        pairs = [(line, beside.get((task, line["doc_id"]))) for line in mine]
        yield TaskPage(
            name=task,
            facts=tuple(_facts(entry, pairs)),
            counts=tuple(
                (words, f"{entry['counts'][name]:,}")
                for name, words in ROLES.items()
                if entry["counts"][name]
            ),
            histograms=tuple(_histograms(mine)),
            samples=len(mine),
            shown=[
                _shown(mine, theirs, json.loads(tokens[id(mine)])["tokens"])
                for mine, theirs in _choose(pairs)
            ],
        )


def _samples_file(layout: Layout, job: Job) -> Path:
    return layout.run_dir(job.id) / "samples.jsonl"


Pair = tuple[dict[str, Any], dict[str, Any] | None]


def _facts(entry: dict[str, Any], pairs: Sequence[Pair]) -> Iterator[tuple[str, str]]:
    yield "Accuracy", f"{_accuracy(entry)}, {entry['correct']} of {entry['n']}"
    yield "Tokens per forward", f"{entry['tpf']:.2f}"
    yield "Tokens per forward, end to end", f"{entry['tpf_end_to_end']:.2f}"
    yield "Answer tokens, mean", f"{entry['answer_tokens_mean']:.1f}"
    yield "Tokens per second", f"{entry['tokens_per_second']:,.0f}"
    speed = entry["speed"]
    if speed is not None:
        bounds = "" if speed["low"] is None else f" ({speed['low']:.2f} to {speed['high']:.2f})"
        yield "Time ratio over static", f"{speed['ratio']:.2f}{bounds}"
    judged = [(mine, theirs) for mine, theirs in pairs if theirs is not None]
    if judged:
        won = sum(mine["correct"] and not theirs["correct"] for mine, theirs in judged)
        lost = sum(theirs["correct"] and not mine["correct"] for mine, theirs in judged)
        same = sum(mine["text"] == theirs["text"] for mine, theirs in judged)
        yield "Against static", f"won {won}, lost {lost}; {same} of {len(judged)} answers the same"


def _accuracy(entry: dict[str, Any]) -> str:
    interval = wilson(entry["correct"], entry["n"])
    return f"{percent(interval.value)} % ({percent(interval.low)} to {percent(interval.high)})"


def _histograms(lines: Sequence[dict[str, Any]]) -> Iterator[tuple[str, tuple[Bar, ...]]]:
    """Tokens revealed a round, drafts accepted a round, forwards an answer."""
    a_round: Counter[int] = Counter()
    accepted: Counter[int] = Counter()
    verified = False
    for line in lines:
        steps, sources = line["trace"]["step"], line["trace"]["source"]
        a_round.update(Counter(steps).values())
        verified = verified or line["counts"]["proposed"] > 0
        if "d" not in sources and "n" not in sources:
            continue
        pairs = list(zip(steps, sources, strict=True))
        drafts = Counter(step for step, source in pairs if source == "d")
        accepted.update(drafts[step] for step in {step for step, source in pairs if source in "nd"})
    yield "Tokens revealed for good in a round", _bars(a_round)
    if verified:
        yield "Drafts accepted in a round of verification", _bars(accepted)


def _bars(counts: Counter[int]) -> tuple[Bar, ...]:
    highest = max(counts.values(), default=1)
    return tuple(
        Bar(str(value), counts[value], counts[value] / highest)
        for value in range(min(counts, default=0), max(counts, default=-1) + 1)
    )


def _choose(pairs: Sequence[Pair]) -> list[Pair]:
    """At most SHOWN samples, those first on which the mode and static disagree; in their order."""
    agree = [_relation(*pair) not in ("won", "lost") for pair in pairs]
    order = sorted(range(len(pairs)), key=agree.__getitem__)
    return [pairs[place] for place in sorted(order[:SHOWN])]


def _relation(mine: dict[str, Any], theirs: dict[str, Any] | None) -> str:
    if theirs is None:
        return ""
    if mine["correct"] != theirs["correct"]:
        return "won" if mine["correct"] else "lost"
    return "same" if mine["text"] == theirs["text"] else "differs"


def _shown(
    mine: dict[str, Any], theirs: dict[str, Any] | None, tokens: list[str]
) -> dict[str, Any]:
    """A sample as the page's script reads it."""
    trace = mine["trace"]
    return {
        "id": mine["doc_id"],
        "prompt": mine["prompt"],
        "target": mine["target"],
        "text": mine["text"],
        "correct": mine["correct"],
        "static": _relation(mine, theirs),
        "static_text": theirs["text"] if theirs is not None else None,
        "tokens": tokens,
        "step": trace["step"],
        "source": trace["source"],
        "remasked": trace["remasked"],
        "forwards": mine["counts"]["denoise"] + mine["counts"]["verify"],
    }


# ---- the run's own part --------------------------------------------------------------------------


def _title(record: dict[str, Any]) -> str:
    """remask, tau 0.5, head k2, backbone S."""
    job = record["job"]
    given = {name: job[name] for name in OPTIONS if job.get(name) is not None}
    options = [f"{name} {value}" for name, value in given.items() if value != OPTIONS[name]]
    head = [f"head {job['head']}"] if job["head"] else []
    return ", ".join([job["mode"], *options, *head, f"backbone {job['backbone']}"])


def _provenance(record: dict[str, Any]) -> list[tuple[str, str]]:
    facts = dict(record["provenance"])
    packages = facts.pop("packages", {})
    shown = [(name.replace("_", " "), str(value)) for name, value in facts.items() if value]
    return [*shown, ("packages", ", ".join(f"{name} {text}" for name, text in packages.items()))]


def _rerun(layout: Layout, job: Job) -> str:
    """What decodes the job again; without `rm` its kept answers would only be scored again."""
    folder, target = (
        shlex.quote(path.as_posix()) for path in (layout.run_dir(job.id), layout.record(job.id))
    )
    heads = "" if layout.heads == "released" else f" heads={layout.heads}"
    return f"rm -r {folder}\nsnakemake --config suite={layout.suite.name}{heads} -- {target}"
