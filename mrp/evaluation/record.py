"""What a decode job leaves behind: samples.jsonl, then record.json, each whole or absent.

The record comes last: where it exists, the job is complete. Before them stands decoded.jsonl, the
same without scores, from which a job goes on whose scoring did not end.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mrp.decoding import Decoded, Trace, tokens_per_forward, tokens_per_forward_end_to_end
from mrp.errors import UserError
from mrp.io import atomic_write_json, atomic_write_text, read_json

SCHEMA = 1
RECORD, SAMPLES, JOURNAL = "record.json", "samples.jsonl", "journal.jsonl"
DECODED = "decoded.jsonl"
LETTERS = {"backbone": "b", "head": "h", "draft": "d", "bonus": "n"}
SOURCES = {letter: source for source, letter in LETTERS.items()}
# What scoring adds to a sample's line and to a task's entry in the record.
SAMPLE_SCORES = ("correct", "strict", "paper_rule", "answered", "program", "paper_program")
TASK_SCORES = ("correct", "accuracy", "strict", "paper_rule", "answered", "isolation", "notes")


@dataclass(frozen=True)
class Sample:
    """One answer; what it is worth is as in `mrp.evaluation.verdicts.Verdict`."""

    task: str
    doc_id: int
    prompt: str
    text: str
    target: str
    correct: bool
    decoded: Decoded
    tokens: list[str]  # of the generated positions, padding included
    paper_rule: bool | None = None
    strict: bool | None = None
    answered: bool | None = None
    program: dict[str, Any] | None = None
    paper_program: dict[str, Any] | None = None


def backbone_forwards(counts: dict[str, int]) -> int:
    """Backbone forwards of all roles; storing a block rides along with one of them."""
    return counts["prefill"] + counts["denoise"] + counts["verify"]


# ---- a task's entry in the record ----------------------------------------------------------------


def task_summary(
    samples: Sequence[Sample], seconds: float, speed: dict[str, Any] | None
) -> dict[str, Any]:
    """A task's entry in the record, from its samples and the decoding seconds they took."""
    total: Counter[str] = Counter()
    for sample in samples:
        total.update(sample.decoded.counts)
    counts = dict(total)
    return {
        "n": len(samples),
        **task_scores(samples),
        "counts": counts,
        **accepted_rounds(samples, counts),
        "tpf": tokens_per_forward(counts),
        "tpf_end_to_end": tokens_per_forward_end_to_end(counts),
        "answer_tokens_mean": counts["answer_tokens"] / len(samples),
        "decode_seconds": seconds,
        "tokens_per_second": counts["answer_tokens"] / seconds,
        "speed": speed,
    }


def accepted_rounds(samples: Sequence[Sample], counts: dict[str, int]) -> dict[str, list[int]]:
    """How many rounds with drafts accepted 0, 1, 2, ... of them, from the samples' traces.

    Nothing for a mode that verifies no drafts, or whose drafts are of several tokens each.
    """
    found: Counter[int] = Counter()
    for sample in samples:
        trace = sample.decoded.trace
        drafted = zip(trace.step, trace.source, strict=True)
        sizes = Counter(step for step, source in drafted if source == "draft").values()
        found.update(sizes)
        found[0] += sample.decoded.counts["verify"] - len(sizes)
    single = sum(size * often for size, often in found.items()) == counts["accepted"]
    if not counts["proposed"] or not single:
        return {}
    return {"accepted_rounds": [found[size] for size in range(max(found) + 1)]}


def task_scores(samples: Sequence[Sample]) -> dict[str, Any]:
    """The scores in a task's entry: TASK_SCORES, without those that the task has not."""
    correct = sum(sample.correct for sample in samples)
    scores: dict[str, Any] = {"correct": correct, "accuracy": correct / len(samples)}
    for name in ("strict", "paper_rule"):
        verdicts = [verdict for s in samples if (verdict := getattr(s, name)) is not None]
        if verdicts:
            scores[name] = {"correct": sum(verdicts), "accuracy": sum(verdicts) / len(verdicts)}
    notes = []
    if all(sample.answered is not None for sample in samples):
        scores["answered"] = sum(bool(sample.answered) for sample in samples)
        if not scores["answered"]:
            notes.append(f"NO ANSWER was found in any of the {len(samples)} replies")
    programs = [sample.program for sample in samples if sample.program is not None]
    if programs:
        scores["isolation"] = dict(Counter(program["isolation"] for program in programs))
        notes += sorted({program["note"] for program in programs if program["note"]})
    return {**scores, "notes": notes} if notes else scores


# ---- files ---------------------------------------------------------------------------------------


def sample_line(sample: Sample, scored: bool = True) -> str:
    """One line of samples.jsonl, without the line break; of decoded.jsonl if not `scored`."""
    trace = sample.decoded.trace
    scores = {name: getattr(sample, name) for name in SAMPLE_SCORES} if scored else {}
    line = {
        "task": sample.task,
        "doc_id": sample.doc_id,
        "prompt": sample.prompt,
        "text": sample.text,
        "target": sample.target,
        **{name: value for name, value in scores.items() if value is not None},
        "counts": sample.decoded.counts,
        "trace": {
            "step": trace.step,
            "source": "".join(LETTERS[source] for source in trace.source),
            "remasked": trace.remasked,
        },
        "tokens": sample.tokens,
    }
    return json.dumps(line, ensure_ascii=False, separators=(",", ":"))


