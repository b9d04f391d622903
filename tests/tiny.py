"""Tiny random models for tests: deterministic, with margins wide enough for fp32."""

from __future__ import annotations

import torch

from mrp.models import Backbone, BackboneConfig, Head, HeadConfig

MASK, PAD, EOS = 2, 0, 1


def tiny_backbone(
    seed: int = 0,
    block_size: int = 8,
    vocab_size: int = 24,
    layers: int = 2,
    scale: float = 0.3,
    ends: bool = True,
) -> Backbone:
    """A random backbone whose greedy choices are far apart.

    `ends`: whether it may end a text; if not, the end token is one that is never picked.
    """
    config = BackboneConfig(
        vocab_size=vocab_size,
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=layers,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=8,
        mask_token_id=MASK,
        pad_token_id=PAD,
        eos_token_ids=(EOS, PAD) if ends else (MASK,),
        block_size=block_size,
        initializer_range=scale,
        max_position_embeddings=512,
    )
    model = Backbone(config)
    model.reset_parameters(torch.Generator().manual_seed(seed))
    return model.eval().requires_grad_(False)


def tiny_head(
    backbone: Backbone, seed: int = 1, layers: int = 1, objective: str = "residual"
) -> Head:
    """A random head for `backbone`."""
    config = HeadConfig(
        backbone=backbone.config,
        num_layers=layers,
        variant="direct" if objective == "direct" else "default",
        objective=objective,  # type: ignore[arg-type]
    )
    head = Head(config)
    head.reset_parameters("normal-0.2", torch.Generator().manual_seed(seed))
    return head.eval().requires_grad_(False)
