"""`mrp data`: the generated tasks' test files."""

from __future__ import annotations

import argparse
from pathlib import Path

NAME = "data"
HELP = "write the test files of the generated tasks"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument(
        "--suite", default="embedded", help="a YAML file, or a name in config/suites (%(default)s)"
    )
    parser.add_argument("--out", type=Path, required=True, metavar="DIR", help="where to")


def run(args: argparse.Namespace) -> None:
    """Write one .jsonl file a task, and meta.json."""
    from mrp.data import build
    from mrp.grid import load_suite

    suite = load_suite(args.suite)
    build(args.out, suite.seed, suite.data.test, suite.data.level)
