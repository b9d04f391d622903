"""`mrp compare`: did anything move between two runs of a suite?"""

from __future__ import annotations

import argparse
from pathlib import Path

NAME = "compare"
HELP = (
    "compare two results folders with paired tests; exit code 1 where something moved, "
    "2 where nothing can be compared"
)
MOVED = 1  # the exit code


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument("before", type=Path, help="a suite's results folder, as results/embedded")
    parser.add_argument("after", type=Path, help="the same suite's results of another run")
    parser.add_argument(
        "--html", type=Path, metavar="FILE", help="also write the whole comparison as a page"
    )


def run(args: argparse.Namespace) -> None:
    """Print what moved beyond noise and what could not be compared, and a summary."""
    from mrp.report.drift import compare_folders, write_page

    drift = compare_folders(args.before, args.after)
    for name, before, after in drift.facts:
        if before != after:
            print(f"{name}: {before} -> {after}")
    for pair in drift.pairs:
        if pair.note:
            print(f"{pair.job} {pair.task}".rstrip() + f": {pair.note}")
        for change in pair.changes:
            if change.moved:
                print(
                    f"{pair.job} {pair.task}: {change.what} {change.before} -> {change.after}, "
                    f"{change.difference}, p {change.p:.2g}"
                )
    compared = [pair for pair in drift.pairs if pair.changes]
    same = sum(pair.same_texts for pair in compared)
    total = sum(pair.problems for pair in compared)
    print(
        f"{len(drift.moved)} of {len(compared)} cells moved beyond noise; "
        f"{same} of {total} answers are the same"
    )
    if args.html is not None:
        write_page(drift, args.html)
        print(args.html)
    if drift.moved:
        raise SystemExit(MOVED)
