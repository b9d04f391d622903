"""The paper's mathematics benchmarks: data, prompts and scores that lm-eval's task files name.

GSM8K and MATH500, 0-shot with the chat template. The problems come from `<task>.jsonl` in the data
directory, with the hub data set's own columns, or without a directory from the hub's cache.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import datasets

from mrp.errors import UserError
from mrp.evaluation.answers import is_right, paper_rule

# The sentence after the problem (OpenCompass gsm8k_0shot_v2_gen_a58960, and its MATH form).
INSTRUCTION = "Please reason step by step, and put your final answer within \\boxed{}."

Row = dict[str, str]


def load_gsm8k(data_dir: str | None = None, **_: Any) -> dict[str, datasets.Dataset]:
    """GSM8K's test problems; lm-eval passes its task metadata as keywords."""
    return _load("mrp_gsm8k", ("openai/gsm8k", "main"), _gsm8k_row, data_dir)


def load_math500(data_dir: str | None = None, **_: Any) -> dict[str, datasets.Dataset]:
    """MATH500's problems; lm-eval passes its task metadata as keywords."""
    return _load("mrp_math500", ("HuggingFaceH4/MATH-500", "default"), _math500_row, data_dir)


def score_gsm8k(doc: Row, results: list[str]) -> dict[str, float]:
    """acc: the answer is right; paper_rule: the paper's own rule says so."""
    return {
        "acc": float(is_right("gsm8k", results[0], doc["target"])),
        "paper_rule": float(paper_rule("gsm8k", results[0], doc["target"])),
    }


def score_math500(doc: Row, results: list[str]) -> dict[str, float]:
    """acc: the answer is right; paper_rule: the paper's own rule says so."""
    return {
        "acc": float(is_right("math500", results[0], doc["target"])),
        "paper_rule": float(paper_rule("math500", results[0], doc["target"])),
    }


def _gsm8k_row(row: Row) -> Row:
    """The gold answer stands after `####`."""
    _, marker, target = row["answer"].rpartition("####")
    if not marker or not target.strip():
        raise ValueError("column 'answer' has no answer after ####")
    return {
        "prompt": f"{row['question']}\n{INSTRUCTION}",
        "answer": row["answer"],
        "target": target.strip(),
    }


def _math500_row(row: Row) -> Row:
    return {
        "prompt": f"{row['problem']}\n{INSTRUCTION}",
        "answer": row["solution"],
        "target": row["answer"].strip(),
    }


def _load(
    task: str, hub: tuple[str, str], convert: Callable[[Row], Row], data_dir: str | None
) -> dict[str, datasets.Dataset]:
    """The test split as lm-eval takes it, in memory.

    Raises:
        UserError: the data is missing, empty or damaged.
    """
    if data_dir is not None:
        source = str(Path(data_dir) / f"{task}.jsonl")
        lines = _read_lines(Path(source), hub[0])
    else:
        source = f"data set {hub[0]}"
        lines = _from_hub(*hub, task)
    rows = []
    for number, line in enumerate(lines, start=1):
        try:
            row = json.loads(line) if isinstance(line, str) else line
            rows.append({"id": f"{task}-{number - 1}", **convert(row)})
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise UserError(
                f"{source}: problem {number} is damaged ({error!r}); it must have the columns of "
                f"{hub[0]}"
            ) from None
    if not rows:
        raise UserError(f"{source}: holds no problems; fetch it again")
    return {"test": datasets.Dataset.from_list(rows)}


def _read_lines(path: Path, hub: str) -> list[Any]:
    if not path.exists():
        raise UserError(
            f"{path}: no such data file; write {hub}'s test split there, one JSON object a line"
        )
    # Not splitlines: JSON strings may hold other line separators.
    return [line for line in path.read_text("utf-8").split("\n") if line.strip()]


def _from_hub(name: str, config: str, task: str) -> list[Any]:
    try:
        return list(datasets.load_dataset(name, config, split="test"))
    except Exception as error:  # the library raises whatever its network or cache met
        first = next(iter(str(error).splitlines()), type(error).__name__)
        raise UserError(
            f"data set {name} is not here ({first}): give a directory with {task}.jsonl as --data, "
            "or set HF_HUB_OFFLINE=0 and HF_DATASETS_OFFLINE=0 to load it from the hub"
        ) from None
