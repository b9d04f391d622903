# mypy: disable-error-code="no-untyped-def,untyped-decorator"
"""What every kernel here shares: starting while the one before still runs.

On a Hopper GPU a kernel may be launched before its predecessor is through (programmatic dependent
launch). Each kernel here says early that the next may come (`announce`) and waits for all earlier
ones to be complete (`wait`) before it touches what a kernel of the same pass may have written.
Before the wait it may read what none of them writes: weights, tables, and the pass's own blocks,
since a pass's first kernel announces only after its wait.

Every program of every kernel waits, so "the one before is complete" implies the same of all earlier
ones, and a buffer may be written again as soon as its last reader is behind.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait

INTERPRETED = bool(triton.knobs.runtime.interpret)  # Triton's CPU interpreter: no PTX in it
FEW_BLOCKS = 4  # up to so many, attention's work is divided alike, however many there are


@triton.jit
def announce(OVERLAP: tl.constexpr):
    """Let the next kernel start as soon as all programs of this one have."""
    if OVERLAP:
        gdc_launch_dependents()


@triton.jit
def wait(OVERLAP: tl.constexpr):
    """Block until all earlier kernels are complete and their writes visible."""
    if OVERLAP:
        gdc_wait()


def overlap() -> dict[str, Any]:
    """Launch options of every kernel: OVERLAP and what goes with it."""
    return {"OVERLAP": False} if INTERPRETED else {"OVERLAP": True, "launch_pdl": True}


def multiprocessors(tensor: Tensor) -> int:
    """How many multiprocessors the tensor's GPU has (the interpreter stands for a small one)."""
    if INTERPRETED:
        return 16
    return torch.cuda.get_device_properties(tensor.device).multi_processor_count
