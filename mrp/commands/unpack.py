"""`mrp unpack`: the results that `mrp pack` wrote on another machine."""

from __future__ import annotations

import argparse
from pathlib import Path

from mrp.commands.suite_options import add_results_option

NAME = "unpack"
HELP = "bring packed results back; every file's hash is checked before anything changes"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument("archive", type=Path, metavar="FILE", help="what `mrp pack` wrote")
    add_results_option(parser)
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
