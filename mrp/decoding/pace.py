"""How many drafts a round pays for: `k: auto` of the speculative modes.

A round with K drafts gives each lane 1 + a1 + a1 a2 + ... tokens, a_j being how often draft j is
accepted after those before it, and costs T(K), which depends on machine and batch: close to a plain
step's time t at batch 1, several times that where a GPU or CPU is busy already. Both are measured
while decoding, and the K of the best rate is taken. The text does not depend on it.

t is static decoding's own: where lanes finish their blocks together, one look at the device is
enough for many plain steps, which queue up. Lanes that got drafts accepted are out of step, and
plain steps then need more looks. So t is learnt while no lane was ever ahead, which is how static
decoding goes on for good, and only slowly forgotten.

What drafting may lose is bounded. An account is kept in seconds won against static decoding: tokens
times t, less the time taken, also by the plain steps of lanes that drafts put out of step. It opens
with a few plain steps' worth, and a share of all time fills it up to that level again. A round is
made only if the account covers what it loses should every draft be refused.

What a round has to prepare first, compiling and capturing a new shape or letting the head catch up,
is part of setting up while a decoder is new. Some drafts are made then in any case, so that nothing
is left to be compiled later just to try one again. Once that is over, catching up is paid from the
account, and captures from a purse that gets a share of what drafts win: each must cover what such a
preparation took the last time, and pays what it really takes. So a run of T seconds loses at most
the opening balance and that share of T, but for a first capture that takes longer than any before
and for plain steps' own new shapes; what drafts have won may be risked again, up to a limit.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable, Sequence
from typing import NamedTuple

PLAIN = -1  # the plan of a round that neither drafts nor keeps anything to draft from
KEEP = 0  # the plan of a plain step that keeps what the next round drafts from
STRAY = -2  # stands for plain steps of lanes that drafts put out of step
MOST = 4  # drafts that "auto" ever makes
MEMORY = 15  # times that are remembered, for each number of lanes and plan
STRETCH = 16  # plain steps whose mean is one of these times
ENOUGH = 3  # times of plain steps, and of drafts while setting up, that are taken first,
TRIED = 10  # and first drafts that are put to the test then
HALF_LIFE = 64  # drafts after which what was seen of acceptance counts half
FADING = 512  # rounds without it after which it does
DRIFT = 1.002  # by how much a plain step's time is doubted for each look at lanes out of step
PRIOR = (0.6, 4.0)  # acceptance before any draft was seen, and how many drafts that is worth
ALLOWANCE = 0.0025  # share of the time that drafting may lose,
SETUP_ALLOWANCE = 0.02  # and while setting up
STAKE = 2.0  # plain steps' worth that it may lose at once: one draft costs less if it can pay,
SETUP_STAKE = 8.0  # and while setting up, for it to become known what drafts bring
SAVED = 80  # plain steps' worth of winnings that are remembered
PREPARING = 0.2  # share of winnings that goes into preparations
RECHECK = 1024  # rounds after which the time of a plain step is taken anew
REST = 32  # rounds without asking again where drafts do not pay
SETUP = 256  # tokens of a lane in which a decoder is set up

CAPTURE = "capture"  # of a round, compiling its kernels
HEAD = "head"  # its reading of blocks that wait for it


class Kind(NamedTuple):
    """Of a preparation: which of those above, for how many lanes or blocks, of what plan."""

    what: str
    size: int
    plan: int = KEEP


class Pace:
    """Measured costs and acceptance of one decoder."""

    def __init__(self) -> None:
        self.times: dict[tuple[int, int], deque[float]] = defaultdict(lambda: deque(maxlen=MEMORY))
        self.typical: dict[tuple[int, int], float] = {}  # of those, by lanes and plan
        self.stretch: dict[tuple[int, int], tuple[int, float]] = {}  # steps and seconds so far
        self.met: set[tuple[int, int]] = set()
        self.doubt: dict[int, float] = defaultdict(lambda: 1.0)  # factor, by number of lanes
        self.since: dict[int, int] = defaultdict(int)  # rounds since a plain step was timed
        self.seen = [0.0] * MOST  # drafts put to the test, by their number in a round
        self.accepted = [0.0] * MOST
        self.tokens_made = 0.0  # by a lane
        self.account: float | None = None  # None until a plain step's time is known
        self.captures = False  # whether rounds are captured here
        self.set_up = False  # whether the account is the one of later
        self.purse = 0.0  # seconds for preparations
        self.prices: dict[Kind, float] = {}  # what each kind of preparation took last
        self.dearest: dict[str, float] = {}  # the most that any of them took
        self.preparations: Callable[[int], list[Kind]] = nothing  # of a round, by its plan
        self.rest = 0  # rounds before it asks again
        self.resting = False  # whether to ask no more until the next look at the device

    @property
    def setting_up(self) -> bool:
        """Whether preparations are free; there are none to be made where nothing is captured."""
        return self.captures and self.tokens_made < SETUP

    def seconds(self, lanes: int, plan: int) -> float | None:
        """Time of a round; where it was never measured, what fewer drafts let hope for.

        None if not even a plain step was measured.
        """
        if plan == PLAIN:
            stray = self.typical.get((lanes, STRAY))
            plain = self.typical.get((lanes, PLAIN))
            if plain is None or stray is None:
                return plain or stray
            return min(plain * self.doubt[lanes], stray)
        if (lanes, plan) in self.typical:
            return self.typical[lanes, plan]
        plain = self.seconds(lanes, PLAIN)
        less = self.seconds(lanes, plan - 1)
        if plain is None or less is None:
            return None
        # The first draft is hoped to be free, the next ones to cost half of what those before did.
        return less + (less - plain) / max(1, plan - 1) / 2 if plan > 1 else less

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
        if self.resting or self.rest > 0:  # where rounds are short, asking is not free
            self.rest -= 1
            return PLAIN
        plan = self._choose(open_, fresh)
        self.resting = plan == PLAIN
        return plan

    def _choose(self, open_: Sequence[int], fresh: Sequence[bool]) -> int:
        lanes = lanes_size(len(open_))
        if self.since[lanes] > RECHECK or self.seconds(lanes, PLAIN) is None:
            return PLAIN
        useful = useful_drafts(open_, fresh, MOST)
        usable = useful_drafts(open_, [False] * len(open_), MOST)
        if not max(usable):
            return PLAIN
        if self.setting_up and (len(self.times[lanes, 1]) < ENOUGH or self.seen[0] < TRIED):
            return 1 if max(useful) else KEEP
        in_step = len(open_) > 1 and min(open_) == max(open_)
        drafts = self._best(useful, in_step, now=True)
        if drafts:
            return drafts
        # Drafts that only the next round can use: its shape is another one.
        hoped = self._best(usable, in_step, now=False)
        if hoped and self._covered(lanes, KEEP, in_step, now=True):
            return KEEP
        self.rest = 0 if hoped else REST
        return PLAIN

    def _best(self, useful: Sequence[int], in_step: bool, now: bool) -> int:
        """The number of drafts of the best rate among those that the account covers."""
        lanes = lanes_size(len(useful))
        plain = self.seconds(lanes, PLAIN)
        assert plain is not None
        best, best_rate = 0, len(useful) / plain
        for drafts in range(1, max(useful) + 1):
            seconds = self.seconds(lanes, drafts)
            assert seconds is not None
            rate = self.tokens(useful, drafts) / seconds
            if rate > best_rate and self._covered(lanes, drafts, in_step, now):
                best, best_rate = drafts, rate
            if (lanes, drafts) not in self.typical:
                break  # one more than was ever tried is enough to try
        return best

    def _covered(self, lanes: int, plan: int, in_step: bool, now: bool) -> bool:
        """Whether the account covers a round that brings no more than a plain step.

        If it comes `now`, what it has to prepare must be covered too. Where lanes are `in_step`
        only winnings are risked: out of step, plain steps take longer and have other shapes.
        """
        plain = self.seconds(lanes, PLAIN)
        if plain is None or self.account is None:
            return False
        needed = self._most(lanes, plan) - plain
        if not self.setting_up:
            if in_step and plan > KEEP and self.captures:
                needed += STAKE * plain
            for kind in self.preparations(plan) if now else ():
                if kind.what == HEAD:  # about a step's worth for each block, until it is known
                    needed += self._price(kind) or plain * kind.size / lanes
                elif not self.affords(kind):
                    return False
        return self.account >= needed

    def _astray(self, lanes: int) -> float:
        """What a plain step takes longer out of step."""
        stray, plain = self.typical.get((lanes, STRAY)), self.seconds(lanes, PLAIN)
        return 0.0 if stray is None or plain is None else stray - plain

    def _most(self, lanes: int, plan: int) -> float:
        """What a round may cost: one more draft than was measured, a plain step more."""
        if (lanes, plan) in self.typical or plan <= KEEP:
            return self.seconds(lanes, plan) or 0.0
        return self._most(lanes, plan - 1) + (self.seconds(lanes, PLAIN) or 0.0)

    def affords(self, kind: Kind) -> bool:
        """Whether a capture can be paid."""
        return self.setting_up or self.purse >= self._price(kind)

    def _price(self, kind: Kind) -> float:
        """What a preparation is expected to take: at worst, where there was none of its kind."""
        worst = self.dearest.get(kind.what, max(self.dearest.values(), default=0.0))
        return self.prices.get(kind, worst)

    def prepared(self, kind: Kind, plan: int, seconds: float) -> None:
        """Pay for what only drafting needed to prepare, once all is set up.

        A plain step's preparations are static decoding's own.
        """
        self.captures |= kind.what == CAPTURE
        if plan == PLAIN:
            return
        self.prices[kind] = seconds
        self.dearest[kind.what] = max(seconds, self.dearest.get(kind.what, 0.0))
        if not self.setting_up:
            paid = 0.0
            if kind.what == HEAD and self.account is not None:
                paid = min(seconds, max(0.0, self.account))
                self.account -= paid
            self.purse -= seconds - paid

    def observe(
        self,
        useful: Sequence[int],
        plans: Sequence[int],
        seconds: float | None,
        gained: Sequence[int],
        strayed: bool = False,
    ) -> None:
        """Learn from a window: the rounds between two looks at the device.

        Args:
            useful: drafts that each lane could use in the last of them.
            plans: what was planned for each; drafts end a window.
            seconds: wall time together; None if something else was done in between.
            gained: tokens that each lane got in the last round.
            strayed: whether drafts have put a lane out of step with the others.
        """
        lanes, last = lanes_size(len(useful)), plans[-1]
        tokens = sum(gained) / len(gained)
        self.resting = False
        self.since[lanes] += len(plans)
        self.tokens_made += len(plans) - 1 + tokens
        if len(set(plans)) == 1:
            if last == PLAIN:
                self._time(lanes, STRAY if strayed else PLAIN, len(plans), seconds)
            else:
                self._time(lanes, last, 1, seconds)
        self._settle(lanes, plans, seconds, tokens, strayed)
        # What is not tried is forgotten, so that it is tried again some time.
        for number in range(max(0, last), MOST):
            self._remember(number, 0.5 ** (len(plans) / FADING))
        for most, count in zip(useful, gained, strict=True):
            for number in range(min(last, most, count, MOST)):
                self._remember(number, 0.5 ** (1 / HALF_LIFE))
                self.seen[number] += 1
                self.accepted[number] += count - 1 > number

    def _time(self, lanes: int, plan: int, rounds: int, seconds: float | None) -> None:
        """Learn what rounds of a plan take."""
        key = lanes, plan
        if seconds is None or key not in self.met:
            self.met.add(key)  # the first time warms something up: nothing to learn from
            return
        if plan < KEEP:
            self.since[lanes] = 0
            self.doubt[lanes] = 1.0 if plan == PLAIN else self.doubt[lanes] * DRIFT
            # Windows of many steps and of few, as they come: looks are part of a step's time.
            before = self.stretch.get(key, (0, 0.0))
            rounds, seconds = before[0] + rounds, before[1] + seconds
            self.stretch[key] = rounds, seconds
            if rounds < STRETCH:
                return
            del self.stretch[key]
        times = self.times[key]
        times.append(seconds / rounds)
        if len(times) >= ENOUGH - (plan >= KEEP):
            # The lower quartile: whatever disturbs a round makes it longer.
            self.typical[key] = sorted(times)[len(times) // 4]

    def _remember(self, number: int, share: float) -> None:
        self.seen[number] *= share
        self.accepted[number] *= share

    def _settle(
        self,
        lanes: int,
        plans: Sequence[int],
        seconds: float | None,
        tokens: float,
        strayed: bool,
    ) -> None:
        """Book a window whose last round gave a lane `tokens` on average, the others one each."""
        plain = self.seconds(lanes, PLAIN)
        if plain is None:
            return
        if self.account is None:
            self.account = SETUP_STAKE * plain
        stake, share = SETUP_STAKE * plain, SETUP_ALLOWANCE
        if not self.setting_up:
            stake, share = STAKE * plain, ALLOWANCE
            if not self.set_up:  # what is left of the higher stake is no winnings
                lent = (SETUP_STAKE - STAKE) * plain
                self.account = max(min(self.account, stake), self.account - lent)
            self.set_up = True
        # Rounds cost what they are known to: a disturbance is nobody's loss.
        astray = self._astray(lanes) if strayed else 0.0
        known = sum(self._most(lanes, plan) + astray * (plan == PLAIN) for plan in plans)
        spent = known if seconds is None or plans[-1] == PLAIN else min(seconds, known)
        won = (len(plans) - 1 + tokens) * plain - spent
        if self.setting_up:
            won = 0.0 if plans[-1] == PLAIN else won
        elif won > 0:
            most = 2 * max(self.dearest.values(), default=0.0)
            self.purse = min(self.purse + PREPARING * won, most)
            won -= PREPARING * won
        self.account = min(self.account + won, SAVED * plain)
        if self.account < stake:
            self.account = min(stake, self.account + share * spent)


def useful_drafts(open_: Sequence[int], fresh: Sequence[bool], most: int) -> list[int]:
    """Drafts that each lane can use: none in a fresh block, and none for its last position."""
    return [0 if new else min(most, left - 1) for left, new in zip(open_, fresh, strict=True)]


def lanes_size(lanes: int) -> int:
    """Numbers of lanes that count as alike: rounded up to a power of two."""
    return 1 << (lanes - 1).bit_length()


def nothing(plan: int) -> list[Kind]:
    """No round has anything to prepare: what `Pace` takes for granted between two rounds."""
    return []
