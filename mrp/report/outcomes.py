"""What a job answered, problem by problem, as far as tables and figures need it."""

from __future__ import annotations

import json
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from mrp.errors import UserError
from mrp.report.statistics import Bools, Floats

Hashes: TypeAlias = NDArray[np.uint32]

# A line of samples.jsonl from here on is the reveal trace and the tokens: three quarters of it, of
# no use to a table. No JSON string can hold this text, since its quotes would be escaped there.
TRACE = b',"trace":{"step":['
TOKENS = b',"tokens":['  # likewise, where the trace is wanted


@dataclass(frozen=True)
class Outcome:
    """What a job answered on one task, problem by problem in document order.

    Attributes:
        problems: their ids.
        correct: [n]; texts: CRC-32 of the n answers.
        tokens: generated tokens [n], as the record counts them.
        forwards: denoising and verifying forwards [n].
        paper_rule: how many are right by the paper's own rule; None for a task without one.
    """

    problems: tuple[str, ...]
    correct: Bools
    texts: Hashes
    tokens: Floats
    forwards: Floats
    paper_rule: int | None = None


def read_outcomes(path: Path, tasks: Sequence[str]) -> dict[str, Outcome]:
    """A job's outcomes by task, from its samples.jsonl.

    Raises:
        UserError: the file is missing.
        KeyError, TypeError, ValueError: it is damaged.
    """
    lines = _parsed([_up_to(TRACE, line) for line in raw_lines(path)])
    return {task: _outcome([line for line in lines if line["task"] == task]) for task in tasks}


def sample_lines(lines: Sequence[bytes]) -> list[dict[str, Any]]:
    """Lines of samples.jsonl as JSON values without their tokens.

    Raises:
        ValueError: a line is not JSON, or not UTF-8.
    """
    return _parsed([_up_to(TOKENS, line) for line in lines])


def raw_lines(path: Path) -> list[bytes]:
    """The lines of a file beside a record.

    Raises:
        UserError: the file is missing.
    """
    try:
        # Not splitlines(): an answer may hold other line breaks than the one that ends a line.
        return [line for line in path.read_bytes().split(b"\n") if line]
    except FileNotFoundError:
        raise UserError(f"{path}: no such file, though its record is there: run again") from None


def _up_to(key: bytes, line: bytes) -> bytes:
    """A line without this key and what follows it."""
    cut = line.find(key)
    if cut < 0 or not line.endswith(b"]}"):  # the last line of a file that was cut off, too
        return line
    return line[:cut] + b"}"


def _parsed(lines: Sequence[bytes]) -> list[dict[str, Any]]:
    """The lines as JSON values; all in one go, which takes half the time.

    Raises:
        ValueError: a line is not JSON.
    """
    values: list[dict[str, Any]] = json.loads((b"[" + b",".join(lines) + b"]").decode("utf-8"))
    if len(values) != len(lines):
        raise ValueError("a line is not one JSON value")
    return values


def _outcome(lines: list[dict[str, Any]]) -> Outcome:
    counts = [line["counts"] for line in lines]
    by_rule = bool(lines) and all(line.get("paper_rule") is not None for line in lines)
    return Outcome(
        problems=tuple(str(line["doc_id"]) for line in lines),
        correct=np.array([bool(line["correct"]) for line in lines]),
        texts=np.array([_hash(str(line["text"])) for line in lines], dtype=np.uint32),
        tokens=np.array([float(count["generated"]) for count in counts]),
        forwards=np.array([float(count["denoise"] + count["verify"]) for count in counts]),
        paper_rule=sum(bool(line["paper_rule"]) for line in lines) if by_rule else None,
    )


def _hash(text: str) -> int:
    return zlib.crc32(text.encode("utf-8", "surrogatepass"))
