"""`mrp train-backbone` and `mrp train-head` on a suite file, and the progress on stderr."""

from __future__ import annotations

import io
import sys
from pathlib import Path

import pytest

from mrp.cli import main
from mrp.training.progress import Progress

SUITE = """
name: tiny
backbones:
  S: {train: {steps: 2, batch_size: 2, pool: 8, hidden_size: 32, num_hidden_layers: 1}}
  hub: {path: owner/model}
heads:
  k2: {variant: k2, train: {steps: 2, batch_size: 2, pool: 8, num_layers: 1}}
  far: {variant: k2, path: owner/model}
tasks: [mini_math]
data: {level: embedded, test: 2}
grid:
  - {mode: static}
"""


@pytest.fixture
def suite(tmp_path: Path) -> list[str]:
    """--suite with a small suite file."""
    path = tmp_path / "tiny.yaml"
    path.write_text(SUITE)
    return ["--suite", str(path)]


def test_both_commands_leave_whole_directories(suite: list[str], tmp_path: Path) -> None:
    backbone, head = str(tmp_path / "b"), str(tmp_path / "h")
    cpu = ["--device", "cpu"]
    assert main(["train-backbone", *suite, "--backbone", "S", "--out", backbone, *cpu]) == 0
    names = ["--backbone", "S", "--head", "k2", "--backbone-path", backbone]
    assert main(["train-head", *suite, *names, "--out", head, *cpu]) == 0
    for directory in (backbone, head):
        names = ["config.json", "metrics.csv", "model.safetensors", "provenance.json"]
        assert {path.name for path in Path(directory).iterdir()} >= set(names)
    assert (tmp_path / "b" / "tokenizer.json").exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["train-backbone", "--backbone", "s"], "--backbone: suite 'tiny' has no backbone 's'"),
        (["train-backbone", "--backbone", "hub"], "backbones.hub: has no train settings"),
        (["train-head", "--backbone", "S", "--head", "k3"], "has no head 'k3': allowed: k2"),
        (["train-head", "--backbone", "S", "--head", "far"], "heads.far: has no train settings"),
        (["train-head", "--backbone", "S", "--head", "k2"], "none: no checkpoint here"),
    ],
)
def test_mistakes_are_one_line(
    arguments: list[str],
    message: str,
    suite: list[str],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    if arguments[0] == "train-head":
        arguments = [*arguments, "--backbone-path", "none"]
    arguments = [*arguments, *suite, "--out", str(tmp_path / "o"), "--device", "cpu"]
    assert main(arguments) == 2
    error = capsys.readouterr().err
    assert error.startswith("mrp: error: ")
    assert message in error
    assert error.count("\n") == 1


def test_progress_is_a_line_every_few_percent_without_a_terminal(
    capsys: pytest.CaptureFixture[str],
) -> None:
    progress = Progress("head", 1000, 0, shown=True)
    for step in range(10, 1001, 10):
        progress.update(step, {"kl": "0.1"})
    progress.close()
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 20
    assert lines[0] == "head: step 50/1000, kl 0.1"
    silent = Progress("head", 1000, 0, shown=False)
    silent.update(500, {"kl": "0.1"})
    silent.say("news")
    assert capsys.readouterr().err == ""


def test_progress_is_a_bar_on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    progress = Progress("head", 10, 4, shown=True)
    progress.say("resuming")
    progress.update(10, {"kl": "0.1"})
    progress.close()
    assert "head: resuming\n" in terminal.getvalue()
    assert "10/10" in terminal.getvalue()
    assert "kl 0.1" in terminal.getvalue()
