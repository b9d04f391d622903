"""Merged weights that take no second copy: the modules keep working on views of them."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor, nn

from mrp.models.transformer import DecoderLayer


class LayerWeights(NamedTuple):
    """One decoder layer's parameters; a merged matrix has its parts' rows one after another."""

    attention_norm: Tensor  # [H]
    qkv: Tensor  # [(Hq + 2 Hkv) * D, H]
    q_norm: Tensor  # [D]
    k_norm: Tensor  # [D]
    out: Tensor  # [H, Hq * D]
    mlp_norm: Tensor  # [H]
    gate_up: Tensor  # [2 I, H]
    down: Tensor  # [H, I]


def layer_weights(layer: DecoderLayer) -> LayerWeights:
    """Gather a layer's parameters, merging projections that read the same input."""
    attention, mlp = layer.self_attn, layer.mlp
    return LayerWeights(
        attention_norm=layer.input_layernorm.weight.detach(),
        qkv=merge_rows(attention.q_proj, attention.k_proj, attention.v_proj),
        q_norm=attention.q_norm.weight.detach(),
        k_norm=attention.k_norm.weight.detach(),
        out=attention.o_proj.weight.detach(),
        mlp_norm=layer.post_attention_layernorm.weight.detach(),
        gate_up=merge_rows(mlp.gate_proj, mlp.up_proj),
        down=mlp.down_proj.weight.detach(),
    )


def merge_rows(*linears: nn.Linear) -> Tensor:
    """One matrix [sum of N, K] whose row ranges are the linears' weights from now on.

    The linears' parameters become views of it, so their values, names and later in-place changes
    stay as they are, and their old storage is freed. Already merged weights are found again.
    """
    weights = [linear.weight.detach() for linear in linears]
    rows, columns = sum(weight.shape[0] for weight in weights), weights[0].shape[1]
    first = weights[0]
    if _stand_in_a_row(weights):
        return first.new_empty(0).set_(
            first.untyped_storage(), first.storage_offset(), (rows, columns), (columns, 1)
        )
    # Parameters may not point into tensors made in inference mode, where decoding happens.
    with torch.inference_mode(False), torch.no_grad():
        merged = torch.empty((rows, columns), device=first.device, dtype=first.dtype)
        begin = 0
        for linear in linears:
            part = merged[begin : begin + linear.weight.shape[0]]
            part.copy_(linear.weight)
            linear.weight.data = part
            begin += len(part)
    return merged


def _stand_in_a_row(weights: list[Tensor]) -> bool:
    storage = weights[0].untyped_storage().data_ptr()
    offset = weights[0].storage_offset()
    for weight in weights:
        if weight.untyped_storage().data_ptr() != storage or weight.storage_offset() != offset:
            return False
        if not weight.is_contiguous():
            return False
        offset += weight.numel()
    return True
