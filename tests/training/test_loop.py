"""Runs as a user meets them: killed and resumed, shared by two processes, misconfigured."""

from __future__ import annotations

import csv
import json
import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, Literal

import pytest
import torch
from safetensors.torch import load_file

from mrp.data import build_tokenizer
from mrp.errors import UserError
from mrp.io import sha256_file
from mrp.models import (
    Backbone,
    Head,
    HeadConfig,
    load_backbone,
    load_head,
    save_backbone,
    save_head,
)
from mrp.training import loop
from mrp.training import settings as settings_module
from mrp.training.backbone import backbone_config, train_backbone
from mrp.training.head import train_head
from mrp.training.loop import learning_rate
from mrp.training.settings import BackboneTraining, DataSettings, HeadTraining
from tests.training import worker

DATA = DataSettings(test=4)
BACKBONE = BackboneTraining(
    hidden_size=32,
    intermediate_size=48,
    num_hidden_layers=2,
    num_attention_heads=2,
    num_key_value_heads=1,
    head_dim=16,
    block_size=8,
    steps=30,
    batch_size=2,
    packed_length=96,
    warmup=5,
    pool=40,
    log_every=5,
    checkpoint_seconds=0.0,
)
HEAD = HeadTraining(
    variant="k2",
    num_layers=1,
    init="zero",
    steps=20,
    batch_size=2,
    packed_length=96,
    warmup=5,
    pool=40,
    log_every=5,
    checkpoint_seconds=0.0,
)


@pytest.fixture(scope="module")
def backbone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A backbone after 30 steps."""
    out = tmp_path_factory.mktemp("backbone")
    train_backbone(BACKBONE, DATA, out, "cpu")
    return out


def rows_of(out: Path) -> list[dict[str, str]]:
    """metrics.csv without what a clock decides."""
    with open(out / "metrics.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    for row in rows:
        del row["tokens_per_second"], row["seconds"]
    return rows


def start(
    kind: str,
    settings: dict[str, Any],
    out: Path,
    backbone: Path | None,
    env: dict[str, str],
    processes: int = 1,
) -> subprocess.Popen[str]:
    """Train in a process of its own, or in several that it launches."""
    arguments = json.dumps([kind, settings, str(out), str(backbone), processes])
    return subprocess.Popen(
        [sys.executable, "-m", "tests.training.worker", arguments],
        env={**os.environ, "OMP_NUM_THREADS": "1", **env},
        stderr=subprocess.PIPE,
        text=True,
    )


def launched(kind: str, settings: dict[str, Any], out: Path, backbone: Path | None) -> int:
    """Train in two processes that this one launches; its exit code."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tempfile, "tempdir", None)  # both are set by the worker
        patch.setenv("MRP_FAKE_GPUS", "")
        return worker.main([kind, settings, str(out), str(backbone), 2])


def finish(process: subprocess.Popen[str]) -> str:
    """Wait for success; returns stderr."""
    _, errors = process.communicate(timeout=120)
    assert process.returncode == 0, errors
    return errors


KINDS = ["head", pytest.param("backbone", marks=pytest.mark.slow)]


@pytest.mark.parametrize("kind", KINDS)
def test_a_killed_run_resumes_to_the_same_bytes(kind: str, backbone: Path, tmp_path: Path) -> None:
    settings = asdict(BACKBONE if kind == "backbone" else HEAD)
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    if kind == "backbone":
        whole = backbone
    else:
        train_head(HEAD, backbone, whole, "cpu", DATA)

    # SIGKILL once the first resume point is there; steps are slowed so that it is not the last.
    process = start(kind, settings, killed, backbone, {"MRP_TEST_SLOW": "0.05"})
    deadline = time.monotonic() + 60
    while not (killed / "training.pt").exists():
        assert process.poll() is None
        assert time.monotonic() < deadline
        time.sleep(0.01)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    assert process.returncode == -signal.SIGKILL
    assert not (killed / "provenance.json").exists()
    with open(killed / "metrics.csv", "a") as file:
        file.write("25,1.0,")  # a row that the kill cut short

    errors = finish(start(kind, settings, killed, backbone, {}))
    record = json.loads((killed / "provenance.json").read_text())
    step = record["resumed_from"]
    assert 0 < step < settings["steps"]
    assert f"resuming from step {step} of {settings['steps']}" in errors
    assert sha256_file(killed / "model.safetensors") == sha256_file(whole / "model.safetensors")
    assert rows_of(killed) == rows_of(whole)
    assert record["sha256"] == sha256_file(killed / "model.safetensors")
    assert not (killed / "training.pt").exists()


