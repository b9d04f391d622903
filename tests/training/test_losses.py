"""The objectives against the method's formulas, written out one token at a time."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor, nn

from mrp.models import Attend, Backbone, Head, MaskedAttention
from mrp.training import losses
from mrp.training.losses import BackboneObjective, Batch, HeadObjective
from mrp.training.masks import block_diffusion_mask
from mrp.training.noise import draw, generator_for, mask_answers
from mrp.training.packing import PackedRows, pack
from tests.tiny import MASK, PAD, tiny_backbone, tiny_head
from tests.training.rows import BLOCK, batches, random_rows, random_samples


def probabilities(rows: PackedRows, numbers: Tensor, seed: int, step: int) -> Tensor:
    """p of each token of a batch, drawn again."""
    taken = rows.take(numbers)
    draws = draw((len(numbers), rows.ids.shape[1]), BLOCK, 0, generator_for(seed, "noise", step))
    return mask_answers(taken, draws, "sample", 0.0)[1]


def slow_mean(rows: PackedRows, values: Tensor, masked: Tensor, p: Tensor) -> float:
    """Sum of value / p over each sample's masked tokens / its answer length; mean over samples."""
    per_sample = []
    for row in range(len(rows)):
        for number in range(int(rows.samples_per_row[row])):
            here = [i for i in range(rows.ids.shape[1]) if rows.sample[row, i] == number]
            answers = sum(bool(rows.answer[row, i]) for i in here)
            terms = [float(values[row, i]) / float(p[row, i]) for i in here if masked[row, i]]
            per_sample.append(sum(terms) / answers)
    return sum(per_sample) / len(per_sample)


def slow_kl(target: Tensor, predicted: Tensor) -> Tensor:
    """KL( softmax target || softmax predicted ) over the last dimension, in float64."""
    p, q = target.double().softmax(-1), predicted.double().softmax(-1)
    return (p * (p / q).log()).sum(-1)


def hidden_of(backbone: Backbone, batch: Batch, mask: Tensor) -> tuple[Tensor, Tensor]:
    """Noisy and clean hidden states of one [noisy ; clean] forward."""
    ids = torch.cat([torch.where(mask, MASK, batch.clean), batch.clean], dim=1)
    both = backbone.hidden(ids, batch.position.repeat(1, 2), batch.attend)
    return both.tensor_split(2, dim=1)  # type: ignore[return-value]


@pytest.mark.parametrize("dense", [True, False])
def test_backbone_loss_is_the_formula(dense: bool) -> None:
    rows, backbone = random_rows(0), tiny_backbone(0, BLOCK)
    source = batches(rows, seed=5)
    batch, _ = source(2)
    numbers = source.row_numbers(2)
    objective = BackboneObjective(backbone, compiled=False)
    objective.dense = dense
    loss, mean = objective(batch)
    hidden, _ = hidden_of(backbone, batch, batch.masks[0])
    log_p = backbone.logits(hidden).double().log_softmax(-1)
    entropy = -log_p.gather(-1, batch.clean[..., None])[..., 0]
    p = probabilities(rows, numbers, 5, 2)
    wanted = slow_mean(rows.take(numbers), entropy, batch.masks[0], p)
    assert math.isclose(float(loss), wanted, rel_tol=1e-5)
    assert math.isclose(float(mean), float(entropy[batch.masks[0]].mean()), rel_tol=1e-5)


@pytest.mark.parametrize("dense", [True, False])
@pytest.mark.parametrize(
    ("objective_name", "reveals"), [("residual", 1), ("residual", 2), ("direct", 1)]
)
def test_head_loss_is_the_formula(objective_name: str, reveals: int, dense: bool) -> None:
    rows, backbone = random_rows(0), tiny_backbone(0, BLOCK)
    head = tiny_head(backbone, 1, 2, objective_name)  # type: ignore[arg-type]
    source = batches(rows, reveals, seed=5)
    batch, _ = source(2)
    objective = HeadObjective(backbone, head, compiled=False)
    objective.dense = dense
    loss, _ = objective(batch)

    p = probabilities(rows, source.row_numbers(2), 5, 2)
    accumulated, clean = hidden_of(backbone, batch, batch.masks[0])
    divergences = []
    for mask in batch.masks[1:]:
        revealed = torch.where(mask, MASK, batch.clean)
        r, _ = head(
            backbone.embed(torch.cat([revealed, batch.clean], dim=1)),
            torch.cat([accumulated, clean], dim=1),
            batch.position.repeat(1, 2),
            batch.attend,
        ).tensor_split(2, dim=1)
        accumulated = r if objective_name == "direct" else accumulated + r
        target, _ = hidden_of(backbone, batch, mask)
        kl = slow_kl(backbone.logits(target), backbone.logits(accumulated))
        divergences.append(slow_mean(rows.take(source.row_numbers(2)), kl, mask, p))
    assert math.isclose(float(loss), sum(divergences) / reveals, rel_tol=1e-4)


