"""`mrp status`: what of a suite is done, running, failed or left."""

from __future__ import annotations

import argparse

from mrp.commands.suite_options import add_suite_options

NAME = "status"
HELP = "say what of a suite is done, running, failed and left, with times"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    add_suite_options(parser)
    parser.add_argument(
        "--all", action="store_true", help="a line for the jobs that are done or left, too"
    )
    parser.add_argument(
        "--watch",
        action="store_true",
        help="follow a run from another terminal, one line that keeps up until all jobs are done",
    )


def run(args: argparse.Namespace) -> None:
    """Print a line for each kind of job, the times, and a line for each job to look at."""
    from mrp.grid import heads_from, load_suite
    from mrp.places import check_folders
    from mrp.status import STATES, read_status

    suite, heads = load_suite(args.suite), heads_from(args.heads, "--heads")
    check_folders([args.results / suite.name])
    if args.watch:
        from mrp.status import watch

        watch(suite, args.results, heads)
    status = read_status(suite, args.results, heads)
    for kind, words in (("training", "trainings"), ("decode", "decode jobs")):
        counts = {state: status.count(kind, state) for state in reversed(STATES)}
        if total := sum(counts.values()):
            parts = ", ".join(f"{count} {state}" for state, count in counts.items() if count)
            print(f"suite {suite.name}: {total} {words}: {parts}")
    if status.seconds_left is not None:
        left = f", about {_duration(status.seconds_left)} left" if status.seconds_left else ""
        print(f"decoding took {_duration(status.seconds_spent)}{left} (one job at a time)")
    for state in STATES:
        for item in status.items:
            quiet = state in ("done", "left", "outdated") and not args.all
            if item.state == state and not quiet:
                print(f"{state:8} {item.name}" + (f": {item.note}" if item.note else ""))
                if item.log is not None:
                    print(f"{'':8} {item.log.as_posix()}")


def _duration(seconds: float) -> str:
    """3725 -> 1 h 02 min; 65 -> 1 min 05 s; 4 -> 4 s."""
    whole = round(seconds)
    if whole >= 3600:
        return f"{whole // 3600} h {whole % 3600 // 60:02d} min"
    if whole >= 60:
        return f"{whole // 60} min {whole % 60:02d} s"
    return f"{whole} s"
