"""The race: the fastest candidate that loses little enough, without decoding most of it all.

    leader   the fastest candidate that looks good enough
    repeat   every chain names what could still beat the leader: the middle of the members that may
             be faster and are not known to lose too much; the leader itself, until it has answered
             every problem
             decode the least tested of them on twice as many problems
    until    nothing is left to try

A chain is out as soon as its least eager member that could beat the leader loses too much, since
the more eager ones lose no less. A leader is final only when it has answered every problem: then
its loss is the one that an exhaustive search over the same problems would find. What is dropped
before is dropped by a bound: on the pairs of outcomes on the same problems, for the part of the
problems that has not been seen yet.

Lossless candidates have no loss to estimate: a few problems tell their speed.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

import numpy as np

from mrp.report.statistics import Estimate, paired_difference
from mrp.tuning.candidates import STATIC, Candidate, Chain

Z = 2.5  # standard errors beyond which something is taken as known
PRIOR = 4  # how many observations' worth of spread is assumed beforehand:
SPREAD = {"tpf": 0.1, "time": 0.15}  # of the logarithm of a speed ratio, from unit to unit
LOSS_SPREAD = 0.45  # of a problem's loss, -1, 0 or 1
SAME = 0.01  # speeds closer than this are the same
FEW = 8  # problems without a loss after which a candidate looks good enough


class Seen(NamedTuple):
    """What a candidate did on one unit, the problems that are decoded together.

    right: of each problem. tokens: of all answers. generated, forwards: TPF's two sides. seconds:
    of the decoding. answers: token ids of each problem.
    """

    right: tuple[bool, ...]
    tokens: int
    generated: int
    forwards: int
    seconds: float
    answers: tuple[tuple[int, ...], ...] = ()


# Whether the loss is small enough. open: so far, but on too few problems; good, bad: as far as is
# known; out: too large for sure.
Verdict = Literal["unseen", "open", "good", "bad", "out"]
Measure = Callable[[Candidate, Sequence[int]], list[Seen]]


@dataclass(frozen=True)
class Target:
    """What is wanted.

    points: the share of accuracy that may be lost against static, 0 to 1; None: static's very text.
    by: what fast means. sure: whether the whole interval of the loss has to keep to `points`, not
    only the estimate.
    """

    points: float | None
    by: Literal["tpf", "time"]
    sure: bool = False


@dataclass
class Facts:
    """What has been decoded so far, and what follows from it."""

    target: Target
    units: int  # of the whole calibration set
    seen: dict[Candidate, list[Seen]] = field(default_factory=dict)
    texts: dict[Candidate, dict[int, tuple[bool, ...]]] = field(default_factory=dict)
    _known: dict[Any, Any] = field(default_factory=dict)  # what was computed, by what it is from

    def add(self, candidate: Candidate, found: Sequence[Seen]) -> None:
        """Take over what a candidate did on its next units."""
        rows = self.seen.setdefault(candidate, [])
        verdicts = self.texts.setdefault(candidate.text, {})
        for row in found:
            verdicts.setdefault(len(rows), row.right)
            rows.append(row)

    def n(self, candidate: Candidate) -> int:
        """How many units a candidate has decoded."""
        return len(self.seen.get(candidate, ()))

    # Speed

    def speed(self, candidate: Candidate, n: int | None = None) -> float:
        """Tokens per forward, or answer tokens per second, on the first n units."""
        rows = self.seen[candidate][:n]
        if self.target.by == "tpf":
            return sum(r.generated for r in rows) / sum(r.forwards for r in rows)
        return sum(r.tokens for r in rows) / sum(r.seconds for r in rows)

    def ratio(self, candidate: Candidate) -> float:
        """Speed over static's on the same units."""
        n = self.n(candidate)
        if (candidate, n) not in self._known:
            self._known[candidate, n] = self.speed(candidate, n) / self.speed(STATIC, n)
        found: float = self._known[candidate, n]
        return found

    def most(self, one: Candidate, other: Candidate) -> float:
        """The most that one may be faster than the other on all units, as a logarithm."""
        n = min(self.n(one), self.n(other))
        if (one, other, n) not in self._known:
            centre = math.log(self.speed(one, n) / self.speed(other, n))
            pairs = zip(self.seen[one][:n], self.seen[other][:n], strict=True)
            half = self._half([math.log(self._rate(a) / self._rate(b)) for a, b in pairs])
            self._known[one, other, n] = centre + half
        found: float = self._known[one, other, n]
        return found

    def _rate(self, row: Seen) -> float:
        if self.target.by == "tpf":
            return row.generated / row.forwards
        return max(row.tokens, 1) / row.seconds

    def _half(self, values: Sequence[float]) -> float:
        spread = _spread(values, SPREAD[self.target.by])
        return Z * spread * math.sqrt((1 - len(values) / self.units) / len(values))

    # Accuracy

    def outcomes(self, candidate: Candidate) -> tuple[list[bool], list[bool], int]:
        """Right or wrong, the candidate's text and static's, problem by problem; how many units."""
        mine, static = self.texts.get(candidate.text, {}), self.texts.get(STATIC, {})
        units = [unit for unit in mine if unit in static]
        first = [right for unit in units for right in mine[unit]]
        return first, [right for unit in units for right in static[unit]], len(units)

    def difference(self, candidate: Candidate) -> Estimate | None:
        """Accuracy minus static's on the same problems; None before anything was decoded."""
        mine, static, _ = self.outcomes(candidate)
        if candidate.text == STATIC:
            return Estimate(0.0, 0.0, 0.0)
        return paired_difference(np.array(mine), np.array(static)) if mine else None

    def verdict(self, candidate: Candidate) -> Verdict:
        """Whether a candidate loses little enough."""
        text = candidate.text
        if text == STATIC:
            return "good"
        if self.target.points is None:
            return "out"
        key = "verdict", text, len(self.texts.get(text, ()))
        if key not in self._known:
            self._known[key] = self._judge(text)
        found: Verdict = self._known[key]
        return found

    def _judge(self, candidate: Candidate) -> Verdict:
        assert self.target.points is not None
        mine, static, units = self.outcomes(candidate)
        most = self.target.points + 1e-9
        if self.target.sure and self._best_case(mine, static) < -most:
            return "out"
        if not mine:
            return "unseen"
        gains = [float(a) - float(b) for a, b in zip(mine, static, strict=True)]
        gain = sum(gains) / len(gains)
        if units == self.units:
            return "good" if self.target.sure or gain >= -most else "out"
        left = 1 - units / self.units
        half = Z * _spread(gains, LOSS_SPREAD) * math.sqrt(left / len(gains))
        if gain + half < -most:
            return "out"
        if gain < -most:
            return "bad"
        return "good" if len(gains) >= FEW else "open"

    def _best_case(self, mine: Sequence[bool], static: Sequence[bool]) -> float:
        """The lower end of the loss's interval if all problems not seen yet are answered alike."""
        problems = sum(len(row.right) for row in self.seen.get(STATIC, ()))
        problems = round(problems / max(1, self.n(STATIC)) * self.units)
        rest = [True] * (problems - len(mine))
        return paired_difference(np.array([*mine, *rest]), np.array([*static, *rest])).low


