"""Samples in decoding: admit prompts, let the mode do a round, store blocks, retire samples.

All of it on the host, while the device waits: what is done for every lane in every round is one
operation on a list or array of them, and Python works through those alone that finish a block.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Sequence

import numpy as np
from torch import Tensor

from mrp.decoding.lanes import TALLY
from mrp.decoding.pace import (
    CAPTURE,
    HEAD,
    KEEP,
    PLAIN,
    Kind,
    Pace,
    lanes_size,
    nothing,
    useful_drafts,
)
from mrp.decoding.rounds import ExactRounds
from mrp.decoding.sample import Sample
from mrp.errors import UserError

# Rounds that a block may take, for each of its tokens. One is enough: a round leaves at least one
# position fewer masked than it found. The shipped mode that does not promise that, wino, takes back
# fewer tokens than its last round revealed, so that over a block it comes to the same. The rest is
# room for modes that go back over what they wrote; one that needs all of it will not end.
MOST_ROUNDS = 4
StopCheck = Callable[[int, list[int]], bool]


class Clock:
    """Wall time of rounds between two looks at the device."""

    def __init__(self) -> None:
        self.start = time.perf_counter()
        self.rounds: list[int] = []  # their plans
        self.spoilt = False  # whether something else was done in between

    def stop(self) -> float | None:
        """Seconds of all rounds; None if something else was done in between."""
        seconds = time.perf_counter() - self.start
        return None if self.spoilt else seconds


class Batch:
    """The samples in the lanes of a session, and what is left to do for them."""

    def __init__(self, rounds: ExactRounds, pace: Pace) -> None:
        self.rounds, self.session, self.mode = rounds, rounds.session, rounds.mode
        self.pace, self.plan = pace, 0
        self.ends = self.session.model.config.eos_token_ids
        # By lane: the sample, how many positions of its block are masked at most and at least,
        # whether the session keeps nothing from that block's last round, and how many rounds were
        # made before its first.
        self.samples: list[Sample] = []
        self.open: list[int] = []
        self.sure: list[int] = []
        self.fresh: list[bool] = []
        self.before: list[int] = []
        self.vacant: list[int] = []  # lanes among them whose sample has been handed out
        self.stores: list[int] = []  # lanes that finished a block and go on
        self.waiting: list[int] = []  # a lane for each block that its head has not read
        self.useful: list[int] = []  # drafts that each lane could use in the last round
        self.made = 0  # rounds up to the last look at the device
        self.clock = Clock()

    def fill(self, queue: deque[Sample], prompts: Sequence[list[int]]) -> bool:
        """Refill vacant lanes from the queue; once it is empty, close the gaps.

        Returns whether there is anything left to decode.
        """
        admitted = []
        while queue and (self.vacant or len(self.samples) < self.session.slots):
            sample = queue.popleft()
            lane = self.vacant.pop() if self.vacant else len(self.samples)
            # Replaces what stands there, or appends.
            self.samples[lane : lane + 1] = [sample]
            self.open[lane : lane + 1] = [sample.block - sample.tail]
            self.sure[lane : lane + 1] = [sample.block - sample.tail]
            self.fresh[lane : lane + 1] = [True]
            self.before[lane : lane + 1] = [self.made]
            admitted.append((lane, prompts[sample.index]))
        if admitted:
            self.clock.spoilt = True
            self.rounds.admit([lane for lane, _ in admitted], [prompt for _, prompt in admitted])
        if self.vacant:
            self._close_gaps()
        self.session.n = len(self.samples)
        return bool(self.samples)

    def _close_gaps(self) -> None:
        """Move the samples of the last lanes to the vacant ones."""
        sources = list(range(len(self.samples)))  # the lane that each lane's sample comes from
        for lane in sorted(self.vacant, reverse=True):
            last = sources.pop()
            if lane < len(sources):
                sources[lane] = last
        target_of = {source: lane for lane, source in enumerate(sources) if source != lane}
        if target_of:
            self.session.move(list(target_of), list(target_of.values()))
        self.samples = [self.samples[lane] for lane in sources]
        self.open = [self.open[lane] for lane in sources]
        self.sure = [self.sure[lane] for lane in sources]
        self.fresh = [self.fresh[lane] for lane in sources]
        self.before = [self.before[lane] for lane in sources]
        self.stores = [target_of.get(lane, lane) for lane in self.stores]
        self.waiting = [target_of.get(lane, lane) for lane in self.waiting]
        self.vacant = []

    def round(self) -> None:
        """One round of the mode, with the blocks to be stored riding along."""
        self.pace.preparations = self._preparations
        self.plan = self.mode.plan(self.open, self.fresh, self.pace)
        self.pace.preparations = nothing  # it outlives the session, and would keep it alive
        if self.mode.paced:
            self.useful = useful_drafts(self.open, self.fresh, self.plan)
        self.clock.rounds.append(self.plan)
        kinds, begin = self._preparations(self.plan), time.perf_counter()
        self.clock.spoilt |= bool(kinds)
        if kinds and kinds[0].what == HEAD:
            self.rounds.catch_up(self.waiting)
            self.waiting, read = [], time.perf_counter()
            self.pace.prepared(kinds.pop(0), self.plan, read - begin)
            begin = read
        unread = self.rounds.run(self.plan, self.stores, self.waiting)
        if kinds:
            self.pace.prepared(kinds[0], self.plan, time.perf_counter() - begin)
        waiting = self.waiting if "waiting" in unread else []
        self.waiting = waiting + (self.stores if "stores" in unread else [])
        self.stores = []

    def _preparations(self, plan: int) -> list[Kind]:
        """What a round of this plan has to prepare first.

        The head reads blocks that wait for it where they are too many to ride along, or where the
        round was captured without them only and another capture is too dear; a round of a new shape
        is captured.
        """
        ready, waiting, kinds = self.rounds.ready, self.waiting, list[Kind]()
        capture = Kind(CAPTURE, lanes_size(self.session.n), plan)
        if plan >= KEEP and waiting:
            alone = not ready(plan, self.stores, waiting) and ready(plan, self.stores, [])
            dear = self.mode.paced and not self.pace.affords(capture)
            if len(waiting) > self.session.slots or (alone and dear):
                kinds.append(Kind(HEAD, lanes_size(len(waiting))))
                waiting = []
        if not ready(plan, self.stores, waiting):
            kinds.append(capture)
        return kinds

    def settle(self, stop: StopCheck | None) -> list[Sample]:
        """Hand out the samples whose last block is finished; the others go on.

        Where the mode says how much a round reveals at most, the device is asked only when a block
        may be finished; until then its rounds queue up behind each other.
        """
        bounds = self.mode.reveals(self.plan)
        self.fresh = [self.plan == PLAIN] * len(self.samples)
        if bounds is not None and 0 < bounds[1] < min(self.sure):
            least, most = bounds
            self.open = [left - least for left in self.open]
            self.sure = [left - most for left in self.sure]
            return []
        board, tally = self.rounds.read()
        seconds = self.clock.stop()
        # In numpy: for few lanes it takes a fraction of what torch does.
        masked = np.count_nonzero(board[:, 0].numpy() == self.session.mask_id, axis=1).tolist()
        if self.mode.paced:
            self._observe(masked, seconds)
        # Lanes are only refilled after a look: all were in these rounds.
        self.made += len(self.clock.rounds)
        self.clock, self.open, self.sure = Clock(), masked, masked.copy()
        finished = [lane for lane, left in enumerate(masked) if not left]
        done = self._finish(finished, board, tally, stop) if finished else []
        self.clock.spoilt = bool(done)
        oldest = min(self.before)
        if self.made - oldest >= MOST_ROUNDS * self.samples[0].block:
            raise self._endless(self.before.index(oldest))
        return done

    def _finish(
        self, lanes: list[int], board: Tensor, tally: Tensor, stop: StopCheck | None
    ) -> list[Sample]:
        """Take over the finished blocks of some lanes; returns the samples that they complete."""
        done = []
        rows = zip(board[lanes].tolist(), tally[lanes].tolist(), strict=True)
        for lane, (columns, counted) in zip(lanes, rows, strict=True):
            sample = self.samples[lane]
            sample.finish_block(columns, self.ends)
            self.open[lane] = self.sure[lane] = sample.block
            self.before[lane] = self.made
            self.fresh[lane] = not self.mode.looks_ahead
            sample.stopped = stop is not None and stop(sample.index, list(sample.ids))
            if not sample.finished:
                self.stores.append(lane)
                continue
            sample.tally = dict(zip(TALLY, counted, strict=True))
            stores = self.session.head is not None and self.session.head_prefix
            sample.tally["head_store"] = stores * (sample.prefilled + sample.blocks - 1)
            self.vacant.append(lane)
            done.append(sample)
        if done:
            vacant = set(self.vacant)
            self.waiting = [lane for lane in self.waiting if lane not in vacant]
        return done

    def _observe(self, masked: list[int], seconds: float | None) -> None:
        """Tell the pace what the rounds since the last look took, and the last of them brought."""
        gained = [before - left for before, left in zip(self.open, masked, strict=True)]
        for sample, tokens in zip(self.samples, gained, strict=True):
            sample.ahead |= tokens > 1
        strayed = len(self.samples) > 1 and any(sample.ahead for sample in self.samples)
        self.pace.observe(self.useful, self.clock.rounds, seconds, gained, strayed)

    def _endless(self, lane: int) -> UserError:
        """Why a lane's block does not get finished."""
        session, sample = self.session, self.samples[lane]
        logits = session.forwards.logits(session.denoise()[lane])[session.masked()[lane]]
        if not logits.amax(dim=-1).isfinite().all():
            return UserError(
                "the backbone's logits hold NaN or infinity, so no token is the likeliest: its "
                "checkpoint is damaged, or its values are too large for the dtype: try another one"
            )
        return UserError(
            f"mode {self.mode.name!r}: a block of {sample.block} tokens is not finished after "
            f"{self.made - self.before[lane]} rounds: each round must reveal at least one masked "
            "position of every sample, and not mask as many again (see docs/adding-a-mode.md)"
        )
