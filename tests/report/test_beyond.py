"""Goals beyond the paper: each verdict both ways, from a few invented runs of one backbone."""

from __future__ import annotations

import zlib
from typing import Any

import numpy as np
import pytest

from mrp.report.cells import DASH, MINUS, TIMES, signed_span, span
from mrp.report.comparisons import compare
from mrp.report.contrasts import Contrast
from mrp.report.findings import FAILS, HOLDS, INCOMPLETE, MIXED, OPEN, Finding, build_findings
from mrp.report.findings.beyond import RIVALS
from mrp.report.findings.readings import Measured, Quotient
from mrp.report.frame import AUTO, Results, _frame, _points
from mrp.report.outcomes import Outcome
from mrp.report.pooling import change, level
from mrp.schema import LOSSLESS, MODES, OPTIONS

N = 200
TOKENS = "A draft lattice reveals at least"
RIVAL = "A draft lattice reveals more"
CLOCK = "A draft lattice decodes"
SAME = "No lossless way"
HALVES = "Judging by halves recovers"


def run(
    mode: str,
    tpf: float = 1.0,
    *,
    right: int = 180,
    changed: int = 0,
    time: float | None = None,
    noise: float = 0.01,
    batch: int = 1,
    done: bool = True,
    **options: Any,
) -> tuple[dict[str, Any], Outcome]:
    """A run's row and outcome: the first `right` answers are right, the last `changed` of others.

    `time` is its time ratio; log(high / ratio) of its interval is `noise`.
    """
    shape = MODES[mode]
    usual = {name: OPTIONS[name] for name in shape.optional}
    labels = {**dict.fromkeys(OPTIONS), **usual, **options}
    job = ".".join([mode, *(f"{name}{value}" for name, value in options.items())])
    luck = np.random.default_rng(zlib.crc32(job.encode()))
    tokens = np.full(N, 32.0)
    texts = np.arange(N, dtype=np.uint32)
    texts[N - changed :] += N
    spread = luck.uniform(0.9, 1.1, N)
    forwards = tokens / tpf * spread / spread.mean()
    outcome = Outcome(tuple(map(str, range(N))), np.arange(N) < right, texts, tokens, forwards)
    row = {
        "suite": "invented",
        "job": job,
        "backbone": "S",
        "task": "mini_math",
        "mode": mode,
        "head": "k2" if shape.needs_head else None,
        "head_variant": "k2" if shape.needs_head else None,
        "head_source": "released" if shape.needs_head else None,
        "trained_here": False,
        "head_reveal": None,
        "head_seed_of": None,
        **labels,
        "status": "done" if done else "not run",
        "note": "",
    }
    if done:
        row |= {"n": N, "correct": right, "accuracy": right / N, "tpf": tpf}
    if done and time is not None:
        ends = {"time_ratio_low": time / np.exp(noise), "time_ratio_high": time * np.exp(noise)}
        row |= {"time_ratio": time, **ends, "time_batch": batch}
    return row, outcome


STATIC = run("static")


def judged(*runs: tuple[dict[str, Any], Outcome]) -> dict[str, Finding]:
    """What comes out, by claim; every claim counts as beyond the paper or not."""
    rows = [row for row, _ in runs]
    outcomes = {(row["job"], "mini_math"): one for row, one in runs if row["status"] == "done"}
    results = Results("invented", _frame(rows), outcomes, _points(outcomes), [])
    return {finding.claim: finding for finding in build_findings(results, compare(results))}


def of(found: dict[str, Finding], start: str) -> Finding:
    (one,) = [finding for claim, finding in found.items() if claim.startswith(start)]
    assert one.beyond
    return one


def quotient(finding: Finding, subject: str = "best lattice") -> Quotient:
    (one,) = [
        reading
        for reading in finding.overall.readings
        if isinstance(reading, Quotient) and reading.subject == subject
    ]
    return one


# ---- tokens --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("lattice", "verdict", "told"),
    [
        (2.6, HOLDS, ": met"),
        (2.2, FAILS, f": missed by 0.10{TIMES}"),
        (2.4, OPEN, "at least 1.2: "),
    ],
)
def test_a_lattice_beside_the_best_chain(lattice: float, verdict: str, told: str) -> None:
    found = of(
        judged(
            STATIC,
            run("lattice", lattice, k=5, window=3),
            run("self_lattice", 1.9, k=4),
            run("speculative", 2.0, k=4),
            run("speculative", 1.8, k=AUTO),
            run("self_speculative", 1.7, k=4),
        ),
        TOKENS,
    )
    assert found.verdict == verdict
    assert quotient(found).contrast.value == pytest.approx(lattice / 2.0)
    assert told in found.overall.text
    assert "(lattice, k2, window 3, K = 5 over speculative, k2, K = 4)" in found.overall.text


