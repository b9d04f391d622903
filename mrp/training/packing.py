"""Samples packed into rows of fixed length.

A sample is (ids, answer mask). It is filled up to a multiple of the block size, so that its blocks
are blocks of the row as well, and samples are put into rows first-fit. Padding behind the last
sample of a row forms a sample of its own, -1, which carries no loss.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from mrp.errors import UserError

Sample = tuple[ArrayLike, ArrayLike]
Filled = tuple[NDArray[np.int32], NDArray[np.bool_]]
# A row that the last OPEN_ROWS rows left room in may still take a short sample; older ones are
# closed, which keeps packing linear in the number of samples.
OPEN_ROWS = 16


@dataclass(frozen=True)
class PackedRows:
    """R rows of L clean tokens, all tensors [R, L], integers as int32 to keep a pool small.

    `position` counts from each sample's first token, `sample` numbers the samples of a row
    (-1 = padding), `answer` marks the tokens that may be masked and carry loss, and
    `answer_length` repeats, at each token, the number of answer tokens of its sample (0 = padding).
    """

    ids: Tensor
    position: Tensor
    sample: Tensor
    answer: Tensor
    answer_length: Tensor
    block_size: int

    @property
    def block(self) -> Tensor:
        """Block number of each token within its sample, [R, L]."""
        return self.position // self.block_size

    @property
    def samples_per_row(self) -> Tensor:
        """Number of samples in each row, [R]."""
        return self.sample.amax(dim=1) + 1

    def __len__(self) -> int:
        return self.ids.shape[0]

    def take(self, rows: Tensor) -> PackedRows:
        """The rows with the given numbers [b], in that order, integers widened to int64."""
        integers = (self.ids, self.position, self.sample, self.answer_length)
        ids, position, sample, answer_length = (tensor[rows].long() for tensor in integers)
        return PackedRows(ids, position, sample, self.answer[rows], answer_length, self.block_size)

    def to(self, device: torch.device) -> PackedRows:
        """The same rows on another device; through pinned memory, so that nobody waits."""
        if self.ids.device == device:
            return self
        tensors = (self.ids, self.position, self.sample, self.answer, self.answer_length)
        ids, position, sample, answer, answer_length = (
            tensor.pin_memory().to(device, non_blocking=True) for tensor in tensors
        )
        return PackedRows(ids, position, sample, answer, answer_length, self.block_size)


def pack(
    samples: Iterable[Sample], packed_length: int, block_size: int, fill_id: int
) -> PackedRows:
    """Pack samples, first-fit, into rows of `packed_length` tokens.

    The fill of a sample that ends with an answer token belongs to the answer: while decoding, the
    rest of the last block is masked too, and clean fill would give away where the answer ends.
    A sample longer than a row is cut at the row's end; one left without an answer is dropped.

    Raises:
        UserError: `packed_length` is no positive multiple of `block_size`, or no sample is left.
    """
    if packed_length <= 0 or packed_length % block_size:
        raise UserError(
            f"packed_length is {packed_length}, which is no positive multiple of the block size "
            f"{block_size}; choose one that is"
        )
    rows: list[list[Filled]] = []
    open_rows: deque[tuple[int, int]] = deque(maxlen=OPEN_ROWS)  # (row, tokens left)
    for ids, answer in samples:
        sample = _fill(ids, answer, packed_length, block_size, fill_id)
        if not sample[1].any():
            continue
        length = len(sample[0])
        slot = next((i for i, (_, left) in enumerate(open_rows) if left >= length), None)
        if slot is None:
            rows.append([sample])
            if packed_length > length:
                open_rows.append((len(rows) - 1, packed_length - length))
        else:
            row, left = open_rows[slot]
            rows[row].append(sample)
            open_rows[slot] = (row, left - length)
            if left == length:
                del open_rows[slot]
    if not rows:
        raise UserError(
            f"no sample keeps an answer within packed_length {packed_length}; "
            "raise packed_length or check the data"
        )
    return _tensors(rows, packed_length, block_size, fill_id)


def _fill(
    ids: ArrayLike, answer: ArrayLike, packed_length: int, block_size: int, fill_id: int
) -> Filled:
    tokens = np.asarray(ids, dtype=np.int32)[:packed_length]
    mask = np.asarray(answer, dtype=np.bool_)[:packed_length]
    missing = -len(tokens) % block_size
    if not missing or not len(tokens):
        return tokens, mask
    return np.append(tokens, [np.int32(fill_id)] * missing), np.append(mask, [mask[-1]] * missing)


def _tensors(
    rows: list[list[Filled]], packed_length: int, block_size: int, fill_id: int
) -> PackedRows:
    shape = (len(rows), packed_length)
    ids = np.full(shape, fill_id, dtype=np.int32)
    position = np.zeros(shape, dtype=np.int32)
    sample = np.full(shape, -1, dtype=np.int32)
    answer = np.zeros(shape, dtype=np.bool_)
    answer_length = np.zeros(shape, dtype=np.int32)
    count_up = np.arange(packed_length, dtype=np.int32)
    for number, row in enumerate(rows):
        start = 0
        for index, (tokens, mask) in enumerate(row):
            end = start + len(tokens)
            ids[number, start:end] = tokens
            position[number, start:end] = count_up[: end - start]
            sample[number, start:end] = index
            answer[number, start:end] = mask
            answer_length[number, start:end] = mask.sum()
            start = end
        position[number, start:] = count_up[: packed_length - start]
    return PackedRows(
        torch.from_numpy(ids),
        torch.from_numpy(position),
        torch.from_numpy(sample),
        torch.from_numpy(answer),
        torch.from_numpy(answer_length),
        block_size,
    )
