"""How many drafts a round pays for: `k: auto` of the speculative modes.

A round with K drafts gives each lane 1 + a1 + a1 a2 + ... tokens, a_j being how often draft j is
accepted after those before it, and costs T(K), which depends on machine and batch: close to T(0)
at batch 1, several times T(0) where a GPU or CPU is busy already. Both are measured while decoding,
and the K of the best rate is taken; 0 is a plain static step. The text does not depend on it.

What drafting may lose is bounded: an account is kept in seconds against static steps, and once it
is overdrawn there is no drafting until a two-hundredth of the time has filled it again.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Sequence

PLAIN = -1  # the plan of a round that neither drafts nor keeps anything to draft from
MOST = 4  # drafts that "auto" ever makes
MEMORY = 15  # rounds whose times are remembered, for each number of lanes and drafts
HALF_LIFE = 64  # drafts after which what was seen of acceptance counts half
PRIOR = (0.6, 4.0)  # acceptance before any draft was seen, and how many drafts that is worth
ALLOWANCE = 0.005  # share of the time that drafting may lose
RECHECK = 512  # rounds after which the time of a plain step is taken anew
STARTUP = 256  # rounds in which captures are part of starting up
START = 8  # static rounds that it may lose at the start


class Pace:
    """Measured costs and acceptance of one decoder."""

    def __init__(self) -> None:
        self.times: dict[tuple[int, int], deque[float]] = defaultdict(lambda: deque(maxlen=MEMORY))
        self.met: set[tuple[int, int]] = set()
        self.rounds = 0
        self.since: dict[int, int] = defaultdict(int)  # rounds since a plain step was timed
        self.seen = [PRIOR[1]] * MOST
        self.accepted = [PRIOR[0] * PRIOR[1]] * MOST
        self.account: float | None = None  # seconds won against static steps, with the allowance

    def seconds(self, lanes: int, drafts: int) -> float | None:
        """Time of a round; where it was never measured, what fewer drafts let hope for.

        None if not even a plain step was measured.
        """
        if self.times[lanes, drafts]:
            times = sorted(self.times[lanes, drafts])
            return times[len(times) // 4]  # whatever disturbs a round makes it longer
        if not drafts:
            return None
        plain = self.seconds(lanes, 0)
        less = self.seconds(lanes, drafts - 1)
        if plain is None or less is None:
            return None
        # The first draft is hoped to be free, the next ones to cost what the last one did.
        return less + (less - plain) / max(1, drafts - 1)

    def tokens(self, useful: Sequence[int], drafts: int) -> float:
        """Expected tokens of a round in which lane i can use `useful[i]` drafts."""
        gain, chance = [0.0], 1.0
        for accepted, seen in zip(self.accepted, self.seen, strict=True):
            chance *= accepted / seen
            gain.append(gain[-1] + chance)
        return sum(1 + gain[min(drafts, most)] for most in useful)

    def choose(self, open_: Sequence[int], fresh: Sequence[bool]) -> int:
        """Drafts for the next round; see `Mode.plan`.

        PLAIN where drafting does not pay, so that nothing need be kept to draft from; 0 where it
        will, but lanes are fresh.
        """
        lanes = lanes_size(len(open_))
        self.since[lanes] += 1
        overdrawn = (self.account or 0.0) < 0
        if overdrawn or self.since[lanes] > RECHECK or self.seconds(lanes, 0) is None:
            return PLAIN
        if not self._best(useful_drafts(open_, [False] * len(open_), MOST)):
            return PLAIN
        return self._best(useful_drafts(open_, fresh, MOST))

    def _best(self, useful: Sequence[int]) -> int:
        """The number of drafts of the best rate."""
        lanes = lanes_size(len(useful))
        best, best_rate = 0, 0.0
        for drafts in range(max(useful) + 1):
            seconds = self.seconds(lanes, drafts)
            assert seconds is not None
            rate = self.tokens(useful, drafts) / seconds
            if rate > best_rate:
                best, best_rate = drafts, rate
            if not self.times[lanes, drafts]:
                break  # one more than was ever tried is enough to try
        return best

    def pay(self, seconds: float) -> None:
        """Charge the account for a capture that drafting needed, once the start is over."""
        if self.rounds > STARTUP and self.account is not None:
            self.account -= seconds

    def observe(
        self, useful: Sequence[int], drafts: int, rounds: int, seconds: float, gained: Sequence[int]
    ) -> None:
        """Learn from `rounds` rounds alike that took `seconds` together.

        Args:
            useful: drafts that each lane could use.
            drafts: the K that was planned.
            rounds: how many; 1 wherever there were drafts.
            seconds: measured wall time.
            gained: tokens that each lane got.
        """
        size = lanes_size(len(useful))
        self.rounds += rounds
        if (size, drafts) not in self.met:
            self.met.add((size, drafts))  # it warmed something up: no time to learn from
            return
        self.times[size, drafts].append(seconds / rounds)
        if not drafts:
            self.since[size] = 0
        plain = self.seconds(size, 0)
        if plain is not None:
            won = ALLOWANCE * seconds
            if drafts:
                won += sum(gained) / len(gained) * plain - seconds
            before = START * plain if self.account is None else self.account
            self.account = min(before + won, 10 * START * plain)
        if not drafts:
            self._forget(rounds)
        for most, tokens in zip(useful, gained, strict=True):
            for number in range(min(drafts, most, tokens, MOST)):
                keep = 0.5 ** (1 / HALF_LIFE)
                self.seen[number] = self.seen[number] * keep + 1
                self.accepted[number] = self.accepted[number] * keep + (tokens - 1 > number)

    def _forget(self, rounds: int) -> None:
        """Without drafts, what was seen of them fades, so that they are tried again some time."""
        keep = 0.5 ** (rounds / (4 * HALF_LIFE))
        chance, weight = PRIOR
        for number in range(MOST):
            self.seen[number] = weight + (self.seen[number] - weight) * keep
            hoped = chance * weight
            self.accepted[number] = hoped + (self.accepted[number] - hoped) * keep


def useful_drafts(open_: Sequence[int], fresh: Sequence[bool], most: int) -> list[int]:
    """Drafts that each lane can use: none in a fresh block, and none for its last position."""
    return [0 if new else min(most, left - 1) for left, new in zip(open_, fresh, strict=True)]


def lanes_size(lanes: int) -> int:
    """Numbers of lanes that count as alike: rounded up to a power of two."""
    return 1 << (lanes - 1).bit_length()
