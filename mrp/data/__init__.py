"""The generated tasks: test files, disjoint training examples, and their encoding.

Everything is a pure function of a seed and an index, so a test set of n examples is the start of a
larger one and a training step's batch can be drawn again from the step's number.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Set
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mrp.data import mini_code, mini_math
from mrp.data.example import Example
from mrp.data.tokenizer import build_tokenizer, encode_chat, encode_prompt
from mrp.errors import UserError
from mrp.io import atomic_write_json, atomic_write_text, sha256_file

__all__ = [
    "TASKS",
    "Example",
    "build",
    "build_tokenizer",
    "encode_chat",
    "encode_pool",
    "encode_prompt",
    "test_examples",
    "test_prompts",
    "train_example",
]

TASKS: dict[str, Callable[[random.Random, str], Example]] = {
    "mini_math": mini_math.generate,
    "mini_code": mini_code.generate,
}


def build(out_dir: Path | str, seed: int, n_test: int, level: str) -> dict[str, Any]:
    """Write `<task>.jsonl` for every task and `meta.json`; returns the latter's content.

    A line has the columns id, prompt, answer, target. The files' bytes depend on the arguments
    alone.
    """
    out = Path(out_dir)
    tasks: dict[str, dict[str, Any]] = {}
    for task in TASKS:
        path = out / f"{task}.jsonl"
        examples = test_examples(task, seed, n_test, level)
        atomic_write_text(path, "".join(_line(task, i, ex) for i, ex in enumerate(examples)))
        tasks[task] = {"file": path.name, "n": n_test, "sha256": sha256_file(path)}
    meta = {"schema": 1, "seed": seed, "level": level, "tasks": tasks}
    atomic_write_json(out / "meta.json", meta)
    return meta


def test_examples(task: str, seed: int, n: int, level: str) -> list[Example]:
    """The first `n` test examples of a task, their prompts all different."""
    if n < 1:
        raise UserError(f"a test set of {n} examples is empty: ask for at least 1")
    examples: list[Example] = []
    seen: set[str] = set()
    for index in range(n):
        example = _draw(task, "test", seed, index, level, seen)
        examples.append(example)
        seen.add(example.prompt)
    return examples


def test_prompts(seed: int, n: int, level: str) -> frozenset[str]:
    """The prompts of every task's test set: what training must `exclude`."""
    return frozenset(
        example.prompt for task in TASKS for example in test_examples(task, seed, n, level)
    )


def train_example(
    seed: int, index: int, level: str, exclude: Set[str] = frozenset()
) -> tuple[str, Example]:
    """Training example number `index` and its task; the tasks take turns.

    A draw whose prompt is in `exclude` is drawn again, deterministically.
    """
    task = list(TASKS)[index % len(TASKS)]
    return task, _draw(task, "train", seed, index, level, exclude)


def encode_pool(
    n: int,
    seed: int,
    level: str,
    tokenizer: Any,
    block_size: int,
    exclude: Set[str] = frozenset(),
    start: int = 0,
) -> list[tuple[NDArray[np.int64], int]]:
    """Encode the training examples start .. start + n - 1.

    Returns:
        (ids [length], prompt length) for each: the prompt with the generation prompt, the answer,
        the end token, then pad tokens up to a multiple of `block_size`. The pads are part of the
        answer: they carry loss, so that a model learns to fill a finished block.
    """
    table = np.full(128, -1, dtype=np.int64)
    for token, token_id in tokenizer.get_vocab().items():
        if len(token) == 1:
            table[ord(token)] = token_id
    # The template's tokens around the texts: <|user|> question <|im_end|><|assistant|> answer end.
    frame = encode_prompt(tokenizer, "")
    if len(frame) < 2:
        raise UserError(
            "the tokenizer's chat template must write a token before a question and one after it: "
            "mend chat_template.jinja"
        )
    opening, *between = frame
    end, pad = tokenizer.eos_token_id, tokenizer.pad_token_id
    pool: list[tuple[NDArray[np.int64], int]] = []
    for index in range(start, start + n):
        _, example = train_example(seed, index, level, exclude)
        prompt_length = 1 + len(example.prompt) + len(between)
        length = prompt_length + len(example.answer) + 1
        ids = np.full(-(-length // block_size) * block_size, pad, dtype=np.int64)
        ids[0] = opening
        ids[1 : prompt_length - len(between)] = table[_codes(example.prompt)]
        ids[prompt_length - len(between) : prompt_length] = between
        ids[prompt_length : length - 1] = table[_codes(example.answer)]
        ids[length - 1] = end
        pool.append((ids, prompt_length))
    return pool


def _draw(task: str, split: str, seed: int, index: int, level: str, exclude: Set[str]) -> Example:
    """The first draw for this place in this split whose prompt is not excluded."""
    if task not in TASKS:
        raise UserError(f"task {task!r} is unknown: choose one of {', '.join(TASKS)}")
    for attempt in count():
        rng = random.Random(f"{task}/{level}/{split}/{seed}/{index}/{attempt}")
        example = TASKS[task](rng, level)
        if example.prompt not in exclude:
            return example
    raise AssertionError("unreachable")


def _line(task: str, index: int, example: Example) -> str:
    row = {
        "id": f"{task}-{index}",
        "prompt": example.prompt,
        "answer": example.answer,
        "target": example.target,
    }
    return json.dumps(row) + "\n"


def _codes(text: str) -> NDArray[np.uint8]:
    return np.frombuffer(text.encode("ascii"), dtype=np.uint8)
