"""HumanEval and MBPP from local files: prompts, programs, both scores, what the record says."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import mrp.evaluation.adapter as adapter
from mrp.decoding import COUNTERS, Decoded, Trace
from mrp.errors import UserError
from mrp.evaluation import sandbox, verdicts
from mrp.evaluation.adapter import MRPModel
from mrp.evaluation.requests import parse_settings
from mrp.evaluation.run import Cell, load_tasks, run_job
from mrp.evaluation.sandbox import run_program
from mrp.evaluation.tasks import load_documents
from mrp.evaluation.verdicts import judge
from tests.evaluation.conftest import LmEval

TASKS = ("mrp_humaneval", "mrp_mbpp")
HUMANEVAL = [
    {
        "task_id": "HumanEval/0",
        "prompt": "from typing import List\n\n\ndef half(x: int) -> int:\n    return x // 2\n\n\n"
        'def total(xs: List[int]) -> int:\n    """Sum of the halves."""\n',
        "canonical_solution": "    return sum(half(x) for x in xs)\n",
        "test": "METADATA = {}\n\n\ndef check(candidate):\n    assert candidate([2, 4]) == 3\n"
        "    assert candidate([]) == half(1)\n",
        "entry_point": "total",
    },
    {
        "task_id": "HumanEval/1",
        "prompt": 'def twice(x):\n    """Two times {x}."""\n',
        "canonical_solution": "    return 2 * x\n",
        "test": "def check(candidate):\n    assert candidate(2) == 4\n",
        "entry_point": "twice",
    },
]
MBPP = [
    {
        "source_file": "b.ipynb",
        "task_id": 2,
        "prompt": "Write a function to find the root.",
        "code": "import math\ndef helper(x): return x\ndef root(x):\n    return math.sqrt(x)\n",
        "test_imports": ["import math"],
        "test_list": ["assert math.isclose(root(4), 2)", "assert math.isclose(root(9), 3)"],
    }
]
CELL = Cell(
    id="by hand", suite="test", backbone="S", tasks=TASKS, mode="static", batch_size=4,
    max_new_tokens=99,
)  # fmt: skip
GOOD = [
    "```python\ndef total(xs):\n    return sum(half(x) for x in xs)\n```",
    "Sure:\n```python\ndef twice(x):\n    return 2 * x\n```",
    "import math\ndef root(x):\n    return math.sqrt(x)\n```",
]
WRONG = [
    "```python\ndef total(xs):\n    return 7\n```",
    "```python\ndef twice(x):\n    return 7\n```",
    "```python\ndef root(x):\n    return 7\n```",
]


def write_data(directory: Path, humaneval: Any = HUMANEVAL, mbpp: Any = MBPP) -> Path:
    directory.mkdir(exist_ok=True)
    for task, rows in zip(TASKS, (humaneval, mbpp), strict=True):
        text = "".join(json.dumps(row) + "\n" for row in rows)
        (directory / f"{task}.jsonl").write_text(text)
    return directory


@pytest.fixture
def data_dir(tmp_path: Path) -> Path:
    return write_data(tmp_path / "data")


def answering(replies: list[str], backbone: Path) -> Any:
    """A decoder that gives each prompt of a run its reply, in the order of the requests."""
    vocabulary = MRPModel(backbone, device="cpu").tokenizer.get_vocab()

    def decode(_: Any, __: Any, prompts: Any, *rest: Any, **settings: Any) -> Iterator[Decoded]:
        for index, (_, text) in enumerate(zip(prompts, replies, strict=True)):
            ids = [vocabulary[character] for character in text]
            n = len(ids)
            counts = dict.fromkeys(COUNTERS, 1) | {"generated": n, "answer_tokens": n}
            trace = Trace(ids, [1] * n, ["backbone"] * n, [0] * n)
            yield Decoded(index, ids, True, counts, trace)

    return decode


def samples_of(out: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (out / "samples.jsonl").read_text().splitlines()]


def test_prompts_and_settings(data_dir: Path) -> None:
    loaded = load_tasks(TASKS, data_dir)["tasks"]
    humaneval, mbpp = (list(loaded[task].test_docs()) for task in TASKS)
    assert humaneval[0]["prompt"] == (
        "Complete the following python code:\n" + HUMANEVAL[0]["prompt"]
    )
    assert "{x}" in humaneval[1]["prompt"]
    assert mbpp[0]["prompt"].splitlines() == [
        "You are an expert Python programmer, and here is your task:",
        "Write a function to find the root.",
        "Your code should pass these tests:",
        "",
        "assert math.isclose(root(4), 2)",
        "assert math.isclose(root(9), 3)",
        " You should submit your final solution in the following format: ```python",
        "",
        "```",
    ]
    assert mbpp[0]["names"] == ["helper", "root"]
    for task in loaded.values():
        # No stop strings: none of "\ndef", "\n#", "\nif" may cut a chat reply.
        assert parse_settings(task.config.generation_kwargs, 5) == ([], 4096)
    assert load_documents("mrp_mbpp", data_dir) == mbpp


def test_programs_are_scored_and_what_became_of_them_is_recorded(
    data_dir: Path, backbone_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(adapter, "decode", answering([GOOD[0], WRONG[1], GOOD[2]], backbone_dir))
    record = run_job(CELL, backbone_dir, None, data_dir, tmp_path / "out", "cpu")
    humaneval, mbpp = (record["tasks"][task] for task in TASKS)
    assert (humaneval["correct"], humaneval["n"], humaneval["answered"]) == (1, 2, 2)
    assert humaneval["paper_rule"] == {"correct": 1, "accuracy": 0.5}
    # The prompt opened the fence: the paper's rule takes what follows the last one, nothing.
    assert (mbpp["correct"], mbpp["paper_rule"]["correct"]) == (1, 0)
    first, second, third = samples_of(tmp_path / "out")
    isolation = "rlimits" if sandbox.bubblewrap_fault() else "bubblewrap"
    assert humaneval["isolation"] == {isolation: 2}
    assert first["program"] | {"passed": True, "reason": "passed"} == first["program"]
    assert first["program"]["isolation"] == isolation
    assert second["program"]["reason"].startswith("failed: AssertionError at `assert candidate(2)")
    assert third["paper_program"]["passed"] is False
    assert record["data"]["mrp_mbpp"]["file"] == str(data_dir / "mrp_mbpp.jsonl")
    assert len(record["data"]["mrp_mbpp"]["sha256"]) == 64


def test_without_bubblewrap_the_record_says_so(
    data_dir: Path, monkeypatch: pytest.MonkeyPatch, backbone_dir: Path
) -> None:
    monkeypatch.setattr(sandbox, "bubblewrap_fault", lambda: "bwrap is not installed")
    monkeypatch.setattr(adapter, "decode", answering(GOOD, backbone_dir))
    record = run_job(CELL, backbone_dir, None, data_dir, None, "cpu")
    for task in TASKS:
        assert record["tasks"][task]["isolation"] == {"rlimits": record["tasks"][task]["n"]}
        (note,) = record["tasks"][task]["notes"]
        assert note.startswith("programs ran WITHOUT bubblewrap (bwrap is not installed)")


def test_the_tasks_limits_reach_the_sandbox(
    data_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = []

    def record_limits(*arguments: Any, **limits: Any) -> Any:
        given.append(limits)
        return run_program(*arguments, **{**limits, "timeout": 1.0})

    monkeypatch.setattr(sandbox, "run_program", record_limits)
    docs = load_documents("mrp_humaneval", data_dir)
    slow = "```python\nimport time\ndef total(xs):\n    time.sleep(2)\n    return 3\n```"
    (verdict,) = judge("mrp_humaneval", docs[:1], [slow])
    assert verdict.program is not None
    assert verdict.program["reason"].startswith("timeout: longer than 1 s")
    assert given[0]["timeout"] == 10.0
    assert given[0]["memory_mb"] == 1024
    metadata = {"timeout": 3, "memory_mb": 99}
    doc = load_tasks(("mrp_mbpp",), data_dir, metadata)["tasks"]["mrp_mbpp"].test_docs()[0]
    assert (doc["timeout"], doc["memory_mb"]) == (3.0, 99)


def test_programs_run_beside_each_other_one_a_core(
    data_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(verdicts, "worker_count", lambda: 3)
    running, most = 0, 0
    barrier = threading.Barrier(3, timeout=20)

    def wait(*_: Any, **__: Any) -> Any:
        nonlocal running, most
        running += 1
        most = max(most, running)
        barrier.wait()
        running -= 1
        return sandbox.Outcome(True, "passed", "", "bubblewrap", "")

    monkeypatch.setattr(sandbox, "run_program", wait)
    docs = load_documents("mrp_humaneval", data_dir)[:1] * 6
    assert all(verdict.correct for verdict in judge("mrp_humaneval", docs, [GOOD[0]] * 6))
    assert most == 3


def test_what_a_program_says_cannot_break_the_record(data_dir: Path, tmp_path: Path) -> None:
    docs = load_documents("mrp_humaneval", data_dir)
    reply = "```python\ndef total(xs):\n    raise ValueError('\\x1b[2J\\ud800\\n' * 999)\n```"
    (verdict,) = judge("mrp_humaneval", docs[:1], [reply])
    assert verdict.program is not None
    assert verdict.program["reason"].startswith("failed: ValueError")
    assert verdict.program["reason"].isprintable()
    assert len(verdict.program["reason"]) <= 500
    verdict.program["reason"].encode("utf-8")


@pytest.mark.parametrize(
    ("reply", "correct", "paper"),
    [
        (GOOD[0], True, True),
        (HUMANEVAL[0]["canonical_solution"], True, False),  # its first indent is lost
        ("```python\n" + str(HUMANEVAL[0]["canonical_solution"]) + "```", True, False),
        ("def total(xs):\n    return sum(x // 2 for x in xs)", True, True),
        ("Sure!\n" + GOOD[0], True, True),
        ("Sure! Here it is:\ndef total(xs):\n    return sum(x // 2 for x in xs)\n", True, False),
        (WRONG[0] + "\nNo, wait:\n" + GOOD[0], True, False),
        (GOOD[0] + "\nUse it:\n```python\nprint(total([1]))\n```", True, True),
        (
            "```python\nfrom typing import List\n\n" + GOOD[0].removeprefix("```python\n"),
            True,
            True,
        ),
        (GOOD[0].removesuffix("```"), True, False),
        ("", False, False),
        ("I cannot do that.", False, False),
    ],
)
def test_humaneval_by_both_rules(data_dir: Path, reply: str, correct: bool, paper: bool) -> None:
    docs = load_documents("mrp_humaneval", data_dir)
    (verdict,) = judge("mrp_humaneval", docs[:1], [reply])
    assert (verdict.correct, verdict.paper_rule) == (correct, paper)


@pytest.mark.parametrize(
    ("reply", "correct", "paper"),
    [
        ("```python\nimport math\ndef root(x):\n    return math.sqrt(x)\n```", True, True),
        ("Here:\n```\ndef root(x):\n    return x ** 0.5\n```\nDone.", True, True),
        ("[BEGIN]\n'def root(x):\n    return x ** 0.5'\n[DONE]", False, True),
        ("def root(x):\n    return x ** 0.5", True, True),
        ("def root(x):\n    return x ** 0.5\n```", True, False),
        ("Here is it:\ndef root(x):\n    return x ** 0.5", True, False),
        ("```python\ndef root(a\\_b):\n    return a\\_b ** 0.5\n```", False, True),
        ("```python\ndef root(x): return 7\n```\nWait:\n" + "```python\ndef root(x): return x ** "
         "0.5\n```", True, False),
        ("Prose.", False, False),
    ],
)  # fmt: skip
def test_mbpp_by_both_rules(data_dir: Path, reply: str, correct: bool, paper: bool) -> None:
    docs = load_documents("mrp_mbpp", data_dir)
    (verdict,) = judge("mrp_mbpp", docs, [reply])
    assert (verdict.correct, verdict.paper_rule) == (correct, paper)


@pytest.mark.parametrize(
    ("task", "change", "message"),
    [
        ("mrp_humaneval", {"entry_point": None}, "problem 1 is damaged"),
        ("mrp_humaneval", {"entry_point": "a b"}, "column 'entry_point' is 'a b'"),
        ("mrp_humaneval", {"test": "def check("}, "column 'test' is no Python"),
        ("mrp_humaneval", {"prompt": "def f("}, "column 'prompt' is no Python"),
        ("mrp_mbpp", {"test_list": "assert root(1)"}, "problem 1 is damaged"),
        ("mrp_mbpp", {"test_list": []}, "calls no function"),
        ("mrp_mbpp", {"test_imports": None}, "problem 1 is damaged"),
        ("mrp_mbpp", {"code": "def"}, "problem 1 is damaged"),
    ],
)
def test_damaged_problems_are_named(
    tmp_path: Path, task: str, change: dict[str, Any], message: str
) -> None:
    row = (HUMANEVAL if task == "mrp_humaneval" else MBPP)[0]
    (tmp_path / f"{task}.jsonl").write_text(json.dumps({**row, **change}) + "\n")
    with pytest.raises(UserError, match=message):
        load_tasks((task,), tmp_path)


def test_tests_that_cannot_run_are_no_wrong_answer(data_dir: Path) -> None:
    docs = [{**load_documents("mrp_mbpp", data_dir)[0], "setup": "import not_there"}]
    with pytest.raises(UserError, match="problem mrp_mbpp-0: the tests themselves are broken"):
        judge("mrp_mbpp", docs, [GOOD[2]])


def test_every_task_has_its_own_limit_of_problems(
    data_dir: Path, monkeypatch: pytest.MonkeyPatch, backbone_dir: Path
) -> None:
    monkeypatch.setattr(adapter, "decode", answering([GOOD[0], GOOD[2]], backbone_dir))
    record = run_job(replace(CELL, limit=1), backbone_dir, None, data_dir, None, "cpu")
    assert [record["tasks"][task]["correct"] for task in TASKS] == [1, 1]


def test_the_lm_eval_command_line_runs_the_programs(
    data_dir: Path, backbone_dir: Path, lm_eval_command: LmEval
) -> None:
    tasks = (*TASKS, "mrp_gsm8k", "mrp_math500")
    problem = {"question": "1?", "problem": "1?", "solution": "1", "answer": "#### 1"}
    for task in tasks[2:]:
        (data_dir / f"{task}.jsonl").write_text(json.dumps(problem))
    words = ["--tasks", ",".join(tasks), "--gen_kwargs", "max_gen_toks=8", "--apply_chat_template"]
    words += ["--metadata", json.dumps({"data_dir": str(data_dir)})]
    code, out, _ = lm_eval_command(*words, "--model_args", f"backbone={backbone_dir}")
    assert code == 0
    for task in tasks:
        assert f"|{task}" in out
    for metric in ("acc", "strict", "paper_rule", "answered"):
        assert metric in out


OFFLINE = """
import socket, sys
def refuse(*arguments): raise AssertionError("the network is asked")
socket.socket.connect = socket.getaddrinfo = refuse
from pathlib import Path
from mrp.evaluation.tasks import load_documents
from mrp.evaluation.verdicts import judge
docs = load_documents("mrp_humaneval", Path(sys.argv[1]))
verdicts = judge("mrp_humaneval", docs, [sys.argv[2]] * len(docs))
assert verdicts[0].correct, verdicts
assert "evaluate" not in sys.modules and "lm_eval" not in sys.modules
"""


def test_scoring_needs_no_network_and_no_leave(data_dir: Path) -> None:
    """No metric is loaded by name, and no HF_ALLOW_CODE_EVAL asked for."""
    kept = ("PATH", "HOME", "LANG")
    environment = {name: os.environ[name] for name in kept if name in os.environ}
    command = [sys.executable, "-c", OFFLINE, str(data_dir), GOOD[0]]
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stderr
