"""tables.html, tables.tex and tables.csv."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from mrp.io import atomic_write_text
from mrp.report.ablations import build_ablations
from mrp.report.cells import Table
from mrp.report.comparisons import compare
from mrp.report.contest import build_contest
from mrp.report.findings import FAILS, HOLDS, INCOMPLETE, MIXED, OPEN, Finding, build_findings
from mrp.report.frame import Results
from mrp.report.latex import SPECIAL, latex
from mrp.report.settings import setting_name
from mrp.report.tables import build_tables
from mrp.report.templating import environment_of_templates
from mrp.report.verdicts import (
    FAILED,
    REPRODUCED,
    UNPUBLISHED,
    WITHIN,
    Summary,
    summarize,
    with_verdicts,
)
from mrp.schema import LOSSLESS

DIGITS = "%.6g"  # of numbers in CSV files: more than any of them is known to

PAPER_SLUGS = {REPRODUCED: "holds", WITHIN: "open", FAILED: "fails", UNPUBLISHED: "none"}
TALLIES = {
    HOLDS: "hold",
    MIXED: "mixed",
    OPEN: "undecided",
    FAILS: "do not hold",
    INCOMPLETE: "incomplete",
}
SLUGS = {HOLDS: "holds", FAILS: "fails", OPEN: "open", MIXED: "mixed", INCOMPLETE: "none"}


@dataclass(frozen=True)
class Header:
    """What stands above the tables.

    Attributes:
        facts: (name, value) pairs.
        absent: (job, why) for jobs without a record.
        notes: (task, note, jobs that have it), of the scoring.
        jobs: how many the suite has.
        baselines: sentences about baselines that are missing, and what cannot be said without.
    """

    facts: tuple[tuple[str, str], ...]
    absent: tuple[tuple[str, str], ...]
    notes: tuple[tuple[str, str, int], ...]
    jobs: int
    baselines: tuple[str, ...]


def write_tables(
    results: Results,
    published: pd.DataFrame | None,
    out: Path,
    links: Mapping[str, str] | None = None,
) -> list[Path]:
    """Write tables.html, .tex and .csv to `out`; the same records give the same bytes.

    Args:
        results: of the suite.
        published: the paper's numbers, None to leave them out.
        out: a folder.
        links: addresses of the jobs' own pages, relative to `out`; cells become links to them.

    Returns:
        The files.
    """
    rows = compare(results)
    judged = with_verdicts(rows, published)
    tables = [
        *build_tables(rows, published),
        *build_contest(results, rows),
        *build_ablations(results, rows),
    ]
    page = render(
        results.suite,
        origin(results, rows),
        tables,
        summarize(judged),
        build_findings(results, rows),
        links or {},
        _facets(rows),
    )
    html, tex, csv = (Path(out) / f"tables.{form}" for form in ("html", "tex", "csv"))
    atomic_write_text(html, page)
    atomic_write_text(tex, latex(results.suite, tables))
    atomic_write_text(csv, judged.to_csv(index=False, float_format=DIGITS, lineterminator="\n"))
    return [html, tex, csv]


def render(
    suite: str,
    header: Header,
    tables: Sequence[Table],
    paper: Summary | None,
    findings: Sequence[Finding],
    links: Mapping[str, str],
    facets: Mapping[str, Mapping[str, str]],
) -> str:
    """The page as one self-contained HTML text.

    `links` are the addresses of jobs' own pages; `facets` what a job's rows can be filtered by.
    """
    return (
        environment_of_templates()
        .get_template("tables.html.j2")
        .render(
            suite=suite,
            header=header,
            tables=tables,
            paper=paper,
            claimed=[finding for finding in findings if not finding.beyond],
            goals=[finding for finding in findings if finding.beyond],
            tallies=TALLIES,
            links=links,
            facets=facets,
            special=SPECIAL,
            slugs={**SLUGS, **PAPER_SLUGS},
        )
    )


def _facets(rows: pd.DataFrame) -> dict[str, dict[str, str]]:
    """By job: its mode, and its head, K and tau where it has them, as the page shows them."""
    facets: dict[str, dict[str, str]] = {}
    for _, row in rows.drop_duplicates("job").iterrows():
        found = {"mode": str(row["mode"])}
        if not pd.isna(row["head"]):
            found["head"] = str(row["head"])
        for name, option in (("K", "k"), ("\N{GREEK SMALL LETTER TAU}", "tau")):
            if not pd.isna(row[option]):
                found[name] = f"{row[option]:g}"
        facets[str(row["job"])] = found
    return facets


def origin(results: Results, rows: pd.DataFrame) -> Header:
    """Where the records come from, in their own words; no clock of ours."""
    known = results.provenance
    days = sorted({str(record["created"])[:10] for record in known})
    packages = [record.get("packages", {}) for record in known]
    versions = [f"mrp {_values(record['mrp'] for record in known)}"]
    versions += [f"Python {_values(record['python'] for record in known)}"]
    for name in ("torch", "transformers", "lm-eval"):
        if any(name in found for found in packages):
            versions.append(f"{name} {_values(found.get(name) for found in packages)}")
    timings = [record["timing"] for record in known]
    problems = rows.dropna(subset=["n"]).groupby("task", sort=False)["n"].max()
    facts = (
        ("Records of", days[0] if len(days) == 1 else f"{days[0]} to {days[-1]}"),
        ("Device", _values(record["device"] for record in known)),
        ("Precision", _values(record["dtype"] for record in known)),
        *((("Timed on", _values(timings)),) if any(timings) else ()),
        ("Problems", ", ".join(f"{task} {n:.0f}" for task, n in problems.items())),
        ("Code", _values(_revision(record["git"]) for record in known)),
        ("Versions", ", ".join(versions)),
    )
    by_job = rows.drop_duplicates("job")
    absent = by_job[by_job["status"] != "done"]
    pairs = tuple(zip(absent["job"], absent["note"], strict=True))
    counts = Counter(
        (task, str(note))
        for record in known
        for task, notes in record["notes"].items()
        for note in notes
    )
    notes = tuple((task, note, count) for (task, note), count in counts.items())
    return Header(facts, pairs, notes, len(by_job), tuple(_missing_baselines(by_job)))


def _missing_baselines(by_job: pd.DataFrame) -> Iterator[str]:
    """What cannot be compared, since the run to compare with has no record."""
    for name, mine in by_job.groupby("backbone", sort=False):
        if not (mine["status"] == "done").any():
            yield f"no run of {name} has a record, and nothing is said of it"
            continue
        for status, absent in mine[mine["status"] != "done"].groupby("status", sort=False):
            yield from _missing_of(mine, absent, "failed" if status == "failed" else "was not run")


def _missing_of(mine: pd.DataFrame, absent: pd.DataFrame, word: str) -> Iterator[str]:
    """The same of one backbone; `absent` are its runs that `word` says of why they are."""
    name = mine["backbone"].iloc[0]
    for _, row in absent[(absent["mode"] == "static") & absent["steps"].isna()].iterrows():
        if row["cap"] == 1:
            nothing = f"no run of {name} has a difference to it"
        elif (mine["mode"].isin(LOSSLESS) & (mine["cap"] == row["cap"])).any():
            nothing = "lossless runs of the same cap are compared with nothing"
        else:
            continue
        yield f"{setting_name(row)} of {name} {word}: {nothing}"
    taus = ", ".join(f"{tau:g}" for tau in absent[absent["mode"] == "dynamic"]["tau"])
    if taus:
        yield (
            f"dynamic at τ = {taus} of {name} {word}: what remasking gains and FreeDave keeps "
            "there is unknown"
        )


def _values(found: Any) -> str:
    """The different values, in order of appearance."""
    return (
        " and ".join(dict.fromkeys(str(value) for value in found if value is not None)) or "unknown"
    )


def _revision(git: str | None) -> str:
    """A short revision; an installed copy has none."""
    if git is None:
        return "an installed copy"
    commit, plus, _ = git.partition("+")
    return commit[:10] + (" with local changes" if plus else "")
