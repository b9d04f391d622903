"""The backbone, the head, and their checkpoints.

Names load their modules when they are first used: the workflow asks `mrp.models.hub` what a
checkpoint string means, and need not wait for torch.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mrp.models.checkpoint import (
        checkpoint_hash,
        load_backbone,
        load_head,
        save_backbone,
        save_head,
    )
    from mrp.models.configuration import read_backbone_config, read_head_config
    from mrp.models.head import Head, HeadConfig
    from mrp.models.hub import is_hub_id, local_checkpoint, resolved_revision
    from mrp.models.transformer import Attend, Backbone, BackboneConfig, MaskedAttention

__all__ = [
    "Attend",
    "Backbone",
    "BackboneConfig",
    "Head",
    "HeadConfig",
    "MaskedAttention",
    "checkpoint_hash",
    "is_hub_id",
    "load_backbone",
    "load_head",
    "local_checkpoint",
    "read_backbone_config",
    "read_head_config",
    "resolved_revision",
    "save_backbone",
    "save_head",
]

_MODULES = {
    "checkpoint": ("checkpoint_hash", "load_backbone", "load_head", "save_backbone", "save_head"),
    "configuration": ("read_backbone_config", "read_head_config"),
    "head": ("Head", "HeadConfig"),
    "hub": ("is_hub_id", "local_checkpoint", "resolved_revision"),
    "transformer": ("Attend", "Backbone", "BackboneConfig", "MaskedAttention"),
}


def __getattr__(name: str) -> Any:
    for module, names in _MODULES.items():
        if name in names:
            return getattr(importlib.import_module(f"{__name__}.{module}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
