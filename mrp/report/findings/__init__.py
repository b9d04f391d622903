"""What came out: the paper's claims, each judged by a rule from the records' intervals.

A claim is a sentence, what the paper says, a rule, and a function that yields the readings of one
backbone on one task (`readings`). Nothing is typed in by hand: a claim holds where the whole
interval is on its side, does not hold where it is on the other side, and is undecided in between.
Where runs that it rests on have no record there is no verdict, but how many are missing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import pandas as pd

from mrp.report.findings.claims import CLAIMS, Claim
from mrp.report.findings.place import Place, places
from mrp.report.findings.readings import (
    FAILS,
    HOLDS,
    INCOMPLETE,
    MIXED,
    OPEN,
    Counted,
    Reading,
    agree,
    in_words,
    pool,
    verdict_of,
)
from mrp.report.frame import Results

__all__ = [
    "CLAIMS",
    "FAILS",
    "HOLDS",
    "INCOMPLETE",
    "MIXED",
    "OPEN",
    "Claim",
    "Finding",
    "build_findings",
    "unsaid_claims",
]

FLIPS = "another seed of the heads says otherwise"


@dataclass(frozen=True)
class Part:
    """A verdict on one level: a backbone on a task, a backbone, or all of them.

    Attributes:
        place: where; readings: what it is from; note: why it is not what they say.
    """

    place: str
    verdict: str
    readings: tuple[Reading, ...]
    note: str = ""

    @property
    def text(self) -> str:
        """All of it in words."""
        texts = in_words(self.readings)
        return "; ".join([*texts, self.note] if self.note else texts)


@dataclass(frozen=True)
class Finding:
    """A claim with its verdicts: for every place, every backbone, and over all of them.

    `beyond` tells goals of ours from claims of the paper and their controls.
    """

    claim: str
    paper: str
    rule: str
    evidence: tuple[Part, ...]
    backbones: tuple[Part, ...]
    overall: Part
    beyond: bool = False

    @property
    def verdict(self) -> str:
        """Over all backbones."""
        return self.overall.verdict


def build_findings(results: Results, rows: pd.DataFrame) -> list[Finding]:
    """The claims about which the records say anything.

    Args:
        results: of `frame.load_results` or `frame.load_records`.
        rows: of `comparisons.compare`.
    """
    everywhere = list(places(results, rows))
    found = [_finding(claim, everywhere) for claim in CLAIMS]
    return [finding for finding in found if finding is not None]


def unsaid_claims(results: Results, rows: pd.DataFrame, findings: list[Finding]) -> list[str]:
    """The claims that none of these findings is of, since runs that they rest on have no record."""
    found = {finding.claim for finding in findings}
    everywhere = list(places(results, rows))
    return [
        claim.name
        for claim in CLAIMS
        if claim.name not in found
        and not all(done for seeds in everywhere for done in _needed(claim, seeds).values())
    ]


def _finding(claim: Claim, everywhere: Sequence[Sequence[Place]]) -> Finding | None:
    """Judge a claim; `everywhere` holds the places, each with the repetitions of its heads."""
    judged: dict[str, list[list[Reading]]] = {}  # by place, a list for each repetition
    runs: dict[str, dict[str, bool]] = {}  # by place and job that the claim rests on: is it done?
    for seeds in everywhere:
        title = seeds[0].title
        readings = [list(claim.judge(place)) for place in seeds]
        needed = _needed(claim, seeds)
        if readings[0] or not all(needed.values()):
            judged[title], runs[title] = readings, needed
    if not any(readings[0] for readings in judged.values()):
        return None
    backbone_of = {seeds[0].title: seeds[0].backbone for seeds in everywhere}
    evidence = [
        _part(title, [[one] for one in seeds], runs[title]) for title, seeds in judged.items()
    ]
    backbones = []
    for name in dict.fromkeys(backbone_of[title] for title in judged):
        below = [title for title in judged if backbone_of[title] == name]
        parts = [part for part in evidence if part.place in below]
        needed = {job: done for title in below for job, done in runs[title].items()}
        backbones.append(_part(name, _by_seed([judged[title] for title in below]), needed, parts))
    needed = {job: done for found in runs.values() for job, done in found.items()}
    overall = _part("all", _by_seed(list(judged.values())), needed, backbones)
    if overall.verdict == INCOMPLETE and len(backbones) > 1:
        overall = replace(overall, readings=())  # those of the backbones are of different runs
    said = (claim.name, claim.paper, claim.rule)
    return Finding(*said, tuple(evidence), tuple(backbones), overall, claim.beyond)


def _needed(claim: Claim, seeds: Sequence[Place]) -> dict[str, bool]:
    """The jobs that a claim rests on at a place, and whether each has a record."""
    return {
        str(row["job"]): row["status"] == "done"
        for place in seeds
        if place.planned is not None
        for row in claim.needs(place.planned)
    }


def _by_seed(places: Sequence[list[list[Reading]]]) -> list[list[list[Reading]]]:
    """The places' readings for each seed; a place without repetitions has the same for all."""
    count = max(len(seeds) for seeds in places)
    return [
        [seeds[number] if number < len(seeds) else seeds[0] for seeds in places]
        for number in range(count)
    ]


def _part(
    name: str,
    by_seed: Sequence[list[list[Reading]]],
    runs: dict[str, bool],
    below: Sequence[Part] = (),
) -> Part:
    """The verdict on readings together; `below` are the verdicts on those that they are of.

    A count that fails does so whatever the missing runs would say.
    """
    part = _judged(name, by_seed, below) if any(map(any, by_seed)) else Part(name, "", ())
    done = sum(runs.values())
    if done == len(runs):
        return part
    lacking = len(runs) - done
    verb = "is" if lacking == 1 else "are"
    which = f"{lacking} of the {len(runs)} runs" if len(runs) > 1 else "the run"
    missing = f"{which} it rests on {verb} missing"
    if part.verdict == FAILS and any(isinstance(one, Counted) for one in part.readings):
        return replace(part, note=missing)
    said = [part.note] if part.note else []
    so_far = [f"so far it would be: {part.verdict}"] if part.verdict else []
    return replace(part, verdict=INCOMPLETE, note="; ".join([missing, *so_far, *said]))


def _judged(name: str, by_seed: Sequence[list[list[Reading]]], below: Sequence[Part]) -> Part:
    pooled = [pool([reading for place in places for reading in place]) for places in by_seed]
    if not any(reading.verdict for reading in pooled[0]):
        return Part(name, INCOMPLETE, tuple(pooled[0]))  # nothing there that the rule is about
    verdicts = [verdict_of(readings) for readings in pooled if readings]
    first = verdicts[0]
    if len(set(verdicts)) > 1:
        return Part(name, OPEN, tuple(pooled[0]), FLIPS)
    counted = any(isinstance(reading, Counted) for reading in pooled[0])
    if not counted and agree(part.verdict for part in below) == MIXED:
        return Part(name, MIXED, tuple(pooled[0]))
    return Part(name, first, tuple(pooled[0]))
