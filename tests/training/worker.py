"""A training run in a process of its own, for the tests that kill it or start several."""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import torch

from mrp.cli import explain
from mrp.commands.training_options import run_training
from mrp.training import loop
from mrp.training.backbone import train_backbone
from mrp.training.head import train_head
from mrp.training.settings import BackboneTraining, DataSettings, HeadTraining


def train(
    kind: str, settings: dict[str, Any], backbone: str, out_dir: Path, device: str, restart: bool
) -> None:
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
        train_backbone(BackboneTraining(**settings), data, out_dir, device, restart)
    else:
        train_head(HeadTraining(**settings), backbone, out_dir, device, data, restart)


def main(arguments: list[Any]) -> int:
    """Kind, settings, out directory, backbone directory, processes; the exit code."""
    kind, settings, out, backbone, processes = arguments
    device = "cpu"
    if processes > 1:
        # Pretended GPUs of this run's own; what trains on one computes on the CPU.
        device, tempfile.tempdir = "auto", str(Path(out).parent)
        os.environ["MRP_FAKE_GPUS"] = str(processes)
    args = argparse.Namespace(out=Path(out), device=device, gpus=processes, restart=False)
    what = {"kind": kind, "settings": settings, "backbone": backbone}
    try:
        run_training(args, "settings", settings["batch_size"], 1, train, **what)
    except Exception as error:
        line, code = explain(error)
        if line is None:
            raise
        print(f"mrp: error: {line}", file=sys.stderr)
        return code
    return 0


if __name__ == "__main__":
    sys.exit(main(json.loads(sys.argv[1])))
