"""Batches as a pure function of (seed, step): rows, noise and reveals of one training step."""

from __future__ import annotations

from functools import lru_cache

import torch
from torch import Tensor

from mrp.errors import UserError
from mrp.training.distributed import World
from mrp.training.losses import Batch
from mrp.training.masks import attention
from mrp.training.noise import NoisePer, Reveal, draw, generator_for, mask_answers, reveal
from mrp.training.packing import PackedRows
from mrp.training.settings import Optimization

POOL_ON_DEVICE = 2**27  # tokens; about 34 bytes each


class Batches:
    """Draws the batch of any step; every process takes its slice of the same global batch."""

    def __init__(
        self,
        rows: PackedRows,
        settings: Optimization,
        world: World,
        device: torch.device,
        reveals: int = 0,
        reveal_kind: Reveal = "gt-1",
    ) -> None:
        """Keep the pool; `reveals` is the number K of reveals that a step needs.

        Raises:
            UserError: the batch size does not divide over the processes and their goes.
        """
        if settings.batch_size % (world.size * settings.accumulate):
            raise UserError(
                f"batch_size {settings.batch_size} does not divide over {world.size} processes "
                f"times accumulate {settings.accumulate}; choose a multiple, or other numbers"
            )
        # On the device if it fits easily: copying rows at each step costs more than a small step.
        small = len(rows) * settings.packed_length <= POOL_ON_DEVICE
        self.rows = rows.to(device) if small else rows
        self.settings = settings
        self.world = world
        self.device = device
        self.reveals = reveals
        self.reveal_kind: Reveal = reveal_kind
        self.noise_per: NoisePer = settings.noise_per
        self._samples = rows.samples_per_row
        self._tokens = (rows.sample >= 0).sum(dim=1)

    def __call__(self, step: int, go: int = 0) -> tuple[Batch, int]:
        """This process's part of a step's batch, of that the part of one go.

        With it come the clean tokens of all goes and processes.
        """
        settings = self.settings
        share = settings.batch_size // (self.world.size * settings.accumulate)
        first = (self.world.rank * settings.accumulate + go) * share
        part = slice(first, first + share)
        numbers = self.row_numbers(step)
        rows = self.rows.take(numbers[part].to(self.rows.ids.device)).to(self.device)
        # Drawn for the global batch, so that the processes' parts add up to one process's batch.
        draws = draw(
            (settings.batch_size, settings.packed_length),
            rows.block_size,
            self.reveals,
            generator_for(settings.seed, "noise", step, device=self.device),
        )
        draws = draws.rows(part)
        masked, p = mask_answers(rows, draws, self.noise_per, settings.noise_low)
        masks = [masked]
        for index in range(self.reveals):
            masks.append(
                reveal(masks[-1], draws.reveal[index], draws.count[index], self.reveal_kind)
            )
        # Gradients are averaged over processes: share of the samples times size is the global mean.
        per_sample = self.world.size / float(self._samples[numbers].sum())
        weight = per_sample / (p * rows.answer_length.clamp(min=1))
        one = attention(rows)
        views = attention(rows, self.reveals + 1) if self.reveals else one
        batch = Batch(rows.ids, rows.position, weight, torch.stack(masks), views, one)
        return batch, int(self._tokens[numbers].sum())

    def row_numbers(self, step: int) -> Tensor:
        """The pool's rows of a step's global batch: each epoch is one seeded permutation."""
        size, count = self.settings.batch_size, len(self.rows)
        place = torch.arange(step * size, (step + 1) * size)
        epochs = range(step * size // count, ((step + 1) * size - 1) // count + 1)
        return torch.cat(
            [
                _permutation(self.settings.seed, epoch, count)[
                    place[place // count == epoch] % count
                ]
                for epoch in epochs
            ]
        )


@lru_cache(maxsize=4)
def _permutation(seed: int, epoch: int, count: int) -> Tensor:
    return torch.randperm(count, generator=generator_for(seed, "rows", epoch))
