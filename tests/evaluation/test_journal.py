from __future__ import annotations

import json
import logging
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

import mrp.evaluation.identity as identity_module
from mrp.data import build
from mrp.decoding import make_mode
from mrp.errors import UserError
from mrp.evaluation.adapter import MRPModel
from mrp.evaluation.identity import answer_identity
from mrp.evaluation.journal import Journal, request_key
from mrp.evaluation.problems import describe_data
from mrp.evaluation.run import Cell, Job, run_job
from tests.evaluation.conftest import write_backbone, write_head

# A header has these names; `test_every_cause_has_its_name` holds them against a real one.
HEADER = {
    "seed": 0,
    "mrp": "0.1",
    "torch": "2.13",
    "code": "c",
    "mode": "remask",
    "tau": 0.5,
    "condition": "revealed",
    "rule": "residual",
    "delta": 1.0,
    "floor": 0.0,
    "passes": "one",
    "prefix": True,
    "backbone_hash": "b",
    "head_hash": "h",
    "head_variant": "k2",
    "tokenizer_hash": "t",
    "dtype": "bfloat16",
    "device": "NVIDIA H200",
    "invariant": False,
    "data": {"mrp_gsm8k": "s"},
}


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


CAUSES: dict[str, tuple[str, dict[str, Any]]] = {
    "another mode": ("mode", {"mode": "dynamic", "options": {"tau": 0.5}}),
    "another tau": ("tau", {"options": {"tau": 0.6}}),
    "another condition": ("condition", {"options": {"tau": 0.5, "condition": "masked"}}),
    "another rule": ("rule", {"options": {"tau": 0.5, "rule": "residual"}}),
    "another delta": ("delta", {"options": {"tau": 0.5, "delta": 2.0}}),
    "another seed": ("seed", {"seed": 1}),
    "another dtype": ("dtype", {"dtype": "bfloat16"}),
    "invariant products": ("invariant", {"invariant": True}),
    "another head variant": ("head_variant", {"head_variant": "k2"}),
}


def header_of(
    cell: Cell, backbone: Path, head: Path, data: Path, device: torch.device | None = None
) -> dict[str, Any]:
    """A job's journal header, as `run_job` makes it."""
    mode = make_mode(cell.mode, **cell.options)
    described = {task: describe_data(task, data, []) for task in cell.tasks}
    identity = answer_identity(
        cell.mode,
        mode,
        backbone,
        head,
        cell.head_variant,
        cell.dtype,
        device or torch.device("cpu"),
        cell.invariant,
    )
    return Job(cell, backbone, head, described, "cpu").header(identity)


REMASK = Cell(
    id="x", suite="t", backbone="S", tasks=("mini_math",), mode="remask", options={"tau": 0.5}
)


@pytest.fixture
def mini_data(tmp_path: Path) -> Path:
    build(tmp_path / "data", seed=0, n_test=2, level="embedded")
    return tmp_path / "data"


@pytest.mark.parametrize("cause", CAUSES)
def test_every_setting_changes_its_name_in_the_header(
    cause: str, backbone_dir: Path, head_dir: Path, mini_data: Path
) -> None:
    name, change = CAUSES[cause]
    base = header_of(REMASK, backbone_dir, head_dir, mini_data)
    other = header_of(replace(REMASK, **change), backbone_dir, head_dir, mini_data)
    assert base[name] != other.get(name)


