"""The fused forwards: backbone, head and picks as short chains of kernels.

A layer is eight kernels: norm, product with q/k/v, rotation and cache write, attention, output
product, norm, gated product, down product. Nothing here reads a tensor on the host or depends on a
tensor's values, so a pass can be captured in a CUDA graph.
"""

from __future__ import annotations

from typing import cast

import torch
from torch import Tensor, nn

from mrp.decoding.blocks import Blocks
from mrp.decoding.cache import KVCache
from mrp.decoding.fast import vocabulary
from mrp.decoding.fast.attention import BlockAttention
from mrp.decoding.fast.norms import Normed, embed_norm, norm, residual_norm
from mrp.decoding.fast.products import gated_product, product, suits
from mrp.decoding.fast.rotary import Heads
from mrp.decoding.fast.weights import LayerWeights, layer_weights
from mrp.decoding.picks import Picks
from mrp.models.head import Head
from mrp.models.transformer import Backbone, BackboneConfig, DecoderLayer, rotary


class Stack:
    """Decoder layers over a cache, from the first norm to the last."""

    def __init__(
        self,
        config: BackboneConfig,
        layers: nn.ModuleList,
        last_norm: Tensor,
        cache: KVCache,
        *,
        invariant: bool = False,
    ) -> None:
        """Prepare the layers; `invariant`: see `FastForwards`."""
        self.layers: list[LayerWeights] = [
            layer_weights(cast(DecoderLayer, layer)) for layer in layers
        ]
        self.norms = [layer.attention_norm for layer in self.layers[1:]] + [last_norm]
        self.cache, self.eps, self.invariant = cache, config.rms_norm_eps, invariant
        length, dtype = cache.keys[0].shape[1], cache.keys[0].dtype
        positions = torch.arange(length, device=cache.keys[0].device)[None]
        cos, sin = rotary(positions, config.head_dim, config.rope_theta, dtype)
        self.attention = BlockAttention(
            Heads(config.num_attention_heads, config.num_key_value_heads, config.head_dim),
            cos[0, 0].contiguous(),
            sin[0, 0].contiguous(),
            config.rms_norm_eps,
            invariant=invariant,
        )

    def __call__(self, residual: Tensor, normed: Normed, blocks: Blocks) -> Tensor:
        """Run all layers on M * B rows.

        Args:
            residual: input of the first layer, [M * B, H].
            normed: the same after the first layer's first norm.
            blocks: the M blocks that the rows are.

        Returns:
            The output after the last norm, [M * B, H].
        """
        invariant = self.invariant
        if invariant and blocks.shadow is None:  # one kernel with shadows and without
            blocks = blocks._replace(shadow=torch.zeros_like(blocks.row, dtype=torch.bool))
        blocks = blocks.each(Tensor.contiguous)
        weights = (self.layers[0].gate_up, self.layers[0].qkv)
        defer = all(suits(residual, weight, invariant) for weight in weights)
        for index, layer in enumerate(self.layers):
            mixed = self.attention(
                product(normed, layer.qkv, self.eps, invariant=invariant),
                layer.q_norm,
                layer.k_norm,
                blocks,
                self.cache.keys[index],
                self.cache.values[index],
            )
            parts = product(Normed(mixed), layer.out, self.eps, invariant=invariant)
            residual, normed = residual_norm(parts, residual, layer.mlp_norm, self.eps, defer)
            gated = gated_product(normed, layer.gate_up, self.eps, invariant=invariant)
            parts = product(Normed(gated), layer.down, self.eps, invariant=invariant)
            defer = defer and index + 1 < len(self.layers)
            residual, normed = residual_norm(parts, residual, self.norms[index], self.eps, defer)
        return normed.values


