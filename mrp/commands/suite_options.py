"""The arguments of commands that look at a suite and at what its workflow left."""

from __future__ import annotations

import argparse
from pathlib import Path


def add_suite_options(parser: argparse.ArgumentParser) -> None:
    """Declare --suite, --results and --heads."""
    parser.add_argument(
        "--suite", default="embedded", help="a YAML file, or a name in config/suites (%(default)s)"
    )
    add_results_option(parser)
    parser.add_argument(
        "--heads",
        default="released",
        metavar="WHICH",
        help="released or train: where heads come from that have both (%(default)s)",
    )


def add_results_option(parser: argparse.ArgumentParser) -> None:
    """Declare --results alone."""
    parser.add_argument(
        "--results",
        type=Path,
        default=Path("results"),
        metavar="DIR",
        help="the folder that holds the suites' results (default: %(default)s)",
    )
