"""Models of the paper's shapes with random weights: the speed of a forward needs no training."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from mrp.errors import UserError
from mrp.models import Backbone, BackboneConfig, Head, HeadConfig

HEAD_LAYERS = 3


@dataclass(frozen=True)
class Shape:
    """Hidden size, layers, query and key/value heads, MLP size, head width, vocabulary."""

    hidden: int
    layers: int
    queries: int
    keys: int
    mlp: int
    head_dim: int = 128
    vocabulary: int = 151936


SHAPES = {
    "1.7b": Shape(2048, 28, 16, 8, 6144),
    "4b": Shape(2560, 36, 32, 8, 9728),
    "8b": Shape(4096, 36, 32, 8, 12288),
    "tiny": Shape(64, 2, 4, 2, 128, head_dim=16, vocabulary=512),
}


def random_models(
    name: str, device: torch.device, dtype: torch.dtype, seed: int = 0
) -> tuple[Backbone, Head]:
    """A backbone and a head of a shape in SHAPES, drawn on the device.

    No text of theirs ends. The head's residual is exactly zero, so its drafts are the stale
    logits' next choices: a random one would never be accepted, and the cost is the same.

    Raises:
        UserError: unknown shape.
    """
    if name not in SHAPES:
        raise UserError(f"--shape {name!r} is unknown: choose one of {', '.join(SHAPES)}")
    shape = SHAPES[name]
    mask = shape.vocabulary - 1
    config = BackboneConfig(
        vocab_size=shape.vocabulary,
        hidden_size=shape.hidden,
        intermediate_size=shape.mlp,
        num_hidden_layers=shape.layers,
        num_attention_heads=shape.queries,
        num_key_value_heads=shape.keys,
        head_dim=shape.head_dim,
        mask_token_id=mask,
        pad_token_id=mask,
        eos_token_ids=(mask,),  # which is never picked
        block_size=16,
    )
    generator = torch.Generator(device).manual_seed(seed)
    with torch.device("meta"):
        backbone, head = Backbone(config), Head(HeadConfig(config, HEAD_LAYERS))
    backbone = backbone.to(dtype).to_empty(device=device)
    head = head.to(dtype).to_empty(device=device)
    backbone.reset_parameters(generator)
    head.reset_parameters("zero", generator)
    return backbone.eval().requires_grad_(False), head.eval().requires_grad_(False)


def random_prompts(backbone: Backbone, count: int, length: int, seed: int = 0) -> list[list[int]]:
    """Prompts of random ids, none of them special."""
    config = backbone.config
    special = {config.mask_token_id, config.pad_token_id, *config.eos_token_ids}
    generator = torch.Generator().manual_seed(seed)
    ids = torch.randint(3, config.vocab_size, (count, length), generator=generator).tolist()
    return [[3 if token in special else token for token in prompt] for prompt in ids]
