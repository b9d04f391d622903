"""A training run in a process of its own, for the tests that kill it or start several."""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path
from typing import Any

import torch

from mrp.cli import explain
from mrp.locks import run_lock
from mrp.training import loop
from mrp.training.backbone import train_backbone
from mrp.training.head import train_head
from mrp.training.launch import launch
from mrp.training.settings import BackboneTraining, DataSettings, HeadTraining


def train(kind: str, settings: dict[str, Any], backbone: str, out_dir: Path) -> None:
    """One process's part; MRP_TEST_SLOW is the pause before each step in seconds."""
    torch.set_num_threads(1)
    pause = float(os.environ.get("MRP_TEST_SLOW", "0"))
    rate = loop.learning_rate

    def slow_rate(settings: loop.Optimization, step: int) -> float:
        time.sleep(pause)
        return rate(settings, step)

    loop.learning_rate = slow_rate
    data = DataSettings(test=4)
    if kind == "backbone":
        train_backbone(BackboneTraining(**settings), data, out_dir, "cpu")
    else:
        train_head(HeadTraining(**settings), backbone, out_dir, "cpu", data)


def main() -> int:
    """Arguments as one JSON list: kind, settings, out directory, backbone directory, processes."""
    kind, settings, out, backbone, processes = json.loads(sys.argv[1])
    try:
        with run_lock(Path(out) if "RANK" not in os.environ else None):
            where = {"settings": settings, "backbone": backbone}
            launch(train, processes, Path(out), kind=kind, **where)
    except Exception as error:
        line, code = explain(error)
        if line is None:
            raise
        print(f"mrp: error: {line}", file=sys.stderr)
        return code
    return 0


if __name__ == "__main__":
    sys.exit(main())
