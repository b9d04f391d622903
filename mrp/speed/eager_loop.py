"""A baseline written the way public block-diffusion loops are: what the engine is compared with.

One block after the other, one forward after the other, each a chain of small operations started
from Python: keys and values are kept by concatenation and copied for every query group, every
layer asks the device whether its mask is full, each step takes a full fp32 softmax over the
vocabulary, and a finished block is stored by a forward of its own. The text is that of static
decoding; only the samples of a batch must have prompts of equal length and equal budgets.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn import functional as F

from mrp.decoding import Decoded, Trace
from mrp.errors import UserError
from mrp.models import Backbone


class GrowingCache:
    """Keys and values by concatenation."""

    def __init__(self, layers: int) -> None:
        self.keys: list[Tensor | None] = [None] * layers
        self.values: list[Tensor | None] = [None] * layers
        self.store = False
        self.mask = torch.empty(0)  # [1, 1, T, T + stored], True where attended

    def __call__(self, layer: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        """Attention of q [N, Hq, T, D] over the stored and the given keys and values."""
        old_keys, old_values = self.keys[layer], self.values[layer]
        if old_keys is not None and old_values is not None:
            k, v = torch.cat((old_keys, k), dim=2), torch.cat((old_values, v), dim=2)
        if self.store:
            self.keys[layer], self.values[layer] = k, v
        groups = q.shape[1] // k.shape[1]
        k, v = k.repeat_interleave(groups, dim=1), v.repeat_interleave(groups, dim=1)
        mask = None if bool(torch.all(self.mask)) else self.mask
        return F.scaled_dot_product_attention(q, k, v, attn_mask=mask)


@torch.inference_mode()
def eager_loop(
    backbone: Backbone, prompts: Sequence[list[int]], max_new_tokens: int
) -> list[Decoded]:
    """Static decoding of a batch, one reveal a step.

    Raises:
        UserError: the prompts are not of one length.
    """
    config, device = backbone.config, backbone.lm_head.weight.device
    block = config.block_size
    if len({len(prompt) for prompt in prompts}) != 1:
        raise UserError("the eager loop decodes prompts of one length: give such, or one at a time")
    ids = torch.tensor(prompts, device=device)
    count, length = ids.shape
    total = -(-(length + max_new_tokens) // block) * block
    ids = F.pad(ids, (0, total - length), value=config.mask_token_id)
    cache = GrowingCache(config.num_hidden_layers)
    begin = length // block * block
    if begin:
        number = torch.arange(begin, device=device) // block
        cache.store, cache.mask = True, (number <= number[:, None])[None, None]
        backbone.hidden(ids[:, :begin], _positions(0, begin, count, device), cache)
    steps = 0
    while begin < total:
        end = begin + block
        positions = _positions(begin, end, count, device)
        cache.mask = torch.ones((1, 1, block, end), dtype=torch.bool, device=device)
        cache.store = False
        while bool((ids[:, begin:end] == config.mask_token_id).any()):
            logits = backbone.logits(backbone.hidden(ids[:, begin:end], positions, cache))
            logits[..., config.mask_token_id] = -torch.inf
            probability, tokens = F.softmax(logits, dim=-1, dtype=torch.float32).max(dim=-1)
            masked = ids[:, begin:end] == config.mask_token_id
            best = torch.where(masked, probability, -torch.inf).topk(1, dim=-1).indices
            for row in range(count):
                ids[row, begin + best[row]] = tokens[row, best[row]]
            steps += 1
        new = ids[:, length:end].tolist()
        if all(any(token in config.eos_token_ids for token in row) for row in new):
            break
        if end < total:
            cache.store = True
            backbone.hidden(ids[:, begin:end], positions, cache)
        begin = end
    return [
        _decoded(index, row, max_new_tokens, config.eos_token_ids, steps)
        for index, row in enumerate(ids[:, length : begin + block].tolist())
    ]


def _positions(begin: int, end: int, count: int, device: torch.device) -> Tensor:
    return torch.arange(begin, end, device=device).expand(count, -1)


def _decoded(index: int, ids: list[int], budget: int, ends: tuple[int, ...], steps: int) -> Decoded:
    end = next((place for place, token in enumerate(ids) if token in ends), None)
    kept = min(budget, len(ids) if end is None else end)
    ended = end is not None and end < budget
    counts = {"generated": len(ids), "answer_tokens": kept + ended, "denoise": steps, "verify": 0}
    return Decoded(index, ids[:kept], ended, counts, Trace(ids, [], [], []))
