"""How much faster a mode is than static decoding, measured side by side.

Absolute tokens per second do not carry over from one machine to another, and a machine drifts while
it is measured. So static and the mode decode the same prompts in turns, in one process, after a
warm-up with the timed shapes, and the result is a ratio with an interval. It may be below 1.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from mrp.decoding import Decoded, decode, make_mode
from mrp.errors import UserError
from mrp.models import Backbone, Head

RESAMPLES = 2000
Decode = Callable[..., Iterable[Decoded]]


@dataclass(frozen=True)
class Timing:
    """One timed call: answer tokens (no prompt, no padding) and wall seconds."""

    tokens: int
    seconds: float


def paired_speed(
    backbone: Backbone,
    head: Head | None,
    mode: Any,
    prompts: list[list[int]],
    max_new_tokens: int,
    batch_size: int,
    repeats: int,
    *,
    seed: int = 0,
    decoder: Decode = decode,
    clock: Callable[[], float] = time.perf_counter,
) -> dict[str, Any]:
    """Measure tokens/s of `mode` over tokens/s of `static`.

    The prompts are cut into chunks of `batch_size`. A pair is one chunk decoded by both; whoever
    went first in a chunk goes second in its next repeat. The ratio is taken between totals, its
    95 % interval from resampled pairs (percentile bootstrap).

    Args:
        backbone, head, mode: what decodes; static uses the backbone alone.
        prompts: token ids.
        max_new_tokens: longest answer, the same for both.
        batch_size: prompts decoded together.
        repeats: how often every chunk is measured.
        seed: of the bootstrap.
        decoder, clock: replaced in tests.

    Returns:
        ratio, low, high (None with a single pair), tokens_per_second of both, their first, cold
        measurement (dropped from the ratio), and what was measured: prompts, batch_size, repeats,
        pairs, device.

    Raises:
        UserError: there are no prompts or no repeats.
    """
    if not prompts or repeats < 1 or batch_size < 1:
        raise UserError(
            f"speed measurement with {len(prompts)} prompts, repeats={repeats}, "
            f"batch_size={batch_size}: each must be at least 1"
        )
    device = backbone.lm_head.weight.device
    static = make_mode("static")

    def measure(which: Any, chunk: list[list[int]]) -> Timing:
        _synchronize(device)
        start = clock()
        used_head = head if which is mode else None
        results = list(decoder(backbone, used_head, chunk, which, max_new_tokens, batch_size))
        _synchronize(device)
        seconds = clock() - start
        return Timing(sum(result.counts["answer_tokens"] for result in results), seconds)

    chunks = [prompts[i : i + batch_size] for i in range(0, len(prompts), batch_size)]
    cold = [(measure(static, chunk), measure(mode, chunk)) for chunk in _shapes(chunks)]
    pairs: list[tuple[Timing, Timing]] = []
    for repeat in range(repeats):
        for chunk in chunks:
            if repeat % 2 == 0:
                baseline = measure(static, chunk)
                pairs.append((baseline, measure(mode, chunk)))
            else:
                timing = measure(mode, chunk)
                pairs.append((measure(static, chunk), timing))
    table = np.array([[s.tokens, s.seconds, m.tokens, m.seconds] for s, m in pairs], dtype=float)
    low, high = _interval(table, seed)
    return {
        "ratio": _ratio(table.sum(axis=0)),
        "low": low,
        "high": high,
        "static_tokens_per_second": _rate(s for s, _ in pairs),
        "tokens_per_second": _rate(m for _, m in pairs),
        "cold_static_tokens_per_second": _rate(s for s, _ in cold[:1]),
        "cold_tokens_per_second": _rate(m for _, m in cold[:1]),
        "warmups": len(cold),
        "prompts": len(prompts),
        "batch_size": batch_size,
        "repeats": repeats,
        "pairs": len(pairs),
        "device": torch.cuda.get_device_name(device) if device.type == "cuda" else device.type,
    }


def _shapes(chunks: list[list[list[int]]]) -> list[list[list[int]]]:
    """One chunk of every length: warming up with it builds whatever the timed calls will need."""
    return list({len(chunk): chunk for chunk in reversed(chunks)}.values())[::-1]


def _ratio(totals: Any) -> float:
    """(mode tokens / mode seconds) / (static tokens / static seconds) of one row of sums."""
    static_tokens, static_seconds, tokens, seconds = totals
    return float((tokens / seconds) / (static_tokens / static_seconds))


def _interval(table: Any, seed: int) -> tuple[float | None, float | None]:
    """The 2.5th and 97.5th percentile of the ratio over pairs [n, 4] drawn with replacement."""
    if len(table) < 2:
        return None, None
    rng = np.random.default_rng(seed)
    drawn = rng.integers(0, len(table), size=(RESAMPLES, len(table)))
    ratios = [_ratio(row) for row in table[drawn].sum(axis=1)]
    low, high = np.percentile(ratios, [2.5, 97.5])
    return float(low), float(high)


def _rate(timings: Iterable[Timing]) -> float:
    items = list(timings)
    return sum(item.tokens for item in items) / sum(item.seconds for item in items)


def _synchronize(device: torch.device) -> None:
    """Wait for the work queued on a GPU, so that the clock sees it."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
