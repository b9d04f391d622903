"""The race against an exhaustive search on the shipped backbone, decoding for real."""

from __future__ import annotations

from pathlib import Path

import pytest

from mrp.tuning.candidates import STATIC, chains
from mrp.tuning.problems import Bench
from mrp.tuning.race import Facts, Race, Target
from tests.tuning.simulated import exhaustive

BACKBONE = Path(__file__).parents[2] / "assets/embedded/backbone"
PROBLEMS = 5  # of each task


@pytest.mark.slow
def test_the_race_finds_what_an_exhaustive_search_finds_in_a_tenth_of_its_time() -> None:
    """Over all modes without a head; with one it is twice as many candidates, dear ones."""
    bench = Bench(BACKBONE, {}, "cpu", "float32")
    bench.prepare(["mini_math", "mini_code"], PROBLEMS, None, "embedded", 1)
    units, block = len(bench.chunks), bench.backbone.config.block_size
    target = Target(0.02, "tpf")
    few = chains([], block, lossless=False, most_tokens=True)
    race = Race(few, bench.measure, units, target)
    found = race.run()

    facts = Facts(target, units)
    candidates = [STATIC, *(m for chain in chains([], block, False) for m in chain.members)]
    for candidate in candidates:
        facts.add(candidate, bench.measure(candidate, range(units)))
    best = exhaustive(facts, candidates)
    raced, whole = seconds(race.facts), seconds(facts)
    print(f"race: {found} in {raced:.0f} s; all {len(candidates)}: {best} in {whole:.0f} s")
    print(f"speed {facts.ratio(found):.3f} and {facts.ratio(best):.3f} x static")
    assert facts.verdict(found) == "good"
    assert facts.ratio(found) == pytest.approx(facts.ratio(best), rel=0.01)
    assert raced < whole / 10


def seconds(facts: Facts) -> float:
    """What all that was decoded took, the processor's: other programs stretch the clock's."""
    return sum(row.seconds for rows in facts.seen.values() for row in rows)