def test_capped_ways_have_a_baseline_of_their_own() -> None:
    lattice, chain = run("lattice", 2.6, k=5), run("speculative", 2.0, k=4)
    capped = run("self_lattice", 3.0, k=5, cap=0.9), run("self_speculative", 2.8, k=4, cap=0.9)
    found = of(judged(STATIC, lattice, chain, *capped, run("static", cap=0.9)), TOKENS)
    assert quotient(found).contrast.value == pytest.approx(1.3)
    assert quotient(found, "best lattice, cap 0.9").contrast.value == pytest.approx(3.0 / 2.8)
    assert found.verdict == MIXED
    alone = judged(STATIC, chain, capped[0])  # a chain of another text is nothing to compare with
    assert not any(claim.startswith((TOKENS, RIVAL, CLOCK)) for claim in alone)


@pytest.mark.parametrize(("rival", "verdict"), [(2.0, HOLDS), (2.9, FAILS)])
def test_rivals(rival: float, verdict: str) -> None:
    assert RIVALS == ("self_speculative",)
    found = of(
        judged(
            STATIC,
            run("lattice", 2.6, k=5),
            run("speculative", 2.7, k=4),  # no rival: it drafts with the head
            run("self_speculative", rival, k=4),
            run("dynamic", 2.0, tau=0.9),
            run("freedave", 3.1, k=3, tau=0.9),  # over a baseline of its own
        ),
        RIVAL,
    )
    assert found.verdict == verdict
    assert f"{2.6 - rival:+.2f}".replace("-", MINUS) in found.overall.text
    assert f"freedave: 1.55{TIMES}" in found.overall.text


def test_no_verdict_without_every_chain_of_the_same_baseline() -> None:
    runs = STATIC, run("lattice", 2.6, k=5, time=1.5), run("self_speculative", 1.9, k=4, time=1.2)
    capped = run("self_speculative", k=4, cap=0.9, done=False)
    for missing, expected in ((run("speculative", k=4, done=False), INCOMPLETE), (capped, HOLDS)):
        found = judged(*runs, missing)
        for claim in (TOKENS, RIVAL, CLOCK):
            assert of(found, claim).verdict == expected
    found = judged(*runs, run("speculative", k=4, done=False))
    assert "1 of the 3 runs it rests on is missing" in of(found, TOKENS).overall.note
    assert "so far it would be: holds" in of(found, TOKENS).overall.note


# ---- time ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("time", "noise", "batch", "verdict"),
    [
        (1.5, 0.02, 1, HOLDS),
        (1.25, 0.02, 1, FAILS),
        (1.5, 0.08, 1, OPEN),
        (1.5, 0.02, 8, INCOMPLETE),
    ],
)
def test_by_the_clock(time: float, noise: float, batch: int, verdict: str) -> None:
    found = of(
        judged(
            STATIC,
            run("lattice", 2.6, k=5, time=time, noise=noise, batch=batch),
            run("self_lattice", 3.0, k=5, time=0.9, batch=batch),
            run("speculative", 2.0, k=4, time=0.8, batch=batch),
            run("self_speculative", 1.9, k=4, time=1.2, noise=noise, batch=batch),
        ),
        CLOCK,
    )
    assert found.verdict == verdict
    ratio = quotient(found)
    assert ratio.contrast.value == pytest.approx(time / 1.2)
    estimate = ratio.contrast.estimate
    width = np.log(estimate.high / estimate.low) / 2
    assert width == pytest.approx(np.sqrt(2) * noise, rel=0.1)  # of both measurements
    assert ("but timed 8 at a time" in found.overall.text) == (batch == 8)


# ---- the same text -------------------------------------------------------------------------------

CAPPED: dict[str, Any] = {"cap": 0.9}
LOSSLESS_RUNS: list[tuple[str, dict[str, Any]]] = [
    *((mode, {"k": 3}) for mode in LOSSLESS),
    ("speculative", {"k": AUTO}),
    ("self_speculative", {"k": AUTO}),
    *((mode, {"k": 3, **CAPPED}) for mode in LOSSLESS),
]


@pytest.mark.parametrize("wrong", [None, *range(len(LOSSLESS_RUNS))])
def test_one_changed_answer_of_any_lossless_run(wrong: int | None) -> None:
    runs = [
        run(mode, 2.0, changed=int(number == wrong), **options)
        for number, (mode, options) in enumerate(LOSSLESS_RUNS)
    ]
    found = judged(STATIC, run("static", **CAPPED), *runs)
    same = of(found, SAME)
    if wrong is None:
        total = N * len(runs)
        assert same.verdict == HOLDS
        assert same.overall.text.startswith(f"{total} of {total} answers are static's")
        return
    assert same.verdict == FAILS
    assert any(f"{n - 1} of {n} answers" in same.overall.text for n in (N, 2 * N))
    papers = found["Speculative decoding changes no answer"]
    mode = LOSSLESS_RUNS[wrong][0]
    assert papers.verdict == (FAILS if mode == "speculative" else HOLDS)
    assert not papers.beyond


