from __future__ import annotations

import json
import logging
from pathlib import Path

import pytest

from mrp.errors import UserError
from mrp.evaluation.adapter import MRPModel
from mrp.evaluation.journal import Journal, request_key
from tests.evaluation.conftest import write_backbone, write_head

HEADER = {"job": "d", "mode": "remask", "tau": 0.5, "k": None, "seed": 0, "backbone_hash": "b"}


def lines(path: Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_entries_come_back_and_go_on(tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    with Journal(path, HEADER) as journal:
        journal.append("a", {"ids": [1]})
    with Journal(path, HEADER) as journal:
        assert journal.entries == {"a": {"ids": [1]}}
        journal.append("b", {"ids": [2]})
    with Journal(path, HEADER) as journal:
        assert journal.entries == {"a": {"ids": [1]}, "b": {"ids": [2]}}
    assert len(lines(path)) == 3


@pytest.mark.parametrize(
    "torn", ['{"key":"b","ids":[2', '{"key":"b","ids":[2]}', "\x00\x00", "17\n", '{"key":[1]}\n']
)
def test_a_torn_last_line_is_cut_off(tmp_path: Path, torn: str) -> None:
    path = tmp_path / "journal.jsonl"
    with Journal(path, HEADER) as journal:
        journal.append("a", {"ids": [1]})
    whole = path.read_bytes()
    path.write_bytes(whole + torn.encode())
    with Journal(path, HEADER) as journal:
        assert list(journal.entries) == ["a"]
        journal.append("c", {"ids": [3]})
    with Journal(path, HEADER) as journal:
        assert list(journal.entries) == ["a", "c"]
    assert path.read_bytes().startswith(whole)


@pytest.mark.parametrize("start", ["", '{"journal":1,"mo'])
def test_a_torn_header_starts_over(tmp_path: Path, start: str) -> None:
    path = tmp_path / "journal.jsonl"
    path.write_text(start)
    with Journal(path, HEADER) as journal:
        assert journal.entries == {}
    assert lines(path) == [{"journal": 1, **HEADER}]


@pytest.mark.parametrize("name", HEADER)
def test_another_setting_never_reads_it(
    tmp_path: Path, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "journal.jsonl"
    with Journal(path, HEADER) as journal:
        journal.append("a", {"ids": [1]})
    before = path.read_bytes()
    with caplog.at_level(logging.WARNING), Journal(path, {**HEADER, name: "other"}) as journal:
        assert journal.entries == {}
    assert f"({name} differ)" in caplog.text
    assert path.with_name("journal.jsonl.old").read_bytes() == before


def test_settings_of_models_are_all_different(
    tmp_path: Path, backbone_dir: Path, head_dir: Path
) -> None:
    """One journal, each setting after the other: none takes an answer of the one before."""
    other_backbone = write_backbone(tmp_path / "backbone", seed=7)
    other_head = write_head(tmp_path / "head", seed=8)
    settings = [
        {"mode": "static"},
        {"mode": "static", "steps": 4},
        {"mode": "static", "backbone": other_backbone},
        {"mode": "static", "dtype": "bfloat16"},
        {"mode": "self_speculative", "k": 2},
        {"mode": "self_speculative", "k": 3},
        {"mode": "dynamic", "tau": 0.5},
        {"mode": "dynamic", "tau": 0.6},
        {"mode": "direct", "k": 2, "head": head_dir},
        {"mode": "direct", "k": 2, "head": other_head},
        {"mode": "direct", "k": 2, "head": head_dir, "scale": 0.5},
        {"mode": "remask", "tau": 0.5, "head": head_dir},
        {"mode": "remask", "tau": 0.5, "head": head_dir, "condition": "masked"},
        {"mode": "remask", "tau": 0.5, "head": head_dir, "rule": "residual"},
        {"mode": "remask", "tau": 0.5, "head": head_dir, "rule": "residual", "delta": 2.0},
    ]
    identities = []
    for setting in settings:
        model = MRPModel(
            **{"backbone": backbone_dir, **setting},
            max_new_tokens=8,
            device="cpu",
            journal=tmp_path / "journal.jsonl",
        )
        model.answer([model.request("1+2", {})])
        assert model.resumed_from == 0, setting
        assert model.journal is not None
        model.journal.close()
        identities.append(json.dumps(model.identity))
    assert len(set(identities)) == len(settings)


def test_requests_have_their_own_keys() -> None:
    keys = {
        request_key([1, 2], [], 8),
        request_key([1], [], 8),
        request_key([1, 2], ["x"], 8),
        request_key([1, 2], [], 9),
    }
    assert len(keys) == 4


def test_two_processes_cannot_share_one(tmp_path: Path) -> None:
    with (
        Journal(tmp_path / "journal.jsonl", HEADER),
        pytest.raises(UserError, match="another process"),
    ):
        Journal(tmp_path / "journal.jsonl", HEADER)