class FastForwards:
    """Forwards of a backbone and a head over their caches; see `Blocks` for what they run on.

    Construction merges the models' q/k/v and gate/up weights in place (the modules go on working).
    In bf16 up to 64 rows, and more where the weights are tiny, run on kernels that read the weights
    at the memory's speed; a row's result there does not depend on the rows beside it. More rows,
    and fp32, use the library's products, where it does. With `invariant` it never does, at some
    cost in speed: products take their rows in tiles of one size, and attention and norms divide
    their work alike, for any number of blocks. A `shortlist` may still break exact ties among its
    last tokens otherwise.
    """

    def __init__(
        self,
        backbone: Backbone,
        head: Head | None,
        cache: KVCache,
        head_cache: KVCache | None,
        *,
        invariant: bool = False,
    ) -> None:
        """Prepare the models; `head_cache` is needed where there is a head."""
        trunk, config = backbone.model, backbone.config
        self.mask_id, self.eps = config.mask_token_id, config.rms_norm_eps
        self.embedding = trunk.embed_tokens.weight.detach()
        self.vocabulary = backbone.lm_head.weight.detach()
        self.invariant = invariant
        self.trunk = Stack(
            config, trunk.layers, trunk.norm.weight.detach(), cache, invariant=invariant
        )
        self.head_module = head
        if head is not None:
            assert head_cache is not None
            self.head_stack = Stack(
                config, head.layers, head.norm.weight.detach(), head_cache, invariant=invariant
            )

    def backbone(self, blocks: Blocks, wanted: Tensor | None = None) -> Tensor:
        """The backbone's final normed hidden states [M, B, H], wanted or not; writes its cache."""
        residual, normed = embed_norm(
            blocks.ids.flatten(), self.embedding, self.trunk.layers[0].attention_norm, self.eps
        )
        return self.trunk(residual, normed, blocks).view(*blocks.ids.shape, -1)

    def head(self, blocks: Blocks, hidden: Tensor) -> Tensor:
        """The head's residual [M, B, H] over hidden states [M, B, H]; writes the head's cache."""
        head = self.head_module
        assert head is not None
        rows, size = blocks.ids.numel(), hidden.shape[-1]
        fused = torch.empty((rows, 2 * size), device=hidden.device, dtype=hidden.dtype)
        embed_norm(
            blocks.ids.flatten(),
            self.embedding,
            head.enorm.weight.detach(),
            self.eps,
            out=fused[:, :size],
        )
        norm(hidden.reshape(rows, size), head.hnorm.weight.detach(), self.eps, out=fused[:, size:])
        residual, normed = residual_norm(
            product(
                Normed(fused), head.eh_proj.weight.detach(), self.eps, invariant=self.invariant
            ),
            None,
            self.head_stack.layers[0].attention_norm,
            self.eps,
            defer=False,
        )
        return self.head_stack(residual, normed, blocks).view(*blocks.ids.shape, -1)

    def logits(self, hidden: Tensor) -> Tensor:
        """W h of hidden [..., H]: [..., V], minus infinity at the mask token."""
        logits = vocabulary.logits_of(hidden, self.vocabulary, self.invariant)
        logits[..., self.mask_id] = -torch.inf
        return logits

    def pick(self, hidden: Tensor, masked: Tensor) -> Picks:
        """The greedy picks over the whole vocabulary.

        Args:
            hidden: [..., B, H].
            masked: [..., B], which positions may be revealed.
        """
        return vocabulary.merge(self._tiles(hidden), masked)

    def shortlist(self, hidden: Tensor, count: int) -> Tensor:
        """The `count` likeliest tokens at each position of hidden [..., B, H], ids ascending.

        Of each tile of 64 neighbouring ids at most one token is listed (see `vocabulary`).
        """
        return self._likeliest(self._tiles(hidden), hidden, count)

    def pick_and_shortlist(
        self, hidden: Tensor, masked: Tensor, count: int
    ) -> tuple[Picks, Tensor]:
        """`pick` and `shortlist` for the price of one pass over the vocabulary."""
        tiles = self._tiles(hidden)
        return vocabulary.merge(tiles, masked), self._likeliest(tiles, hidden, count)

    def pick_shortlist(self, hidden: Tensor, shortlist: Tensor, masked: Tensor) -> Picks:
        """The picks among the tokens `shortlist` [..., B, n] only; odds against those alone."""
        size, count = hidden.shape[-1], shortlist.shape[-1]
        tiles = vocabulary.tiles_of_list(
            hidden.reshape(-1, size),
            self.vocabulary,
            shortlist.reshape(-1, count),
            self.mask_id,
        )
        return vocabulary.merge(tiles, masked)

    def _tiles(self, hidden: Tensor) -> vocabulary.Tiles:
        rows = hidden.reshape(-1, hidden.shape[-1])
        return vocabulary.tiles_of_product(rows, self.vocabulary, self.mask_id, self.invariant)

    def _likeliest(self, tiles: vocabulary.Tiles, hidden: Tensor, count: int) -> Tensor:
        shape = (*hidden.shape[:-1], count)
        if tiles.best.shape[1] < 8 * count:  # a vocabulary too small for that approximation
            return self.logits(hidden).topk(count, dim=-1).indices.sort(dim=-1).values
        place = tiles.best.topk(count, dim=-1, sorted=False).indices
        return tiles.tokens.gather(1, place).long().sort(dim=-1).values.view(shape)
