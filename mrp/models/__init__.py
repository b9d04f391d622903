"""The backbone, the head, and their checkpoints."""

from __future__ import annotations

from mrp.models.checkpoint import (
    checkpoint_hash,
    load_backbone,
    load_head,
    read_backbone_config,
    read_head_config,
    save_backbone,
    save_head,
)
from mrp.models.head import Head, HeadConfig
from mrp.models.transformer import Attend, Backbone, BackboneConfig, MaskedAttention

__all__ = [
    "Attend",
    "Backbone",
    "BackboneConfig",
    "Head",
    "HeadConfig",
    "MaskedAttention",
    "checkpoint_hash",
    "load_backbone",
    "load_head",
    "read_backbone_config",
    "read_head_config",
    "save_backbone",
    "save_head",
]
