"""How many drafts a round pays for: `k: auto` of the speculative modes.

A round with K drafts gives each lane 1 + a1 + a1 a2 + ... tokens, a_j being how often draft j is
accepted after those before it, and costs T(K), which depends on machine and batch: close to a plain
step's time t at batch 1, several times that where a GPU or CPU is busy already. Both are measured
while decoding, and the K of the best rate is taken. The text does not depend on it.

What drafting may lose is bounded. An account is kept in seconds won against plain steps: tokens
times t, less the time taken, for every window between two looks at the device that has anything
but plain steps in it. It opens with little more than one plain step's worth, and a share of all
time fills it up to that level again. A round is made only if the account covers what it loses
should every draft be refused. Where its shape is new that includes the capture, except while a
number of lanes is new: static decoding's own shapes are captured then as well. So a run of T
seconds loses at most the opening balance and that share of T; what drafts have won may be risked
again, up to a limit.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable, Sequence

PLAIN = -1  # the plan of a round that neither drafts nor keeps anything to draft from
KEEP = 0  # the plan of a plain step that keeps what the next round drafts from
MOST = 4  # drafts that "auto" ever makes
MEMORY = 15  # windows whose times are remembered, for each number of lanes and plan
HALF_LIFE = 64  # drafts after which what was seen of acceptance counts half
FADING = 512  # rounds without it after which it does
PRIOR = (0.6, 4.0)  # acceptance before any draft was seen, and how many drafts that is worth
ALLOWANCE = 0.0025  # share of the time that drafting may lose,
SETUP_ALLOWANCE = 0.02  # and while a number of lanes is new
STAKE = 1.25  # plain steps' worth that the account opens with: one draft costs less if it can pay
SAVED = 80  # plain steps' worth of winnings that are remembered
RECHECK = 1024  # rounds after which the time of a plain step is taken anew
SETUP = 256  # rounds of a number of lanes in which captures are part of setting up


class Pace:
    """Measured costs and acceptance of one decoder."""

    def __init__(self) -> None:
        self.times: dict[tuple[int, int], deque[float]] = defaultdict(lambda: deque(maxlen=MEMORY))
        self.typical: dict[tuple[int, int], float] = {}  # of those, by lanes and plan
        self.met: set[tuple[int, int]] = set()
        self.rounds: dict[int, int] = defaultdict(int)  # by number of lanes, as those below
        self.since: dict[int, int] = defaultdict(int)  # rounds since a plain step was timed
        self.seen = [0.0] * MOST  # drafts put to the test, by their number in a round
        self.accepted = [0.0] * MOST
        self.account: float | None = None  # None until a plain step's time is known
        self.price = 0.0  # seconds of the cheapest capture so far
        self.ready: Callable[[int], bool] = always  # whether a round of a plan needs no capture
        self.resting = False  # whether to ask no more until the next look at the device

    def seconds(self, lanes: int, plan: int) -> float | None:
        """Time of a round; where it was never measured, what fewer drafts let hope for.

        None if not even a plain step was measured.
        """
        if (lanes, plan) in self.typical or plan == PLAIN:
            return self.typical.get((lanes, plan))
        plain = self.seconds(lanes, PLAIN)
        less = self.seconds(lanes, plan - 1)
        if plain is None or less is None:
            return None
        # The first draft is hoped to be free, the next ones to cost what the last one did.
        return less + (less - plain) / max(1, plan - 1) if plan > 1 else less

    def tokens(self, useful: Sequence[int], drafts: int) -> float:
        """Expected tokens of a round in which lane i can use `useful[i]` drafts."""
        gain, chance = [0.0], 1.0
        for acceptance in self.acceptance():
            chance *= acceptance
            gain.append(gain[-1] + chance)
        return sum(1 + gain[min(drafts, most)] for most in useful)

    def acceptance(self) -> list[float]:
        """How often each draft is accepted after those before it; what is unknown is like those."""
        found = []
        like, weight = PRIOR
        for accepted, seen in zip(self.accepted, self.seen, strict=True):
            like = (accepted + like * weight) / (seen + weight)
            found.append(like)
        return found

    def choose(self, open_: Sequence[int], fresh: Sequence[bool]) -> int:
        """Drafts for the next round; see `Mode.plan`.

        PLAIN where drafting does not pay, so that nothing need be kept to draft from; KEEP where
        it will, but lanes are fresh.
        """
        if self.resting:
            return PLAIN
        plan = self._choose(open_, fresh)
        self.resting = plan == PLAIN  # where rounds are short, asking is not free
        return plan

    def _choose(self, open_: Sequence[int], fresh: Sequence[bool]) -> int:
        lanes = lanes_size(len(open_))
        if self.since[lanes] > RECHECK or self.seconds(lanes, PLAIN) is None:
            return PLAIN
        useful = useful_drafts(open_, fresh, MOST)
        usable = useful_drafts(open_, [False] * len(open_), MOST)
        drafts = self._best(useful, now=True)
        if drafts:
            return drafts
        # Drafts that only the next round can use: its shape is another one.
        hoped = self._best(usable, now=False) if True in fresh else 0
        return KEEP if hoped and self._covered(lanes, KEEP, now=True) else PLAIN

    def _best(self, useful: Sequence[int], now: bool) -> int:
        """The number of drafts of the best rate among those that the account covers."""
        lanes = lanes_size(len(useful))
        plain = self.seconds(lanes, PLAIN)
        assert plain is not None
        best, best_rate = 0, len(useful) / plain
        for drafts in range(1, max(useful) + 1):
            seconds = self.seconds(lanes, drafts)
            assert seconds is not None
            rate = self.tokens(useful, drafts) / seconds
            if rate > best_rate and self._covered(lanes, drafts, now):
                best, best_rate = drafts, rate
            if (lanes, drafts) not in self.typical:
                break  # one more than was ever tried is enough to try
        return best

    def _covered(self, lanes: int, plan: int, now: bool) -> bool:
        """Whether the account covers a round that brings no more than a plain step.

        If it comes `now`, its capture must be covered too.
        """
        plain = self.seconds(lanes, PLAIN)
        if plain is None or self.account is None:
            return False
        needed = self._dearest(lanes, plan) - plain
        if now and self.rounds[lanes] > SETUP and not self.ready(plan):
            needed += self.price
        return self.account >= needed

    def _dearest(self, lanes: int, plan: int) -> float:
        """What a round may cost: one more draft than was measured, a plain step more."""
        if (lanes, plan) in self.typical or plan <= KEEP:
            return self.seconds(lanes, plan) or 0.0
        return self._dearest(lanes, plan - 1) + (self.seconds(lanes, PLAIN) or 0.0)

    def captured(self, lanes: int, plan: int, seconds: float) -> None:
        """Charge the account for a capture that only drafting needed, once all is set up.

        What it took includes compiling, once a machine, so twice the cheapest is charged at most.
        """
        self.price = min(self.price or seconds, seconds)
        if plan != PLAIN and self.account is not None and self.rounds[lanes_size(lanes)] > SETUP:
            self.account -= min(seconds, 2 * self.price)

    def observe(
        self,
        useful: Sequence[int],
        plans: Sequence[int],
        seconds: float | None,
        gained: Sequence[int],
    ) -> None:
        """Learn from a window: the rounds between two looks at the device.

        Args:
            useful: drafts that each lane could use in the last of them.
            plans: what was planned for each; drafts end a window.
            seconds: wall time together; None if something else was done in between.
            gained: tokens that each lane got in the last round.
        """
        lanes, last = lanes_size(len(useful)), plans[-1]
        self.resting = False
        self.rounds[lanes] += len(plans)
        self.since[lanes] += len(plans)
        if len(set(plans)) == 1:
            if seconds is not None and (lanes, last) in self.met:
                times = self.times[lanes, last]
                times.append(seconds / len(plans))
                # The lower quartile: whatever disturbs a round makes it longer.
                self.typical[lanes, last] = sorted(times)[len(times) // 4]
                if last == PLAIN:
                    self.since[lanes] = 0
            self.met.add((lanes, last))  # the first time warms something up: nothing to learn from
        self._settle(lanes, plans, seconds, sum(gained) / len(gained))
        # What is not tried is forgotten, so that it is tried again some time.
        for number in range(max(0, last), MOST):
            self._remember(number, 0.5 ** (len(plans) / FADING))
        for most, tokens in zip(useful, gained, strict=True):
            for number in range(min(last, most, tokens, MOST)):
                self._remember(number, 0.5 ** (1 / HALF_LIFE))
                self.seen[number] += 1
                self.accepted[number] += tokens - 1 > number

    def _remember(self, number: int, share: float) -> None:
        self.seen[number] *= share
        self.accepted[number] *= share

    def _settle(
        self, lanes: int, plans: Sequence[int], seconds: float | None, tokens: float
    ) -> None:
        """Book a window whose last round gave a lane `tokens` on average, the others one each."""
        plain = self.seconds(lanes, PLAIN)
        if plain is None:
            return
        if self.account is None:
            self.account = STAKE * plain
        # Rounds cost what they are known to: a disturbance is nobody's loss.
        if seconds is None:
            spent = sum(self.seconds(lanes, plan) or 0.0 for plan in plans)
        else:
            spent = min(seconds, sum(self._dearest(lanes, plan) for plan in plans))
        if set(plans) != {PLAIN}:
            won = (len(plans) - 1 + tokens) * plain - spent
            self.account = min(self.account + won, SAVED * plain)
        if self.account < STAKE * plain:
            share = ALLOWANCE if self.rounds[lanes] > SETUP else SETUP_ALLOWANCE
            self.account = min(STAKE * plain, self.account + share * spent)


def useful_drafts(open_: Sequence[int], fresh: Sequence[bool], most: int) -> list[int]:
    """Drafts that each lane can use: none in a fresh block, and none for its last position."""
    return [0 if new else min(most, left - 1) for left, new in zip(open_, fresh, strict=True)]


def lanes_size(lanes: int) -> int:
    """Numbers of lanes that count as alike: rounded up to a power of two."""
    return 1 << (lanes - 1).bit_length()


def always(plan: int) -> bool:
    """Every round is ready: what `Pace` takes for granted between two rounds."""
    return True
