"""`mrp train-head`: train a suite's head on a frozen backbone, as the workflow does."""

from __future__ import annotations

import argparse
from pathlib import Path

NAME = "train-head"
HELP = "train an MRP head of a suite on a frozen backbone"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument("--suite", required=True, help="a suite file, or its name in config/suites")
    parser.add_argument("--backbone", required=True, metavar="NAME", help="a backbone of the suite")
    parser.add_argument("--head", required=True, metavar="NAME", help="a head of the suite")
    parser.add_argument(
        "--backbone-path", type=Path, required=True, metavar="DIR", help="backbone checkpoint"
    )
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
        "--restart", action="store_true", help="start over, also with the settings of before"
    )


def run(args: argparse.Namespace) -> None:
    """Train; every mistake in the suite shows before anything slow is loaded."""
    from mrp.config import one_of, training
    from mrp.errors import UserError
    from mrp.grid import load_suite
    from mrp.leases import lease
    from mrp.training.settings import DataSettings, HeadTraining

    suite = load_suite(args.suite)
    for flag, name, known in (
        ("backbone", args.backbone, suite.backbones),
        ("head", args.head, suite.heads),
    ):
        if name not in known:
            raise UserError(
                f"--{flag}: suite {suite.name!r} has no {flag} {name!r}: {one_of(known, name)}"
            )
    where = f"heads.{args.head}"
    settings = training(suite.heads[args.head], f"{where}.train")
    if not isinstance(settings, HeadTraining):
        raise UserError(f"{where}: has no train settings in suite {suite.name!r}; add train: {{…}}")
    data = DataSettings(suite.data.level, suite.seed, suite.data.test)
    label = f"head {args.head} on {args.backbone}"
    with lease(args.device) as device:
        from mrp.training.head import train_head

        train_head(settings, args.backbone_path, args.out, device, data, args.restart, label)
