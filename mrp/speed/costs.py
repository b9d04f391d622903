"""What one forward costs, by role, beside the least that the hardware allows.

A forward's floor is the larger of two times: the bytes of the weights it reads over the memory's
bandwidth, and its multiplications over the arithmetic rate. Both ceilings are measured on the spot,
or given.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from statistics import median
from typing import Any

import torch
from torch import nn

from mrp.decoding.blocks import candidate_states, plain
from mrp.decoding.forwards import EagerForwards
from mrp.decoding.session import Session
from mrp.models import Backbone, Head
from mrp.speed.interleave import synchronize


@dataclass(frozen=True)
class Ceilings:
    """What a device can do: bytes read per second, and floating-point operations per second."""

    bytes_per_second: float
    flops: float


def measure_ceilings(device: torch.device, dtype: torch.dtype) -> Ceilings:
    """Bandwidth of a large copy (bytes read and written) and rate of a large product."""
    on_gpu = device.type == "cuda"
    size = 1 << 29 if on_gpu else 1 << 26
    source = torch.randn(size // 4, device=device)
    target = torch.empty_like(source)
    copied = time_of(lambda: target.copy_(source), device, 10)
    side = 8192 if on_gpu else 1024
    left = torch.randn((side, side), device=device, dtype=dtype)
    product = time_of(lambda: left @ left, device, 10)
    return Ceilings(2 * size / copied, 2 * side**3 / product)


def time_of(work: Callable[[], Any], device: torch.device, repeats: int) -> float:
    """Median seconds of a call, after two that are not counted."""
    seconds = []
    for number in range(repeats + 2):
        synchronize(device)
        start = time.perf_counter()
        work()
        synchronize(device)
        if number >= 2:
            seconds.append(time.perf_counter() - start)
    return median(seconds)


def matrix_parameters(*modules: nn.Module) -> int:
    """Parameters of the matrices that a forward multiplies with."""
    return sum(p.numel() for module in modules for p in module.parameters() if p.dim() > 1)


@torch.inference_mode()
def role_costs(
    backbone: Backbone,
    head: Head | None,
    batch: int,
    prefix: int,
    drafts: list[int],
    ceilings: Ceilings,
    repeats: int = 20,
) -> list[dict[str, Any]]:
    """Milliseconds of each kind of forward of `batch` blocks after `prefix` clean tokens.

    On a GPU every kind is captured and its replays are timed. `drafts` are the K whose
    verifications are timed.

    Returns:
        One entry a role: role, ms, floor_ms, share (floor over measured, 1 is the floor itself).
    """
    block = backbone.config.block_size
    states = max([0, *drafts]) + 1
    session = Session(backbone, head, batch, prefix + 2 * block, states)
    device, forwards = session.device, session.forwards
    if isinstance(forwards, EagerForwards) and device.type == "cuda":
        forwards.length = session.cache.length
    row = torch.arange(batch, device=device)
    start = torch.full((batch,), prefix, device=device)
    ids = torch.full((batch, block), backbone.config.mask_token_id, device=device)
    blocks = plain(ids, row, start)
    masked = torch.ones_like(ids, dtype=torch.bool)
    hidden = torch.randn(session.kept_hidden[:batch].shape, device=device).to(
        session.kept_hidden.dtype
    )

    layers = matrix_parameters(backbone.model.layers)
    vocabulary = backbone.lm_head.weight.numel()
    roles: list[tuple[str, Callable[[], Any], int, int]] = [
        ("backbone", lambda: forwards.backbone(blocks), layers, 1),
        ("pick", lambda: forwards.pick(hidden, masked), vocabulary, 1),
        (
            "backbone + pick",
            lambda: forwards.pick(forwards.backbone(blocks), masked),
            layers + vocabulary,
            1,
        ),
    ]
    if head is not None:
        parameters = matrix_parameters(head)
        roles.append(("head", lambda: forwards.head(blocks, hidden), parameters, 1))
        roles.append(
            (
                "head + pick",
                lambda: forwards.pick(forwards.head(blocks, hidden), masked),
                parameters + vocabulary,
                1,
            )
        )
    for k in drafts:
        copies = ids[:, None].repeat(1, k + 1, 1)
        many = candidate_states(copies, row, start)
        every = torch.ones_like(many.ids, dtype=torch.bool)
        roles.append(
            (
                f"verify K={k} + pick",
                lambda many=many, every=every: forwards.pick(forwards.backbone(many), every),  # type: ignore[misc]
                layers + vocabulary,
                k + 1,
            )
        )
    width = backbone.lm_head.weight.element_size()
    found = []
    for role, work, parameters, copies_each in roles:
        seconds = _captured(work, device, repeats)
        rows = batch * block * copies_each
        floor = max(
            parameters * width / ceilings.bytes_per_second, 2 * parameters * rows / ceilings.flops
        )
        found.append(
            {
                "role": role,
                "ms": 1e3 * seconds,
                "floor_ms": 1e3 * floor,
                "share": floor / seconds,
            }
        )
    return found


def _captured(work: Callable[[], Any], device: torch.device, repeats: int) -> float:
    """Median seconds of some work, on a GPU replayed as a graph and timed by its events."""
    if device.type != "cuda":
        return time_of(work, device, repeats)
    work()
    torch.cuda.synchronize(device)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        work()
    events = [torch.cuda.Event(enable_timing=True) for _ in range(repeats + 3)]
    for event in events:
        event.record()
        graph.replay()
    torch.cuda.synchronize(device)
    times = [a.elapsed_time(b) for a, b in pairwise(events[2:])]
    return float(median(times)) / 1e3
