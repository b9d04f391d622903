"""What only a GPU shows: the compiled step, fused flex attention, and runs under autocast.

Needs torch, transformers and pytest: pytest -o addopts= tests/training/test_gpu.py
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from mrp.models import Backbone, BackboneConfig, Head, HeadConfig
from mrp.training.batches import Batches
from mrp.training.distributed import World
from mrp.training.losses import Batch, HeadObjective
from mrp.training.masks import FlexAttention, attention
from mrp.training.packing import pack
from mrp.training.settings import HeadTraining
from tests.tiny import EOS, MASK, PAD
from tests.training.rows import random_samples

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU here"),
]
CUDA = torch.device("cuda")


@pytest.fixture(autouse=True)
def compile_anew() -> None:
    """What other tests compiled counts towards how often torch compiles one function anew."""
    torch._dynamo.reset()


@pytest.mark.parametrize("length", [128, 1024])
def test_the_compiled_step_equals_the_eager_one_on_the_cpu(length: int) -> None:
    config = BackboneConfig(
        vocab_size=24,
        hidden_size=64,
        intermediate_size=96,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=16,
        mask_token_id=MASK,
        pad_token_id=PAD,
        eos_token_ids=(EOS,),
        block_size=16,
        initializer_range=0.1,
    )
    settings = HeadTraining(batch_size=2, packed_length=length)
    rows = pack(random_samples(0, 400, longest=90), length, 16, PAD)
    # The batches are the CPU's on both sides: a generator's numbers differ between devices.
    source = Batches(rows, settings, World(), torch.device("cpu"), 2)
    results = []
    for device, compiled in ((torch.device("cpu"), False), (CUDA, True)):
        backbone = Backbone(config)
        backbone.reset_parameters(torch.Generator().manual_seed(0))
        head = Head(HeadConfig(config, 2, "k2"))
        head.reset_parameters("normal-0.02", torch.Generator().manual_seed(1))
        backbone.to(device).requires_grad_(False)
        objective = HeadObjective(backbone, head.to(device), compiled)
        losses = []
        for step in range(3):
            batch, _ = source(step)
            part = rows.take(source.row_numbers(step)).to(device)
            tensors = {name: getattr(batch, name).to(device) for name in batch._fields[:4]}
            batch = Batch(**tensors, attend_views=attention(part, 3), attend=attention(part))
            assert isinstance(batch.attend, FlexAttention) == (compiled and length >= 1024)
            loss, _ = objective(batch)
            loss.backward()
            losses.append(loss.detach().cpu())
        assert head.eh_proj.weight.grad is not None
        results.append((torch.stack(losses), head.eh_proj.weight.grad.cpu()))
    torch.testing.assert_close(results[1], results[0], atol=2e-3, rtol=2e-2)


def test_a_run_under_autocast_learns(tmp_path: Path) -> None:
    from mrp.training.backbone import train_backbone
    from mrp.training.settings import BackboneTraining, DataSettings

    settings = BackboneTraining(steps=200, batch_size=64, pool=2000, warmup=20)
    train_backbone(settings, DataSettings(test=4), tmp_path, "cuda")
    rows = (tmp_path / "metrics.csv").read_text().splitlines()[1:]
    assert float(rows[-1].split(",")[2]) < float(rows[0].split(",")[2]) - 0.5


@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="no two GPUs here")
def test_two_gpus_train_what_one_does(tmp_path: Path) -> None:
    """As far as bfloat16 tells: the losses, since AdamW enlarges what rounding does to weights."""
    from mrp.training.backbone import train_backbone
    from mrp.training.launch import launch
    from mrp.training.settings import BackboneTraining, DataSettings

    settings = BackboneTraining(
        steps=60, batch_size=32, pool=1000, warmup=10, log_every=20, compile=False
    )
    losses = []
    for processes in (1, 2):
        out = tmp_path / str(processes)
        arguments = {"settings": settings, "data": DataSettings(test=4), "device": "cuda"}
        launch(train_backbone, processes, out, **arguments)
        assert json.loads((out / "provenance.json").read_text())["processes"] == processes
        rows = (out / "metrics.csv").read_text().splitlines()[1:]
        losses.append(torch.tensor([float(row.split(",")[1]) for row in rows]))
    torch.testing.assert_close(losses[1], losses[0], atol=0.0, rtol=0.02)
