"""`mrp train-backbone`: train a suite's backbone from scratch, as the workflow does."""

from __future__ import annotations

import argparse

from mrp.commands.training_options import add_training_arguments, run_training

NAME = "train-backbone"
HELP = "train a small backbone of a suite from scratch"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    add_training_arguments(parser)


def run(args: argparse.Namespace) -> None:
    """Train; every mistake in the suite shows before anything slow is loaded."""
    from mrp.config import one_of, training
    from mrp.errors import UserError
    from mrp.grid import load_suite
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
    from mrp.training.backbone import train_backbone

    run_training(
        args,
        f"{where}.train",
        settings.batch_size,
        suite.jobs_per_gpu,
        train_backbone,
        settings=settings,
        data=data,
        label=f"backbone {args.backbone}",
    )
