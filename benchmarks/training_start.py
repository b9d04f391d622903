"""How long a training takes to its first step, and then a step: compiled whole, or by regions.

    python3 -m benchmarks.training_start [--suite NAME] [--backbone L] [--head NAME] [--device cuda]
        [--batch N] [--steps 50]

Each variant runs in a process of its own with empty caches of compiled code: `regions` is what
training does, `whole` makes one graph of the whole objective. Shapes and variant are the suite's,
the examples are few. Printed are the first forward and backward in seconds and in processor
seconds of this process (kernels are compiled by others), then a later step's milliseconds, until
the device is done and until the host has handed it over.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from dataclasses import replace

VARIANTS = ("regions", "whole")


def measure(args: argparse.Namespace) -> str:
    """One variant's line."""
    import torch

    from mrp.config import training
    from mrp.data import build_tokenizer
    from mrp.evaluation.tokenizer import load_tokenizer
    from mrp.grid import load_suite
    from mrp.models import Backbone, Head, HeadConfig
    from mrp.training.backbone import backbone_config
    from mrp.training.batches import Batches
    from mrp.training.distributed import World
    from mrp.training.head import VARIANTS as HEADS
    from mrp.training.losses import BackboneObjective, HeadObjective
    from mrp.training.noise import generator_for
    from mrp.training.runs import packed_pool
    from mrp.training.settings import BackboneTraining, DataSettings, HeadTraining

    suite, device = load_suite(args.suite), torch.device(args.device)
    if device.type == "cpu":
        torch.set_num_threads(1)
    shape = training(suite.backbones[args.backbone], "backbone")
    assert isinstance(shape, BackboneTraining)
    settings: BackboneTraining | HeadTraining = shape
    compiled, reveals = args.variant == "regions", 0
    with tempfile.TemporaryDirectory() as folder:
        build_tokenizer(folder)
        tokenizer = load_tokenizer(folder)
    config = backbone_config(shape, tokenizer)
    backbone = Backbone(config)
    backbone.reset_parameters(generator_for(0, "backbone"))
    model: torch.nn.Module = backbone.to(device)
    objective: BackboneObjective | HeadObjective
    if args.head:
        given = training(suite.heads[args.head], "head")
        assert isinstance(given, HeadTraining)
        settings, (meaning, reveals) = given, HEADS[given.variant]
        head = Head(HeadConfig(config, given.num_layers, given.variant, meaning))
        head.reset_parameters(given.init, generator_for(0, "head"))
        backbone.requires_grad_(False)
        objective, model = HeadObjective(backbone, head.to(device), compiled), head
    else:
        objective = BackboneObjective(backbone, compiled)
    if not compiled:
        objective.dense = True
        objective.compile()
    size = args.batch or settings.batch_size
    settings = replace(settings, pool=20 * size, batch_size=size)
    data = DataSettings(suite.data.level, suite.seed, 4)
    rows = packed_pool(settings, data, tokenizer, config.block_size, config.pad_token_id)
    batches = Batches(rows, settings, World(), device, reveals, getattr(settings, "reveal", "gt-1"))
    given_batches = [batches(step)[0] for step in range(4)]

    def step(number: int) -> None:
        with torch.autocast(device.type, torch.bfloat16, enabled=device.type == "cuda"):
            loss, _ = objective(given_batches[number % 4])
        loss.backward()
        model.zero_grad(set_to_none=True)

    def ready() -> float:
        if device.type == "cuda":
            torch.cuda.synchronize()
        return time.perf_counter()

    wall, cpu = ready(), time.process_time()
    step(0)
    first, first_cpu = ready() - wall, time.process_time() - cpu
    for number in range(1, 10):
        step(number)
    wall = ready()
    for number in range(args.steps):
        step(number)
    each = (ready() - wall) / args.steps
    hosts = []
    for number in range(20):  # one at a time, so that the host never waits for a full queue
        wall = ready()
        step(number)
        hosts.append(time.perf_counter() - wall)
    name = f"{args.backbone} {args.head or 'backbone'}"
    return (
        f"{name:20} {args.variant:8} first {first:6.1f} s, processor {first_cpu:6.1f} s; "
        f"step {each * 1e3:7.2f} ms, host {sorted(hosts)[10] * 1e3:6.2f} ms"
    )


def main() -> None:
    """Run every variant in its own process, or the one that --variant names in this."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--suite", default="replica")
    parser.add_argument("--backbone", default="L")
    parser.add_argument("--head", default="")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--batch", type=int, default=0)
    parser.add_argument("--steps", type=int, default=50)
    parser.add_argument("--variant", choices=VARIANTS)
    args = parser.parse_args()
    if args.variant:
        print(measure(args), flush=True)
        return
    for variant in VARIANTS:
        with tempfile.TemporaryDirectory() as caches:
            environment = {**os.environ, "TORCHINDUCTOR_CACHE_DIR": caches}
            command = [sys.executable, "-m", "benchmarks.training_start", *sys.argv[1:]]
            subprocess.run([*command, "--variant", variant], env=environment, check=True)


if __name__ == "__main__":
    main()
