"""`mrp grid`: the decode jobs of a suite."""

from __future__ import annotations

import argparse
from pathlib import Path

NAME = "grid"
HELP = "check a suite and list its decode jobs, each with its state"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument(
        "--suite", default="embedded", help="a YAML file, or a name in config/suites (%(default)s)"
    )
    parser.add_argument(
        "--results",
        type=Path,
        default=Path("results"),
        metavar="DIR",
        help="the folder that holds the suites' results (%(default)s)",
    )
    parser.add_argument(
        "--heads",
        default="released",
        metavar="WHICH",
        help="released or train: where heads come from that have both (%(default)s)",
    )


def run(args: argparse.Namespace) -> None:
    """Print a line for each job: done or open, and its id. Needs no checkpoint and no network."""
    from mrp.grid import Layout, heads_from, jobs, load_suite

    suite = load_suite(args.suite)
    layout = Layout(suite, args.results)
    for job in jobs(suite, heads_from(args.heads, "--heads")):
        print("done" if layout.record(job.id).exists() else "open", job.id)
