"""Training of backbones and heads: packing, noise, objectives and the loop they share."""

from __future__ import annotations

from mrp.training.backbone import train_backbone
from mrp.training.head import train_head
from mrp.training.settings import BackboneTraining, HeadTraining, parse_settings

__all__ = [
    "BackboneTraining",
    "HeadTraining",
    "parse_settings",
    "train_backbone",
    "train_head",
]
