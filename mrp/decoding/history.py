"""Finished blocks, kept until the head has read them.

The head has a prefix of its own, which it can do without as long as nothing asks it for drafts. So
a finished block's ids and hidden states wait here, and the head's next pass takes them along.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import torch
from torch import Tensor

from mrp.decoding.blocks import Blocks, plain


class History:
    """Room for every block of every lane; written where a block is stored, read at most once."""

    def __init__(
        self,
        lanes: int,
        length: int,
        block_size: int,
        hidden_size: int,
        device: torch.device,
        dtype: torch.dtype,
    ) -> None:
        """Allocate for `lanes` sequences of `length` positions."""
        shape = (lanes, -(-length // block_size), block_size)
        self.block_size = block_size
        self.ids = torch.zeros(shape, device=device, dtype=torch.long)
        self.hidden = torch.zeros((*shape, hidden_size), device=device, dtype=dtype)

    def put(self, lanes: Tensor, start: Tensor, ids: Tensor, hidden: Tensor) -> None:
        """Keep blocks [m] that begin at `start` [m]: ids [m, B] and hidden states [m, B, H]."""
        number = start // self.block_size
        self.ids[lanes, number] = ids
        self.hidden[lanes, number] = hidden

    def get(self, lanes: Tensor, start: Tensor) -> tuple[Blocks, Tensor]:
        """Blocks [m] as the head reads them, and their hidden states [m, B, H]."""
        number = start // self.block_size
        return plain(self.ids[lanes, number], lanes, start), self.hidden[lanes, number]

    def move(self, source: Tensor, target: Tensor) -> None:
        """Move the blocks of the lanes `source` [m] to the lanes `target` [m]."""
        for kept in (self.ids, self.hidden):
            kept[target] = kept[source]


def blocks_back(waiting: Sequence[int], stores: Sequence[int]) -> list[int]:
    """How many blocks before its lane's current one each block in `waiting` is.

    `waiting` names a lane once for every block of it that waits, the oldest first; lanes in
    `stores` have just gone on from one more.
    """
    left, newer = Counter(waiting), Counter(stores)
    found = []
    for lane in waiting:
        found.append(left[lane] + newer[lane])
        left[lane] -= 1
    return found
