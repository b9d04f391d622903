"""`mrp grid`: the decode jobs of a suite."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from mrp.commands.suite_options import add_suite_options
from mrp.errors import UserError

NAME = "grid"
HELP = "check a suite and list its decode jobs, each with its state"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    add_suite_options(parser)
    parser.add_argument(
        "--missing",
        action="store_true",
        help="only the jobs that are still to be run, as the files that the workflow is to make: "
        "`mrp grid --missing --suite NAME | xargs -r snakemake --config suite=NAME --`",
    )
    parser.add_argument(
        "--records",
        type=Path,
        action="append",
        default=[],
        metavar="DIR",
        help="with --missing: without those that these records hold, which another machine's "
        "`mrp pack --records` wrote; may be given several times",
    )


def run(args: argparse.Namespace) -> None:
    """Print a line for each job: done or open, and its id. Needs no checkpoint and no network."""
    from mrp.grid import Layout, heads_from, jobs, load_suite

    if args.records and not args.missing:
        raise UserError("--records is of --missing: add it, or leave --records out")
    suite = load_suite(args.suite)
    layout = Layout(suite, args.results)
    grid = jobs(suite, heads_from(args.heads, "--heads"))
    if not args.missing:
        for job in grid:
            print("done" if layout.record(job.id).exists() else "open", job.id)
        return
    from mrp.status import is_done

    elsewhere = set()
    for directory in args.records:
        from mrp.report.records import read_records

        for name, record in read_records(directory, suite).records.items():
            elsewhere.add((name, record["job"].get("digest")))
    missing = [
        job for job in grid if (job.id, job.digest) not in elsewhere and not is_done(layout, job)
    ]
    for job in missing:
        print(layout.record(job.id).as_posix())
    print(f"mrp: {len(missing)} of {len(grid)} jobs are missing", file=sys.stderr)
