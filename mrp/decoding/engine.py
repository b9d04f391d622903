"""The decoding loop: admit prompts, let the mode do a round, store blocks, retire samples."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence

import torch

from mrp.decoding.modes import Mode
from mrp.decoding.sample import Decoded
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
    queue = deque(range(len(prompts)))
    while queue or bool(session.active.any()):
        free = session.slots - int(session.active.sum())
        if queue and free:
            admitted = [queue.popleft() for _ in range(min(free, len(queue)))]
            session.admit(admitted, [prompts[i] for i in admitted], [budgets[i] for i in admitted])
        mode.round(session)
        yield from _settle(session, stop)


def _settle(session: Session, stop: StopCheck | None) -> Iterator[Decoded]:
    """Retire the samples whose last block is finished; the others go on to their next block."""
    done, going_on = [], []
    for row in session.finished_blocks().tolist():
        stopped = stop is not None and stop(int(session.index[row]), session.new_ids(row))
        if stopped or session.end_of_text(row) is not None or session.exhausted(row):
            done.append(session.retire(row, stopped))
        else:
            going_on.append(row)
    session.advance(torch.tensor(going_on, dtype=torch.long, device=session.device))
    yield from done


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
