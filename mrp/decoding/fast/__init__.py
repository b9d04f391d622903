"""Fused forwards and rules for decoding on a GPU, written in Triton.

Import `FastForwards` from `mrp.decoding.fast.forwards` where `available` says yes, and the
modules that `mrp.decoding.fused` imports where `supported` does: only those need triton.
"""

from __future__ import annotations

from importlib.util import find_spec

import torch

from mrp.models.transformer import BackboneConfig


def supported(device: torch.device) -> bool:
    """Whether the kernels run there: on GPUs from Hopper on, with triton."""
    return (
        device.type == "cuda"
        and find_spec("triton") is not None
        and torch.cuda.get_device_capability(device) >= (9, 0)
    )


def available(device: torch.device, dtype: torch.dtype, config: BackboneConfig) -> bool:
    """Whether `FastForwards` can run a backbone of this shape there."""
    whole = config.head_dim % 2 == 0
    return whole and dtype in (torch.bfloat16, torch.float32) and supported(device)
