"""What to do where a device has too little memory: halve the batch, say so, go on.

And how to keep Python from going through all that it holds again and again.
"""

from __future__ import annotations

import contextlib
import gc
import logging
from collections.abc import Callable, Iterator
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


@contextlib.contextmanager
def only_new_garbage() -> Iterator[None]:
    """Let the garbage collector look at nothing that is older than this block.

    Results are many small lists and dicts. Because of them it goes through all modules, too, now
    and then: a tenth of a second each time.
    """
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()
