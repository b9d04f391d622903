"""The MRP head: predicts how the hidden state changes when one more token is revealed.

Method, "Head: MRP": u = eh_proj([enorm(E[x']) ; hnorm(h)]), decoder layers of the backbone's kind,
a final RMSNorm -> r. x' are the ids AFTER the newest reveal, h is the hidden state from BEFORE it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn

from mrp.models.transformer import (
    Attend,
    BackboneConfig,
    DecoderLayer,
    RMSNorm,
    draw_parameters,
    rotary,
)

Objective = Literal["residual", "direct"]
Init = Literal["normal-0.2", "normal-0.02", "zero"]


@dataclass(frozen=True)
class HeadConfig:
    """Shape of a head and the meaning of its output.

    `objective` "residual": the output is added to the accumulated hidden state. "direct": the
    output replaces it (the paper's ablation, a plain multi-token predictor). `variant` is how the
    head was trained: default, k2 or direct.
    """

    backbone: BackboneConfig
    num_layers: int = 3
    variant: str = "default"
    objective: Objective = "residual"


class Head(nn.Module):
    """A stack of decoder layers over the fused embedding and hidden state."""

    def __init__(self, config: HeadConfig) -> None:
        super().__init__()
        self.config = config
        size, eps = config.backbone.hidden_size, config.backbone.rms_norm_eps
        self.enorm = RMSNorm(size, eps)
        self.hnorm = RMSNorm(size, eps)
        self.eh_proj = nn.Linear(2 * size, size, bias=False)
        self.layers = nn.ModuleList(DecoderLayer(config.backbone) for _ in range(config.num_layers))
        self.norm = RMSNorm(size, eps)

    def forward(
        self, embeddings: Tensor, hidden: Tensor, positions: Tensor, attend: Attend
    ) -> Tensor:
        """Predict the residual.

        Args:
            embeddings: E[x'] of the ids after the newest reveal, [N, T, H].
            hidden: the accumulated hidden state from before it, [N, T, H].
            positions: rotary positions [N, T], the backbone's own.
            attend: decides what each position sees; the same pattern as the backbone's.

        Returns:
            r [N, T, H].
        """
        fused = torch.cat((self.enorm(embeddings), self.hnorm(hidden)), dim=-1)
        x = self.eh_proj(fused)
        backbone = self.config.backbone
        rotation = rotary(positions, backbone.head_dim, backbone.rope_theta, x.dtype)
        for index, layer in enumerate(self.layers):
            x = layer(x, rotation, index, attend)
        out: Tensor = self.norm(x)
        return out

    def advance(self, accumulated: Tensor, output: Tensor) -> Tensor:
        """The hidden state that stands for the next step: acc + r, or r for a direct head."""
        return output if self.config.objective == "direct" else accumulated + output

    @torch.no_grad()
    def reset_parameters(self, kind: Init, generator: torch.Generator) -> None:
        """Draw the start weights.

        "normal-0.2" is the paper's recipe; "normal-0.02" the usual one; "zero" is "normal-0.02"
        with a zero final norm weight, so that the residual starts at exactly zero.
        """
        draw_parameters(self, 0.2 if kind == "normal-0.2" else 0.02, generator)
        if kind == "zero":
            self.norm.weight.zero_()
