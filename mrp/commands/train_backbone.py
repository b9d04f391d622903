"""`mrp train-backbone`: train a suite's backbone from scratch, as the workflow does."""

from __future__ import annotations

import argparse
from pathlib import Path

NAME = "train-backbone"
HELP = "train a small backbone of a suite from scratch"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
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
        "--restart", action="store_true", help="start over, also with the settings of before"
    )


def run(args: argparse.Namespace) -> None:
    """Train; every mistake in the suite shows before anything slow is loaded."""
    from mrp.config import one_of, training
    from mrp.errors import UserError
    from mrp.grid import load_suite
    from mrp.leases import lease
    from mrp.training.settings import BackboneTraining, DataSettings

    suite = load_suite(args.suite)
    if args.backbone not in suite.backbones:
        raise UserError(
            f"--backbone: suite {suite.name!r} has no backbone {args.backbone!r}: "
            f"{one_of(suite.backbones, args.backbone)}"
        )
    where = f"backbones.{args.backbone}"
    settings = training(suite.backbones[args.backbone], f"{where}.train")
    if not isinstance(settings, BackboneTraining):
        raise UserError(f"{where}: has no train settings in suite {suite.name!r}; add train: {{…}}")
    data = DataSettings(suite.data.level, suite.seed, suite.data.test)
    with lease(args.device) as device:
        from mrp.training.backbone import train_backbone

        train_backbone(settings, data, args.out, device, args.restart, f"backbone {args.backbone}")
