"""Which files of a data set hold a split, and their rows."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from mrp.errors import UserError
from mrp.fetch.benchmarks import read_rows, split_files

GSM8K_CARD = {
    "configs": [
        {
            "config_name": config,
            "data_files": [
                {"split": "train", "path": f"{config}/train-*"},
                {"split": "test", "path": f"{config}/test-*"},
            ],
        }
        for config in ("main", "socratic")
    ]
}


@pytest.mark.parametrize(
    ("names", "card", "config", "split", "expected"),
    [
        pytest.param(
            ["README.md", "main/test-0-of-1.parquet", "main/train-0-of-1.parquet",
             "socratic/test-0-of-1.parquet"],
            GSM8K_CARD, "main", "test", ["main/test-0-of-1.parquet"], id="card",
        ),
        pytest.param(
            ["README.md", "test.jsonl", ".gitattributes"],
            {}, "default", "test", ["test.jsonl"], id="one file, no list in the card",
        ),
        pytest.param(
            ["sanitized/test-00000-of-00001.parquet", "full/test-00000-of-00001.parquet",
             "sanitized/prompt-00000-of-00001.parquet"],
            {}, "sanitized", "test", ["sanitized/test-00000-of-00001.parquet"], id="by folder",
        ),
        pytest.param(
            ["data/latest.jsonl", "data/test.json", "data/test.jsonl", "data/test.csv"],
            {"configs": "none"}, "default", "test", ["data/test.jsonl"], id="words, one format",
        ),
        pytest.param(
            ["b/x.jsonl", "a/y.jsonl"],
            {"configs": [{"data_files": [{"split": "test", "path": ["a/y.jsonl", "b/*"]}]}]},
            "default", "test", ["a/y.jsonl", "b/x.jsonl"], id="several paths, unnamed config",
        ),
        pytest.param(["train.jsonl"], {}, "default", "test", [], id="none"),
    ],
)  # fmt: skip
def test_the_files_of_a_split(
    names: list[str], card: dict[str, Any], config: str, split: str, expected: list[str]
) -> None:
    assert split_files(names, card, config, split) == expected


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("a.jsonl", '{"x": "a\u2028b"}\n\n{"x": 2}\n'),
        ("a.json", '[{"x": "a\u2028b"},\n {"x": 2}]'),
        ("b.json", '{"x": "a\u2028b"}\n{"x": 2}'),
    ],
)
def test_rows_of_text_files(tmp_path: Path, name: str, text: str) -> None:
    (tmp_path / name).write_text(text, "utf-8")
    assert read_rows(tmp_path / name) == [{"x": "a\u2028b"}, {"x": 2}]


@pytest.mark.parametrize(
    ("name", "data"), [("a.jsonl", b'{"x"'), ("a.parquet", b"PAR1"), ("a.jsonl", b"\xff\xfe")]
)
def test_a_damaged_file_is_named(tmp_path: Path, name: str, data: bytes) -> None:
    (tmp_path / name).write_bytes(data)
    with pytest.raises(UserError, match=rf"{name}: damaged \("):
        read_rows(tmp_path / name)
