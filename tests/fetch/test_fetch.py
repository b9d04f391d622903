"""mrp fetch against a hub of our own: the real client code, the real commands."""

from __future__ import annotations

import hashlib
import json
import os
import re
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest
import yaml
from huggingface_hub import constants

from mrp.cli import main
from mrp.errors import UserError
from mrp.fetch import checkpoints as fetch_checkpoints_module
from mrp.fetch import suite as fetch_suite_module
from mrp.models import load_backbone, load_head, local_checkpoint, resolved_revision
from mrp.models.weights import files_in_index
from tests.fetch.conftest import GSM8K, MATH, Lab

BACKBONE_SHARDS, HEAD_SHARDS = 3, 1


def fetch(lab: Lab, *more: str) -> int:
    """`mrp fetch` in this process; its exit code."""
    return main(["fetch", "--suite", str(lab.suite), *more])


def start(lab: Lab) -> subprocess.Popen[str]:
    """`mrp fetch` in a process of its own."""
    return subprocess.Popen(
        [sys.executable, "-m", "mrp.cli", "fetch", "--suite", str(lab.suite)],
        env={**os.environ, **lab.environment()},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def downloaded(lab: Lab, repository: str | None = None) -> list[str]:
    return [get.name for get in lab.hub.gets if repository in (None, get.repository)]


def change(lab: Lab, **changes: object) -> None:
    lab.suite.write_text(yaml.safe_dump({**yaml.safe_load(lab.suite.read_text()), **changes}))


def test_a_suite_is_fetched_once_and_used_without_the_hub(
    lab: Lab, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    done = start(lab)
    out, err = done.communicate(timeout=120)
    assert done.returncode == 0, err
    names = downloaded(lab)
    assert all(not name.endswith((".py", ".bin")) and "logs" not in name for name in names)
    shards = [name for name in names if name.endswith(".safetensors")]
    # The backbone's repository is used as a backbone only, the head's as a head only.
    assert len(shards) == len(set(shards)) == BACKBONE_SHARDS + HEAD_SHARDS
    assert "lab/tiny (backbone)" in out
    assert "lab/tiny-k2 (head)" in out
    assert "unused" not in out
    assert f"main = {lab.commit[:12]}" in out
    for task, rows in (("mrp_gsm8k", GSM8K), ("mrp_math500", MATH)):
        data = (lab.benchmarks / f"{task}.jsonl").read_bytes()
        assert [json.loads(line) for line in data.decode().split("\n") if line] == rows
        note = json.loads((lab.benchmarks / f"{task}.source.json").read_text())
        assert note["rows"] == len(rows)
        assert note["sha256"] == hashlib.sha256(data).hexdigest()
        assert len(note["revision"]) == 40

    before = len(lab.hub.gets)
    assert fetch(lab) == 0
    assert len(lab.hub.gets) == before
    assert "everything is here" in capsys.readouterr().out

    lab.hub.server.shutdown()
    lab.hub.server.server_close()
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    assert fetch(lab) == 0  # complete: the hub is not needed to see that
    backbone = load_backbone("lab/tiny")
    assert load_head("lab/tiny-k2", backbone, variant="default").config.num_layers == 1
    assert resolved_revision("lab/tiny") == lab.commit
    capsys.readouterr()
    given = ["--backbone", "lab/tiny", "--head", "lab/tiny-k2@main", "--device", "cpu"]
    command = ["generate", *given, "--mode", "speculative", "--k", "1", "--max-new-tokens", "8"]
    assert main([*command, "2+2?"]) == 0
    by_id = capsys.readouterr().out
    paths = [str(lab.released) if "lab/" in word else word for word in command]
    assert main([*paths, "2+2?"]) == 0
    assert capsys.readouterr().out == by_id != ""


def test_a_killed_fetch_goes_on_file_by_file(lab: Lab) -> None:
    files = lab.hub.files["model", "lab/tiny", lab.commit]
    shards = files_in_index(lab.released / "model.safetensors.index.json", "backbone")
    held = max(shards, key=lambda name: len(files[name]))  # the last one to be fetched
    lab.hub.hold[held] = threading.Event()
    first = start(lab)
    assert lab.hub.halfway.wait(60)
    os.kill(first.pid, signal.SIGKILL)
    first.communicate()
    finished = [name for name in downloaded(lab, "lab/tiny") if name != held]
    assert "config.json" in finished
    assert any(name.endswith(".safetensors") for name in finished)
    with pytest.raises(UserError, match=r"only partly downloaded \(model-\d+-of-\d+.safetensors"):
        local_checkpoint("lab/tiny", "backbone")

    parts = list(lab.cache.glob("models--lab--tiny/blobs/*.incomplete"))
    assert len(parts) == 1
    os.utime(parts[0], (1, 1))  # long ago
    lab.hub.hold.pop(held).set()
    lab.hub.gets.clear()
    assert fetch(lab) == 0
    again = downloaded(lab, "lab/tiny")
    assert held in again
    assert not set(again) & set(finished)
    assert not parts[0].exists()
    assert load_backbone("lab/tiny").config.vocab_size == 128


def test_a_broken_connection_is_taken_up_where_it_broke(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(constants, "DOWNLOAD_CHUNK_SIZE", 4096)
    change(lab, grid=[{"mode": "static"}])
    index = json.loads((lab.released / "model.safetensors.index.json").read_text())
    broken = index["weight_map"]["lm_head.weight"]
    lab.hub.cut.add(broken)
    assert fetch(lab) == 0
    ranges = [get.range for get in lab.hub.gets if get.name == broken]
    assert ranges[0] is None
    assert ranges[1] is not None
    assert ranges[1].startswith("bytes=")
    assert load_backbone("lab/tiny").config.vocab_size == 128


def test_a_file_that_arrives_damaged_is_not_kept(
    lab: Lab, capsys: pytest.CaptureFixture[str]
) -> None:
    index = json.loads((lab.released / "model.safetensors.index.json").read_text())
    spoiled = index["weight_map"]["lm_head.weight"]
    lab.hub.spoiled |= {spoiled, "main/test-00001-of-00002.parquet"}
    assert fetch(lab) == 2
    err = capsys.readouterr().err
    assert f"lab/tiny (backbone): {spoiled} arrived damaged (its SHA-256 is not the hub's)" in err
    assert "mrp_gsm8k: openai/gsm8k (main, test): main/test-00001-of-00002.parquet arrived" in err
    assert not (lab.benchmarks / "mrp_gsm8k.jsonl").exists()
    assert fetch(lab) == 0
    assert load_backbone("lab/tiny").config.vocab_size == 128
    rows = (lab.benchmarks / "mrp_gsm8k.jsonl").read_text().strip("\n").split("\n")
    assert len(rows) == len(GSM8K)


def test_a_dry_run_tells_sizes_and_downloads_no_weights(
    lab: Lab, capsys: pytest.CaptureFixture[str]
) -> None:
    assert fetch(lab, "--dry-run") == 0
    assert set(downloaded(lab)) == {"model.safetensors.index.json"}
    out = capsys.readouterr().out
    sizes = sum(
        len(data)
        for name, data in lab.hub.files["model", "lab/tiny", lab.commit].items()
        if name.endswith(".safetensors")
    )
    assert sizes > 100_000
    found = re.search(r"total: (\d+) kB, (\d+) kB to fetch, [\d.,]+ [TG]?B free", out)
    assert found is not None
    small_files = 30
    assert sizes / 1000 < int(found[2]) <= int(found[1]) < sizes / 1000 + small_files
    assert f"{found[2]} kB to be fetched" in out
    assert not lab.benchmarks.exists()


def test_with_heads_to_be_trained_released_ones_stay(lab: Lab) -> None:
    assert fetch(lab, "--heads", "train") == 0
    assert not any("tiny-k2" in path for path in lab.hub.asked)


def test_a_branch_that_moves_changes_nothing_here_and_a_revision_is_pinned(lab: Lab) -> None:
    old = lab.commit
    assert fetch(lab) == 0
    files = lab.hub.files["model", "lab/tiny", old]
    moved = {**files, "generation_config.json": b'{"eos_token_id": [1]}'}
    new = lab.hub.add("model", "lab/tiny", moved, commit="2")
    lab.hub.gets.clear()
    assert fetch(lab) == 0
    assert downloaded(lab) == []
    assert resolved_revision("lab/tiny") == old
    change(lab, backbones={"S": {"path": f"lab/tiny@{new}"}})
    assert fetch(lab) == 0
    assert downloaded(lab) == ["generation_config.json"]  # the rest is the same bytes
    assert resolved_revision(f"lab/tiny@{new}") == new
    assert load_backbone(f"lab/tiny@{new}").config.eos_token_ids == (1,)
    assert load_backbone("lab/tiny").config.eos_token_ids == (1, 0)


def test_a_commit_that_is_gone_from_the_hub(lab: Lab) -> None:
    """Complete here it stays in use; half of it is replaced by what the branch means now."""
    assert fetch(lab) == 0
    files = lab.hub.files.pop(("model", "lab/tiny", lab.commit))
    new = lab.hub.add("model", "lab/tiny", files, commit="2")
    assert fetch(lab) == 0
    assert resolved_revision("lab/tiny") == lab.commit
    next(local_checkpoint("lab/tiny").glob("model-*")).unlink()
    assert fetch(lab) == 0
    assert resolved_revision("lab/tiny") == new
    assert local_checkpoint("lab/tiny", "backbone").name == new


def test_every_failure_is_listed_and_the_rest_is_fetched(
    lab: Lab, capsys: pytest.CaptureFixture[str]
) -> None:
    files = lab.hub.files["model", "lab/tiny", lab.commit]
    lab.hub.add("model", "lab/gated", files)
    lab.hub.gated.add("lab/gated")
    pickled = {"config.json": b"{}", "pytorch_model.bin": b"\x80"}
    lab.hub.add("model", "lab/pickled", pickled)
    lab.hub.add("model", "lab/cut", {k: v for k, v in files.items() if "-of-" not in k})
    names = ("tiny", "nowhere", "tiny@v9", "gated", "pickled", "cut")
    spelled = {name.replace("@", "-"): {"path": f"lab/{name}"} for name in names}
    change(lab, backbones=spelled, grid=[{"mode": "static"}])
    assert fetch(lab) == 2
    err = capsys.readouterr().err
    for name, why in (
        ("lab/nowhere", "no such repository"),
        ("lab/tiny@v9", "there is no revision 'v9'"),
        ("lab/gated", "accept the terms"),
        ("lab/pickled", "only pickled weights (pytorch_model.bin)"),
        ("lab/cut", "which the repository lacks"),
    ):
        assert f"mrp: failed: {name} (backbone): " in err
        assert why in err
    assert "the 5 pieces are named above" in err
    assert (lab.benchmarks / "mrp_gsm8k.jsonl").exists()
    assert local_checkpoint("lab/tiny", "backbone").is_dir()


def test_what_no_hub_has_is_said_as_well(lab: Lab, capsys: pytest.CaptureFixture[str]) -> None:
    change(lab, backbones={"S": {"path": "lab/tiny"}, "T": {"path": str(lab.home / "none")}})
    for more in ([], ["--dry-run"]):
        assert fetch(lab, *more) == 2
        err = capsys.readouterr().err
        assert f"backbones.T.path: {lab.home / 'none'}: no checkpoint here" in err
        assert "correct the suite" in err
        assert "the piece is named above" in err
    change(lab, backbones={"S": {"path": "lab/tiny@"}})
    assert fetch(lab) == 2
    assert "lab/tiny@: '' is no revision" in capsys.readouterr().err


def test_one_repository_in_two_spellings_is_one_piece(
    lab: Lab, capsys: pytest.CaptureFixture[str]
) -> None:
    change(lab, heads={"k2": {"variant": "k2", "path": "lab/tiny@main"}})
    assert fetch(lab) == 0
    assert "lab/tiny (backbone and head): " in capsys.readouterr().out
    assert len([name for name in downloaded(lab) if name.endswith(".safetensors")]) == 4


def test_a_hub_that_does_not_answer_is_asked_once(
    lab: Lab, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(constants, "ENDPOINT", "http://127.0.0.1:9")
    assert fetch(lab) == 2
    err = capsys.readouterr().err
    assert err.count("the hub does not answer") == 1  # one line for all of them
    assert "lab/tiny (backbone), lab/tiny-k2 (head), mrp_gsm8k: " in err
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    assert fetch(lab) == 2
    assert "HF_HUB_OFFLINE" in capsys.readouterr().err


def test_a_hub_that_falls_silent_ends_the_download(
    lab: Lab, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    tried: list[str] = []

    def get_file(repository: str, name: str, *more: object) -> Path:
        if name == "model.safetensors.index.json":  # the plan
            return lab.released / name
        tried.append(repository)
        raise ConnectionError("no route to host")

    monkeypatch.setattr(fetch_checkpoints_module, "get_file", get_file)
    assert fetch(lab) == 2
    err = capsys.readouterr().err
    assert "the hub does not answer (ConnectionError: no route to host)" in err
    assert tried == ["lab/tiny"]


def test_too_small_a_disk_stops_before_the_download(
    lab: Lab, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fetch_suite_module, "_free", lambda path: 1_000_050_000)
    assert fetch(lab) == 2
    err = capsys.readouterr().err
    assert str(lab.cache) in err
    assert "1.0 GB to stay free" in err
    assert not any(name.endswith(".safetensors") for name in downloaded(lab))


def test_a_data_file_that_was_changed_is_not_overwritten(
    lab: Lab, capsys: pytest.CaptureFixture[str]
) -> None:
    lab.benchmarks.mkdir()
    own = lab.benchmarks / "mrp_math500.jsonl"
    own.write_text('{"problem": "mine"}\n')
    assert fetch(lab) == 0
    assert own.read_text() == '{"problem": "mine"}\n'
    changed = lab.benchmarks / "mrp_gsm8k.jsonl"
    changed.write_text("{}\n")
    assert fetch(lab) == 2
    assert "delete both to fetch again" in capsys.readouterr().err
    assert changed.read_text() == "{}\n"
    changed.unlink()
    assert fetch(lab) == 0
    assert len(changed.read_text().splitlines()) >= len(GSM8K)


def test_what_is_not_fetched_is_one_clear_line(
    lab: Lab, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    for command in (["generate", "hello"], ["eval", "--limit", "1"]):
        assert main([*command, "--backbone", "lab/tiny", "--device", "cpu"]) == 2
        err = capsys.readouterr().err
        assert err.count("\n") == 1
        assert "lab/tiny: no such directory, and the hub's repository of this name is not" in err
        assert "`mrp fetch --suite NAME`" in err
    assert lab.hub.asked == []  # nothing but fetch talks to the hub


def test_a_head_is_trained_on_a_backbone_fetched_without_its_head(lab: Lab) -> None:
    chats = lab.home.parent / "chats.jsonl"
    turns = [{"role": "user", "content": "2+2?"}, {"role": "assistant", "content": "It is 4."}]
    chats.write_text(json.dumps({"messages": turns}) + "\n")
    recipe = {"source": str(chats), "steps": 1, "batch_size": 1, "packed_length": 64}
    recipe |= {"num_layers": 1, "warmup": 1, "compile": False}
    change(lab, heads={"k2": {"variant": "k2", "path": "lab/tiny-k2", "train": recipe}})
    assert fetch(lab, "--heads", "train") == 0
    out = lab.home.parent / "trained"
    words = ["--suite", str(lab.suite), "--backbone", "S", "--backbone-path", "lab/tiny"]
    words += ["--head", "k2", "--out", str(out), "--device", "cpu"]
    assert main(["train-head", *words]) == 0
    assert load_head(out, load_backbone("lab/tiny")).config.variant == "k2"
    exported = lab.home.parent / "exported"
    assert main(["export", "--backbone=lab/tiny", f"--head={out}", f"--out={exported}"]) == 0
    assert load_head(exported, load_backbone(exported)).config.num_layers == 1
