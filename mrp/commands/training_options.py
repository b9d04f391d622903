"""What `mrp train-backbone` and `mrp train-head` share: their common arguments and how they run."""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any


def add_training_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare what is trained, where the result goes and what it is trained on."""
    parser.add_argument("--suite", required=True, help="a suite file, or its name in config/suites")
    parser.add_argument("--backbone", required=True, metavar="NAME", help="a backbone of the suite")
    parser.add_argument(
        "--out",
        type=Path,
        required=True,
        metavar="DIR",
        help="where to; a killed run goes on from its training.pt there, and what other settings "
        "left is kept as *.old",
    )
    parser.add_argument(
        "--device", default="auto", help="auto, cpu, cuda or cuda:N (default: %(default)s)"
    )
    parser.add_argument(
        "--gpus",
        type=_count,
        default=1,
        metavar="N",
        help="train data-parallel on this many GPUs; the weights are the same but for rounding, "
        "and a killed run may go on with another number (default: %(default)s)",
    )
    parser.add_argument(
        "--restart", action="store_true", help="start over, also with the settings of before"
    )


def run_training(
    args: argparse.Namespace,
    where: str,
    batch_size: int,
    jobs_per_gpu: int,
    train: Callable[..., None],
    **named: Any,
) -> None:
    """Call `train` alone in the run's directory, on as many leased GPUs as asked.

    Args:
        args: the command's; `where` names its settings in the suite.
        batch_size: theirs, which must divide over the processes.
        jobs_per_gpu: the suite's.
        train: `train_backbone` or `train_head`; it gets `out_dir`, `device` and `restart` from
            `args`, and `named`.

    Raises:
        UserError: the batch does not divide, or there are too few GPUs.
    """
    from mrp.errors import UserError
    from mrp.leases import lease_many
    from mrp.locks import run_lock

    # Of torchrun's workers the first one locks for all. Waiting takes no GPU from others.
    directory = args.out if os.environ.get("RANK", "0") == "0" else None
    with run_lock(directory), lease_many(args.device, args.gpus, jobs_per_gpu) as leased:
        if batch_size % leased.count:
            raise UserError(
                f"{where}.batch_size: {batch_size} does not divide over --gpus {leased.count} "
                "(gpus_per_training): choose a multiple, or another number of GPUs"
            )
        from mrp.training.launch import launch

        places = {"device": leased.device, "restart": args.restart}
        launch(train, leased.count, args.out, **places, **named)


def _count(text: str) -> int:
    """--gpus: a whole number; 0, what a workflow says on a machine without GPUs, is like 1."""
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"{text!r} is no whole number of at least 0")
    return max(1, int(text))
