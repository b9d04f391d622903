"""Fused forwards for decoding on a GPU, written in Triton.

Import `FastForwards` from `mrp.decoding.fast.forwards` where `available` says yes: only that needs
triton.
"""

from __future__ import annotations

from importlib.util import find_spec

import torch

from mrp.models.transformer import BackboneConfig


def available(device: torch.device, dtype: torch.dtype, config: BackboneConfig) -> bool:
    """Whether `FastForwards` can run a backbone of this shape there: from Hopper GPUs on."""
    return (
        device.type == "cuda"
        and find_spec("triton") is not None
        and torch.cuda.get_device_capability(device) >= (9, 0)
        and dtype in (torch.bfloat16, torch.float32)
        and config.head_dim % 2 == 0
    )
