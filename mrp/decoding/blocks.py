"""What a forward runs: a list of blocks.

Every forward of decoding, whatever its role, is a list of blocks of B tokens with the place of
each in the cache. Several blocks of a list may belong to one row: the candidate states of a
verification, the blocks of a prompt, or a finished block that is stored in the pass that opens the
next one. A layer writes the keys and values of all blocks before any block attends, so a later
block may see an earlier one of the same list.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from mrp.decoding.fused import fused


class Blocks(NamedTuple):
    """M blocks of B tokens.

    ids [M, B]: token ids. row [M]: cache row. position [M]: rotary position of the first token.
    slot [M]: the keys and values are written at slots slot .. slot + B of the row.
    visible [M]: the block attends to the slots [0, visible) of its row and to its own.
    shadow [M]: whether it is the shadow of the block that ends at `visible`: a token of a shadow
        does not attend to the token in its own place there. None: no block of the list is one.
    """

    ids: Tensor
    row: Tensor
    position: Tensor
    slot: Tensor
    visible: Tensor
    shadow: Tensor | None = None

    def each(self, change: Callable[[Tensor], Tensor]) -> Blocks:
        """The blocks with every field changed."""
        shadow = None if self.shadow is None else change(self.shadow)
        return Blocks(*map(change, self[:5]))._replace(shadow=shadow)

    def take(self, index: Tensor | slice) -> Blocks:
        """The blocks that `index` selects."""
        return self.each(lambda field: field[index])

    def own_place(self) -> Tensor:
        """The slot that each token of a shadow must not see, [M, B]; -1 in other blocks."""
        assert self.shadow is not None
        place = self.visible[:, None] - self.ids.shape[1] + self.offsets()
        return place.masked_fill(~self.shadow[:, None], -1)

    def offsets(self) -> Tensor:
        """0 .. B - 1, [1, B], to be added to a block's slot or position."""
        return torch.arange(self.ids.shape[1], device=self.ids.device)[None]


def join(parts: Sequence[Blocks]) -> Blocks:
    """Several lists as one."""
    if len(parts) == 1:
        return parts[0]
    shadow = None
    if any(part.shadow is not None for part in parts):
        none = [torch.zeros_like(part.row, dtype=torch.bool) for part in parts]
        shadows = (part.shadow for part in parts)
        shadow = torch.cat([n if s is None else s for s, n in zip(shadows, none, strict=True)])
    fields = map(torch.cat, zip(*(part[:5] for part in parts), strict=True))
    return Blocks(*fields)._replace(shadow=shadow)


def plain(ids: Tensor, row: Tensor, start: Tensor) -> Blocks:
    """One block a row, at its own place: it sees everything before it."""
    return Blocks(ids, row, start, start, start)


def candidate_states(states: Tensor, row: Tensor, start: Tensor) -> Blocks:
    """Copies of each row's current block, [n, S, B]: they share the prefix, none sees another.

    All copies stand at the block's rotary position; their slots follow each other.
    """
    count, block = states.shape[1:]
    if count == 1:
        return plain(states.flatten(0, 1), row, start)
    row, start, slot = places_of_states(row, start, count, block)
    return Blocks(states.flatten(0, 1), row, start, slot, start)


@fused
def places_of_states(
    row: Tensor, start: Tensor, count: int, block: int
) -> tuple[Tensor, Tensor, Tensor]:
    """Row, start and slot [n * count] of `count` copies of each block at `row`, `start` [n]."""
    slots = start[:, None] + torch.arange(0, count * block, block, device=start.device)
    return row.repeat_interleave(count), start.repeat_interleave(count), slots.flatten()


@fused
def states_and_next(states: Tensor, row: Tensor, start: Tensor, mask_id: int) -> Blocks:
    """Candidate states [n, S, B], and behind them the next blocks, all masked: the last n.

    As with `candidate_states`, but a next block sees the last of its states, which is written where
    the finished block will stand: right before it. The other states' slots descend behind.
    """
    (n, count, size), device = states.shape, states.device
    masks = torch.full((n, size), mask_id, device=device)
    slots = start[:, None] + torch.arange((count - 1) * size, -1, -size, device=device)
    position = start.repeat_interleave(count)
    after, far = start + size, start + count * size
    return Blocks(
        torch.cat((states.flatten(0, 1), masks)),
        torch.cat((row.repeat_interleave(count), row)),
        torch.cat((position, after)),
        torch.cat((slots.flatten(), far)),
        torch.cat((position, after)),
    )


@fused
def with_shadows(ids: Tensor, shadows: Tensor, row: Tensor, start: Tensor) -> Blocks:
    """Each row's current block of ids [n, B], each followed by its shadow of ids `shadows` [n, B].

    A shadow stands at the rotary positions of its block and sees the prefix, itself, and the block
    except for the token in its own place. The block does not see its shadow.
    """
    pairs = torch.stack((ids, shadows), dim=1)
    blocks = candidate_states(pairs, row, start)
    shadow = torch.arange(len(blocks.row), device=row.device) % 2 == 1
    return blocks._replace(visible=blocks.slot, shadow=shadow)


def whole_blocks(
    prompts: Sequence[tuple[int, list[int]]], block: int, device: torch.device
) -> Blocks:
    """The whole blocks of prompts, given as (row, ids); a rest shorter than a block stays out."""
    numbers: list[int] = []  # all in one copy to the device: each is a wait for it
    for row, prompt in prompts:
        for start in range(0, len(prompt) // block * block, block):
            numbers += (row, start, *prompt[start : start + block])
    table = torch.tensor(numbers, dtype=torch.long, device=device).view(-1, 2 + block)
    # Clones: a kernel is compiled anew for where in memory a view begins.
    rows, starts, ids = (part.clone() for part in table.split([1, 1, block], dim=1))
    return plain(ids, rows.view(-1), starts.view(-1))
