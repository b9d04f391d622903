"""Compiled regions: one program for all layers, however many batches, and the eager step's numbers.

The graphs are traced and differentiated as on a GPU, then run as they are: making kernels of them
takes a minute of a CPU, and is the slow form.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import pytest
import torch
from torch import Tensor, nn
from torch._dynamo.testing import CompileCounterWithBackend

from mrp.training.losses import BackboneObjective, HeadObjective
from mrp.training.masks import FlexAttention, flex_mask
from tests.tiny import tiny_backbone, tiny_head
from tests.training.rows import BLOCK, batches, random_rows

LAYERS = 9  # more than torch compiles one function anew


@pytest.fixture(params=["aot_eager", pytest.param("inductor", marks=pytest.mark.slow)])
def graphs(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> Iterator[CompileCounterWithBackend]:
    """Counts what is compiled."""
    counter = CompileCounterWithBackend(request.param)
    monkeypatch.setattr(torch, "compile", partial(torch.compile, backend=counter))
    torch._dynamo.reset()
    yield counter
    torch._dynamo.reset()


def steps(kind: str, compiled: bool) -> tuple[Tensor, list[Tensor]]:
    """The losses of three steps, and the gradients that they add up to."""
    rows, backbone = random_rows(0), tiny_backbone(0, BLOCK, layers=LAYERS)
    objective: BackboneObjective | HeadObjective
    model: nn.Module = backbone.requires_grad_(True)
    if kind.startswith("head"):
        backbone.requires_grad_(False)
        model = tiny_head(backbone, 1, 3).requires_grad_(True)
        source, objective = batches(rows, 2), HeadObjective(backbone, model, compiled)  # type: ignore[arg-type]
    else:
        source, objective = batches(rows), BackboneObjective(backbone, compiled)
    if kind == "backbone, large vocabulary":
        objective.dense = False
    losses = []
    for step in range(3):
        batch, _ = source(step)
        if kind == "head, long rows":  # the views alone: on a CPU this attention has no gradient
            part = rows.take(source.row_numbers(step))
            views = FlexAttention(flex_mask(part.sample, part.block, 3), compiled=False)
            batch = batch._replace(attend_views=views)
        loss, _ = objective(batch)
        loss.backward()
        losses.append(loss.detach())
    return torch.stack(losses), [p.grad for p in model.parameters() if p.grad is not None]


@pytest.mark.filterwarnings("ignore:flex_attention called without torch.compile")
@pytest.mark.parametrize(
    ("kind", "programs"),
    [
        ("backbone", 2),  # layer and loss
        # The loss in two parts, the second twice: any size.
        pytest.param("backbone, large vocabulary", 4, marks=pytest.mark.slow),
        pytest.param("head", 3, marks=pytest.mark.slow),
        ("head, long rows", 3),  # a frozen layer, a head's, and the loss
    ],
)
def test_all_layers_and_batches_share_their_programs(
    kind: str, programs: int, graphs: CompileCounterWithBackend
) -> None:
    eager = steps(kind, compiled=False)
    assert graphs.frame_count == 0
    compiled = steps(kind, compiled=True)
    assert graphs.frame_count == programs
    torch.testing.assert_close(compiled, eager, atol=1e-4, rtol=1e-4)


def test_names_and_weights_stay_as_they_are() -> None:
    plain, compiled = tiny_backbone(0, BLOCK), tiny_backbone(0, BLOCK)
    BackboneObjective(compiled, compiled=True)
    assert list(compiled.state_dict()) == list(plain.state_dict())