def parse_sample(line: dict[str, Any]) -> Sample:
    """The inverse of `sample_line`, less the scores and the token ids, which no line holds.

    Raises:
        KeyError, TypeError, ValueError: it is no such line.
    """
    trace = line["trace"]
    source: Any = [SOURCES[letter] for letter in trace["source"]]
    decoded = Decoded(
        index=int(line["doc_id"]),
        ids=[],
        finished=True,
        counts={str(name): int(count) for name, count in line["counts"].items()},
        trace=Trace(ids=[], step=trace["step"], source=source, remasked=trace["remasked"]),
    )
    texts = {name: line[name] for name in ("task", "prompt", "text", "target")}
    if not all(isinstance(text, str) for text in texts.values()):
        raise TypeError("a text is no string")
    return Sample(
        **texts,
        doc_id=int(line["doc_id"]),
        correct=False,
        decoded=decoded,
        tokens=line["tokens"],
    )


def write_run(out_dir: Path, samples: Sequence[Sample], record: dict[str, Any]) -> None:
    """Write both files of a finished job, the record last."""
    text = "".join(sample_line(sample) + "\n" for sample in samples)
    atomic_write_text(out_dir / SAMPLES, text)
    atomic_write_json(out_dir / RECORD, {"schema": SCHEMA, **record})


def read_run(run_dir: Path) -> tuple[list[Sample], dict[str, Any]]:
    """The samples, without scores, and the record of a finished job.

    Raises:
        UserError: they are missing, damaged or of another schema.
    """
    record = read_json(run_dir / RECORD)
    if not isinstance(record, dict) or record.pop("schema", None) != SCHEMA:
        raise UserError(f"{run_dir / RECORD}: no record of schema {SCHEMA}: decode the job again")
    samples = _parse_lines(run_dir / SAMPLES, _lines(run_dir / SAMPLES))
    return samples, _checked(record, samples, run_dir / RECORD)


def write_decoded(
    out_dir: Path, header: dict[str, Any], samples: Sequence[Sample], record: dict[str, Any]
) -> None:
    """Write decoded.jsonl: what decided the answers and the record in the first line."""
    first = json.dumps({"schema": SCHEMA, "header": header, "record": without_scores(record)})
    lines = [first, *(sample_line(sample, scored=False) for sample in samples)]
    atomic_write_text(out_dir / DECODED, "".join(f"{line}\n" for line in lines))


def read_decoded(run_dir: Path) -> tuple[dict[str, Any], list[Sample], dict[str, Any]]:
    """Header, samples and record of decoded.jsonl.

    Raises:
        UserError: it is missing, damaged or of another schema.
    """
    path = run_dir / DECODED
    lines = _lines(path)
    try:
        first = json.loads(next(lines))
        if first["schema"] != SCHEMA:
            raise ValueError(f"schema {first['schema']!r}")
        header, record = first["header"], first["record"]
    except (StopIteration, KeyError, TypeError, ValueError) as error:
        raise UserError(f"{path}: damaged ({error!r}); delete it and decode again") from None
    samples = _parse_lines(path, lines)
    return header, samples, _checked(record, samples, path)


def without_scores(record: dict[str, Any]) -> dict[str, Any]:
    """A record less all that scoring added."""
    tasks = {
        task: {name: value for name, value in entry.items() if name not in TASK_SCORES}
        for task, entry in record["tasks"].items()
    }
    return {**{name: part for name, part in record.items() if name != "scored"}, "tasks": tasks}


def _lines(path: Path) -> Iterator[str]:
    try:
        text = path.read_text("utf-8")
    except FileNotFoundError:
        raise UserError(f"{path}: no such file: decode the job again") from None
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"{path}: damaged ({error}); decode the job again") from None
    # Not splitlines(): an answer may hold other line breaks than the one that ends a line.
    return iter(text.removesuffix("\n").split("\n"))


def _parse_lines(path: Path, lines: Iterable[str]) -> list[Sample]:
    samples = []
    for line in lines:
        try:
            samples.append(parse_sample(json.loads(line)))
        except (KeyError, TypeError, ValueError, AttributeError, RecursionError) as error:
            raise UserError(
                f"{path}: sample {len(samples) + 1} is damaged ({error!r}); decode the job again"
            ) from None
    return samples


def _checked(record: Any, samples: Sequence[Sample], path: Path) -> dict[str, Any]:
    """The record, if its tasks are those of the samples and have as many."""
    try:
        told = {task: entry["n"] for task, entry in record["tasks"].items()}
        record.get("data", {}).items()
    except (KeyError, TypeError, AttributeError) as error:
        raise UserError(f"{path}: damaged ({error!r}); decode the job again") from None
    found = Counter(sample.task for sample in samples)
    if told != found or not told:
        raise UserError(f"{path}: it does not fit the samples beside it; decode the job again")
    checked: dict[str, Any] = record
    return checked
