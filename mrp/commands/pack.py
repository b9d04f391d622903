"""`mrp pack`: a suite's results as one file, to go on with on another machine.

With --records: what tables, figures and findings need of them, to be kept.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from mrp.commands.suite_options import add_results_option
from mrp.errors import UserError

NAME = "pack"
HELP = "pack a suite's results (also half-done ones) into one file, to go on elsewhere"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument("--suite", required=True, help="a suite file, or its name in config/suites")
    add_results_option(parser)
    parser.add_argument(
        "--out",
        type=Path,
        metavar="FILE",
        help="the archive, outside the suite's results (default: SUITE.tar.gz)",
    )
    parser.add_argument(
        "--no-weights",
        action="store_true",
        help="leave checkpoints and resume points behind: enough for tables and figures",
    )
    parser.add_argument(
        "--records",
        type=Path,
        metavar="DIR",
        help="write no archive, but the records in small, from which `mrp report --records DIR` "
        "builds tables, figures and findings",
    )
    parser.add_argument(
        "--add",
        type=Path,
        action="append",
        default=[],
        metavar="DIR",
        help="with --records: jobs that have no run here are taken from these records, which "
        "another machine's `mrp pack --records` wrote; may be given several times",
    )
    parser.add_argument(
        "--heads",
        default="released",
        metavar="WHICH",
        help="with --records: released or train, the heads that the workflow ran with "
        "(default: %(default)s)",
    )
    parser.add_argument(
        "--command",
        default="",
        metavar="TEXT",
        help="with --records: how the runs were started, for the manifest "
        "(default: snakemake --config suite=SUITE)",
    )


def run(args: argparse.Namespace) -> None:
    """Write the archive or the records and say what is in there."""
    from mrp.archive import pack
    from mrp.grid import heads_from, load_suite

    name = load_suite(args.suite).name
    if args.records is not None:
        from mrp.evaluation.verdicts import worker_count
        from mrp.report.packing import write_records

        if args.out is not None or args.no_weights:
            raise UserError("--records writes no archive: leave out --out and --no-weights")
        heads = heads_from(args.heads, "--heads")
        command = args.command or f"snakemake --config suite={name}"
        manifest = write_records(
            args.suite,
            args.results,
            heads,
            command,
            args.records,
            args.add,
            args.threads or worker_count(),
        )
        size = sum((args.records / file).stat().st_size for file in manifest["files"]) / 1e6
        print(
            f"{args.records}: {manifest['answers']} answers of {manifest['jobs']} jobs of suite "
            f"{name}, {size:.1f} MB; {len(manifest['absent'])} jobs have no record"
        )
        if manifest["of_other_code"]:
            print(f"note: {manifest['of_other_code']} of them by other code than what is here")
        if "parts" in manifest:
            counts = " + ".join(str(part["jobs"]) for part in manifest["parts"])
            print(f"put together from parts of {counts} jobs")
        return
    if args.heads != "released" or args.command or args.add:
        raise UserError(
            "--add, --heads and --command are of --records DIR: add it, or leave them out"
        )
    out = args.out or Path(f"{name}.tar.gz")
    manifest = pack(args.results, name, out, weights=not args.no_weights)
    megabytes = out.stat().st_size / 1e6
    print(f"{out}: {len(manifest['files'])} files of suite {name}, {megabytes:.1f} MB")