def test_every_cause_has_its_name(
    backbone_dir: Path,
    head_dir: Path,
    mini_data: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Bytes of checkpoints, tokenizer and data; versions, source and GPU kind."""
    base = header_of(REMASK, backbone_dir, head_dir, mini_data)
    assert base.keys() == HEADER.keys()
    found = set()

    def compare(**change: Any) -> None:
        places = {"backbone": backbone_dir, "head": head_dir, "data": mini_data, **change}
        other = header_of(REMASK, **places)
        found.update(name for name in base if base[name] != other[name])

    compare(backbone=write_backbone(tmp_path / "backbone", seed=7))
    assert found == {"backbone_hash"}
    compare(head=write_head(tmp_path / "head", seed=8))
    shutil.copytree(backbone_dir, tmp_path / "template")
    template = tmp_path / "template" / "chat_template.jinja"
    template.write_text(template.read_text() + " ")
    compare(backbone=tmp_path / "template")
    assert found == {"backbone_hash", "head_hash", "tokenizer_hash"}
    build(tmp_path / "other", seed=1, n_test=2, level="embedded")
    compare(data=tmp_path / "other")
    monkeypatch.setattr(identity_module, "device_name", lambda _: "NVIDIA H200")
    compare()
    monkeypatch.setattr(identity_module, "code_version", lambda *_: "edited")
    monkeypatch.setattr(identity_module, "__version__", "9")
    monkeypatch.setattr(torch, "__version__", "9")
    compare()
    by_settings = {"mode", "seed", "tau", "condition", "rule", "delta", "dtype", "head_variant"}
    by_settings |= {"floor", "passes", "prefix", "invariant"}
    assert found | by_settings == base.keys()


def test_a_head_of_another_k_has_another_header(
    backbone_dir: Path, head_dir: Path, mini_data: Path
) -> None:
    cells = [
        replace(REMASK, mode="direct", options=options)
        for options in ({"k": 1}, {"k": 2}, {"k": 2, "scale": 0.5})
    ]
    headers = [json.dumps(header_of(cell, backbone_dir, head_dir, mini_data)) for cell in cells]
    assert len(set(headers)) == 3


def test_two_settings_in_one_folder_have_two_answers(
    tmp_path: Path, backbone_dir: Path, head_dir: Path, mini_data: Path
) -> None:
    """And the batch size, which changes no answer, shares them."""
    cell = replace(REMASK, mode="direct", options={"k": 1}, max_new_tokens=16, batch_size=1)
    out = tmp_path / "out"
    texts = []
    for change in ({}, {"options": {"k": 7}}):
        run_job(replace(cell, **change), backbone_dir, head_dir, mini_data, out, "cpu")
        texts.append((out / "journal.jsonl").read_text())
    assert texts[0] != texts[1]
    assert (out / "journal.jsonl.old").read_text() == texts[0]
    (out / "decoded.jsonl").unlink()
    larger = replace(cell, options={"k": 7}, batch_size=2)
    record = run_job(larger, backbone_dir, head_dir, mini_data, out, "cpu")
    assert record["provenance"]["resumed_from"] == 2


@pytest.mark.parametrize("shards", [1, 2, 3])
def test_shards_of_seven_prompts_give_the_same_answers(
    backbone_dir: Path, tmp_path: Path, shards: int
) -> None:
    """No duplicate from padding a last shard, no answer that depends on its neighbours."""
    prompts = [f"{n}+{n * n}=" for n in range(7)]
    whole = answers_of(backbone_dir, prompts, tmp_path / "whole.jsonl", batch_size=7)
    parts: dict[str, str] = {}
    for shard in range(shards):
        mine = prompts[shard::shards]
        parts |= answers_of(backbone_dir, mine, tmp_path / f"{shard}.jsonl", batch_size=2)
        assert len(lines(tmp_path / f"{shard}.jsonl")) == len(mine) + 1
    assert parts == whole


def answers_of(
    backbone: Path, prompts: list[str], journal: Path, batch_size: int
) -> dict[str, str]:
    model = MRPModel(
        backbone, batch_size=batch_size, max_new_tokens=12, device="cpu", journal=journal
    )
    outcomes = model.answer([model.request(prompt, {}) for prompt in prompts])
    assert model.journal is not None
    model.journal.close()
    return dict(zip(prompts, [outcome.text for outcome in outcomes], strict=True))


def test_repeats_each_have_their_answer(backbone_dir: Path) -> None:
    """lm-eval asks a document `repeats` times: as many answers come back, in order."""
    model = MRPModel(backbone_dir, batch_size=2, max_new_tokens=12, device="cpu")
    asked = [model.request(prompt, {}) for prompt in ("1+2=", "1+2=", "3*4=", "1+2=")]
    texts = [outcome.text for outcome in model.answer(asked)]
    assert len(texts) == 4
    assert texts[0] == texts[1] == texts[3] != texts[2]


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