class Race:
    """A search in progress."""

    def __init__(
        self,
        chains: Sequence[Chain],
        measure: Measure,
        units: int,
        target: Target,
        *,
        first: int = 2,
        say: Callable[[str], None] = lambda line: None,
    ) -> None:
        """Prepare.

        Args:
            chains: the candidates besides static.
            measure: decodes some units, given by number, with a candidate.
            units: how many there are.
            target: what is wanted.
            first: units of a candidate's first test.
            say: told of every test.
        """
        self.chains, self.measure, self.target, self.say = chains, measure, target, say
        self.facts, self.first = Facts(target, units), min(first, units)
        self.leader = STATIC
        self.home = {member: chain for chain in chains for member in chain.members}

    def run(self) -> Candidate:
        """Race until nothing is left to try; returns the leader."""
        self._grow(STATIC)
        while True:
            self.leader = self._leader()
            tests = [test for chain in self.chains if (test := self._next(chain)) is not None]
            if self.facts.n(self.leader) < self.facts.units:
                tests.append(self.leader)
            if not tests:
                return self.leader
            self._grow(min(tests, key=self.facts.n))

    def settle(self, ranked: Sequence[Candidate]) -> Candidate:
        """The first of some candidates that is good enough with all problems answered.

        The leader, which is, has to be among them.
        """
        facts = self.facts
        for candidate in ranked:
            while facts.verdict(candidate) == "good" and facts.n(candidate) < facts.units:
                self._grow(candidate)
            if facts.verdict(candidate) == "good" and not self.is_out(candidate):
                return candidate
        return self.leader

    def _grow(self, candidate: Candidate) -> None:
        """Test a candidate on its first units, or on as many again; static sees them too."""
        facts = self.facts
        have = facts.n(candidate)
        upto = min(facts.units, 2 * have or self.first)
        for one in (STATIC, candidate):
            if facts.n(one) < upto:
                facts.add(one, self.measure(one, range(facts.n(one), upto)))
        self.say(f"{candidate}: {upto}/{facts.units}, {facts.ratio(candidate):.2f} x static")

    def _leader(self) -> Candidate:
        facts = self.facts
        good = [c for c in facts.seen if facts.verdict(c) == "good" and not self.is_out(c)]
        return max(good, key=facts.ratio)

    def is_out(self, candidate: Candidate) -> bool:
        """Whether a less eager one of its chain loses too much already."""
        chain = self.home.get(candidate)
        if chain is None or not chain.falls:
            return False
        careful = chain.members[: chain.members.index(candidate)]
        return any(self.facts.verdict(member) == "out" for member in careful)

    def _next(self, chain: Chain) -> Candidate | None:
        """What to test next of a chain, if anything in it may still beat the leader."""
        facts, members = self.facts, chain.members
        verdicts = [facts.verdict(member) for member in members]
        out = verdicts.index("out") if "out" in verdicts else len(members)
        if out < len(members) and not chain.falls:
            return None
        rising = self.target.by == "tpf" or not chain.costs
        slow = self._slow(chain, rising)
        left = [
            place
            for place in range(out)
            if place not in slow
            and members[place] != self.leader
            and facts.n(members[place]) < facts.units
        ]
        if not left:
            return None
        if not rising:
            place = self._peak(chain, left)
        elif not chain.falls:
            place = left[-1] if left[-1] == len(members) - 1 else None
        else:
            place = self._border(chain, left, verdicts)
        return None if place is None else members[place]

    def _slow(self, chain: Chain, rising: bool) -> set[int]:
        """Places of a chain that cannot beat the leader."""
        facts, members = self.facts, chain.members
        tested = [place for place, member in enumerate(members) if facts.n(member)]
        slow = {
            place
            for place in tested
            if members[place] != self.leader
            and facts.most(members[place], self.leader) < math.log1p(SAME)
        }
        if rising:
            # Less eager ones are slower still.
            bars = slow | {place for place in tested if members[place] == self.leader}
            return slow | {place for place in range(max(bars, default=-1)) if place not in tested}
        if tested:
            best = max(tested, key=lambda place: facts.ratio(members[place]))
            below = max((place for place in tested if place < best), default=-1)
            above = min((place for place in tested if place > best), default=len(members))
            slow |= {p for p in range(len(members)) if (p < below or p > above) and p not in tested}
        return slow

    def _border(self, chain: Chain, left: Sequence[int], verdicts: Sequence[str]) -> int | None:
        """Look for the last good one of a chain whose speed rises and whose accuracy falls."""
        facts, members = self.facts, chain.members
        bad = next((place for place in left if verdicts[place] == "bad"), len(members))
        good = max((p for p in left if verdicts[p] == "good" and facts.n(members[p])), default=-1)
        between = [place for place in left if good < place < bad]
        begun = [place for place in between if facts.n(members[place])]
        if begun:
            return begun[0]
        if between:
            return between[len(between) // 2]
        if good >= 0:  # as fast as the leader, as far as is known
            return good
        return bad if bad < len(members) else None

    def _peak(self, chain: Chain, left: Sequence[int]) -> int | None:
        """Climb to the fastest of a chain by the clock."""
        facts, members = self.facts, chain.members
        known = [place for place, member in enumerate(members) if facts.n(member)]
        if not known:
            return left[len(left) // 2]
        best = max(known, key=lambda place: facts.ratio(members[place]))
        beside = [p for p in left if abs(p - best) == 1 and p not in known]
        if beside:
            return beside[0]
        again = [place for place in left if place in known]
        return min(again, key=lambda place: facts.n(members[place]), default=left[0])


def _spread(values: Sequence[float], prior: float) -> float:
    """Standard deviation, with PRIOR observations' worth of `prior` in it."""
    mean = sum(values) / len(values)
    squares = sum((value - mean) ** 2 for value in values)
    return math.sqrt((squares + PRIOR * prior**2) / (len(values) - 1 + PRIOR))
