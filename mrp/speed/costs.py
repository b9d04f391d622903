"""What one forward costs, by role, beside the least that the hardware allows.

A forward's floor is the larger of two times: the bytes of the weights it reads over the memory's
bandwidth, and its multiplications over the arithmetic rate. Both ceilings are measured on the spot,
or given.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from statistics import median
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from mrp.decoding import Decoder, Mode, make_mode
from mrp.decoding.blocks import Blocks, candidate_states, plain
from mrp.decoding.engine import Rounds
from mrp.decoding.forwards import EagerForwards
from mrp.decoding.graphs import GraphRounds, capturing
from mrp.decoding.picks import Picks
from mrp.decoding.rounds import ExactRounds
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
    drafts: Sequence[int],
    ceilings: Ceilings,
    repeats: int = 20,
    *,
    lists: Sequence[int] = (),
    prompts: Sequence[list[int]] = (),
) -> list[dict[str, Any]]:
    """Milliseconds of each kind of forward of `batch` blocks after `prefix` clean tokens.

    On a GPU every kind is captured and its replays are timed; of the prefill, whole calls are.

    Args:
        backbone, head, batch, prefix: what is timed.
        drafts: the K whose verifications are timed.
        ceilings: for the floors.
        repeats: how often each is timed.
        lists: lengths of shortlists (0: none) that verifications make and the head's picks use.
        prompts: up to `batch` of them, to time their prefill.

    Returns:
        One entry a role: role, ms, floor_ms, share (floor over measured, 1 is the floor itself).
    """
    block = backbone.config.block_size
    states = max([0, *drafts]) + 1
    longest = max([prefix, *map(len, prompts)])
    session = Session(backbone, head, batch, longest + 2 * block, states)
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
    roles: list[Role] = [
        Role("backbone", lambda: forwards.backbone(blocks), layers, batch * block),
        Role("pick", lambda: forwards.pick(hidden, masked), vocabulary, batch * block),
        Role(
            "backbone + pick",
            lambda: forwards.pick(forwards.backbone(blocks), masked),
            layers + vocabulary,
            batch * block,
        ),
    ]
    if head is not None:
        parameters = matrix_parameters(head)
        roles.append(Role("head", lambda: forwards.head(blocks, hidden), parameters, batch * block))

        def draft(listed: Tensor | None) -> Picks:
            residual = forwards.head(blocks, hidden)
            if listed is None:
                return forwards.pick(residual, masked)
            return forwards.pick_shortlist(residual, listed, masked)

        for count in sorted({0, *lists}):
            listed = forwards.shortlist(hidden, count) if count else None
            read = parameters + (0 if count else vocabulary)
            work = partial(draft, listed)
            roles.append(Role(f"head + pick{of(count)}", work, read, batch * block))
    for k in drafts:
        copies = ids[:, None].repeat(1, k + 1, 1)
        many = candidate_states(copies, row, start)
        every = torch.ones_like(many.ids, dtype=torch.bool)

        def verify(many: Blocks, every: Tensor, count: int) -> Any:
            found = forwards.backbone(many)
            if count:
                return forwards.pick_and_shortlist(found, every, count)
            return forwards.pick(found, every)

        for count in sorted(set(lists)) or [0]:
            work = partial(verify, many, every, count)
            name = f"verify K={k} + pick{of(count)}"
            roles.append(Role(name, work, layers + vocabulary, batch * block * (k + 1)))
    found = [
        role.timed(_captured(role.work, device, repeats), backbone, ceilings) for role in roles
    ]
    if prompts:
        prompts = list(prompts[:batch])
        rows = sum(len(prompt) // block * block for prompt in prompts)
        for name, with_head in (("prefill", False), ("prefill + head", True))[: 1 + bool(head)]:
            session.head_prefix = with_head
            kind = GraphRounds if device.type == "cuda" else ExactRounds  # as `Decoder` has it
            rounds = kind(session, make_mode("static"))
            read = layers + (matrix_parameters(head) if head is not None and with_head else 0)
            role = Role(name, partial(rounds.admit, range(len(prompts)), prompts), read, rows)
            found.append(role.timed(time_of(role.work, device, 5), backbone, ceilings))
    return found


@torch.inference_mode()
def round_costs(
    backbone: Backbone,
    head: Head | None,
    mode: Mode,
    prompts: Sequence[list[int]],
    rounds: Rounds | None = None,
) -> dict[int, float]:
    """Seconds of a mode's whole captured rounds by their plan, from 0 to the most drafts.

    That is what a round takes beside its forwards too: choosing, accepting, revealing, counting,
    and looks at the device where the mode needs them. Empty where rounds are exact,
    as on a CPU: what they take depends on the data.
    """
    decoder = Decoder(backbone, head, mode, len(prompts), rounds=rounds)
    if decoder.rounds == "exact":
        return {}
    ready = decoder.reserve(prompts, 2 * backbone.config.block_size)
    ready.admit(range(len(prompts)), prompts)
    ready.session.n, several, found = len(prompts), 8, {}
    for plan in range(mode.states):
        ready.run(plan, [], [])  # captures it

        def some(plan: int = plan) -> None:
            # A captured round takes its time whatever the blocks hold, finished or not.
            sure = half = (backbone.config.block_size + 1) // 2  # still masked, on average
            for _ in range(several):
                ready.run(plan, [], [])
                bounds = mode.reveals(plan)
                sure -= bounds[1] if bounds else sure
                if sure <= 0:
                    ready.read()
                    sure = half

        found[plan] = time_of(some, ready.session.device, 5) / several
    return found


class Role(NamedTuple):
    """A kind of forward: what it is called and does, the parameters it reads, its rows."""

    name: str
    work: Callable[[], Any]
    parameters: int
    rows: int

    def timed(self, seconds: float, backbone: Backbone, ceilings: Ceilings) -> dict[str, Any]:
        """The entry of a role that took so many seconds."""
        width = backbone.lm_head.weight.element_size()
        floor = max(
            self.parameters * width / ceilings.bytes_per_second,
            2 * self.parameters * self.rows / ceilings.flops,
        )
        share = floor / seconds
        return {"role": self.name, "ms": 1e3 * seconds, "floor_ms": 1e3 * floor, "share": share}


def of(count: int) -> str:
    """How a role is called that makes or uses a shortlist."""
    return f" of {count}" if count else ""


def _captured(work: Callable[[], Any], device: torch.device, repeats: int) -> float:
    """Median seconds of some work, on a GPU replayed as a graph and timed by its events."""
    if device.type != "cuda":
        return time_of(work, device, repeats)
    work()
    torch.cuda.synchronize(device)
    graph = torch.cuda.CUDAGraph()
    with capturing(graph, device):
        work()
    events = [torch.cuda.Event(enable_timing=True) for _ in range(repeats + 3)]
    for event in events:
        event.record()
        graph.replay()
    torch.cuda.synchronize(device)
    times = [a.elapsed_time(b) for a, b in pairwise(events[2:])]
    return float(median(times)) / 1e3
