"""What decoding returns for a prompt: its tokens, its counts, and who revealed what when."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Source = Literal["backbone", "head", "draft", "bonus"]
SOURCES: tuple[Source, ...] = ("backbone", "head", "draft", "bonus")

COUNTERS = (
    "prefill",  # backbone forwards: whole prompt blocks,
    "denoise",  # one state of a block,
    "verify",  # several candidate states of a block,
    "store",  # a finished block, to keep its keys and values
    "head_draft",  # head passes: to reveal or draft a token,
    "head_remask",  # to judge fresh tokens,
    "head_store",  # over clean blocks, so that the head has its own prefix
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
    """Generated tokens per backbone forward of any role, prefill and storing included."""
    forwards = sum(counts[role] for role in ("prefill", "denoise", "verify", "store"))
    return counts["generated"] / max(1, forwards)
