"""The core of every speed measurement here: contenders in turns, on the same prompts.

Absolute tokens per second do not carry over from one machine to another, and a machine drifts while
it is measured. So whatever is compared decodes the same chunks of prompts in turns, in one process,
after a warm-up with the timed shapes, and results are ratios of totals with an interval. A ratio
may be below 1.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

from mrp.decoding import Decoded
from mrp.turns import alone, give_way, working

RESAMPLES = 2000
Chunk = list[list[int]]
Contender = Callable[[Chunk], Iterable[Decoded]]


@dataclass(frozen=True)
class Timing:
    """One timed call: answer tokens (no prompt, no padding after the end) and wall seconds."""

    tokens: int
    seconds: float


@dataclass
class Measured:
    """A contender's calls: the dropped warm-ups, the timed ones, and what it decoded in them."""

    cold: list[Timing] = field(default_factory=list)
    timed: list[Timing] = field(default_factory=list)
    samples: list[Decoded] = field(default_factory=list)

    def of(self, numbers: Container[int], chunks: int) -> list[Timing]:
        """The timed calls on the chunks `numbers`, in their order.

        There are `chunks` of them in all, each timed once before any is timed again.
        """
        return [timing for call, timing in enumerate(self.timed) if call % chunks in numbers]


def interleave(
    contenders: Mapping[str, Contender],
    chunks: Sequence[Chunk],
    repeats: int,
    device: torch.device,
    clock: Callable[[], float] = time.perf_counter,
    plain: Container[str] = (),
    adapts: bool = True,
) -> dict[str, Measured]:
    """Time every contender on every chunk, `repeats` times.

    Whoever goes first on a chunk moves to the end for the next repeat. The warm-up has one chunk of
    every length. On a GPU all of them go before, since every new shape of rounds is captured; where
    a contender `adapts`, so that it may find yet others, all of them go three times. Those in
    `plain`, which capture nothing, take part in the first pass only. On a GPU that other jobs
    share, they stand still while the timed calls run.
    """
    found = {name: Measured() for name in contenders}

    def call(name: str, chunk: Chunk) -> tuple[Timing, list[Decoded]]:
        synchronize(device)
        start = clock()
        results = list(contenders[name](chunk))
        synchronize(device)
        seconds = clock() - start
        return Timing(sum(result.counts["answer_tokens"] for result in results), seconds), results

    few = one_of_each_length(chunks)
    passes: list[Sequence[Chunk]] = [few]
    if device.type == "cuda":
        passes = [chunks] * 3 if adapts else [chunks, few]
    with working():
        for number, warming in enumerate(passes):
            for chunk in warming:
                for name, measured in found.items():
                    if not number or name not in plain:
                        measured.cold.append(call(name, chunk)[0])
                        give_way()
    order = list(contenders)
    with alone():
        for repeat in range(repeats):
            for chunk in chunks:
                for name in order:
                    timing, samples = call(name, chunk)
                    found[name].timed.append(timing)
                    if not repeat:
                        found[name].samples += samples
            order = order[1:] + order[:1]
    return found


def cut(prompts: Sequence[list[int]], size: int) -> list[Chunk]:
    """Prompts in chunks of `size`, the rest in a shorter one."""
    return [list(prompts[i : i + size]) for i in range(0, len(prompts), size)]


def one_of_each_length(chunks: Sequence[Chunk]) -> list[Chunk]:
    """One chunk of every length: warming up with it builds whatever the timed calls will need."""
    return list({len(chunk): chunk for chunk in reversed(chunks)}.values())[::-1]


def rate(timings: Iterable[Timing]) -> float:
    """Answer tokens per second over all calls."""
    items = list(timings)
    return sum(item.tokens for item in items) / sum(item.seconds for item in items)


def compare(baseline: Sequence[Timing], measured: Sequence[Timing], seed: int) -> dict[str, Any]:
    """Ratio of the tokens/s of totals, with its 95 % interval from resampled pairs of calls.

    Returns:
        ratio, and low, high (percentile bootstrap; None with a single pair).
    """
    pairs = zip(baseline, measured, strict=True)
    table = np.array([[b.tokens, b.seconds, m.tokens, m.seconds] for b, m in pairs], dtype=float)
    low, high = _interval(table, seed)
    return {"ratio": _ratio(table.sum(axis=0)), "low": low, "high": high}


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


def synchronize(device: torch.device) -> None:
    """Wait for the work queued on a GPU, so that the clock sees it."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def device_name(device: torch.device) -> str:
    """What a record calls a device."""
    return torch.cuda.get_device_name(device) if device.type == "cuda" else device.type
