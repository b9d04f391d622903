"""The paper's mathematics tasks from local files: prompts, settings, both scores, clear errors."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import datasets
import pytest

import mrp.evaluation.adapter as adapter
from mrp.data import build
from mrp.errors import UserError
from mrp.evaluation.adapter import MRPModel
from mrp.evaluation.requests import Request, answer_text, find_stop, parse_settings
from mrp.evaluation.run import Cell, load_tasks, run_job
from mrp.evaluation.tasks import hub_source
from tests.evaluation.test_adapter import scripted
from tests.evaluation.test_commands import run

TASKS = ("mrp_gsm8k", "mrp_math500", "mrp_humaneval", "mrp_mbpp")
MATH = TASKS[:2]
GSM8K = [
    {"question": "How many\u2028eggs?", "answer": "9 * 2 = <<9*2=18>>18\n#### 18"},
    {"question": "How much?", "answer": "#### 1,050"},
]
MATH500 = [
    {
        "problem": "What is $x$?",
        "solution": r"So $\boxed{\frac{1}{2}}$.",
        "answer": r"\frac{1}{2}",
        "subject": "Algebra",
        "level": 1,
        "unique_id": "test/algebra/1.json",
    }
]
CELL = Cell(id="by hand", suite="test", backbone="S", tasks=MATH, mode="static", batch_size=4)


@pytest.fixture
def data_dir(tmp_path: Path) -> Path:
    for task, rows in zip(MATH, (GSM8K, MATH500), strict=True):
        lines = [json.dumps(row, ensure_ascii=False) for row in rows]
        (tmp_path / f"{task}.jsonl").write_text("\n".join(lines) + "\n")
    return tmp_path


def test_prompts_targets_and_settings(data_dir: Path) -> None:
    loaded = load_tasks(MATH, data_dir)["tasks"]
    gsm8k, math500 = (list(loaded[task].test_docs()) for task in MATH)
    assert [doc["target"] for doc in gsm8k] == ["18", "1,050"]
    assert [doc["target"] for doc in math500] == [r"\frac{1}{2}"]
    question, _, instruction = gsm8k[0]["prompt"].partition("\n")
    assert question == GSM8K[0]["question"]
    assert "step by step" in instruction
    assert instruction.endswith(r"\boxed{}.")
    assert math500[0]["prompt"] == f"{MATH500[0]['problem']}\n{instruction}"
    for task in loaded.values():
        # No stop strings: an empty line or a word of the prompt must not cut an answer.
        assert parse_settings(task.config.generation_kwargs, 5) == ([], 4096)


@pytest.mark.parametrize(
    ("until", "reply", "kept"),
    [
        ([], "Step 1.\n\nThe answer is 7", "Step 1.\n\nThe answer is 7"),
        ([], "Identify the Question first. #### 5", "Identify the Question first. #### 5"),
        (["Question:"], "The Question is 5", "The Question is 5"),
        ("abc", "a b c 5", "a b c 5"),
        ([], "```python\nimport a\n\ndef f(): 5", "```python\nimport a\n\ndef f(): 5"),
    ],
)
def test_answers_are_kept_whole(model: MRPModel, until: Any, reply: str, kept: str) -> None:
    strings, _ = parse_settings({"until": until}, 5)
    assert find_stop(reply, strings) is None
    ids = model.tokenizer.encode(reply, add_special_tokens=False)
    assert answer_text(model.tokenizer, ids, Request([5], strings, 99)) == kept


def test_both_scores_are_recorded(
    data_dir: Path, backbone_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake = scripted(r"\boxed{3}. No: \boxed{18}")
    asked: list[list[int]] = []

    def decode(*args: Any, **settings: Any) -> Any:
        asked.append(args[4])
        for decoded in fake(*args, **settings):
            decoded.counts |= {"prefill": 1, "store": 1}
            yield decoded

    monkeypatch.setattr(adapter, "decode", decode)
    fake.vocabulary = MRPModel(backbone_dir, device="cpu").tokenizer.get_vocab()
    out = tmp_path / "out"
    record = run_job(
        replace(CELL, max_new_tokens=64), backbone_dir, None, data_dir, out, device="cpu"
    )
    assert asked == [[64, 64, 64]]
    gsm8k = record["tasks"]["mrp_gsm8k"]
    assert (gsm8k["correct"], gsm8k["accuracy"]) == (1, 0.5)
    assert gsm8k["paper_rule"] == {"correct": 0, "accuracy": 0.0}
    first, second, third = map(json.loads, (out / "samples.jsonl").read_text().strip().split("\n"))
    assert (first["correct"], first["paper_rule"], first["target"]) == (True, False, "18")
    assert (second["correct"], third["correct"]) == (False, False)


def test_without_a_limit_the_tasks_own_counts(data_dir: Path, backbone_dir: Path) -> None:
    with pytest.raises(UserError, match="and 4096 new ones exceed the model's context"):
        run_job(replace(CELL, tasks=TASKS[:1]), backbone_dir, None, data_dir, None, "cpu")


def test_mrp_eval(data_dir: Path, backbone_dir: Path, capsys: pytest.CaptureFixture[str]) -> None:
    build(data_dir, seed=0, n_test=2, level="embedded")
    run(
        "eval", "--backbone", backbone_dir, "--device", "cpu",
        "--tasks", ",".join([*MATH, "mini_math"]), "--limit", "2",
        "--data", data_dir, "--max-new-tokens", "8",
    )  # fmt: skip
    table = capsys.readouterr().out
    assert "paper %" in table
    assert "mrp_gsm8k" in table
    assert "0/2" in table
    assert "0/1" in table
    assert re.search(r"mini_math\s+\d/2\s+[\d.]+\s+-", table)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, r"mrp_gsm8k\.jsonl: no such data file; run `mrp fetch`"),
        ("", "holds no problems"),
        ("{", "problem 1 is damaged"),
        ('{"question": "x"}', r"problem 1 is damaged \(KeyError\('answer'\)\).*openai/gsm8k"),
        ('{"question": "x", "answer": "5"}', "no answer after ####"),
        ('{"question": "x", "answer": 5}', "problem 1 is damaged"),
        ("[]", "problem 1 is damaged"),
    ],
)
def test_bad_data(tmp_path: Path, content: str | None, message: str) -> None:
    if content is not None:
        (tmp_path / "mrp_gsm8k.jsonl").write_text(content)
    with pytest.raises(UserError, match=message):
        load_tasks(("mrp_gsm8k",), tmp_path)


def test_a_cold_cache_is_one_clear_error(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def load_dataset(*args: Any, **settings: Any) -> Any:
        asked.append((*args, settings))
        raise ConnectionError("offline\nmore")

    monkeypatch.setattr(datasets, "load_dataset", load_dataset)
    for task in TASKS:
        with pytest.raises(UserError, match=rf"\(offline\).*{task}\.jsonl as --data"):
            load_tasks((task,), None)
    sources = [hub_source(task) for task in TASKS]
    assert asked == [
        (source.id, source.config, {"split": source.split, "revision": source.revision})
        for source in sources
    ]
    assert [(source.id, source.config, source.split) for source in sources] == [
        ("openai/gsm8k", "main", "test"),
        ("HuggingFaceH4/MATH-500", "default", "test"),
        ("openai/openai_humaneval", "openai_humaneval", "test"),
        ("google-research-datasets/mbpp", "sanitized", "test"),
    ]
    for source in sources:
        assert re.fullmatch("[0-9a-f]{40}", source.revision)


def test_problems_from_the_hub(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = datasets.Dataset.from_list(GSM8K)
    monkeypatch.setattr(datasets, "load_dataset", lambda *_, **__: rows)
    docs = list(load_tasks(("mrp_gsm8k",), None)["tasks"]["mrp_gsm8k"].test_docs())
    assert [doc["target"] for doc in docs] == ["18", "1,050"]
