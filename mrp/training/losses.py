"""The training objectives of backbone and head, as modules that map a batch to a loss.

Both read a batch of packed rows with the masks already drawn. `weight` carries the whole
normalisation of the method (1/p, the answer's length, the mean over samples), so a loss is a
weighted sum over the tokens that are still masked.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

from mrp.models import Attend, Backbone, Head
from mrp.training.regions import compile_layers

# Logits held at once, in elements: beyond that, the loss is computed in recomputed chunks.
LOGITS_AT_ONCE = 2**28
# Up to this vocabulary, logits of every position are cheaper than picking the masked ones, when
# the step is compiled: a pick's size is known to the host only after it waited for the device.
DENSE_VOCABULARY = 1024


class Batch(NamedTuple):
    """One step's input: b rows of L clean tokens and the masks over them.

    `masks` [K+1, b, L]: which tokens are masked at first and after each of K reveals (K = 0 for a
    backbone). `weight` [b, L]: the weight of each token's loss if masked. `attend_views` serves
    K+1 noisy copies and the clean row, `attend` one noisy copy and the clean row.
    """

    clean: Tensor
    position: Tensor
    weight: Tensor
    masks: Tensor
    attend_views: Attend
    attend: Attend


class BackboneObjective(nn.Module):
    """Masked cross-entropy of a backbone on the noisy copy of each row."""

    metric = "ce"

    def __init__(self, backbone: Backbone, compiled: bool) -> None:
        """Keep the backbone; `compiled` compiles its layers and the loss (meant for a GPU)."""
        super().__init__()
        self.backbone = backbone
        self.dense = compiled and backbone.config.vocab_size <= DENSE_VOCABULARY
        self._sums = torch.compile(_sums) if compiled else _sums
        if compiled:
            compile_layers(backbone)

    def forward(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """Return the loss and, to read, the plain mean cross-entropy of the masked tokens."""
        config, masked = self.backbone.config, batch.masks[0]
        length = batch.clean.shape[1]
        noisy = torch.where(masked, config.mask_token_id, batch.clean)
        ids = torch.cat((noisy, batch.clean), dim=1)
        hidden = self.backbone.hidden(ids, batch.position.repeat(1, 2), batch.attend)[:, :length]

        def entropy(hidden: Tensor, target: Tensor) -> Tensor:
            logits = self.backbone.logits(hidden).float()
            return F.cross_entropy(logits, target, reduction="none")

        return self._sums(
            entropy, masked, batch.weight, self.dense, config.vocab_size, hidden, batch.clean
        )


class HeadObjective(nn.Module):
    """KL between the backbone's next distribution and the head's prediction of it.

    Method, "Training a head". One frozen forward gives the hidden states of every view (masked,
    then after each reveal) and of the clean row. The head reads [view k ; clean], so it learns
    with the prefix that it has in decoding; step k starts from what step k-1 predicted.
    """

    metric = "kl"

    def __init__(
        self, backbone: Backbone, head: Head, compiled: bool, temperature: float = 1.0
    ) -> None:
        """Keep both; `compiled` compiles their layers and the loss (meant for a GPU)."""
        super().__init__()
        self.head = head
        # Not a submodule: the backbone is frozen, so neither optimizer nor DDP should see it.
        self._frozen = (backbone,)
        self.temperature = temperature
        self.dense = compiled and backbone.config.vocab_size <= DENSE_VOCABULARY
        self._sums = torch.compile(_sums) if compiled else _sums
        if compiled:
            compile_layers(backbone)
            compile_layers(head)

    def forward(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """Return the loss, the mean over the K steps, and the plain mean KL of masked tokens."""
        (backbone,) = self._frozen
        length = batch.clean.shape[1]
        steps = batch.masks.shape[0] - 1
        views = torch.where(batch.masks, backbone.config.mask_token_id, batch.clean).unbind(0)
        with torch.no_grad():
            ids = torch.cat((*views, batch.clean), dim=1)
            position = batch.position.repeat(1, steps + 2)
            states = backbone.hidden(ids, position, batch.attend_views)
            hidden, *targets, clean = torch.split(states, length, dim=1)

        def divergence(target: Tensor, predicted: Tensor) -> Tensor:
            return token_kl(backbone.logits(target), backbone.logits(predicted), self.temperature)

        losses, plain = [], []
        for view, masked, target in zip(views[1:], batch.masks[1:], targets, strict=True):
            output = self.head(
                backbone.embed(torch.cat((view, batch.clean), dim=1)),
                torch.cat((hidden, clean), dim=1),
                batch.position.repeat(1, 2),
                batch.attend,
            )[:, :length]
            hidden = self.head.advance(hidden, output)
            loss, mean = self._sums(
                divergence,
                masked,
                batch.weight,
                self.dense,
                backbone.config.vocab_size,
                target,
                hidden,
            )
            losses.append(loss)
            plain.append(mean)
        return torch.stack(losses).mean(), torch.stack(plain).mean()


def token_kl(target: Tensor, predicted: Tensor, temperature: float = 1.0) -> Tensor:
    """KL( softmax(target / T) || softmax(predicted / T) ) of logits [n, V] in fp32, [n]."""
    teacher = F.log_softmax(target.float() / temperature, dim=-1)
    student = F.log_softmax(predicted.float() / temperature, dim=-1)
    return F.kl_div(student, teacher, reduction="none", log_target=True).sum(dim=-1)


def _sums(
    token_loss: Callable[..., Tensor],
    masked: Tensor,
    weight: Tensor,
    dense: bool,
    vocabulary: int,
    *inputs: Tensor,
) -> tuple[Tensor, Tensor]:
    """The weighted sum and the plain mean of a loss over the masked tokens.

    `inputs` [b, L, ...] are handed to `token_loss` flattened; unless `dense`, only their masked
    positions are.
    """
    flat = [tensor.flatten(0, 1) for tensor in inputs]
    mask, weight = masked.flatten(), weight.flatten()
    if not dense:
        index = mask.nonzero().squeeze(1)
        flat = [tensor[index] for tensor in flat]
        mask, weight = mask[index], weight[index]
    size = max(1, LOGITS_AT_ONCE // vocabulary)
    if flat[0].shape[0] <= size:
        values = token_loss(*flat)
    else:
        parts = zip(*(torch.split(tensor, size) for tensor in flat), strict=True)
        values = torch.cat([checkpoint(token_loss, *part, use_reentrant=False) for part in parts])
    values = torch.where(mask, values, 0.0)
    return (values * weight).sum(), values.detach().sum() / mask.sum().clamp(min=1)
