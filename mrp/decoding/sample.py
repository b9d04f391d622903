"""What decoding returns for a prompt: its tokens, its counts, and who revealed what when."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Source = Literal["backbone", "head", "draft", "bonus"]
SOURCES: tuple[Source, ...] = ("backbone", "head", "draft", "bonus")

COUNTERS = (
    "prefill",  # backbone forwards: whole prompt blocks,
    "denoise",  # one state of a block,
    "verify",  # several candidate states of a block.
    "store",  # finished blocks whose keys and values were stored, by the forward that opened the
    # next block: part of a denoise, not a forward of its own
    "head_draft",  # head passes: to reveal or draft a token,
    "head_remask",  # to judge fresh tokens.
    "head_store",  # the same for the head, so that it has its own prefix: the prompt's pass, and
    # finished blocks, which ride along in the head's next pass where there is one
    "proposed",  # drafts put before the backbone
    "accepted",  # drafts that were its own pick
    "bonus",  # tokens the verification gave for free
    "revealed",  # reveal events; a remasked token revealed again counts twice
    "vetoed",  # tokens masked again
)


@dataclass
class Trace:
    """How each generated position (padding after the end token included) came about.

    ids: token ids; step: the sample's round, counted from 1, that revealed the token for good;
    source: who revealed it; remasked: how often it had been masked again before.
    """

    ids: list[int]
    step: list[int]
    source: list[Source]
    remasked: list[int]


@dataclass
class Decoded:
    """One finished sample.

    index: which prompt. ids: new tokens before the end token, at most `max_new_tokens`.
    finished: whether an end token or a stop condition ended it, not the length limit.
    counts: COUNTERS, plus `generated` (positions filled, padding included: revealed - vetoed) and
    `answer_tokens` (new tokens up to and with the end token). All are this sample's own and do not
    depend on what else was in the batch.
    """

    index: int
    ids: list[int]
    finished: bool
    counts: dict[str, int]
    trace: Trace


def tokens_per_forward(counts: dict[str, int]) -> float:
    """TPF: generated tokens per denoising or verifying forward of the backbone."""
    return counts["generated"] / max(1, counts["denoise"] + counts["verify"])


def tokens_per_forward_end_to_end(counts: dict[str, int]) -> float:
    """Generated tokens per backbone forward of any role, prefill included; storing costs none."""
    forwards = sum(counts[role] for role in ("prefill", "denoise", "verify"))
    return counts["generated"] / max(1, forwards)


class Sample:
    """A sample while it is decoded: what the host knows of it."""

    def __init__(self, index: int, prompt: list[int], budget: int, block: int) -> None:
        self.index, self.budget, self.block = index, budget, block
        self.tail = len(prompt) % block  # prompt tokens at the head of the first block
        self.prefilled = len(prompt) >= block
        self.ahead = False  # whether a round ever revealed more than one token of it
        self.blocks = 0  # finished ones
        self.ids: list[int] = []
        self.stamps: list[int] = []
        self.remasked: list[int] = []
        self.end: int | None = None  # where in the new tokens the first end token stands
        self.stopped = False  # by what the caller asked for
        self.tally: dict[str, int] = {}  # what the session counted, once it is finished

    def finish_block(self, board: list[list[int]], ends: tuple[int, ...]) -> None:
        """Take over a finished block: its ids, stamps and vetoes, each [B]."""
        before, new = len(self.ids), board[0][self.tail :]
        for kept, column in zip((self.ids, self.stamps, self.remasked), board, strict=True):
            kept += column[self.tail :]
        if self.end is None:
            places = [new.index(token) for token in ends if token in new]
            self.end = before + min(places) if places else None
        self.tail = 0
        self.blocks += 1

    @property
    def finished(self) -> bool:
        """Whether it ended, was stopped, or its blocks reach the budget of new tokens."""
        return self.stopped or self.end is not None or len(self.ids) >= self.budget

    def result(self) -> Decoded:
        """The finished sample, decoded."""
        end, tally = self.end, self.tally
        kept = min(self.budget, len(self.ids) if end is None else end)
        ended = end is not None and end < self.budget
        vetoed = sum(self.remasked)
        source = [SOURCES[stamp % len(SOURCES)] for stamp in self.stamps]
        counts = {
            "prefill": int(self.prefilled),
            "denoise": tally["step"] - tally["verify"],
            "verify": tally["verify"],
            "store": self.blocks - 1,
            "head_draft": tally["head_draft"],
            "head_remask": tally["head_remask"],
            "head_store": tally["head_store"],
            "proposed": tally["proposed"],
            "accepted": tally["accepted"],
            "bonus": source.count("bonus"),
            "revealed": len(self.ids) + vetoed,
            "vetoed": vetoed,
            "generated": len(self.ids),
            "answer_tokens": kept + ended,
        }
        step = [stamp // len(SOURCES) for stamp in self.stamps]
        trace = Trace(self.ids, step, source, self.remasked)
        return Decoded(self.index, self.ids[:kept], ended or self.stopped, counts, trace)
