"""`k: auto`: what it chooses where costs and acceptance are known, and what it may lose."""

from __future__ import annotations

import random

import pytest

from mrp.decoding.pace import MOST, PLAIN, RECHECK, START, STARTUP, Pace


def simulate(
    costs: list[float], acceptance: float, lanes: int = 1, blocks: int = 200, seed: int = 0
) -> tuple[float, float, list[int]]:
    """Seconds with auto and with plain steps, and the K of every round."""
    rng, pace, chosen = random.Random(seed), Pace(), []
    left = [16 * blocks] * lanes  # tokens of each lane; a new block begins at every 16th
    spent, fresh = 0.0, [True] * lanes
    while max(left) > 0:
        live = [lane for lane in range(lanes) if left[lane] > 0]
        open_ = [(left[lane] - 1) % 16 + 1 for lane in live]
        plan = pace.choose(open_, [fresh[lane] for lane in live])
        k = max(0, plan)
        useful = [0 if fresh[i] else min(k, o - 1) for i, o in zip(live, open_, strict=True)]
        gained = []
        for most in useful:
            hits = 0
            while hits < most and rng.random() < acceptance:
                hits += 1
            gained.append(1 + hits)
        pace.observe(useful, k, 1, costs[k], gained)
        spent += costs[k]
        chosen.append(k)
        for lane, tokens in zip(live, gained, strict=True):
            left[lane] -= tokens
            fresh[lane] = left[lane] % 16 == 0 or plan == PLAIN
    plain = 16 * blocks * costs[0]
    return spent, plain, chosen


def test_drafts_that_are_nearly_free_are_made() -> None:
    spent, plain, chosen = simulate([1.0, 1.02, 1.04, 1.06, 1.08], 0.8)
    assert spent < 0.5 * plain
    assert max(set(chosen), key=chosen.count) == MOST


def test_the_best_number_lies_between() -> None:
    _, _, chosen = simulate([1.0, 1.05, 1.1, 2.5, 4.0], 0.7)
    assert max(set(chosen), key=chosen.count) == 2


@pytest.mark.parametrize("acceptance", [0.0, 0.3, 0.6])
@pytest.mark.parametrize("lanes", [1, 8])
@pytest.mark.parametrize("costs", [[1.0, 2.2, 3.4, 4.6, 5.8], [1.0, 1.4, 1.9, 2.4, 2.9]])
def test_it_loses_no_more_than_two_percent(
    costs: list[float], acceptance: float, lanes: int
) -> None:
    for seed in range(3):
        spent, plain, _ = simulate(costs, acceptance, lanes, seed=seed)
        assert spent <= 1.02 * plain + START * costs[0]


def test_plain_steps_until_their_time_is_known() -> None:
    pace = Pace()
    assert pace.choose([16], [False]) == PLAIN
    pace.observe([0], 0, 1, 9.0, [1])  # the first one warms up
    assert pace.choose([16], [False]) == PLAIN
    pace.observe([0], 0, 15, 15.0, [15])
    assert pace.seconds(1, 0) == 1.0
    assert pace.choose([16], [False]) == 1
    assert pace.choose([16], [True]) == 0  # a plain step, to draft from in the next round
    assert pace.choose([1], [False]) == PLAIN


def test_captures_are_charged_once_the_start_is_over() -> None:
    pace = Pace()
    for _ in range(3):
        pace.observe([0], 0, 1, 1.0, [1])
    pace.pay(100.0)
    assert pace.choose([16], [False]) == 1
    pace.observe([0], 0, STARTUP, STARTUP * 1.0, [STARTUP])
    pace.pay(100.0)
    assert pace.choose([16], [False]) == PLAIN


def test_a_plain_step_is_timed_anew_now_and_then() -> None:
    """One wrong time of plain steps must not make drafts look good for ever."""
    pace = Pace()
    for seconds in (1.0, 50.0):  # the second was disturbed
        pace.observe([0], 0, 1, seconds, [1])
    rounds = []
    for _ in range(3 * RECHECK):
        k = max(0, pace.choose([16], [False]))
        pace.observe([k], k, 1, [1.0, 3.0, 4.0, 5.0, 6.0][k], [1])
        rounds.append(k)
    assert rounds[-RECHECK:].count(0) > 0.9 * RECHECK
