"""Where a lossless mode parts from static decoding in low precision, and by what margin.

Verification computes other numbers of rows than a plain step, so its bits may differ; in bf16 that
decides near ties another way, and from there on the texts go apart. That is no mistake as long as
every first divergence is a near tie. So the state at which two runs part is computed once more by
itself, and the distance of the two choices is given in steps of the number format: of their two
logits if they are tokens of one position, of their log odds if they are positions. Where the format
itself is off by more than that distance, it decides nothing: so the same is computed in fp32 too.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import torch

from mrp.decoding import Decoded, Decoder, Mode, make_mode
from mrp.decoding.blocks import plain
from mrp.decoding.picks import pick
from mrp.decoding.session import Session
from mrp.models import Backbone, Head


class Parting(NamedTuple):
    """A state from which two runs take different picks.

    begin: place of its block in the generated ids; may be negative where the prompt ends inside.
    revealed: place in the generated ids -> token, of the block's common picks.
    pick: static's next (place, token). others: the other run's picks of its round, still to come.
    """

    begin: int
    revealed: dict[int, int]
    pick: tuple[int, int]
    others: dict[int, int]


def parting(static: Decoded, other: Decoded, prompt_length: int, block: int) -> Parting | None:
    """The first state at which `other` left static's picks; None where the texts are the same."""
    begin = -(prompt_length % block)
    while begin < len(static.trace.ids):
        places = range(max(0, begin), begin + block)
        ours = sorted(places, key=lambda place: static.trace.step[place])
        rounds: dict[int, dict[int, int]] = {}
        for place in places:
            rounds.setdefault(other.trace.step[place], {})[place] = other.trace.ids[place]
        revealed: dict[int, int] = {}
        number = 0
        for step in sorted(rounds):
            left = rounds[step]
            while left:
                place = ours[number]
                token = static.trace.ids[place]
                if left.get(place) != token:
                    return Parting(begin, revealed, (place, token), left)
                revealed[place] = left.pop(place)
                number += 1
        begin += block
    return None


class Margin(NamedTuple):
    """Distance of two choices, and how far it is from what fp32 gives, in steps of the format."""

    steps: float
    rounding: float

    @property
    def near(self) -> bool:
        """Whether it is a near tie: within 2 steps, or within the format's error at this state."""
        return self.steps <= max(2.0, self.rounding)


@torch.inference_mode()
def margin(
    backbone: Backbone, precise: Backbone, prompt: list[int], static: Decoded, where: Parting
) -> Margin:
    """How far apart the two choices at a parting are; `precise` is the backbone in fp32."""
    found = _rivals(backbone, prompt, static, where)
    # A round does not tell which of its picks came first. That one was the likeliest here but for
    # rounding: so it is the one nearest to static's, among those that could be picked here at all.
    first = min(found, key=lambda place: (not found[place].possible, abs(found[place].distance)))
    distance, size = found[first].distance, found[first].size
    exact = _rivals(precise, prompt, static, where)[first].distance
    step = torch.finfo(backbone.lm_head.weight.dtype).eps * 2.0 ** math.floor(
        math.log2(max(size, 1e-30))
    )
    return Margin(abs(distance) / step, abs(distance - exact) / step)


class Rival(NamedTuple):
    """Another run's pick at a state: by how much static's is above it, and the logits' size.

    possible: whether it is the likeliest token of its place there. If not, it was picked later in
    its round, unless static's pick is another token of the same place.
    """

    distance: float
    size: float
    possible: bool


def _rivals(
    backbone: Backbone, prompt: list[int], static: Decoded, where: Parting
) -> dict[int, Rival]:
    """The others' picks by their places, seen from the state where the runs part."""
    config = backbone.config
    block, end = config.block_size, len(prompt) + where.begin
    before = [*prompt, *static.trace.ids][:end]
    ids = (
        [*prompt, *([config.mask_token_id] * block)][end : end + block] if end < len(prompt) else []
    )
    ids = (ids + [config.mask_token_id] * block)[:block]
    for place, token in where.revealed.items():
        ids[place - where.begin] = token
    session = Session(backbone, None, 1, end + block, 1)
    session.admit([0], [before] if before else [[ids[0]]])
    device = session.device
    state = torch.tensor([ids], device=device)
    lane = torch.zeros(1, dtype=torch.long, device=device)
    hidden = session.forwards.backbone(plain(state, lane, lane + end))
    logits = session.forwards.logits(hidden)[0].float()
    picks = pick(logits, state[0] == config.mask_token_id)
    place, token = where.pick
    at = place - where.begin
    found = {}
    for other, chosen in where.others.items():
        row = logits[other - where.begin]
        if other == place:
            pair = row[[token, chosen]]
            found[other] = Rival(float(pair[0] - pair[1]), float(pair.abs().max()), True)
        else:
            both = picks.odds[[at, other - where.begin]].log()
            likeliest = bool(picks.tokens[other - where.begin] == chosen)
            size = float(logits[at].max().abs())
            found[other] = Rival(float(both[1] - both[0]), size, likeliest)
    return found


def report(
    backbone: Backbone,
    head: Head | None,
    modes: Mapping[str, Mode],
    prompts: Sequence[list[int]],
    new_tokens: int,
    batch_size: int,
) -> dict[str, Any]:
    """Rate and margins of first divergences of every mode in `modes` from static decoding."""
    block = backbone.config.block_size

    def run(mode: Mode) -> list[Decoded]:
        decoder = Decoder(backbone, head, mode, batch_size)
        return sorted(decoder.decode(prompts, new_tokens), key=lambda sample: sample.index)

    precise = copy.deepcopy(backbone).float()
    static = run(make_mode("static"))
    tokens = sum(len(sample.trace.ids) for sample in static)
    found = []
    for label, mode in modes.items():
        margins = []
        for prompt, ours, other in zip(prompts, static, run(mode), strict=True):
            where = parting(ours, other, len(prompt), block)
            if where is not None:
                margins.append(margin(backbone, precise, prompt, ours, where))
        margins.sort()
        found.append(
            {
                "mode": label,
                "samples": len(prompts),
                "diverged": len(margins),
                "tokens": tokens,
                "margins": [one.steps for one in margins],
                "roundings": [one.rounding for one in margins],
                "near": sum(one.near for one in margins),
            }
        )
    return {
        "dtype": str(backbone.lm_head.weight.dtype).removeprefix("torch."),
        "batch_size": batch_size,
        "modes": found,
    }


def lines(result: dict[str, Any]) -> list[str]:
    """The report as text."""
    out = [f"first divergences from static, {result['dtype']}, batch {result['batch_size']}"]
    for entry in result["modes"]:
        margins = entry["margins"]
        text = f"  {entry['mode']}: {entry['diverged']} of {entry['samples']} samples"
        if margins:
            middle = margins[len(margins) // 2]
            text += f"; margin in steps: median {middle:.2f}, largest {margins[-1]:.2f}"
            text += f"; near ties: {entry['near']}"
        out.append(text)
    return out
