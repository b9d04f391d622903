"""Test files and the training stream: reproducible, disjoint, encoded as the template does."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mrp import data
from mrp.errors import UserError
from mrp.evaluation.scoring import score

LEVELS = ["embedded", "replica", "hard"]
DIGEST = "ba9d6adb406a12d9bc31968deee1405a3b0ab42a0c913a776c4ce7e48ad8057c"


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> Any:
    return data.build_tokenizer(tmp_path_factory.mktemp("tokenizer"))


def read(path: Path) -> list[dict[str, str]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_files_hold_the_documented_columns(tmp_path: Path) -> None:
    meta = data.build(tmp_path, seed=3, n_test=20, level="embedded")
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "meta.json",
        "mini_code.jsonl",
        "mini_math.jsonl",
    ]
    assert json.loads((tmp_path / "meta.json").read_text()) == meta
    for task in data.TASKS:
        rows = read(tmp_path / f"{task}.jsonl")
        assert [row["id"] for row in rows] == [f"{task}-{i}" for i in range(20)]
        assert all(list(row) == ["id", "prompt", "answer", "target"] for row in rows)
        assert len({row["prompt"] for row in rows}) == 20
        file = tmp_path / meta["tasks"][task]["file"]
        assert meta["tasks"][task]["sha256"] == hashlib.sha256(file.read_bytes()).hexdigest()


def test_files_depend_on_seed_and_level_alone(tmp_path: Path) -> None:
    def bytes_of(name: str, seed: int, n_test: int, level: str) -> bytes:
        data.build(tmp_path / name, seed, n_test, level)
        return (tmp_path / name / "mini_math.jsonl").read_bytes()

    reference = bytes_of("a", 0, 10, "embedded")
    assert bytes_of("b", 0, 10, "embedded") == reference
    assert bytes_of("c", 0, 30, "embedded").startswith(reference)
    assert bytes_of("d", 1, 10, "embedded") != reference
    assert bytes_of("e", 0, 10, "hard") != reference


def test_the_data_have_not_changed() -> None:
    """A shipped backbone was trained on this stream and is judged on these prompts."""
    lines = [
        f"{example.prompt}|{example.answer}"
        for level in LEVELS
        for task in data.TASKS
        for example in data.test_examples(task, 0, 200, level)
    ]
    lines += [
        f"{example.prompt}|{example.answer}"
        for level in LEVELS
        for _, example in (data.train_example(0, i, level) for i in range(400))
    ]
    assert hashlib.sha256("\n".join(lines).encode()).hexdigest() == DIGEST


@pytest.mark.parametrize("level", LEVELS)
def test_every_reference_answer_scores_as_right(level: str) -> None:
    for index in range(400):
        task, example = data.train_example(0, index, level)
        assert score(task, example.answer, example.target)


def test_training_is_a_function_of_seed_and_index() -> None:
    stream = [data.train_example(5, i, "embedded") for i in range(40)]
    assert [data.train_example(5, i, "embedded") for i in reversed(range(40))] == stream[::-1]
    assert [task for task, _ in stream] == ["mini_math", "mini_code"] * 20
    assert len({example.prompt for _, example in stream}) == 40
    assert [data.train_example(6, i, "embedded") for i in range(40)] != stream


def test_excluded_prompts_are_drawn_again() -> None:
    plain = [data.train_example(0, i, "embedded") for i in range(60)]
    exclude = {example.prompt for _, example in plain[::3]}
    redrawn = [data.train_example(0, i, "embedded", exclude) for i in range(60)]
    assert not exclude & {example.prompt for _, example in redrawn}
    assert [task for task, _ in redrawn] == [task for task, _ in plain]
    changed = [i for i in range(60) if redrawn[i] != plain[i]]
    assert changed == list(range(0, 60, 3))


def test_test_prompts_cover_the_files(tmp_path: Path) -> None:
    data.build(tmp_path, 0, 30, "embedded")
    prompts = {row["prompt"] for task in data.TASKS for row in read(tmp_path / f"{task}.jsonl")}
    assert data.test_prompts(0, 30, "embedded") == prompts


@pytest.mark.parametrize("level", LEVELS)
def test_pool_is_the_templates_encoding_padded(tokenizer: Any, level: str) -> None:
    exclude = data.test_prompts(0, 20, level)
    pool = data.encode_pool(100, 0, level, tokenizer, 16, exclude)
    for index, (ids, prompt_length) in enumerate(pool):
        _, example = data.train_example(0, index, level, exclude)
        assert example.prompt not in exclude
        chat = [
            {"role": "user", "content": example.prompt},
            {"role": "assistant", "content": example.answer},
        ]
        expected, mask = data.encode_chat(tokenizer, chat)
        assert prompt_length == mask.index(True)
        assert ids[:prompt_length].tolist() == data.encode_prompt(tokenizer, example.prompt)
        assert ids[: len(expected)].tolist() == expected
        assert len(ids) % 16 == 0
        assert ids[len(expected) :].tolist() == [0] * (-len(expected) % 16)


def test_pool_can_start_anywhere(tokenizer: Any) -> None:
    whole = data.encode_pool(20, 0, "embedded", tokenizer, 8)
    part = data.encode_pool(5, 0, "embedded", tokenizer, 8, start=10)
    for (ids, length), (other_ids, other_length) in zip(whole[10:15], part, strict=True):
        assert np.array_equal(ids, other_ids)
        assert length == other_length


def test_bad_arguments_are_user_errors(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="at least 1"):
        data.build(tmp_path, 0, 0, "embedded")
    with pytest.raises(UserError, match="'easy'"):
        data.build(tmp_path, 0, 4, "easy")
    with pytest.raises(UserError, match=r"'maths'.*mini_math, mini_code"):
        data.test_examples("maths", 0, 4, "embedded")
    assert not list(tmp_path.iterdir())
