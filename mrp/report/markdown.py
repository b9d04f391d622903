"""The findings as a Markdown page: what held, what did not, and the numbers behind it."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from mrp.grid import FIGURES
from mrp.io import atomic_write_text
from mrp.report.ablations import build_ablations
from mrp.report.cells import Cell, Row, Table
from mrp.report.comparisons import compare
from mrp.report.contest import build_contest
from mrp.report.findings import (
    FAILS,
    HOLDS,
    INCOMPLETE,
    MIXED,
    OPEN,
    Finding,
    build_findings,
    unsaid_claims,
)
from mrp.report.findings.readings import FEW, in_words
from mrp.report.frame import Results
from mrp.report.page import Header, origin

FORMS = ("svg", "png")
CAPTIONS = {
    "headline": "Speed over static, and accuracy with and without remasking",
    "pareto": "Accuracy against tokens per forward",
    "pareto_time": "Accuracy against tokens per second over static's",
    "lookahead": "What each head is worth over the lookahead K",
    "remask": "What remasking gains over dynamic decoding",
    "acceptance": "How many drafts a verified round accepts",
    "depth": "What more layers in the head bring and cost",
}
TALLIES = {
    HOLDS: ("holds", "hold"),
    FAILS: ("does not hold here", "do not hold here"),
    MIXED: ("is mixed", "are mixed"),
    OPEN: ("is undecided", "are undecided"),
    INCOMPLETE: ("is incomplete", "are incomplete"),
}
BREAK = "<br>"
BEYOND = "Beyond the paper"


def write_findings(results: Results, out: Path, figures: Path | None = None) -> Path:
    """Write the page to the file `out`; the same records give the same bytes.

    Args:
        results: of the suite.
        out: the Markdown file.
        figures: a folder whose figures are shown, linked relative to `out`.

    Returns:
        The file.
    """
    rows = compare(results)
    findings = build_findings(results, rows)
    lines = [
        *_top(results, rows, findings),
        *_short(findings),
        *_figures(Path(out).parent, figures),
        *(line for table in build_contest(results, rows) for line in _table(table)),
        *(line for table in build_ablations(results, rows) for line in _table(table)),
        *_one_by_one(findings),
    ]
    atomic_write_text(Path(out), "\n".join(lines) + "\n")
    return Path(out)


# ---- the parts -----------------------------------------------------------------------------------


def _top(results: Results, rows: pd.DataFrame, findings: list[Finding]) -> Iterator[str]:
    header = origin(results, rows)
    yield f"# Findings of suite {results.suite}"
    yield ""
    papers, beyond = _papers(findings), _beyond(findings)
    counted = f"Of {len(papers)} claims of the paper and controls of them {_tally(papers)}"
    if beyond:
        counted += f"; of {len(beyond)} goals beyond the paper {_tally(beyond)}"
    backbones = list(dict.fromkeys(rows[rows["status"] == "done"]["backbone"]))
    yield (
        f"{counted}. They are about {len(backbones)} "
        f"backbone{'' if len(backbones) == 1 else 's'} ({', '.join(backbones)}), "
        f"{_joined(list(dict.fromkeys(rows['task'])))}, and {header.jobs - len(header.absent)} of "
        f"{header.jobs} runs. Every number on this page is computed from the records of those "
        "runs, and so is every verdict."
    )
    yield ""
    if header.absent:
        yield from _missing(header, unsaid_claims(results, rows, findings))
    facts = [(name, value) for name, value in header.facts if value != "unknown"]
    if results.manifest:
        facts += _measured_facts(results.manifest, backbones)
    yield from _by_verdict(papers)
    yield ""
    if beyond:
        yield f"{BEYOND}:"
        yield ""
        yield from _by_verdict(beyond)
        yield ""
    yield from (f"- {name}: {value}" for name, value in facts)
    yield ""


def _papers(findings: Sequence[Finding]) -> list[Finding]:
    return [finding for finding in findings if not finding.beyond]


def _beyond(findings: Sequence[Finding]) -> list[Finding]:
    return [finding for finding in findings if finding.beyond]


def _tally(findings: Sequence[Finding]) -> str:
    """3 hold, 1 is mixed and 2 are undecided."""
    counts = Counter(finding.verdict for finding in findings)
    return _joined(
        [
            f"{counts[verdict]} {_plural(verdict, counts[verdict])}"
            for verdict in TALLIES
            if counts[verdict]
        ]
    )


def _by_verdict(findings: Sequence[Finding]) -> Iterator[str]:
    for verdict, (one, _) in TALLIES.items():
        claims = [finding.claim for finding in findings if finding.verdict == verdict]
        if claims:
            yield f"- **{one[0].upper()}{one[1:]}:** {'; '.join(claims)}."


def _missing(header: Header, unsaid: Sequence[str]) -> Iterator[str]:
    """How many runs have no record, which baselines among them, and the whole list.

    `unsaid` are claims that no record says anything about.
    """
    states = Counter(note.partition(":")[0] for _, note in header.absent)
    told = _joined([f"{count} {state}" for state, count in states.items()])
    yield (
        f"**Not all runs are there: {len(header.absent)} of {header.jobs} have no record** "
        f"({told}). A claim that rests on one of them has no verdict and counts as "
        f"**{INCOMPLETE}**."
    )
    yield ""
    if unsaid:
        yield f"Nothing can be said yet, and nothing is below, of: {'; '.join(unsaid)}."
        yield ""
    if header.baselines:
        yield from (f"- Baseline missing: {sentence}." for sentence in header.baselines)
        yield ""
    jobs = ", ".join(f"`{job}`" for job, _ in header.absent)
    yield f"<details><summary>Runs without a record</summary>\n\n{jobs}\n\n</details>"
    yield ""


def _measured_facts(
    manifest: dict[str, Any], backbones: Sequence[str]
) -> Iterator[tuple[str, str]]:
    """Sizes, hours and the command, of packed records."""
    trained = manifest.get("trained", {})  # only where the backbones lay beside the runs
    sizes = [
        f"{name} {trained[name]['parameters'] / 1e6:.1f} M"
        for name in backbones
        if "parameters" in trained.get(name, {})
    ]
    if sizes:
        yield "Parameters", ", ".join(sizes)
    hours = [(what, manifest.get(f"hours_of_{what}")) for what in ("training", "decoding")]
    told = [f"{hours:.2f} of {what}" for what, hours in hours if hours]
    if told:
        yield "Hours of a device", f"{_joined(told)}, added up over jobs that may have run at once"
    command = manifest["command"]  # several, of runs of several machines
    commands = command if isinstance(command, list) else [command]
    yield "Started by", ", ".join(f"`{each}`" for each in commands)


def _short(findings: Sequence[Finding]) -> Iterator[str]:
    yield "## In short"
    yield ""
    yield (
        f"A claim **{HOLDS}** where the whole 95 % interval is on its side, it **{FAILS}** where "
        f"the whole interval is on the other, it is **{OPEN}** in between or where another seed of "
        f"the heads turns it, it is **{MIXED}** where some backbones or heads hold and others do "
        f"not, and it is **{INCOMPLETE}** where runs that it rests on have no record, or none that "
        "was measured so. Claims without a word of the paper are controls of it."
    )
    yield ""
    names = list(dict.fromkeys(part.place for finding in findings for part in finding.backbones))
    several = names if len(names) > 1 else []
    yield from _claims(_papers(findings), several, of_paper=True)
    beyond = _beyond(findings)
    if beyond:
        yield f"## {BEYOND}"
        yield ""
        yield (
            "Goals that were set before the runs, and judged by the same rules: drafts that may be "
            "taken up in another order than they were made in (lattices), and remasking by halves. "
            "A goal with a limit says whether the number itself meets it, or by how much it misses."
        )
        yield ""
        yield from _claims(beyond, several, of_paper=False)


def _claims(findings: Sequence[Finding], several: Sequence[str], of_paper: bool) -> Iterator[str]:
    """A table of claims; `several` are the backbones that get a column."""
    yield from _head(["Claim", *(["The paper"] if of_paper else []), "Here", *several, "Verdict"])
    for finding in findings:
        by_name = {part.place: part.verdict for part in finding.backbones}
        cells = [
            finding.claim,
            *([finding.paper] if of_paper else []),
            BREAK.join(filter(None, [*in_words(finding.overall.readings), finding.overall.note])),
            *(by_name.get(name, "") for name in several),
            f"**{finding.verdict}**",
        ]
        yield _line(cells)
    yield ""


def _figures(folder: Path, figures: Path | None) -> Iterator[str]:
    found = [
        next((path for form in FORMS if (path := figures / f"{name}.{form}").is_file()), None)
        for name in (FIGURES if figures is not None else ())
        if figures is not None
    ]
    shown = [path for path in found if path is not None]
    if not shown:
        return
    yield "## Figures"
    yield ""
    for path in shown:
        caption = CAPTIONS.get(path.stem, path.stem)
        yield f"![{caption}]({Path(os.path.relpath(path, folder)).as_posix()})"
        yield ""
        yield f"*{caption}.*"
        yield ""


def _table(table: Table) -> Iterator[str]:
    yield f"## {table.title}"
    yield ""
    yield table.caption
    yield ""
    for group in table.groups:
        yield f"**{group.title}**{f', {group.note}' if group.note else ''}"
        yield ""
        headings = [f"{name}{f' ({unit})' if unit else ''}" for name, unit in table.columns]
        yield from _head(headings, table.labels)
        for row in group.rows:
            yield _line(_cells(row))
        yield ""
    if table.note:
        yield table.note
        yield ""


def _one_by_one(findings: Sequence[Finding]) -> Iterator[str]:
    yield "## Claim by claim"
    yield ""
    yield (
        "Numbers are arithmetic means over a backbone's tasks, with bootstrap intervals over "
        "problems; times carry the interval of their paired measurement. An accuracy of 0 or 100 % "
        f"has Wilson's interval, and a difference that fewer than {FEW} problems all share decides "
        "nothing."
    )
    yield ""
    yield from (line for finding in _papers(findings) for line in _one(finding))
    beyond = _beyond(findings)
    if beyond:
        yield f"## Claim by claim: {BEYOND.lower()}"
        yield ""
        yield from (line for finding in beyond for line in _one(finding))


def _one(finding: Finding) -> Iterator[str]:
    """A claim's rule and what each backbone says of it; of a goal what each task says, too."""
    yield f"### {finding.claim}: {finding.verdict}"
    yield ""
    paper = f"The paper: {finding.paper}. " if finding.paper else ""
    yield f"{paper}Rule: {finding.rule}."
    yield ""
    tasks = finding.evidence if len(finding.evidence) > len(finding.backbones) else ()
    for part in finding.backbones:
        yield f"- **{part.place}** {part.verdict}: {part.text}"
        for task in tasks if finding.beyond else ():
            if task.place.startswith(f"{part.place} \N{MIDDLE DOT} "):
                yield f"    - {task.place} {task.verdict}: {task.text}"
    yield ""


# ---- Markdown ------------------------------------------------------------------------------------


def _cells(row: Row) -> list[str]:
    if row.missing:
        return [*(_cell(cell) for cell in row.labels), row.missing]
    return [_cell(cell) for cell in (*row.labels, *row.cells)]


def _cell(cell: Cell) -> str:
    text = f"**{cell.text}**" if cell.best else cell.text
    return f"{text} ({', '.join(cell.detail.splitlines())})" if cell.detail else text


def _head(headings: Sequence[str], labels: int | None = None) -> Iterator[str]:
    yield _line(headings)
    left = len(headings) if labels is None else labels
    yield _line(["---" if place < left else "--:" for place in range(len(headings))])


def _line(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def _plural(verdict: str, count: int) -> str:
    return TALLIES[verdict][count != 1]


def _joined(texts: Sequence[str]) -> str:
    return f"{', '.join(texts[:-1])} and {texts[-1]}" if len(texts) > 1 else "".join(texts)
