"""The block-attention transformer: SDAR's backbone, and the layers of the MRP head.

Architecture: Qwen3 (RMSNorm before attention and MLP, rotary positions, per-head q/k norm, grouped
queries, SwiGLU; no biases). Parameters carry the names of the published checkpoints.

What a position may attend to is not decided here. Every forward takes an `attend` object that
receives a layer's queries, keys and values; training passes a mask over a packed row, decoding a
key/value cache. Logits at position i are for token i itself (no shift).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor, nn
from torch.nn import functional as F


@dataclass(frozen=True)
class BackboneConfig:
    """Shape of a backbone; field names follow the checkpoints' config.json."""

    vocab_size: int
    hidden_size: int
    intermediate_size: int
    num_hidden_layers: int
    num_attention_heads: int
    num_key_value_heads: int
    head_dim: int
    mask_token_id: int
    pad_token_id: int
    eos_token_ids: tuple[int, ...]
    block_size: int = 16
    rms_norm_eps: float = 1e-6
    rope_theta: float = 1e6
    initializer_range: float = 0.02
    max_position_embeddings: int = 32768


class Attend(Protocol):
    """Attention as seen by a layer: grouped-query attention over whatever the caller arranged."""

    def __call__(self, layer: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        """Map q [N, Hq, T, D], k and v [N, Hkv, T, D] of one layer to the output [N, Hq, T, D]."""
        ...


class MaskedAttention:
    """Attention of a sequence to itself under a boolean mask, without a cache (training)."""

    def __init__(self, mask: Tensor) -> None:
        """Keep `mask` [N or 1, 1, T, T], True where the query (row) may see the key (column)."""
        self.mask = mask

    def __call__(self, layer: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        """Return scaled dot-product attention of q over k and v under the mask."""
        return grouped_attention(q, k, v, self.mask)


def grouped_attention(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None) -> Tensor:
    """Scaled dot-product attention with fewer key/value heads than query heads.

    Args:
        q: [N, Hq, T, D].
        k: [N, Hkv, S, D], Hq a multiple of Hkv.
        v: [N, Hkv, S, D].
        mask: boolean, broadcastable to [N, Hq, T, S]; None means every key is visible.

    Returns:
        [N, Hq, T, D].
    """
    return F.scaled_dot_product_attention(
        q, k, v, attn_mask=mask, enable_gqa=q.shape[1] != k.shape[1]
    )


class RMSNorm(nn.Module):
    """x / rms(x) * weight over the last dimension; the statistics are taken in fp32."""

    def __init__(self, size: int, eps: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(size))
        self.eps = eps

    def forward(self, x: Tensor) -> Tensor:
        """Normalise x [..., size]; the dtype of x is kept."""
        return F.rms_norm(x.float(), (x.shape[-1],), None, self.eps).to(x.dtype) * self.weight


class Attention(nn.Module):
    """Grouped-query attention with normalised, rotated queries and keys."""

    def __init__(self, config: BackboneConfig) -> None:
        super().__init__()
        self.head_dim = config.head_dim
        size, head_dim = config.hidden_size, config.head_dim
        self.q_proj = nn.Linear(size, config.num_attention_heads * head_dim, bias=False)
        self.k_proj = nn.Linear(size, config.num_key_value_heads * head_dim, bias=False)
        self.v_proj = nn.Linear(size, config.num_key_value_heads * head_dim, bias=False)
        self.o_proj = nn.Linear(config.num_attention_heads * head_dim, size, bias=False)
        self.q_norm = RMSNorm(head_dim, config.rms_norm_eps)
        self.k_norm = RMSNorm(head_dim, config.rms_norm_eps)

    def forward(
        self, x: Tensor, rotation: tuple[Tensor, Tensor], layer: int, attend: Attend
    ) -> Tensor:
        """Map x [N, T, H] to [N, T, H]; `rotation` is cos and sin, each [N, 1, T, D]."""
        per_head = (*x.shape[:-1], -1, self.head_dim)
        q = self.q_norm(self.q_proj(x).view(per_head)).transpose(1, 2)
        k = self.k_norm(self.k_proj(x).view(per_head)).transpose(1, 2)
        v = self.v_proj(x).view(per_head).transpose(1, 2)
        out = attend(layer, rotate(q, rotation), rotate(k, rotation), v)
        projected: Tensor = self.o_proj(out.transpose(1, 2).flatten(2))
        return projected


class MLP(nn.Module):
    """SwiGLU: down(silu(gate(x)) * up(x))."""

    def __init__(self, config: BackboneConfig) -> None:
        super().__init__()
        self.gate_proj = nn.Linear(config.hidden_size, config.intermediate_size, bias=False)
        self.up_proj = nn.Linear(config.hidden_size, config.intermediate_size, bias=False)
        self.down_proj = nn.Linear(config.intermediate_size, config.hidden_size, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """Map x [N, T, H] to [N, T, H]."""
        out: Tensor = self.down_proj(F.silu(self.gate_proj(x)) * self.up_proj(x))
        return out


class DecoderLayer(nn.Module):
    """One pre-norm layer; the MRP head is built of the same layers as its backbone."""

    def __init__(self, config: BackboneConfig) -> None:
        super().__init__()
        self.self_attn = Attention(config)
        self.mlp = MLP(config)
        self.input_layernorm = RMSNorm(config.hidden_size, config.rms_norm_eps)
        self.post_attention_layernorm = RMSNorm(config.hidden_size, config.rms_norm_eps)

    def forward(
        self, x: Tensor, rotation: tuple[Tensor, Tensor], layer: int, attend: Attend
    ) -> Tensor:
        """Map x [N, T, H] to [N, T, H]."""
        x = x + self.self_attn(self.input_layernorm(x), rotation, layer, attend)
        out: Tensor = x + self.mlp(self.post_attention_layernorm(x))
        return out


class Trunk(nn.Module):
    """Embedding, layers and final norm: the part that the checkpoints call `model`."""

    def __init__(self, config: BackboneConfig) -> None:
        super().__init__()
        # Without the default initialisation: on the meta device it would import a compiler.
        weight = torch.empty(config.vocab_size, config.hidden_size)
        self.embed_tokens = nn.Embedding.from_pretrained(weight, freeze=False)
        self.layers = nn.ModuleList(DecoderLayer(config) for _ in range(config.num_hidden_layers))
        self.norm = RMSNorm(config.hidden_size, config.rms_norm_eps)


class Backbone(nn.Module):
    """A block-diffusion language model of the SDAR family (method: Backbone)."""

    def __init__(self, config: BackboneConfig) -> None:
        super().__init__()
        self.config = config
        self.model = Trunk(config)
        self.lm_head = nn.Linear(config.hidden_size, config.vocab_size, bias=False)

    def embed(self, ids: Tensor) -> Tensor:
        """Token embeddings E[ids], [..., H]."""
        out: Tensor = self.model.embed_tokens(ids)
        return out

    def hidden(self, ids: Tensor, positions: Tensor, attend: Attend) -> Tensor:
        """Run the layers.

        Args:
            ids: token ids [N, T].
            positions: rotary positions [N, T], counted from each sequence's first token.
            attend: decides what each position sees.

        Returns:
            The final normed hidden state h [N, T, H].
        """
        x = self.embed(ids)
        rotation = rotary(positions, self.config.head_dim, self.config.rope_theta, x.dtype)
        for index, layer in enumerate(self.model.layers):
            x = layer(x, rotation, index, attend)
        out: Tensor = self.model.norm(x)
        return out

    def logits(self, hidden: Tensor) -> Tensor:
        """W h: hidden states [..., H] to logits [..., V]. Linear, so W(h + r) = W h + W r."""
        out: Tensor = self.lm_head(hidden)
        return out

    @torch.no_grad()
    def reset_parameters(self, generator: torch.Generator) -> None:
        """Draw every matrix from normal(0, initializer_range) and set the norms to one."""
        draw_parameters(self, self.config.initializer_range, generator)


def draw_parameters(module: nn.Module, std: float, generator: torch.Generator) -> None:
    """Draw matrices from normal(0, std) in a fixed order; norm weights become one."""
    for parameter in module.parameters():
        if parameter.dim() > 1:
            parameter.normal_(0.0, std, generator=generator)
        else:
            parameter.fill_(1.0)


def rotary(
    positions: Tensor, head_dim: int, theta: float, dtype: torch.dtype
) -> tuple[Tensor, Tensor]:
    """Cosine and sine of the rotary angles at `positions` [N, T], each [N, 1, T, head_dim]."""
    exponents = torch.arange(0, head_dim, 2, device=positions.device, dtype=torch.float32)
    frequencies = theta ** (-exponents / head_dim)
    angles = positions[:, None, :, None].float() * frequencies
    angles = torch.cat((angles, angles), dim=-1)
    return angles.cos().to(dtype), angles.sin().to(dtype)


def rotate(x: Tensor, rotation: tuple[Tensor, Tensor]) -> Tensor:
    """Apply rotary positions to x [N, heads, T, D] (first half paired with second half)."""
    cos, sin = rotation
    first, second = x.chunk(2, dim=-1)
    return x * cos + torch.cat((-second, first), dim=-1) * sin
