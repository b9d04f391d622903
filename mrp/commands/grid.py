"""`mrp grid`: the decode jobs of a suite."""

from __future__ import annotations

import argparse

from mrp.commands.suite_options import add_suite_options

NAME = "grid"
HELP = "check a suite and list its decode jobs, each with its state"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    add_suite_options(parser)


def run(args: argparse.Namespace) -> None:
    """Print a line for each job: done or open, and its id. Needs no checkpoint and no network."""
    from mrp.grid import Layout, heads_from, jobs, load_suite

    suite = load_suite(args.suite)
    layout = Layout(suite, args.results)
    for job in jobs(suite, heads_from(args.heads, "--heads")):
        print("done" if layout.record(job.id).exists() else "open", job.id)
