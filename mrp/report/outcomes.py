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
    by_task: dict[str, list[dict[str, Any]]] = {task: [] for task in tasks}
    for line in _parsed(_short_lines(path)):
        if line["task"] in by_task:
            by_task[line["task"]].append(line)
    return {task: _outcome(lines) for task, lines in by_task.items()}


def _short_lines(path: Path) -> list[bytes]:
    """The lines of samples.jsonl without traces and tokens, which are passed over and not copied.

    Raises:
        UserError: the file is missing.
    """
    data = _content(path)
    lines, start = [], 0
    while start < len(data):
        end = data.find(b"\n", start)
        if end < 0:
            end = len(data)
        cut = data.find(TRACE, start, end)
        if cut >= 0 and data.endswith(b"]}", start, end):  # not the line of a file that was cut off
            lines.append(data[start:cut] + b"}")
        elif end > start:
            lines.append(data[start:end])
        start = end + 1
    return lines


def sample_lines(lines: Sequence[bytes]) -> list[dict[str, Any]]:
    """Lines of samples.jsonl as JSON values without their tokens.

    Raises:
        ValueError: a line is not JSON, or not UTF-8.
    """
    return _parsed([_without_tokens(line) for line in lines])


def raw_lines(path: Path) -> list[bytes]:
    """The lines of a file beside a record.

    Raises:
        UserError: the file is missing.
    """
    # Not splitlines(): an answer may hold other line breaks than the one that ends a line.
    return [line for line in _content(path).split(b"\n") if line]


def _content(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except FileNotFoundError:
        raise UserError(f"{path}: no such file, though its record is there: run again") from None


def _without_tokens(line: bytes) -> bytes:
    """A line without its tokens, which stand last."""
    cut = line.find(TOKENS)
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