@pytest.mark.parametrize("kind", KINDS)
def test_two_processes_train_what_one_does(
    kind: str, backbone: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """A backbone in processes that find each other as torchrun's do, a head in launched ones."""
    if kind == "backbone":
        settings = asdict(replace(BACKBONE, steps=6))
        train_backbone(BackboneTraining(**settings), DATA, tmp_path / "one", "cpu")
    else:
        settings = asdict(replace(HEAD, steps=6))
        train_head(HeadTraining(**settings), backbone, tmp_path / "one", "cpu", DATA)
    (tmp_path / "two").mkdir()
    torch.save({"identity": {**settings, "lr": 9.0}}, tmp_path / "two" / "training.pt")
    if kind == "backbone":
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = str(free.getsockname()[1])
        shared = {"WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
        both = [
            start(kind, settings, tmp_path / "two", backbone, {**shared, "RANK": rank})
            for rank in ("0", "1")
        ]
        speaks, silent = (finish(process) for process in both)
        assert "step" not in silent
        assert "starting over" not in silent
    else:
        capfd.readouterr()
        assert launched(kind, settings, tmp_path / "two", backbone) == 0
        speaks = capfd.readouterr().err
    assert speaks.count("step 6/6") == 1
    assert speaks.count(f"starting over: lr was 9.0, is {settings['lr']}") == 1
    one = load_file(tmp_path / "one" / "model.safetensors")
    two = load_file(tmp_path / "two" / "model.safetensors")
    torch.testing.assert_close(two, one, atol=1e-4, rtol=1e-4)
    last = [rows_of(tmp_path / name)[-1] for name in ("one", "two")]
    assert abs(float(last[0]["loss"]) - float(last[1]["loss"])) < 1e-4
    assert json.loads((tmp_path / "two" / "provenance.json").read_text())["processes"] == 2


def test_a_batch_in_several_goes_trains_what_one_does(backbone: Path, tmp_path: Path) -> None:
    settings = replace(HEAD, steps=6, batch_size=4)
    train_head(settings, backbone, tmp_path / "one", "cpu", DATA)
    train_head(replace(settings, accumulate=4), backbone, tmp_path / "four", "cpu", DATA)
    one, four = (load_file(tmp_path / name / "model.safetensors") for name in ("one", "four"))
    torch.testing.assert_close(four, one, atol=1e-4, rtol=1e-4)
    # It is no other setting: a run that met too little memory goes on with it.
    before = (tmp_path / "one" / "provenance.json").read_text()
    train_head(replace(settings, accumulate=2), backbone, tmp_path / "one", "cpu", DATA)
    assert (tmp_path / "one" / "provenance.json").read_text() == before
    with pytest.raises(UserError, match="batch_size 4 does not divide over 1 processes times acc"):
        train_head(replace(settings, accumulate=3), backbone, tmp_path / "no", "cpu", DATA)


def test_a_backbone_learns(tmp_path: Path) -> None:
    settings = replace(BACKBONE, steps=150, batch_size=4, lr=5e-3, pool=400, log_every=15)
    train_backbone(settings, DATA, tmp_path, "cpu")
    losses = [float(row["ce"]) for row in rows_of(tmp_path)]
    assert losses[-1] < losses[0] - 1.3
    assert load_backbone(tmp_path).config.block_size == settings.block_size


@pytest.mark.parametrize("variant", ["default", "k2", "direct"])
def test_a_head_learns(variant: Literal["default", "k2", "direct"], tmp_path: Path) -> None:
    # Large random weights: a backbone whose distributions move a lot when a token is revealed.
    config = backbone_config(BACKBONE, build_tokenizer(tmp_path / "b"))
    teacher = Backbone(replace(config, initializer_range=0.4))
    teacher.reset_parameters(torch.Generator().manual_seed(0))
    save_backbone(teacher, tmp_path / "b")
    settings = replace(HEAD, variant=variant, init="normal-0.2", lr=3e-3)
    settings = replace(settings, steps=100, batch_size=4, pool=400, log_every=20)
    train_head(settings, tmp_path / "b", tmp_path / "h", "cpu", DATA)
    kl = [float(row["kl"]) for row in rows_of(tmp_path / "h")]
    assert kl[-1] < 0.5 * kl[0]
    head = load_head(tmp_path / "h", load_backbone(tmp_path / "b"))
    assert head.config.variant == variant
    assert head.config.objective == ("direct" if variant == "direct" else "residual")


def test_a_finished_run_is_left_alone_and_restart_starts_over(
    backbone: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    settings = replace(HEAD, steps=2)
    train_head(settings, backbone, tmp_path, "cpu", DATA)
    before = (tmp_path / "provenance.json").stat().st_mtime_ns
    train_head(settings, backbone, tmp_path, "cpu", DATA)
    assert "already trained" in capsys.readouterr().out
    assert (tmp_path / "provenance.json").stat().st_mtime_ns == before
    train_head(settings, backbone, tmp_path, "cpu", DATA, restart=True)
    assert (tmp_path / "provenance.json").stat().st_mtime_ns != before
    assert not list(tmp_path.glob("*.old"))


def killed(settings: HeadTraining, backbone: Path, out: Path) -> None:
    """Leave the resume point of step 5, as a kill would."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(loop, "save_checkpoint", _save_then_stop(loop.save_checkpoint))
        with pytest.raises(KeyboardInterrupt):
            train_head(settings, backbone, out, "cpu", DATA)


@pytest.mark.parametrize("left", ["a resume point", "a result"])
def test_a_leftover_of_other_settings_is_kept_and_the_run_starts_over(
    left: str, backbone: Path, caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    settings = replace(HEAD, steps=6)
    out, name = tmp_path / "out", "training.pt"
    if left == "a resume point":
        killed(settings, backbone, out)
    else:
        train_head(settings, backbone, out, "cpu", DATA)
        name = "model.safetensors"
    before = sha256_file(out / name)
    changed = replace(settings, lr=2e-3, seed=1)
    train_head(changed, backbone, out, "cpu", DATA)
    assert caplog.messages == [
        f"{out}: starting over: lr was 0.001, is 0.002; the earlier run is kept as *.old"
    ]
    record = json.loads((out / "provenance.json").read_text())
    assert (record["identity"]["lr"], record["resumed_from"]) == (2e-3, 0)
    assert sha256_file(out / f"{name}.old") == before
    train_head(changed, backbone, tmp_path / "fresh", "cpu", DATA)
    weights = [sha256_file(d / "model.safetensors") for d in (out, tmp_path / "fresh")]
    assert weights[0] == weights[1]
    assert rows_of(out) == rows_of(tmp_path / "fresh")


def test_what_other_code_left_is_not_continued(
    backbone: Path,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    killed(HEAD, backbone, tmp_path)
    monkeypatch.setattr(settings_module, "code_version", lambda *patterns: "edited")
    killed(HEAD, backbone, tmp_path)
    (message,) = caplog.messages
    assert re.search(r"starting over: code was '[0-9a-f]{16}', is 'edited'; ", message)


def test_an_option_that_an_older_version_lacked_is_no_other_setting(
    backbone: Path, caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    train_head(replace(HEAD, steps=2), backbone, tmp_path, "cpu", DATA)
    record = json.loads((tmp_path / "provenance.json").read_text())
    assert record["identity"].pop("start") is None
    (tmp_path / "provenance.json").write_text(json.dumps(record))
    train_head(replace(HEAD, steps=2), backbone, tmp_path, "cpu", DATA)
    assert json.loads((tmp_path / "provenance.json").read_text()) == record
    assert caplog.messages == []


def test_a_damaged_resume_point_is_named(backbone: Path, tmp_path: Path) -> None:
    (tmp_path / "training.pt").write_bytes(b"no checkpoint")
    with pytest.raises(UserError, match=r"training.pt: damaged resume point .*delete it to start"):
        train_head(HEAD, backbone, tmp_path, "cpu", DATA)


def _save_then_stop(save: Any) -> Any:
    def stop(*arguments: Any) -> None:
        save(*arguments)
        raise KeyboardInterrupt

    return stop


def test_a_head_goes_on_from_a_trained_one(
    backbone: Path, caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    trained, out = tmp_path / "trained", tmp_path / "out"
    train_head(replace(HEAD, lr=1e-2), backbone, trained, "cpu", DATA)
    # A step so small that it moves no weight; the variant may be another one.
    still = replace(HEAD, variant="default", start=str(trained), steps=1, lr=1e-20, min_lr=0.0)
    train_head(still, backbone, out, "cpu", DATA)
    ours, theirs = (load_file(path / "model.safetensors") for path in (out, trained))
    torch.testing.assert_close(ours, theirs, atol=0, rtol=0)
    assert any(tensor.abs().max() > 0 for name, tensor in ours.items() if "layers" in name)

    # Other weights at the same place are another start.
    train_head(HEAD, backbone, trained, "cpu", DATA, restart=True)
    train_head(still, backbone, out, "cpu", DATA)
    assert "starting over: start was " in caplog.text


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"num_layers": 2},
            "start: START is a head with num_layers=1, the settings ask for 2; change the settings "
            "or start from another head",
        ),
        (
            {"variant": "direct"},
            "start: START is a head with objective=residual, the settings ask for direct; change "
            "the settings or start from another head",
        ),
        (
            {"start": "none"},
            "start: none: no checkpoint here (config.json is missing); check the path, or train it "
            "with `mrp train-backbone` or `mrp train-head`; a hub id is owner/name or "
            "owner/name@revision",
        ),
    ],
)
def test_a_start_that_does_not_fit_is_one_line(
    changes: dict[str, Any], message: str, backbone: Path, tmp_path: Path
) -> None:
    trained = tmp_path / "trained"
    train_head(replace(HEAD, steps=1), backbone, trained, "cpu", DATA)
    settings = replace(HEAD, **{"start": str(trained), **changes})
    with pytest.raises(UserError) as error:
        train_head(settings, backbone, tmp_path / "out", "cpu", DATA)
    assert str(error.value) == message.replace("START", str(trained))


def test_a_start_of_another_width_is_one_line(backbone: Path, tmp_path: Path) -> None:
    config = load_backbone(backbone).config
    wider = Head(HeadConfig(replace(config, intermediate_size=config.intermediate_size * 2), 1))
    save_head(wider, tmp_path / "wider")
    settings = replace(HEAD, start=str(tmp_path / "wider"))
    with pytest.raises(UserError, match=r"tensor 'layers.0.mlp.gate_proj.weight' of .* has shape"):
        train_head(settings, backbone, tmp_path / "out", "cpu", DATA)


@pytest.mark.parametrize("content", [b"[]", b'{"identity": 3}', b"\xff"])
def test_a_damaged_provenance_is_one_line(content: bytes, backbone: Path, tmp_path: Path) -> None:
    train_head(replace(HEAD, steps=1), backbone, tmp_path, "cpu", DATA)
    (tmp_path / "provenance.json").write_bytes(content)
    with pytest.raises(UserError, match=r"provenance.json: damaged.*delete it and run again"):
        train_head(replace(HEAD, steps=1), backbone, tmp_path, "cpu", DATA)


def test_chats_that_are_no_utf8_are_one_line(backbone: Path, tmp_path: Path) -> None:
    path = tmp_path / "chats.jsonl"
    path.write_bytes(b'{"messages": []}\n\xff\n')
    with pytest.raises(UserError, match=r"chats\.jsonl: line 2 is no chat"):
        train_head(replace(HEAD, source=str(path)), backbone, tmp_path / "out", "cpu", DATA)


def test_a_loss_that_is_not_finite_is_named_with_its_step(backbone: Path, tmp_path: Path) -> None:
    settings = replace(HEAD, lr=1e30, warmup=0)
    with pytest.raises(UserError, match=r"not finite at step [2-5] \(lr [0-9.e+]+\); lower lr"):
        train_head(settings, backbone, tmp_path, "cpu", DATA)
    assert not (tmp_path / "training.pt").exists()


def test_the_rate_warms_up_and_falls_to_its_minimum() -> None:
    settings = replace(HEAD, lr=1.0, min_lr=0.1, warmup=10, steps=110)
    rates = [learning_rate(settings, step) for step in range(110)]
    assert rates[0] == pytest.approx(0.1)
    assert max(rates) == rates[9] == rates[10] == 1.0
    assert rates[60] == pytest.approx(0.55)
    assert rates[10:] == sorted(rates[10:], reverse=True)
    assert 0.1 < rates[-1] < 0.101


def test_chats_of_a_file_train_a_head(backbone: Path, tmp_path: Path) -> None:
    path = tmp_path / "chats.jsonl"
    chat = [{"role": "user", "content": "2*3?"}, {"role": "assistant", "content": "6"}]
    path.write_text(json.dumps({"messages": chat}) + "\n")
    train_head(replace(HEAD, steps=2, source=str(path)), backbone, tmp_path / "h", "cpu", DATA)
    # All of it is one packed row: nine passes in batches of four.
    epochs = replace(HEAD, epochs=9, batch_size=4, source=str(path))
    train_head(epochs, backbone, tmp_path / "e", "cpu", DATA)
    final = json.loads((tmp_path / "e/provenance.json").read_text())["final"]
    assert final["step"] == 3
    path.write_text('{"messages": 3}\n')
    with pytest.raises(UserError, match=r"chats.jsonl: line 1 is no chat"):
        train_head(replace(HEAD, source=str(path)), backbone, tmp_path / "g", "cpu", DATA)
    with pytest.raises(UserError, match=r"no such file \(key 'source'\)"):
        train_head(replace(HEAD, source="none.jsonl"), backbone, tmp_path / "g", "cpu", DATA)


def test_a_batch_that_does_not_divide_and_a_missing_gpu_are_named(
    backbone: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 0)
    with pytest.raises(UserError, match="--device is cuda, but PyTorch sees 0 GPUs"):
        train_head(HEAD, backbone, tmp_path, "cuda", DATA)
    with pytest.raises(UserError, match="--device is 'gpu'; choose auto, cpu"):
        train_head(HEAD, backbone, tmp_path, "gpu", DATA)
