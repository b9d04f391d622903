"""Checkpoints of a tiny random backbone with its tokenizer, and of heads for it."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import lm_eval.tasks
import pytest

from mrp.data import build_tokenizer
from mrp.evaluation.__main__ import main
from mrp.evaluation.adapter import MRPModel
from mrp.models import save_backbone, save_head
from tests.tiny import tiny_backbone, tiny_head

LmEval = Callable[..., tuple[int, str, str]]

# The modes with options under which a few samples show all that each does.
MODES: list[tuple[str, dict[str, Any]]] = [
    ("static", {}),
    ("dynamic", {"tau": 0.3}),
    ("direct", {"k": 2}),
    ("speculative", {"k": 3}),
    ("self_speculative", {"k": 2}),
    ("remask", {"tau": 0.3}),
]


def write_backbone(directory: Path, seed: int = 0) -> Path:
    """Write a random backbone and the character tokenizer to `directory`."""
    save_backbone(tiny_backbone(seed, vocab_size=128), directory)
    build_tokenizer(directory)
    return directory


def write_head(directory: Path, seed: int = 1) -> Path:
    """Write a random head for that backbone to `directory`."""
    save_head(tiny_head(tiny_backbone(vocab_size=128), seed), directory)
    return directory


@pytest.fixture(scope="session")
def backbone_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_backbone(tmp_path_factory.mktemp("backbone"))


@pytest.fixture(scope="session")
def head_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_head(tmp_path_factory.mktemp("head"))


@pytest.fixture
def model(backbone_dir: Path) -> MRPModel:
    """Static decoding of at most 20 tokens, three samples at a time."""
    return MRPModel(backbone_dir, batch_size=3, max_new_tokens=20, device="cpu")


@pytest.fixture
def lm_eval_command(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> LmEval:
    """`python -m mrp.evaluation run --model mrp ...` in this process: exit code, stdout, stderr.

    Less the 13,000 task files that lm-eval brings: reading them takes it ten seconds.
    """
    ours_only = partial(lm_eval.tasks.TaskManager, include_defaults=False)
    monkeypatch.setattr(lm_eval.tasks, "TaskManager", ours_only)

    def run(*words: str) -> tuple[int, str, str]:
        monkeypatch.setattr(
            "sys.argv", ["lm_eval", "run", "--model", "mrp", "--device", "cpu", *words]
        )
        return main(), *capsys.readouterr()

    return run