class PerfectHead(Head):
    """Knows the backbone: its residual leads exactly to the state after the reveal."""

    def forward(
        self, embeddings: Tensor, hidden: Tensor, positions: Tensor, attend: Attend
    ) -> Tensor:
        mask = self.masks.pop(0)
        wanted, _ = hidden_of(self.teacher[0], self.batch, mask)
        return torch.cat([wanted - hidden[:, : wanted.shape[1]], torch.zeros_like(wanted)], dim=1)


@pytest.mark.parametrize("reveals", [1, 2])
def test_kl_is_zero_when_the_residual_is_exact(reveals: int) -> None:
    backbone = tiny_backbone(0, BLOCK)
    batch, _ = batches(random_rows(0), reveals)(0)
    head = PerfectHead(tiny_head(backbone, 1).config)
    head.teacher, head.batch, head.masks = [backbone], batch, list(batch.masks[1:])
    loss, mean = HeadObjective(backbone, head, compiled=False)(batch)
    assert abs(float(loss)) < 1e-6
    assert abs(float(mean)) < 1e-6


def test_gradients_reach_the_head_alone_and_through_the_chain() -> None:
    backbone = tiny_backbone(0, BLOCK).requires_grad_(False)
    head = tiny_head(backbone, 1).requires_grad_(True)
    batch, _ = batches(random_rows(0), 2)(0)
    # Without loss on the first step, its call of the head still gets gradient through the second.
    outputs: list[Tensor] = []

    def keep(module: nn.Module, inputs: object, output: Tensor) -> None:
        output.retain_grad()
        outputs.append(output)

    head.register_forward_hook(keep)
    objective = HeadObjective(backbone, head, compiled=False)
    only_second = batch._replace(
        masks=torch.stack([batch.masks[0], torch.zeros_like(batch.masks[1]), batch.masks[2]])
    )
    objective(only_second)[0].backward()
    assert all(output.grad is not None and output.grad.abs().sum() > 0 for output in outputs)
    assert all(parameter.grad is not None for parameter in head.parameters())
    assert all(parameter.grad is None for parameter in backbone.parameters())


def test_a_packed_loss_is_the_mean_of_the_samples_alone() -> None:
    samples = random_samples(4, 6, longest=12)
    packed = pack(samples, 64, BLOCK, PAD)
    assert len(packed) < len(samples)
    backbone = tiny_backbone(0, BLOCK)
    objective = BackboneObjective(backbone, compiled=False)
    batch, _ = batches(packed, size=len(packed))(0)
    order = batches(packed, size=len(packed)).row_numbers(0)
    rows = packed.take(order)
    alone = []
    for row in range(len(rows)):
        for number in range(int(rows.samples_per_row[row])):
            here = rows.sample[row] == number
            one = torch.zeros(1, int(here.sum()), dtype=torch.long)
            attend = MaskedAttention(
                block_diffusion_mask(one, rows.position[row, here][None] // BLOCK)
            )
            part = Batch(
                batch.clean[row, here][None],
                rows.position[row, here][None],
                batch.weight[row, here][None],
                batch.masks[:, row, here][:, None],
                attend,
                attend,
            )
            alone.append(objective(part)[0])
    assert len(alone) == len(samples)
    torch.testing.assert_close(objective(batch)[0], torch.stack(alone).sum())


def test_chunks_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    backbone = tiny_backbone(0, BLOCK).requires_grad_(False)
    head = tiny_head(backbone, 1).requires_grad_(True)
    batch, _ = batches(random_rows(0), 1)(0)
    results = []
    for limit in (2**28, 5 * backbone.config.vocab_size):
        monkeypatch.setattr(losses, "LOGITS_AT_ONCE", limit)
        head.zero_grad()
        loss, _ = HeadObjective(backbone, head, compiled=False)(batch)
        loss.backward()
        assert head.eh_proj.weight.grad is not None
        results.append((loss.detach(), head.eh_proj.weight.grad.clone()))
    torch.testing.assert_close(results[0], results[1])
