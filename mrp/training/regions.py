"""What of a training step is compiled: the decoder layer, once for all layers, and the loss.

A whole step as one graph takes time in proportion to its layers before the first of them runs. A
layer is the same program for all layers of a model, since weights are inputs of the compiled code.
Everything that is heavy happens in a layer or in the loss; embedding, rotary angles, the last norm
and a head's fusion stay as they are.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor, nn

from mrp.models import Attend
from mrp.models.transformer import DecoderLayer


def compile_layers(model: nn.Module) -> None:
    """Have every decoder layer of `model` run compiled from its first call on.

    Weights and their names stay as they are. Shapes are never taken for variable: a frozen backbone
    reads more copies of a row than the head behind it, and kernels of fixed sizes are faster.
    """
    compiled = torch.compile(_layer, dynamic=False)
    for layer in model.modules():
        if isinstance(layer, DecoderLayer):
            layer.forward = partial(_forward, compiled, layer)  # type: ignore[method-assign]


def _forward(
    compiled: Callable[..., Tensor],
    layer: DecoderLayer,
    x: Tensor,
    rotation: tuple[Tensor, Tensor],
    _number: int,
    attend: Attend,
) -> Tensor:
    """A layer's forward without its number: as an input it would be compiled in, layer by layer."""
    return compiled(layer, x, rotation, attend)


def _layer(
    layer: DecoderLayer, x: Tensor, rotation: tuple[Tensor, Tensor], attend: Attend
) -> Tensor:
    """The one program of all layers; attention in training is the same in each (number 0)."""
    return DecoderLayer.forward(layer, x, rotation, 0, attend)
