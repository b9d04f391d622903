"""`mrp fetch`: download what a suite needs, on a machine that can reach the hub."""

from __future__ import annotations

import argparse

NAME = "fetch"
HELP = "download the checkpoints and benchmarks of a suite from the hub, for runs without a network"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument("--suite", required=True, help="a suite file, or its name in config/suites")
    parser.add_argument(
        "--heads",
        default="released",
        metavar="WHICH",
        help="released or train: with train the heads that have a recipe are not fetched "
        "(%(default)s)",
    )
    parser.add_argument(
        "--dry-run",
        action="store_true",
        help="print what is needed and its size, and download nothing but the small files that say "
        "so",
    )


def run(args: argparse.Namespace) -> None:
    """Fetch; what is here already is not downloaded again, a killed run goes on file by file."""
    from mrp.config import heads_from, load_suite
    from mrp.fetch.suite import fetch_suite

    fetch_suite(load_suite(args.suite), heads_from(args.heads, "--heads"), args.dry_run)
