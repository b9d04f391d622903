"""What a decode job leaves behind: samples.jsonl, then record.json, each whole or absent.

The record comes last: where it exists, the job is complete.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mrp.decoding import Decoded, tokens_per_forward, tokens_per_forward_end_to_end
from mrp.io import atomic_write_json, atomic_write_text

SCHEMA = 1
RECORD, SAMPLES, JOURNAL = "record.json", "samples.jsonl", "journal.jsonl"
LETTERS = {"backbone": "b", "head": "h", "draft": "d", "bonus": "n"}


@dataclass(frozen=True)
class Sample:
    """One scored answer."""

    task: str
    doc_id: int
    prompt: str
    text: str
    target: str
    correct: bool
    decoded: Decoded
    tokens: list[str]  # of the generated positions, padding included
    paper_rule: bool | None = None  # right by the paper's own rule, where a task has one


def backbone_forwards(counts: dict[str, int]) -> int:
    """Backbone forwards of all roles."""
    return counts["prefill"] + counts["denoise"] + counts["verify"] + counts["store"]


def task_summary(
    samples: Sequence[Sample], seconds: float, speed: dict[str, Any] | None
) -> dict[str, Any]:
    """A task's entry in the record, from its samples and the decoding seconds they took."""
    total: Counter[str] = Counter()
    for sample in samples:
        total.update(sample.decoded.counts)
    correct = sum(sample.correct for sample in samples)
    counts = dict(total)
    return {
        "n": len(samples),
        "correct": correct,
        "accuracy": correct / len(samples),
        **_paper_rule_summary(samples),
        "counts": counts,
        "tpf": tokens_per_forward(counts),
        "tpf_end_to_end": tokens_per_forward_end_to_end(counts),
        "answer_tokens_mean": counts["answer_tokens"] / len(samples),
        "decode_seconds": seconds,
        "tokens_per_second": counts["answer_tokens"] / seconds,
        "speed": speed,
    }


def _paper_rule_summary(samples: Sequence[Sample]) -> dict[str, Any]:
    """The score by the paper's own rule beside ours; nothing for a task without such a rule."""
    verdicts = [sample.paper_rule for sample in samples if sample.paper_rule is not None]
    if not verdicts:
        return {}
    return {"paper_rule": {"correct": sum(verdicts), "accuracy": sum(verdicts) / len(verdicts)}}


def sample_line(sample: Sample) -> str:
    """One line of samples.jsonl, without the line break."""
    trace = sample.decoded.trace
    line = {
        "task": sample.task,
        "doc_id": sample.doc_id,
        "prompt": sample.prompt,
        "text": sample.text,
        "target": sample.target,
        "correct": sample.correct,
        **({} if sample.paper_rule is None else {"paper_rule": sample.paper_rule}),
        "counts": sample.decoded.counts,
        "trace": {
            "step": trace.step,
            "source": "".join(LETTERS[source] for source in trace.source),
            "remasked": trace.remasked,
        },
        "tokens": sample.tokens,
    }
    return json.dumps(line, ensure_ascii=False, separators=(",", ":"))


def write_run(out_dir: Path, samples: Sequence[Sample], record: dict[str, Any]) -> None:
    """Write both files of a finished job, the record last."""
    text = "".join(sample_line(sample) + "\n" for sample in samples)
    atomic_write_text(out_dir / SAMPLES, text)
    atomic_write_json(out_dir / RECORD, {"schema": SCHEMA, **record})
