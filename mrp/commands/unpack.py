"""`mrp unpack`: the results that `mrp pack` wrote on another machine."""

from __future__ import annotations

import argparse
from pathlib import Path

NAME = "unpack"
HELP = "bring packed results back; every file's hash is checked before anything changes"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument("archive", type=Path, metavar="FILE", help="what `mrp pack` wrote")
    parser.add_argument(
        "--results",
        type=Path,
        default=Path("results"),
        metavar="DIR",
        help="the folder that holds the suites' results (default: %(default)s)",
    )
    parser.add_argument(
        "--replace", action="store_true", help="overwrite files that are there and differ"
    )


def run(args: argparse.Namespace) -> None:
    """Unpack and say how much was new."""
    from mrp.archive import unpack

    manifest, written = unpack(args.archive, args.results, args.replace)
    same = len(manifest["files"]) - written
    target = args.results / manifest["suite"]
    print(f"{target}: {written} files unpacked, {same} were there already")
