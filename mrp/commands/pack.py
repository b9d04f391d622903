"""`mrp pack`: a suite's results as one file, to go on with on another machine."""

from __future__ import annotations

import argparse
from pathlib import Path

NAME = "pack"
HELP = "pack a suite's results (also half-done ones) into one file, to go on elsewhere"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument("--suite", required=True, help="a suite file, or its name in config/suites")
    parser.add_argument(
        "--results",
        type=Path,
        default=Path("results"),
        metavar="DIR",
        help="the folder that holds the suites' results (default: %(default)s)",
    )
    parser.add_argument(
        "--out", type=Path, metavar="FILE", help="the archive (default: SUITE.tar.gz)"
    )
    parser.add_argument(
        "--no-weights",
        action="store_true",
        help="leave checkpoints and resume points behind: enough for tables and figures",
    )


def run(args: argparse.Namespace) -> None:
    """Write the archive and say what is in it."""
    from mrp.archive import pack
    from mrp.grid import load_suite

    name = load_suite(args.suite).name
    out = args.out or Path(f"{name}.tar.gz")
    manifest = pack(args.results, name, out, weights=not args.no_weights)
    megabytes = out.stat().st_size / 1e6
    print(f"{out}: {len(manifest['files'])} files of suite {name}, {megabytes:.1f} MB")
