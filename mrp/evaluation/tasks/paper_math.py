"""The paper's mathematics benchmarks: prompts and scores that lm-eval's task files name.

GSM8K and MATH500, 0-shot with the chat template.
"""

from __future__ import annotations

from typing import Any

import datasets

from mrp.evaluation.problems import Row, load_problems
from mrp.evaluation.verdicts import metrics, on_text

# The sentence after the problem (OpenCompass gsm8k_0shot_v2_gen_a58960, and its MATH form).
INSTRUCTION = "Please reason step by step, and put your final answer within \\boxed{}."


def load_gsm8k(data_dir: str | None = None, **_: Any) -> dict[str, datasets.Dataset]:
    """GSM8K's test problems; lm-eval passes its task metadata as keywords."""
    return load_problems("mrp_gsm8k", data_dir, _gsm8k_row)


def load_math500(data_dir: str | None = None, **_: Any) -> dict[str, datasets.Dataset]:
    """MATH500's problems; lm-eval passes its task metadata as keywords."""
    return load_problems("mrp_math500", data_dir, _math500_row)


def score_gsm8k(doc: Row, results: list[str]) -> dict[str, float]:
    """The metrics of one reply."""
    return metrics(on_text("mrp_gsm8k", results[0], doc["target"]))


def score_math500(doc: Row, results: list[str]) -> dict[str, float]:
    """The metrics of one reply."""
    return metrics(on_text("mrp_math500", results[0], doc["target"]))


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
