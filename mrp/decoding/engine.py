"""The decoding loop: admit prompts, let the mode do a round, store blocks, retire samples."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence

import torch

from mrp.decoding.modes import Mode
from mrp.decoding.sample import Decoded, Sample
from mrp.decoding.session import Session
from mrp.errors import UserError
from mrp.models.head import Head
from mrp.models.transformer import Backbone

StopCheck = Callable[[int, list[int]], bool]


@torch.inference_mode()
def decode(
    backbone: Backbone,
    head: Head | None,
    prompts: Sequence[list[int]],
    mode: Mode,
    max_new_tokens: int | Sequence[int],
    batch_size: int = 32,
    stop: StopCheck | None = None,
) -> Iterator[Decoded]:
    """Decode prompts with a mode; a finished sample's slot is refilled from the queue.

    A sample ends at the block in which an end token was revealed after the prompt, when `stop` says
    so, or at the block that reaches its budget.

    Args:
        backbone: the frozen backbone; its device and dtype are used throughout.
        head: needed by the modes with `needs_head`, otherwise ignored.
        prompts: token ids of each prompt, not empty, without the mask token.
        mode: see `make_mode`.
        max_new_tokens: the budget of new tokens, one for all or one a prompt.
        batch_size: how many samples are decoded together; does not change the results.
        stop: asked after each finished block with the prompt's index and its new ids so far.

    Yields:
        Samples as they finish, in no particular order.

    Raises:
        UserError: a prompt is empty, holds the mask token, a budget is below 1, or the mode needs a
            head and there is none.
    """
    budgets = (
        [max_new_tokens] * len(prompts) if isinstance(max_new_tokens, int) else list(max_new_tokens)
    )
    _check(backbone, head, prompts, mode, budgets, batch_size)
    block = backbone.config.block_size
    totals = [len(p) + n for p, n in zip(prompts, budgets, strict=True)]
    session = Session(
        backbone,
        head if mode.needs_head else None,
        slots=min(batch_size, len(prompts)),
        max_length=-(-max(totals, default=1) // block) * block,
        states=mode.states,
    )
    queue = deque(
        Sample(index, prompt, budget, block)
        for index, (prompt, budget) in enumerate(zip(prompts, budgets, strict=True))
    )
    batch = Batch(session, mode)
    while batch.fill(queue, prompts):
        batch.round()
        yield from batch.settle(stop)


class Batch:
    """The samples in the lanes of a session, and what is left to do for them."""

    def __init__(self, session: Session, mode: Mode) -> None:
        self.session, self.mode = session, mode
        self.ends = session.model.config.eos_token_ids
        self.samples: list[Sample] = []  # by lane
        self.vacant: list[int] = []  # lanes among them whose sample has been handed out
        self.stores: list[int] = []  # lanes that finished a block and go on
        self.waiting: list[int] = []  # lanes with a finished block that the head has not read

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
            session.admit([lane for lane, _ in admitted], [prompt for _, prompt in admitted])
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
        plan = self.mode.plan([s.open for s in self.samples], [s.fresh for s in self.samples])
        unread = self.session.run(self.mode, plan, self.stores, self.waiting)
        waiting = self.waiting if "waiting" in unread else []
        self.waiting = waiting + (self.stores if "stores" in unread else [])
        self.stores = []

    def settle(self, stop: StopCheck | None) -> Iterator[Decoded]:
        """Hand out the samples whose last block is finished; the others go on."""
        board = self.session.read()
        masked = (board[:, 0] == self.session.mask_id).sum(axis=1).tolist()
        done = []
        for lane, (sample, left) in enumerate(zip(self.samples, masked, strict=True)):
            sample.open, sample.fresh = left, False
            if left:
                continue
            sample.finish_block(board[lane].tolist())
            stopped = stop is not None and stop(sample.index, list(sample.ids))
            if stopped or sample.exhausted or sample.end(self.ends) is not None:
                done.append(self._hand_out(lane, stopped))
            else:
                self.stores.append(lane)
        yield from done

    def _hand_out(self, lane: int, stopped: bool) -> Decoded:
        sample = self.samples[lane]
        tally = self.session.counted(lane)
        has_head = self.session.head is not None
        tally["head_store"] = has_head * (sample.prefilled + sample.blocks - 1)
        self.vacant.append(lane)
        self.waiting = [each for each in self.waiting if each != lane]
        return sample.result(self.ends, stopped, tally)


def _check(
    backbone: Backbone,
    head: Head | None,
    prompts: Sequence[list[int]],
    mode: Mode,
    budgets: list[int],
    batch_size: int,
) -> None:
    config = backbone.config
    if mode.needs_head and head is None:
        raise UserError(f"mode {mode.name!r} needs a head; give one with --head")
    mode.check(config.block_size)
    if batch_size < 1:
        raise UserError(f"batch_size={batch_size}: at least 1 is needed")
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
