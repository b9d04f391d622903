"""What a speculative mode's rounds and the measured forwards predict for its time.

A call decodes one chunk of prompts, all of which start together. Which rounds it took follows from
the samples' traces; what each should take from the forwards' costs: a plain step, or a verification
of K drafts and K passes of the head with their picks. What a measured ratio falls short of the
prediction by is the engine's own: bookkeeping, launches, looks at the device. Of that, what whole
rounds take can be measured by itself as well, which is the second prediction; in models of a few
layers it is not small beside the forwards.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import accumulate

from mrp.decoding import Decoded, Mode
from mrp.decoding.modes.speculative import SelfSpeculative, Speculative
from mrp.speed.costs import of


def predictable(mode: Mode) -> bool:
    """Whether the rounds of a mode are of known kinds: drafts of a fixed number, or none."""
    if mode.name == "static":
        return True
    known = isinstance(mode, Speculative | SelfSpeculative) and isinstance(mode.k, int)
    return known and mode.states == mode.k + 1  # type: ignore[attr-defined]


def predicted_seconds(
    mode: Mode,
    samples: Sequence[Decoded],
    chunks: Sequence[Sequence[list[int]]],
    costs: Mapping[str, float],
    block: int,
    rounds: Mapping[int, float] | None = None,
) -> float:
    """Seconds that decoding the chunks should take.

    Args:
        mode: one that is `predictable`.
        samples: of all chunks, one chunk after another, in any order within each.
        chunks: their prompts.
        costs: seconds by role, as `role_costs` names them.
        block: the block length.
        rounds: seconds of whole rounds by their number of drafts, instead of what their forwards
            take.
    """
    seconds = 0.0
    ends = list(accumulate(map(len, chunks)))
    for chunk, end in zip(chunks, ends, strict=True):
        lanes = [
            drafts_by_round(sample, len(chunk[sample.index]) % block, block, mode.states - 1)
            for sample in samples[end - len(chunk) : end]
        ]
        seconds += costs["prefill + head" if mode.needs_head else "prefill"]
        for number in range(max(map(len, lanes))):
            drafts = max(lane[number] for lane in lanes if number < len(lane))
            seconds += rounds[drafts] if rounds else round_seconds(mode, drafts, costs)
    return seconds


def drafts_by_round(sample: Decoded, tail: int, block: int, most: int) -> list[int]:
    """How many drafts the sample could use in each of its rounds.

    `tail`: prompt tokens at the head of its first block.
    """
    steps, drafts = sample.trace.step, []
    begin = 0
    while begin < len(steps):
        end = begin + block - (tail if begin == 0 else 0)
        rounds = sorted(set(steps[begin:end]))
        for number, step in enumerate(rounds):
            left = sum(each >= step for each in steps[begin:end])
            drafts.append(min(most, left - 1) if number else 0)
        begin = end
    return drafts


def round_seconds(mode: Mode, drafts: int, costs: Mapping[str, float]) -> float:
    """What the forwards of one round should take."""
    listed = of(getattr(mode, "shortlist", 0))
    if not drafts:
        return costs["backbone + pick"]
    verify = costs[f"verify K={drafts} + pick{listed}"]
    if isinstance(mode, SelfSpeculative):
        return verify + costs["pick"]
    return verify + drafts * costs[f"head + pick{listed}"]
