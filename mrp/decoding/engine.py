"""The decoding loop: admit prompts, let the mode do a round, store blocks, retire samples."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import Literal

import torch

from mrp.decoding.graphs import FixedRounds, GraphRounds
from mrp.decoding.modes import Mode
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
from mrp.decoding.sample import Decoded, Sample
from mrp.decoding.session import Choose, Session, choose_forwards
from mrp.errors import UserError
from mrp.models.head import Head
from mrp.models.transformer import Backbone
from mrp.turns import give_way

# Rounds that a block may take, for each of its tokens. One is enough: a round leaves at least one
# position fewer masked than it found. The shipped mode that does not promise that, wino, takes back
# fewer tokens than its last round revealed, so that over a block it comes to the same. The rest is
# room for modes that go back over what they wrote; one that needs all of it will not end.
MOST_ROUNDS = 4
Rounds = Literal["exact", "fixed", "graphs"]
StopCheck = Callable[[int, list[int]], bool]


def decode(
    backbone: Backbone,
    head: Head | None,
    prompts: Sequence[list[int]],
    mode: Mode,
    max_new_tokens: int | Sequence[int],
    batch_size: int = 32,
    stop: StopCheck | None = None,
    *,
    invariant: bool = False,
) -> Iterator[Decoded]:
    """Decode prompts once; see `Decoder`, which is for decoding repeatedly."""
    decoder = Decoder(backbone, head, mode, batch_size, invariant=invariant)
    return decoder.decode(prompts, max_new_tokens, stop)


class Decoder:
    """A mode ready to decode: keeps caches, packed weights and captured graphs between calls."""

    def __init__(
        self,
        backbone: Backbone,
        head: Head | None,
        mode: Mode,
        batch_size: int = 32,
        *,
        rounds: Rounds | None = None,
        choose: Choose | None = None,
        invariant: bool = False,
    ) -> None:
        """Take the models.

        Args:
            backbone: the frozen backbone; its device and dtype are used throughout.
            head: needed by the modes with `needs_head`, otherwise ignored.
            mode: see `make_mode`.
            batch_size: how many samples are decoded together; does not change the results.
            rounds: "exact" computes what is needed and looks at the data for it, "fixed" takes
                rounded shapes, "graphs" replays those as CUDA graphs. All give the same samples;
                by default a GPU replays and a CPU is exact.
            choose: makes the forwards; by default the fastest for the device.
            invariant: take the fastest whose result for a block does not depend, not even in its
                last bit, on what is computed beside it: so no near tie falls otherwise in a larger
                batch or beside drafts. Slower on a GPU; on a CPU for blocks of 16 tokens. Not asked
                of forwards that `choose` makes.

        Raises:
            UserError: the mode needs a head and there is none, or does not go with the block
                length, or the batch size is below 1. Decoding raises it where `invariant` is not
                to be had.
        """
        if mode.needs_head and head is None:
            raise UserError(f"mode {mode.name!r} needs a head; give one with --head")
        mode.check(backbone.config.block_size)
        if batch_size < 1:
            raise UserError(f"batch_size={batch_size}: at least 1 is needed")
        self.backbone, self.head = backbone, head if mode.needs_head else None
        self.mode, self.batch_size = mode, batch_size
        self.choose = choose or partial(choose_forwards, invariant=invariant)
        on_gpu = backbone.lm_head.weight.device.type == "cuda"
        self.rounds: Rounds = rounds or ("graphs" if on_gpu else "exact")
        self.pace = Pace()
        self._ready: ExactRounds | None = None  # what the last call decoded with

    @torch.inference_mode()
    def decode(
        self,
        prompts: Sequence[list[int]],
        max_new_tokens: int | Sequence[int],
        stop: StopCheck | None = None,
    ) -> Iterator[Decoded]:
        """Decode prompts; a finished sample's lane is refilled from the queue.

        One call at a time: exhaust or drop an iterator before the next one is taken. A sample ends
        at the block in which an end token was revealed after the prompt, when `stop` says so, or
        at the block that reaches its budget.

        Args:
            prompts: token ids of each prompt, not empty, without the mask token.
            max_new_tokens: the budget of new tokens, one for all or one a prompt.
            stop: asked after each finished block with the prompt's index and its new ids so far.

        Yields:
            Samples as they finish, in no particular order.

        Raises:
            UserError: a prompt is empty, holds the mask token, or a budget is below 1; or a block
                does not get finished, by a mode that reveals nothing or a backbone that gives NaN.
        """
        if isinstance(max_new_tokens, int):
            budgets = [max_new_tokens] * len(prompts)
        else:
            budgets = list(max_new_tokens)
        _check(self.backbone, prompts, budgets)
        block = self.backbone.config.block_size
        queue = deque(
            Sample(index, prompt, budget, block)
            for index, (prompt, budget) in enumerate(zip(prompts, budgets, strict=True))
        )
        if not queue:
            return
        with self._on_device():
            batch = Batch(self._fitting(prompts, budgets), self.pace)
        while True:
            with self._on_device():  # not while the caller has its turn
                if not batch.fill(queue, prompts):
                    return
                batch.round()
                done = batch.settle(stop)
                give_way()
            yield from done

    @torch.inference_mode()
    def reserve(self, prompts: Sequence[list[int]], max_new_tokens: int) -> ExactRounds:
        """Allocate for these prompts, so that no call on some of them allocates again.

        Returns what decodes them, whose `session` is what is allocated.
        """
        with self._on_device():
            return self._fitting(prompts, [max_new_tokens] * len(prompts))

    def _on_device(self) -> AbstractContextManager[object]:
        """Launches, streams and captures are the current device's, which may be another GPU."""
        device = self.backbone.lm_head.weight.device
        return torch.cuda.device(device) if device.type == "cuda" else nullcontext()

    def _fitting(self, prompts: Sequence[list[int]], budgets: Sequence[int]) -> ExactRounds:
        """What the last call decoded with if it is large enough, else new room."""
        block = self.backbone.config.block_size
        longest = max(len(p) + n for p, n in zip(prompts, budgets, strict=True))
        slots, length = min(self.batch_size, len(prompts)), -(-longest // block) * block
        if self._ready is not None:
            had = self._ready.session
            if had.slots >= slots and had.max_length >= length:
                return self._ready
            slots, length = max(slots, had.slots), max(length, had.max_length)
            self._ready = None
            del had  # the last reference: frees its memory first
        kinds = {"exact": ExactRounds, "fixed": FixedRounds, "graphs": GraphRounds}
        session = Session(
            self.backbone,
            self.head,
            slots,
            length,
            self.mode.states,
            self.choose,
            head_states=self.mode.head_states,
            head_prefix=self.mode.head_prefix,
        )
        self._ready = kinds[self.rounds](session, self.mode)
        return self._ready


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
        self.samples: list[Sample] = []  # by lane
        self.vacant: list[int] = []  # lanes among them whose sample has been handed out
        self.stores: list[int] = []  # lanes that finished a block and go on
        self.waiting: list[int] = []  # a lane for each block that its head has not read
        self.useful: list[int] = []  # drafts that each lane could use in the last round
        self.clock = Clock()

    def fill(self, queue: deque[Sample], prompts: Sequence[list[int]]) -> bool:
        """Refill vacant lanes from the queue; once it is empty, close the gaps.

        Returns whether there is anything left to decode.
        """
        session, admitted = self.session, []
        while queue and (self.vacant or len(self.samples) < session.slots):
            sample = queue.popleft()
            if self.vacant:
                lane = self.vacant.pop()
                self.samples[lane] = sample
            else:
                lane = len(self.samples)
                self.samples.append(sample)
            admitted.append((lane, prompts[sample.index]))
        if admitted:
            self.clock.spoilt = True
            self.rounds.admit([lane for lane, _ in admitted], [prompt for _, prompt in admitted])
        for lane in sorted(self.vacant, reverse=True):
            last = len(self.samples) - 1
            if lane != last:
                session.move(last, lane)
                self.samples[lane] = self.samples[last]
                for lanes in (self.stores, self.waiting):
                    lanes[:] = [lane if each == last else each for each in lanes]
            self.samples.pop()
        self.vacant = []
        session.n = len(self.samples)
        return bool(self.samples)

    def round(self) -> None:
        """One round of the mode, with the blocks to be stored riding along."""
        open_, fresh = [s.open for s in self.samples], [s.fresh for s in self.samples]
        self.pace.preparations = self._preparations
        self.plan = self.mode.plan(open_, fresh, self.pace)
        self.pace.preparations = nothing  # it outlives the session, and would keep it alive
        self.useful = useful_drafts(open_, fresh, self.plan)
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

    def settle(self, stop: StopCheck | None) -> list[Decoded]:
        """Hand out the samples whose last block is finished; the others go on.

        Where the mode says how much a round reveals, the device is asked only when a block may be
        finished; until then its rounds queue up behind each other.
        """
        known = self.mode.reveals(self.plan)
        if known is not None and 0 < known < min(sample.open for sample in self.samples):
            for sample in self.samples:
                sample.open, sample.fresh = sample.open - known, self.plan == PLAIN
            return []
        board = self.rounds.read()
        seconds = self.clock.stop()
        masked = (board[:, 0] == self.session.mask_id).sum(dim=1).tolist()
        gained = [sample.open - left for sample, left in zip(self.samples, masked, strict=True)]
        for sample, tokens in zip(self.samples, gained, strict=True):
            sample.ahead |= tokens > 1
        strayed = len(self.samples) > 1 and any(sample.ahead for sample in self.samples)
        self.pace.observe(self.useful, self.clock.rounds, seconds, gained, strayed)
        rounds = len(self.clock.rounds)  # lanes are only refilled after a look: all were in them
        self.clock = Clock()
        done = []
        for lane, (sample, left) in enumerate(zip(self.samples, masked, strict=True)):
            sample.open, sample.fresh = left, self.plan == PLAIN
            sample.rounds += rounds
            if left:
                if sample.rounds >= MOST_ROUNDS * sample.block:
                    raise self._endless(lane)
                continue
            sample.finish_block(board[lane].tolist())
            sample.fresh = not self.mode.looks_ahead
            stopped = stop is not None and stop(sample.index, list(sample.ids))
            if stopped or sample.exhausted or sample.end(self.ends) is not None:
                done.append(self._hand_out(lane, stopped))
            else:
                self.stores.append(lane)
        self.clock.spoilt = bool(done)
        return done

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
            f"{sample.rounds} rounds: each round must reveal at least one masked position of every "
            "sample, and not mask as many again (see docs/adding-a-mode.md)"
        )

    def _hand_out(self, lane: int, stopped: bool) -> Decoded:
        sample = self.samples[lane]
        tally = self.session.counted(lane)
        stores = self.session.head is not None and self.session.head_prefix
        tally["head_store"] = stores * (sample.prefilled + sample.blocks - 1)
        self.vacant.append(lane)
        self.waiting = [each for each in self.waiting if each != lane]
        return sample.result(self.ends, stopped, tally)


def _check(backbone: Backbone, prompts: Sequence[list[int]], budgets: list[int]) -> None:
    config = backbone.config
    for number, (prompt, budget) in enumerate(zip(prompts, budgets, strict=True)):
        if not prompt:
            raise UserError(f"prompt {number} is empty; at least one token is needed")
        if config.mask_token_id in prompt:
            raise UserError(
                f"prompt {number} contains the mask token (id {config.mask_token_id}), "
                "which decoding uses for open positions; take it out of the text"
            )
        if min(prompt) < 0 or max(prompt) >= config.vocab_size:
            raise UserError(
                f"prompt {number} has token id {max(prompt)} outside the backbone's vocabulary of "
                f"{config.vocab_size}; tokenizer and backbone do not belong together"
            )
        if budget < 1:
            raise UserError(f"max_new_tokens={budget} of prompt {number}: at least 1 is needed")
