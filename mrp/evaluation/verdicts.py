"""Replies -> verdicts: the one place that knows how each task is scored.

    verdicts = judge("mrp_humaneval", documents, replies)

Used by decode jobs, by `mrp score` and, through the task files, by lm-eval's own command line.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

from mrp.data import TASKS as MINI_TASKS
from mrp.errors import UserError
from mrp.evaluation import programs, sandbox, scoring
from mrp.evaluation.tasks import scorer

if TYPE_CHECKING:
    from mrp.evaluation import answers

logger = logging.getLogger(__name__)

Doc = Mapping[str, Any]
ANSWER_TASKS: dict[str, answers.Benchmark] = {"mrp_gsm8k": "gsm8k", "mrp_math500": "math500"}
PROGRAM_TASKS = ("mrp_humaneval", "mrp_mbpp")
TARGET_TASKS = (*MINI_TASKS, *ANSWER_TASKS)  # scored by reply and target alone
BENCHMARKS = (*ANSWER_TASKS, *PROGRAM_TASKS)
LONGEST_REASON = 500  # characters


@dataclass(frozen=True)
class Verdict:
    """What a reply is worth.

    correct: the right value, what tables show. answered: the reply says what its answer is, or
    holds a program that could be run, right or wrong. strict: correct, and the answer stands in the
    form that the prompt asks for. paper_rule: right by the paper's own rule. program,
    paper_program: what became of the program that counts for `correct` and for `paper_rule`
    (passed, reason, isolation, note). None where a task has no such thing.
    """

    correct: bool
    answered: bool
    strict: bool | None = None
    paper_rule: bool | None = None
    program: dict[str, Any] | None = None
    paper_program: dict[str, Any] | None = None


def metrics(verdict: Verdict) -> dict[str, float]:
    """A verdict as lm-eval's metrics."""
    scores = {
        "acc": verdict.correct,
        "strict": verdict.strict,
        "paper_rule": verdict.paper_rule,
        "answered": verdict.answered,
    }
    return {name: float(value) for name, value in scores.items() if value is not None}


def judge(task: str, docs: Sequence[Doc], replies: Sequence[str]) -> list[Verdict]:
    """The verdict on each reply.

    Args:
        task: one of our tasks, or a user's own, which its file's `process_results` scores.
        docs: the problems; those of TARGET_TASKS need only `target`.
        replies: the model's texts, one a problem.

    Raises:
        UserError: unknown task, tests that are broken, or no sandbox can be set up.
    """
    pairs = list(zip(docs, replies, strict=True))
    if task in TARGET_TASKS:
        return [on_text(task, reply, str(doc["target"])) for doc, reply in pairs]
    if task not in PROGRAM_TASKS:
        own = scorer(task)
        return [_by_metrics(task, own(doc, [reply])) for doc, reply in pairs]
    workers = max(1, min(worker_count(), len(pairs)))
    logger.info("%s: running %d programs, %d at a time", task, len(pairs), workers)
    with ThreadPoolExecutor(workers) as pool:
        return list(pool.map(lambda pair: _on_program(task, *pair), pairs))


def worker_count() -> int:
    """How many programs run beside each other: one a core that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def on_text(task: str, reply: str, target: str) -> Verdict:
    """The verdict on an answer that is compared with a target; raises UserError likewise."""
    if task not in ANSWER_TASKS:
        answer = scoring.extract_answer(task, reply)
        return Verdict(correct=answer == target, answered=answer is not None)
    from mrp.evaluation import answers  # brings sympy, which no other task needs

    benchmark = ANSWER_TASKS[task]
    correct = answers.is_right(benchmark, reply, target)
    return Verdict(
        correct=correct,
        answered=answers.stated_answer(reply, benchmark == "gsm8k") is not None,
        strict=correct and answers.marked_answer(reply) is not None,
        paper_rule=answers.paper_rule(benchmark, reply, target),
    )


def _by_metrics(task: str, scores: Mapping[str, float]) -> Verdict:
    """The verdict that lm-eval's metrics make: `acc` counts, `answered` where a task has it."""
    if "acc" not in scores:
        raise UserError(f"task {task!r}: its process_results gives no acc; give 1.0 if right")
    return Verdict(correct=scores["acc"] == 1, answered=bool(scores.get("answered", True)))


def _on_program(task: str, doc: Doc, reply: str) -> Verdict:
    """The verdict on a program: what counts, and what the paper would have run."""
    if task == "mrp_humaneval":
        ours = programs.humaneval_program(doc["stub"], doc["entry"], reply)
        papers = programs.paper_humaneval_program(doc["stub"], reply)
    else:
        ours = programs.mbpp_program(doc["entry"], reply)
        papers = programs.paper_mbpp_program(reply)
    outcome = _run(ours, doc)
    paper_outcome = outcome if papers == ours else _run(papers, doc)
    return Verdict(
        correct=outcome["passed"],
        answered=programs.is_answer(ours, doc["entry"]),
        paper_rule=paper_outcome["passed"],
        program=outcome,
        paper_program=None if papers == ours else paper_outcome,
    )


def _run(program: str, doc: Doc) -> dict[str, Any]:
    """One program in the sandbox."""
    try:
        outcome = sandbox.run_program(
            program,
            doc["tests"],
            cast("list[str]", doc["names"]),
            timeout=doc["timeout"],
            memory_mb=doc["memory_mb"],
            setup=doc["setup"],
        )
    except ValueError as error:
        raise UserError(f"problem {doc['id']}: {error}; run `mrp fetch` again") from None
    # Its words may be the program's: on one line, without commands to a terminal.
    words = " ".join(outcome.reason.split())[:LONGEST_REASON]
    return {
        "passed": outcome.passed,
        "reason": "".join(letter if letter.isprintable() else "?" for letter in words),
        "isolation": outcome.isolation,
        "note": outcome.note,
    }
