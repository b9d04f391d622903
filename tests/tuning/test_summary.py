"""What is printed about a race."""

from __future__ import annotations

import pytest
import yaml

from mrp.tuning import summary
from mrp.tuning.candidates import STATIC, Candidate, chains
from mrp.tuning.race import Facts, Race, Seen, Target
from tests.tuning.simulated import Simulated

UNITS = 48
ROWS = chains(["k2"], 16, lossless=False)
TIMED = {"ratio": 1.5, "low": 1.4, "high": 1.6}


@pytest.fixture(scope="module", params=[(1, 0.05), (2, None)], ids=["lose 5", "lossless"])
def race(request: pytest.FixtureRequest) -> Race:
    seed, points = request.param
    rows = chains(["k2"], 16, lossless=points is None)
    found = Race(rows, Simulated(rows, UNITS, seed), UNITS, Target(points, "tpf"))
    found.run()
    return found


def test_the_choice_has_a_star_and_static_a_row(race: Race) -> None:
    head, *rows = summary.lines(race, race.leader, {race.leader: TIMED})
    assert head.split()[:2] == ["problems", "accuracy"]
    (chosen,) = [row for row in rows if row.startswith("* ")]
    assert chosen.startswith(f"* {race.leader}")
    assert "1.50 (1.40-1.60)" in chosen
    assert any(row.startswith("  static ") for row in rows)


def test_no_row_but_a_modes_best_is_beaten_in_both(race: Race) -> None:
    facts = race.facts
    shown = summary.frontier(race, race.leader)
    assert [facts.ratio(one) for one in shown] == sorted(facts.ratio(one) for one in shown)
    for one in shown:
        beaten = any(
            facts.ratio(two) > facts.ratio(one)
            and summary.gain(facts, two) > summary.gain(facts, one)
            for two in shown
        )
        assert not beaten or facts.verdict(one) == "good"


def test_finalists_are_good_and_near_the_leader(race: Race) -> None:
    facts, found = race.facts, summary.finalists(race)
    assert found[0] == race.leader
    assert len(found) <= 4
    for candidate in found:
        assert facts.verdict(candidate) == "good"
        assert facts.ratio(candidate) >= summary.NEAR * facts.ratio(race.leader)


def test_the_effort_is_counted(race: Race) -> None:
    count = 1 + sum(len(chain.members) for chain in race.chains)
    units = sum(map(race.facts.n, race.facts.seen))
    said = summary.effort(race.facts, count, 12.3)
    assert f"decoded {units} answers, {100 * units / (count * UNITS):.1f} %" in said
    assert f"of the {count * UNITS} of" in said
    assert units < count * UNITS / 10


def test_the_entry_says_where_it_comes_from(race: Race) -> None:
    text = summary.entry(race, race.leader, {"k2": "some/where/k2"}, ["mini_math"])
    (entry,) = yaml.safe_load(text)
    assert entry["mode"] == race.leader.mode
    assert f"# mrp tune: {summary.promise(race.target)}" in text
    assert ("some/where/k2" in text) == (race.leader.head is not None)


def lossy(lost: int) -> Race:
    """A race of which the choice lost some of 40 problems."""
    race = Race([], lambda candidate, units: [], 40, Target(0.05, "tpf"))
    race.facts.add(STATIC, [Seen((True,), 10, 10, 10, 1.0)] * 40)
    chosen = Candidate("dynamic", (("tau", 0.9),))
    race.facts.add(chosen, [Seen((n >= lost,), 10, 10, 5, 0.5) for n in range(40)])
    race.leader = chosen
    return race


def test_an_interval_that_reaches_beyond_the_target_is_said() -> None:
    race = lossy(2)
    *_, last = summary.lines(race, race.leader, {})
    lost = race.facts.difference(race.leader)
    assert lost is not None
    assert f"reaches {-100 * lost.low:.1f} points lost" in last
    assert -lost.low > 0.05


def test_answers_that_differ_from_statics_are_counted() -> None:
    race = Race([], lambda candidate, units: [], 3, Target(None, "tpf"))
    chosen = Candidate("self_speculative", (("k", 2),))
    race.facts = Facts(race.target, 3)
    for candidate, answers in ((STATIC, [(1,), (2,), (3,)]), (chosen, [(1,), (2,), (4,)])):
        rows = [Seen((True,), 10, 10, 5, 0.5, (answer,)) for answer in answers]
        race.facts.add(candidate, rows)
    race.leader = chosen
    *_, last = summary.lines(race, chosen, {})
    assert last == "1 of 3 answers differ from static's, by rounding."
