"""Packed rows and batches of random tokens for the training tests."""

from __future__ import annotations

import random

import torch

from mrp.training.batches import Batches
from mrp.training.distributed import World
from mrp.training.packing import PackedRows, Sample, pack
from mrp.training.settings import HeadTraining, Optimization
from tests.tiny import PAD

BLOCK = 4
CPU = torch.device("cpu")


def random_samples(seed: int, count: int, longest: int = 14, vocabulary: int = 24) -> list[Sample]:
    """Samples of a prompt of 1..6 tokens and an answer that fills up to `longest`."""
    rng = random.Random(seed)
    samples: list[Sample] = []
    for _ in range(count):
        prompt = rng.randint(1, 6)
        answer = rng.randint(1, longest - prompt)
        ids = [rng.randint(3, vocabulary - 1) for _ in range(prompt + answer)]
        samples.append((ids, [False] * prompt + [True] * answer))
    return samples


def random_rows(seed: int, count: int = 12, length: int = 32) -> PackedRows:
    """Those samples, packed."""
    return pack(random_samples(seed, count), length, BLOCK, PAD)


def batches(
    rows: PackedRows, reveals: int = 0, size: int = 2, seed: int = 0, world: World | None = None
) -> Batches:
    """Batches of `size` rows."""
    settings: Optimization = HeadTraining(
        batch_size=size, packed_length=rows.ids.shape[1], seed=seed
    )
    return Batches(rows, settings, world or World(), CPU, reveals)