@pytest.mark.parametrize(("changed", "verdict"), [(0, HOLDS), (1, FAILS)])
def test_freedave_is_counted_against_dynamic(changed: int, verdict: str) -> None:
    dynamic = run("dynamic", 2.0, tau=0.9, changed=N)  # none of its answers is static's
    drafted = run("freedave", 3.0, k=3, tau=0.9, changed=N)
    drafted[1].texts[:changed] += 5
    found = judged(STATIC, dynamic, drafted, run("speculative", 2.0, k=3))
    assert of(found, "FreeDave").verdict == verdict
    assert f"{N - changed} of {N} answers are dynamic's" in of(found, "FreeDave").overall.text
    assert of(found, SAME).verdict == HOLDS


# ---- recovery ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("halves", "time", "verdict", "told"),
    [
        (180, 1.0, HOLDS, "beyond 1.5 times that: met"),
        (130, 1.0, FAILS, "beyond 1.5 times that: missed by 15.0 points"),
        (160, 1.0, OPEN, "beyond 1.5 times that: met"),
        (180, 0.8, FAILS, f"of its time, at most 1.15: missed by 0.10{TIMES}"),
    ],
)
def test_recovery_by_halves(halves: int, time: float, verdict: str, told: str) -> None:
    """Dynamic has 40 of 200 right, one pass 120: half as much again would be 160."""
    found = of(
        judged(
            STATIC,
            run("dynamic", 3.0, right=40, tau=0.5, time=2.0),
            run("remask", 2.5, right=120, tau=0.5, time=1.0),
            run("remask", 2.5, right=halves, tau=0.5, passes="halves", time=time),
        ),
        HALVES,
    )
    assert found.verdict == verdict
    assert told in found.overall.text
    (points,) = [
        reading.contrast
        for reading in found.overall.readings
        if isinstance(reading, Measured) and reading.quantity.startswith("beyond")
    ]
    assert points.value == pytest.approx((halves - 160) / N)
    quantities = [one.quantity for one in found.overall.readings if isinstance(one, Quotient)]
    assert quantities[0] == "of one pass's points"


@pytest.mark.parametrize(("noise", "taken"), [(0.01, True), (0.1, False)], ids=["sure", "doubtful"])
def test_recovery_is_judged_by_what_is_surely_in_time(noise: float, taken: bool) -> None:
    """A floor recovers more, in 10 % more time: taken only where that is surely below 15 %."""
    found = of(
        judged(
            STATIC,
            run("dynamic", 3.0, right=40, tau=0.5, time=2.0),
            run("remask", 2.5, right=120, tau=0.5, time=1.1, noise=0.001),
            run("remask", 2.5, right=180, tau=0.5, passes="halves", time=1.1, noise=0.001),
            run(
                "remask", 2.3, right=190, tau=0.5, passes="halves", floor=0.9, time=1.0, noise=noise
            ),
        ),
        HALVES,
    )
    assert found.verdict == HOLDS
    assert ("floor 0.9" in found.overall.text) == taken


def test_what_dynamic_is_too_slow_for_does_not_part_the_places() -> None:
    """Places are pooled by their words: those say the planned tau, a note which of them is out."""
    found = judged(
        STATIC,
        run("dynamic", 3.0, right=100, tau=0.5, time=1.5),
        run("dynamic", 2.0, right=150, tau=0.6, time=1.2),
        run("remask", 2.5, right=120, tau=0.5, time=2.0),
        run("remask", 1.8, right=170, tau=0.6, time=0.8),
    )["Remasking gains in the same time"]
    (reading,) = found.overall.readings
    assert isinstance(reading, Measured)
    assert reading.quantity == "over dynamic, over τ = 0.5, 0.6"
    assert reading.note == "not at τ = 0.5, where no dynamic is as fast"
    assert reading.contrast.value == pytest.approx((170 - 180) / N)  # static is faster, and better
    assert found.verdict == FAILS


# ---- intervals without width ---------------------------------------------------------------------


def test_no_interval_where_resamples_cannot_differ() -> None:
    """Of equal runs, of static's tokens per forward, and of static's own time."""
    flat = Contrast(0.0, np.zeros(2000), N)
    assert change(flat, "points").detail == "no spread over problems"
    assert change(flat, "ratio").detail == "no spread over problems"
    assert level(Contrast(1.0, np.ones(2000), N), "ratio").detail == "no spread over problems"
    assert level(Contrast(1.0, np.ones(2000)), "ratio").detail == ""
    assert (
        level(Contrast(1.0, np.ones(2000), N), "percent").detail == f"98.1{DASH}100.0"
    )  # Wilson's
    few = Measured("it", "", Contrast(0.5, np.full(2000, 0.5), 5), "points")
    assert few.number == "+50.0 points (no interval: 5 problems, all alike)"
    many = Measured("it", "", flat, "more tpf")
    assert many.number == "0.00 TPF (no interval: no spread over problems)"


def test_a_narrow_interval_has_as_many_places_as_its_ends_need() -> None:
    assert span(1.2, 1.3) == f"1.20{DASH}1.30"
    assert span(0.3921, 0.3948) == f"0.392{DASH}0.395"
    assert span(0.39211, 0.39213) == f"0.39{DASH}0.39"  # not for ever
    assert signed_span(-0.004, 0.004) == f"{MINUS}0.004 to +0.004"
    assert signed_span(0.0061, 0.0089) == "+0.006 to +0.009"
