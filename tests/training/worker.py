"""A training run in a process of its own, for the tests that kill it or start two."""

from __future__ import annotations

import json
import os
import sys
import time

import torch

from mrp.training import loop
from mrp.training.backbone import train_backbone
from mrp.training.head import train_head
from mrp.training.settings import BackboneTraining, DataSettings, HeadTraining


def main() -> None:
    """Arguments as one JSON list: kind, settings, out directory, backbone directory."""
    torch.set_num_threads(1)
    kind, settings, out, backbone = json.loads(sys.argv[1])
    pause = float(os.environ.get("MRP_TEST_SLOW", "0"))
    rate = loop.learning_rate

    def slow_rate(settings: loop.Optimization, step: int) -> float:
        time.sleep(pause)
        return rate(settings, step)

    loop.learning_rate = slow_rate
    data = DataSettings(test=4)
    if kind == "backbone":
        train_backbone(BackboneTraining(**settings), data, out, "cpu")
    else:
        train_head(HeadTraining(**settings), backbone, out, "cpu", data)


if __name__ == "__main__":
    main()
