"""Samples that must be equal, and the one thing that may part them: a near tie, left to rounding.

Two ways of decoding sum the same numbers in another order, so that their results differ in the last
bits. A sample shows that only where a choice hangs on those bits: a confidence at a threshold, two
positions or tokens that are as good as each other. Whether one does can be tried. Plain forwards
whose results are shaken, by more than rounding does and by far less than a mistake, choose one side
of a near tie as readily as the other. So where two samples part, each must be what some shaken run
gives; a mistake parts samples that no shaking moves, or leads where none does.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor

from mrp.decoding import Decoded
from mrp.decoding.blocks import Blocks
from mrp.decoding.forwards import EagerForwards
from mrp.decoding.session import Choose

# Of every number of a forward's result. It moves odds by about 2e-5, after passes of the head by
# more; ways of decoding in fp32 were found to differ by 3e-6, after seven passes by 3e-5.
SHAKING = 1e-5
# Runs at most. A near tie falls to either side in nearly half of them: of ten thousand near ties
# one would not show both.
RUNS = 16


class Shaken(EagerForwards):
    """Plain forwards, every number of their results off by a random share of itself."""

    def __init__(self, *models_and_caches: Any, seed: int) -> None:
        super().__init__(*models_and_caches)
        self.generator = torch.Generator().manual_seed(seed)

    def backbone(self, blocks: Blocks, wanted: Tensor | None = None) -> Tensor:
        return self._shaken(super().backbone(blocks, wanted))

    def head(self, blocks: Blocks, hidden: Tensor) -> Tensor:
        return self._shaken(super().head(blocks, hidden))

    def _shaken(self, result: Tensor) -> Tensor:
        noise = torch.randn(result.shape, generator=self.generator)
        return result * (1 + SHAKING * noise)


def whole(sample: Decoded) -> Any:
    """All that a sample says."""
    return sample


def matched(
    ours: Sequence[Decoded],
    theirs: Sequence[Decoded],
    again: Callable[[Choose], Sequence[Decoded]],
) -> list[Decoded]:
    """Check that samples are equal, or part at a near tie.

    Args:
        ours, theirs: samples of the same prompts, decoded in two ways.
        again: decodes the prompts once more in the latter way, with the forwards that it is given.

    Returns:
        `theirs`; where a near tie parts one from ours, that of a shaken run which took our side.
    """
    found = list(theirs)
    pairs = enumerate(zip(map(whole, ours), map(whole, theirs), strict=True))
    sides = {number: list(pair) for number, pair in pairs if pair[0] != pair[1]}
    for seed in range(RUNS):
        if not sides:
            break
        for number, sample in enumerate(again(partial(Shaken, seed=seed))):
            side = whole(sample)
            if side in sides.get(number, ()):
                sides[number].remove(side)
                if side == whole(ours[number]):
                    found[number] = sample
        sides = {number: unseen for number, unseen in sides.items() if unseen}
    assert not sides, f"samples part where there is no near tie, by number: {sides}"
    return found
