"""Masking and revealing of answer tokens, drawn from explicit generators.

Method, "Training a head": t ~ U(low, 1), p = (1-1e-3) t + 1e-3, each answer token is masked with
probability p, at least one per sample; a reveal shows one masked position of every noisy block.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from mrp.training.packing import PackedRows

NoisePer = Literal["sample", "block"]
Reveal = Literal["gt-1", "gt-1-4"]
MIN_PROBABILITY = 1e-3


@dataclass(frozen=True)
class Draws:
    """Uniform numbers in [0, 1) that one batch of b rows needs, all [b, L] but `reveal`, `count`.

    `level` gives t (read at a sample's or block's first token), `mask` decides which tokens are
    masked, `reveal` [K, b, L] which masked position is shown, `count` [K, b, L/B] how many.
    """

    level: Tensor
    mask: Tensor
    reveal: Tensor
    count: Tensor

    def rows(self, part: slice) -> Draws:
        """The draws of some rows of the batch."""
        return Draws(self.level[part], self.mask[part], self.reveal[:, part], self.count[:, part])


def generator_for(*key: object, device: torch.device | str = "cpu") -> torch.Generator:
    """A generator that depends on the key alone, such as (seed, "noise", step), and its device."""
    digest = hashlib.sha256("/".join(map(str, key)).encode()).digest()
    return torch.Generator(device).manual_seed(int.from_bytes(digest[:8], "big") >> 1)


def draw(
    shape: tuple[int, int], block_size: int, reveals: int, generator: torch.Generator
) -> Draws:
    """Draw the uniform numbers of a batch of `shape` (b, L) with `reveals` K reveals.

    They are drawn on the generator's device: a step of a small model would wait for a copy.
    """
    rows, length = shape
    return Draws(
        level=torch.rand(rows, length, generator=generator, device=generator.device),
        mask=torch.rand(rows, length, generator=generator, device=generator.device),
        reveal=torch.rand(reveals, rows, length, generator=generator, device=generator.device),
        count=torch.rand(
            reveals, rows, length // block_size, generator=generator, device=generator.device
        ),
    )


def mask_answers(
    rows: PackedRows, draws: Draws, per: NoisePer, low: float
) -> tuple[Tensor, Tensor]:
    """Choose which answer tokens are masked.

    Args:
        rows: packed rows [b, L].
        draws: the batch's random numbers.
        per: draw t once a sample (the paper) or once a block.
        low: lower end of t's range.

    Returns:
        masked: boolean [b, L].
        p: fp32 [b, L], the probability that a token was masked with.
    """
    here = torch.arange(rows.ids.shape[1], device=rows.ids.device)
    first = here - (rows.position if per == "sample" else rows.position % rows.block_size)
    t = low + (1.0 - low) * draws.level.gather(1, first)
    p = (1.0 - MIN_PROBABILITY) * t + MIN_PROBABILITY
    # The smallest draw of a sample is masked whenever any is, so masking it always changes only
    # the samples that would have none, and there each answer token is equally likely.
    value = torch.where(rows.answer, draws.mask, 2.0)
    slot = rows.sample + 1
    smallest = torch.full_like(value, 2.0).scatter_reduce(1, slot, value, "amin")
    masked = rows.answer & ((value < p) | (value == smallest.gather(1, slot)))
    return masked, p


def reveal(masked: Tensor, priority: Tensor, count: Tensor, kind: Reveal) -> Tensor:
    """Show masked positions of every block that still has some; returns what stays masked.

    Args:
        masked: boolean [b, L], L a multiple of the block size.
        priority: uniform draws [b, L]; the largest among the masked ones of a block are shown.
        count: uniform draws [b, L/B], used by "gt-1-4".
        kind: "gt-1" shows one position a block, "gt-1-4" one to four, each equally likely.

    Returns:
        Boolean [b, L].
    """
    blocks = masked.view(*count.shape, -1)
    score = torch.where(blocks, priority.view_as(blocks), -1.0)
    if kind == "gt-1":
        shown = score == score.amax(dim=-1, keepdim=True)
    else:
        rank = score.argsort(dim=-1, descending=True).argsort(dim=-1)
        shown = rank < 1 + (count * 4).long()[..., None]
    return (blocks & ~shown).view_as(masked)
