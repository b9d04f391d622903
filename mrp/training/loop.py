"""The training loop of backbones and heads: optimise, log, checkpoint, resume.

Resume points are written at log steps only. There every process has just agreed on finite losses
and no half-filled average is open, so a resumed run repeats an uninterrupted one bit by bit.
"""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from contextlib import ExitStack, closing, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from mrp.errors import UserError
from mrp.training.batches import Batches
from mrp.training.distributed import World
from mrp.training.losses import BackboneObjective, HeadObjective
from mrp.training.progress import Progress
from mrp.training.settings import Optimization
from mrp.training.state import Metrics, Point, load_checkpoint, save_checkpoint
from mrp.turns import give_way, working


@dataclass
class Outcome:
    """How a run ended: its last logged numbers, its seconds, and the step it resumed from."""

    seconds: float
    resumed_from: int
    last: dict[str, float] = field(default_factory=dict)


def learning_rate(settings: Optimization, step: int) -> float:
    """The rate of a step (0-based): linear warm-up, then a cosine down to `min_lr`."""
    if step < settings.warmup:
        return settings.lr * (step + 1) / settings.warmup
    progress = (step - settings.warmup) / max(1, settings.steps - settings.warmup)
    span = settings.lr - settings.min_lr
    return settings.min_lr + span * 0.5 * (1.0 + math.cos(math.pi * min(1.0, progress)))


def fit(
    objective: BackboneObjective | HeadObjective,
    model: nn.Module,
    batches: Batches,
    settings: Optimization,
    identity: Mapping[str, Any],
    out_dir: Path,
    label: str,
) -> Outcome:
    """Train `model`, the part of `objective` that has gradients, for `settings.steps` steps.

    Writes the resume point and metrics.csv into `out_dir`; goes on from the resume point there.

    Raises:
        UserError: the loss stopped being finite, or the resume point is damaged.
    """
    device, world = batches.device, batches.world
    optimizer = torch.optim.AdamW(
        model.parameters(),
        lr=settings.lr,
        betas=(settings.beta1, settings.beta2),
        weight_decay=settings.weight_decay,
        fused=device.type == "cuda",
    )
    point = load_checkpoint(out_dir, model, optimizer, device)
    step_module = _shared(objective, world, device)
    columns = ["step", "loss", objective.metric, "lr", "tokens_per_second", "seconds"]
    metrics = Metrics(out_dir, columns, point.step, world.leads)
    progress = Progress(label, settings.steps, point.step, world.leads)
    outcome = Outcome(point.seconds, point.step)
    if point.step:
        progress.say(f"resuming from step {point.step} of {settings.steps}")
    window = _Window(point.step)
    saved = time.perf_counter()
    model.train()
    with closing(progress), ExitStack() as room:
        for step in range(point.step, settings.steps):
            if step == point.step + 1:  # the first one compiles: long, and mostly off the device
                room.enter_context(working())
            give_way()
            rate = learning_rate(settings, step)
            for group in optimizer.param_groups:
                group["lr"] = rate
            loss, metric, tokens = _gradients(step_module, batches, step)
            nn.utils.clip_grad_norm_(model.parameters(), settings.clip)
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
            window.add(loss, metric, tokens)

            done = step + 1
            if done % settings.log_every and done != settings.steps:
                continue
            loss_mean, metric_mean = window.close(world, settings)
            seconds = outcome.seconds = point.seconds + window.elapsed
            speed = window.tokens / window.seconds
            row = (done, loss_mean, metric_mean, rate, speed, seconds)
            outcome.last = dict(zip(columns, row, strict=True))
            metrics.append(_formatted(outcome.last))
            shown = ("loss", objective.metric, "tokens_per_second")
            progress.update(done, {name: _formatted(outcome.last)[name] for name in shown})
            if world.leads and time.perf_counter() - saved >= settings.checkpoint_seconds:
                save_checkpoint(out_dir, Point(done, seconds), identity, model, optimizer)
                saved = time.perf_counter()
            window.restart(done)
    return outcome


def _gradients(module: nn.Module, batches: Batches, step: int) -> tuple[Tensor, Tensor, int]:
    """Add up the gradients of a step's batch; returns its loss, metric and clean tokens.

    The parts' losses carry the whole batch's weights, so that they sum up to its loss.
    """
    device, goes = batches.device, batches.settings.accumulate
    losses, metrics = [], []
    for go in range(goes):
        batch, tokens = batches(step, go)
        waits = isinstance(module, DistributedDataParallel) and go < goes - 1
        # Processes exchange their gradients once a step.
        with cast(DistributedDataParallel, module).no_sync() if waits else nullcontext():
            with torch.autocast(device.type, torch.bfloat16, enabled=device.type == "cuda"):
                loss, metric = module(batch)
            loss.backward()
        losses.append(loss.detach())
        metrics.append(metric)
    return torch.stack(losses).sum(), torch.stack(metrics).mean(), tokens


class _Window:
    """The steps since the last log line; their losses stay on the device until it is due."""

    def __init__(self, first: int) -> None:
        self.started = time.perf_counter()
        self.restart(first)

    def restart(self, first: int) -> None:
        self.first = first
        self.values: list[Tensor] = []
        self.tokens = 0
        self.opened = time.perf_counter()

    def add(self, loss: Tensor, metric: Tensor, tokens: int) -> None:
        self.values.append(torch.stack((loss, metric)))
        self.tokens += tokens

    def close(self, world: World, settings: Optimization) -> tuple[float, float]:
        """Mean loss and metric over steps and processes; waits for the device."""
        values = world.mean(torch.stack(self.values)).cpu()
        now = time.perf_counter()
        self.seconds, self.elapsed = now - self.opened, now - self.started
        finite = values.isfinite().all(dim=1)
        if not finite.all():
            step = self.first + int((~finite).nonzero()[0])
            raise UserError(
                f"the loss is not finite at step {step + 1} (lr "
                f"{learning_rate(settings, step):.3g}); lower lr or raise warmup in the settings"
            )
        loss, metric = values.double().mean(dim=0).tolist()
        return loss, metric


def _shared(module: nn.Module, world: World, device: torch.device) -> nn.Module:
    """The module as it is called every step: wrapped, if many processes share its gradients."""
    if world.size == 1:
        return module
    ids = [device.index] if device.type == "cuda" else None
    return DistributedDataParallel(module, device_ids=ids)


def _formatted(values: Mapping[str, float]) -> dict[str, str]:
    formats = {"step": "d", "tokens_per_second": ".0f", "seconds": ".2f"}
    return {name: format(value, formats.get(name, ".6g")) for name, value in values.items()}
