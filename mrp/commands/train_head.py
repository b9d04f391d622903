"""`mrp train-head`: train a suite's head on a frozen backbone, as the workflow does."""

from __future__ import annotations

import argparse

from mrp.commands.training_options import add_training_arguments, run_training

NAME = "train-head"
HELP = "train an MRP head of a suite on a frozen backbone"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    add_training_arguments(parser)
    parser.add_argument("--head", required=True, metavar="NAME", help="a head of the suite")
    parser.add_argument(
        "--backbone-path",
        required=True,
        metavar="DIR",
        help="backbone checkpoint: a directory or a hub id (owner/name, owner/name@revision)",
    )


def run(args: argparse.Namespace) -> None:
    """Train; every mistake in the suite shows before anything slow is loaded."""
    from mrp.config import one_of, training
    from mrp.errors import UserError
    from mrp.grid import load_suite
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
    from mrp.training.head import train_head

    run_training(
        args,
        f"{where}.train",
        settings.batch_size,
        suite.jobs_per_gpu,
        train_head,
        settings=settings,
        backbone_dir=args.backbone_path,
        data=data,
        label=f"head {args.head} on {args.backbone}",
    )
