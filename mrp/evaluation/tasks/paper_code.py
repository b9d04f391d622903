"""The paper's programming benchmarks: prompts and scores that lm-eval's task files name.

HumanEval and MBPP's sanitized test split, 0-shot with the chat template, one reply a problem
(pass@1). The prompts are those of OpenCompass (humaneval_gen_8e312c and
sanitized_mbpp_mdblock_0shot_nocot_gen_a2e416), which the paper evaluates with.
"""

from __future__ import annotations

import ast
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

import datasets

from mrp.evaluation.problems import Row, load_problems
from mrp.evaluation.programs import called_function
from mrp.evaluation.verdicts import Verdict, judge, metrics

HUMANEVAL_PROMPT = "Complete the following python code:\n{prompt}"
# The blank before "You" and the empty block are the original's.
MBPP_PROMPT = (
    "You are an expert Python programmer, and here is your task:\n{prompt}\n"
    "Your code should pass these tests:\n\n{tests}\n"
    " You should submit your final solution in the following format: ```python\n\n```"
)


def load_humaneval(data_dir: str | None = None, **metadata: Any) -> dict[str, datasets.Dataset]:
    """HumanEval's problems; lm-eval passes its task metadata as keywords."""
    return load_problems("mrp_humaneval", data_dir, lambda row: _humaneval_row(row, metadata))


def load_mbpp(data_dir: str | None = None, **metadata: Any) -> dict[str, datasets.Dataset]:
    """Sanitized MBPP's test problems; lm-eval passes its task metadata as keywords."""
    return load_problems("mrp_mbpp", data_dir, lambda row: _mbpp_row(row, metadata))


def run_humaneval(replies: Sequence[str], docs: Sequence[Row]) -> list[Row]:
    """A filter of lm-eval: replies -> verdicts, all programs run in the sandbox."""
    return [asdict(verdict) for verdict in judge("mrp_humaneval", docs, replies)]


def run_mbpp(replies: Sequence[str], docs: Sequence[Row]) -> list[Row]:
    """A filter of lm-eval: replies -> verdicts, all programs run in the sandbox."""
    return [asdict(verdict) for verdict in judge("mrp_mbpp", docs, replies)]


def score_humaneval(doc: Row, results: list[Row]) -> dict[str, float]:
    """The metrics of one reply, from its verdict."""
    return metrics(Verdict(**results[0]))


def score_mbpp(doc: Row, results: list[Row]) -> dict[str, float]:
    """The metrics of one reply, from its verdict."""
    return metrics(Verdict(**results[0]))


def _humaneval_row(row: Row, limits: Row) -> Row:
    entry = row["entry_point"]
    if not entry.isidentifier():
        raise ValueError(f"column 'entry_point' is {entry!r}")
    return {
        "prompt": HUMANEVAL_PROMPT.format(prompt=row["prompt"]),
        "target": row["canonical_solution"],
        "stub": row["prompt"],
        "entry": entry,
        "names": [entry],
        # The stub's imports and helpers are there for the tests, too.
        "setup": _parsed(row["prompt"], "prompt"),
        "tests": _parsed(f"{row['test']}\ncheck({entry})\n", "test"),
        **_limits(limits),
    }


def _mbpp_row(row: Row, limits: Row) -> Row:
    tests = [str(test) for test in row["test_list"]]
    defined = _defined(_parsed(row["code"], "code"))
    entry = called_function(tests, defined)
    return {
        "prompt": MBPP_PROMPT.format(prompt=row["prompt"], tests="\n".join(tests)),
        "target": row["code"],
        "stub": "",
        "entry": entry,
        # What a test may take from the program is what the reference offers.
        "names": sorted({entry, *defined}),
        "setup": _parsed("\n".join(row["test_imports"]), "test_imports"),
        "tests": _parsed("\n".join(tests), "test_list"),
        **_limits(limits),
    }


def _limits(metadata: Row) -> Row:
    return {"timeout": float(metadata["timeout"]), "memory_mb": int(metadata["memory_mb"])}


def _defined(code: str) -> list[str]:
    """The functions and classes at the margin of a program."""
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
    return [node.name for node in ast.parse(code).body if isinstance(node, kinds)]


def _parsed(code: str, column: str) -> str:
    """Code of the data set as it is, or a ValueError where it is no Python."""
    try:
        ast.parse(code)
    except SyntaxError as error:
        raise ValueError(f"column {column!r} is no Python: {error}") from None
    return code
