"""How much faster a mode is than static decoding, measured side by side."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from mrp.decoding import Decoded, Decoder, Mode
from mrp.errors import UserError
from mrp.models import Backbone, Head
from mrp.speed.interleave import Chunk, Contender, compare, cut, device_name, interleave, rate

Decode = Callable[..., Iterable[Decoded]]


def paired_speeds(
    backbone: Backbone,
    head: Head | None,
    mode: Mode,
    prompts: Mapping[str, list[list[int]]],
    max_new_tokens: int,
    batch_size: int,
    repeats: int,
    *,
    seed: int = 0,
    decoder: Decode | None = None,
    clock: Callable[[], float] = time.perf_counter,
) -> dict[str, dict[str, Any]]:
    """Measure tokens/s of `mode` over tokens/s of static decoding, its `baseline`, task by task.

    The prompts are cut into chunks of `batch_size`. A pair is one chunk decoded by both; whoever
    went first in a chunk goes second in its next repeat. The ratio is taken between totals, its
    95 % interval from resampled pairs (percentile bootstrap). All tasks are warmed up together and
    then timed together, so that a GPU that others share is asked for once.

    Args:
        backbone: what decodes.
        head: its head; static uses the backbone alone.
        mode: how it decodes.
        prompts: token ids, of each task.
        max_new_tokens: longest answer, the same for both.
        batch_size: prompts decoded together.
        repeats: how often every chunk is measured.
        seed: of the bootstrap.
        decoder: replaced in tests.
        clock: likewise.

    Returns:
        For every task: ratio, low, high (None with a single pair), tokens_per_second of both, mean
        answer tokens, and what was measured: prompts, batch_size, repeats, pairs, device. Of the
        warm-up, which is dropped and the same for every task: the cold tokens_per_second of both in
        its first call, on the first task's first chunk, and its number of calls, warmups.

    Raises:
        UserError: a task has no prompts, or there are no repeats.
    """
    fewest = min(map(len, prompts.values()), default=0)
    if not fewest or repeats < 1 or batch_size < 1:
        raise UserError(
            f"speed measurement with {fewest} prompts, repeats={repeats}, "
            f"batch_size={batch_size}: each must be at least 1"
        )
    device = backbone.lm_head.weight.device
    every = [prompt for asked in prompts.values() for prompt in asked]

    def contender(which: Mode, used_head: Head | None) -> Contender:
        if decoder is None:
            return kept(backbone, used_head, which, every, max_new_tokens, batch_size)
        return lambda chunk: decoder(backbone, used_head, chunk, which, max_new_tokens, batch_size)

    chunks = [(task, chunk) for task, asked in prompts.items() for chunk in cut(asked, batch_size)]
    found = interleave(
        {"static": contender(mode.baseline(), None), "mode": contender(mode, head)},
        [chunk for _, chunk in chunks],
        repeats,
        device,
        clock,
        adapts=mode.paced,
    )
    cold = {name: rate(measured.cold[:1]) for name, measured in found.items()}
    speeds = {}
    for task, asked in prompts.items():
        numbers = [number for number, (of, _) in enumerate(chunks) if of == task]
        static, ours = (found[name].of(numbers, len(chunks)) for name in ("static", "mode"))
        speeds[task] = {
            **compare(static, ours, seed),
            "static_tokens_per_second": rate(static),
            "tokens_per_second": rate(ours),
            "cold_static_tokens_per_second": cold["static"],
            "cold_tokens_per_second": cold["mode"],
            "answer_tokens_mean": sum(timing.tokens for timing in ours) / len(asked) / repeats,
            "warmups": len(found["static"].cold),
            "prompts": len(asked),
            "batch_size": batch_size,
            "repeats": repeats,
            "pairs": len(ours),
            "device": device_name(device),
        }
    return speeds


def kept(
    backbone: Backbone,
    head: Head | None,
    mode: Mode,
    prompts: list[list[int]],
    max_new_tokens: int,
    batch_size: int,
) -> Contender:
    """A contender that keeps its caches and graphs, roomy enough for all of the prompts."""
    decoder = Decoder(backbone, head, mode, batch_size)
    decoder.reserve(prompts, max_new_tokens)

    def decode(chunk: Chunk) -> Iterable[Decoded]:
        return decoder.decode(chunk, max_new_tokens)

    return decode
