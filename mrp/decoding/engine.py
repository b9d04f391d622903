"""The decoding loop, and what is kept between calls of it."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import Literal

import torch

from mrp.decoding.batch import Batch, StopCheck
from mrp.decoding.graphs import FixedRounds, GraphRounds
from mrp.decoding.modes import Mode
from mrp.decoding.pace import Pace
from mrp.decoding.rounds import ExactRounds
from mrp.decoding.sample import Decoded, Sample
from mrp.decoding.session import Choose, Session, choose_forwards
from mrp.errors import UserError
from mrp.models.head import Head
from mrp.models.transformer import Backbone
from mrp.turns import give_way

Rounds = Literal["exact", "fixed", "graphs"]


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
        self.device = backbone.lm_head.weight.device
        self.rounds: Rounds = rounds or ("graphs" if self.device.type == "cuda" else "exact")
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
            Samples as they finish, in no particular order, each after the next round was launched.

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
        done: list[Sample] = []
        with self._on_device():
            batch = Batch(self._fitting(prompts, budgets), self.pace)
        while True:
            with self._on_device():  # not while the caller has its turn
                unfinished = batch.fill(queue, prompts)
                if unfinished:
                    batch.round()
            for sample in done:  # the device is at work meanwhile
                yield sample.result()
            if not unfinished:
                return
            with self._on_device():
                done = batch.settle(stop)
                give_way()

    @torch.inference_mode()
    def reserve(self, prompts: Sequence[list[int]], max_new_tokens: int) -> ExactRounds:
        """Allocate for these prompts, so that no call on some of them allocates again.

        Returns what decodes them, whose `session` is what is allocated.
        """
        with self._on_device():
            return self._fitting(prompts, [max_new_tokens] * len(prompts))

    def _on_device(self) -> AbstractContextManager[object]:
        """Launches, streams and captures are the current device's, which may be another GPU."""
        device = self.device
        if device.type != "cuda" or device.index == torch.cuda.current_device():
            return nullcontext()  # a switch takes microseconds, twice a round
        return torch.cuda.device(device)

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
