"""A decoder that is not there: speeds and losses drawn at random, in the shape that modes have.

And what it is for: the answer of an exhaustive search, which the race has to find.
"""

from __future__ import annotations

import random
from collections.abc import Sequence

from mrp.tuning.candidates import STATIC, Candidate, Chain
from mrp.tuning.race import Facts, Seen

TOKENS = 60  # of each answer


class Simulated:
    """Decodes with made-up candidates and counts the seconds.

    A problem is of its own difficulty, for speed and for loss, which all candidates share; each of
    them adds some noise. Along a chain speed rises, and accuracy falls where its text changes.
    """

    def __init__(self, chains: Sequence[Chain], units: int, seed: int) -> None:
        rng = random.Random(seed)
        self.seed, self.seconds = seed, 0.0
        self.tested: set[Candidate] = set()
        self.ease = [rng.lognormvariate(0, 0.15) for _ in range(units)]
        self.right = [rng.random() < 0.9 for _ in range(units)]
        self.speed: dict[Candidate, float] = {STATIC: 1.0}
        self.loss: dict[Candidate, float] = {STATIC: 0.0}
        self.cost: dict[Candidate, float] = {STATIC: 1.0}
        self.kind: dict[Candidate, int] = {}
        for number, chain in enumerate(chains):
            slowest, gain = rng.uniform(1.0, 1.8), rng.uniform(1.02, 1.3)
            first, steep = rng.uniform(0.0, 0.02), rng.uniform(1.3, 2.5)
            dear = rng.uniform(0.02, 0.4)
            for rank, member in enumerate(chain.members):
                self.speed[member] = slowest * gain**rank
                self.cost[member] = 1 + dear * (rank + 1) * chain.costs
                self.loss.setdefault(member.text, min(0.9, first * steep**rank))
                self.kind.setdefault(member.text, number)

    def __call__(self, candidate: Candidate, units: Sequence[int]) -> list[Seen]:
        """As `Bench.measure`."""
        rows = [self._row(candidate, unit) for unit in units]
        self.seconds += sum(row.seconds for row in rows)
        self.tested.add(candidate)
        return rows

    def _row(self, candidate: Candidate, unit: int) -> Seen:
        text, own = candidate.text, random.Random(f"{self.seed} {candidate} {unit}")
        fast = 1.0 if candidate == STATIC else self.ease[unit] * own.lognormvariate(0, 0.04)
        forwards = max(4, round(TOKENS / max(1.0, self.speed[candidate] * fast)))
        seconds = forwards * self.cost[candidate] * own.lognormvariate(0, 0.05)
        # One draw a problem and a kind of text, so that losses of a chain are nested.
        fragile = random.Random(f"{self.seed} {self.kind.get(text)} {unit}").random()
        right = self.right[unit] and fragile >= self.loss[text]
        return Seen((right,), TOKENS, TOKENS, forwards, seconds)


def exhaustive(facts: Facts, candidates: Sequence[Candidate]) -> Candidate:
    """The fastest that is good enough, where every candidate has answered all problems."""
    good = [candidate for candidate in candidates if facts.verdict(candidate) == "good"]
    return max(good, key=facts.ratio)
