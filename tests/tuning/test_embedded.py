"""The race against an exhaustive search on the shipped models, decoding for real."""

from __future__ import annotations

from pathlib import Path

import pytest

from mrp.tuning.candidates import STATIC, chains
from mrp.tuning.problems import Bench
from mrp.tuning.race import Facts, Race, Target, choose

ASSETS = Path(__file__).parents[2] / "assets/embedded"


@pytest.mark.slow
def test_the_race_finds_what_an_exhaustive_search_finds_in_a_tenth_of_its_time() -> None:
    bench = Bench(ASSETS / "backbone", {"k2": ASSETS / "heads/S/k2"}, "cpu", "float32")
    bench.prepare(["mini_math", "mini_code"], 4, None, "embedded", 1)
    units = len(bench.chunks)
    rows = chains(["k2"], 16, lossless=False, most_tokens=True)
    target = Target(0.02, "tpf")
    bench.seconds = 0.0
    found = Race(rows, bench.measure, units, target).run()
    raced = bench.seconds

    facts = Facts(target, units)
    candidates = [STATIC, *(m for row in chains(["k2"], 16, False) for m in row.members)]
    for candidate in candidates:
        facts.add(candidate, bench.measure(candidate, range(units)))
    whole, best = bench.seconds - raced, choose(facts, candidates)
    print(f"race: {found} in {raced:.0f} s; all {len(candidates)}: {best} in {whole:.0f} s")
    print(f"speed {facts.ratio(found):.3f} and {facts.ratio(best):.3f} x static")
    assert facts.verdict(found) == "good"
    assert facts.ratio(found) == pytest.approx(facts.ratio(best), rel=0.01)
    assert raced < whole / 10
