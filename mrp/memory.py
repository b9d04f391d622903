"""What to do where a device has too little memory: halve the batch, say so, go on."""

from __future__ import annotations

import gc
import logging
from collections.abc import Callable
from typing import TypeVar

import torch

from mrp.errors import UserError

logger = logging.getLogger(__name__)

T = TypeVar("T")


def is_out_of_memory(error: BaseException) -> bool:
    """Whether an exception says that a device, or the machine, has too little memory."""
    if isinstance(error, MemoryError | torch.OutOfMemoryError):
        return True
    # cuBLAS and the CPU's allocator say it in words of their own.
    words = ("out of memory", "can't allocate memory", "STATUS_ALLOC_FAILED")
    return isinstance(error, RuntimeError) and any(word in str(error) for word in words)


def halved(batch_size: int, what: str) -> int:
    """Half a batch that did not fit, with a warning; frees what the failed one left.

    To be called when the exception is gone: its traceback keeps the failed tensors alive.

    Raises:
        UserError: it was 1.
    """
    if batch_size == 1:
        raise UserError(
            f"{what}: out of memory even at batch size 1: lower max_new_tokens or k, choose dtype "
            "bfloat16 (suite: decoding), wait until others have left the device, or take a larger "
            "one"
        )
    logger.warning(
        "%s: out of memory at batch size %d; going on with %d", what, batch_size, batch_size // 2
    )
    gc.collect()
    if torch.cuda.is_initialized():
        torch.cuda.empty_cache()
    return batch_size // 2


def with_halved_batch(run: Callable[[int], T], batch_size: int, what: str) -> T:
    """Call `run(batch_size)`; where memory ends, again with half of it, and so on.

    Raises:
        UserError: it ends at 1, too.
    """
    while True:
        try:
            return run(batch_size)
        except (RuntimeError, MemoryError) as error:
            if not is_out_of_memory(error):
                raise
        batch_size = halved(batch_size, what)
