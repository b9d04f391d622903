"""`mrp decode`: one job of a suite's grid, as the workflow runs it."""

from __future__ import annotations

import argparse
from pathlib import Path

NAME = "decode"
HELP = "decode and score one job of a suite, into record.json and samples.jsonl"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument("--suite", required=True, help="a suite file, or its name in config/suites")
    parser.add_argument("--job", required=True, metavar="ID", help="a job's id (see `mrp grid`)")
    parser.add_argument(
        "--backbone-path",
        required=True,
        metavar="DIR|ID",
        help="backbone checkpoint: a directory, or a hub id owner/name[@revision]",
    )
    parser.add_argument(
        "--head-path",
        metavar="DIR|ID",
        help="head checkpoint likewise, for the modes that need one",
    )
    parser.add_argument(
        "--data", type=Path, required=True, metavar="DIR", help="<task>.jsonl of every task"
    )
    parser.add_argument(
        "--out",
        type=Path,
        required=True,
        metavar="DIR",
        help="the run's directory; a killed run goes on from its journal.jsonl",
    )
    parser.add_argument(
        "--device", default="auto", help="auto, cpu, cuda or cuda:N (default: %(default)s)"
    )
    parser.add_argument(
        "--allow-zero",
        action="store_true",
        help="accept a benchmark of which nothing is right though there are answers",
    )


def run(args: argparse.Namespace) -> None:
    """Run the job; every mistake in the suite shows before anything slow is loaded."""
    from mrp.grid import check_paths, find_job, load_suite
    from mrp.leases import lease
    from mrp.locks import run_lock

    suite = load_suite(args.suite)
    job = find_job(suite, args.job)
    check_paths(suite, job, args.backbone_path, args.head_path, args.data)
    head = suite.heads[job.head] if job.head is not None else None
    decoding = suite.decoding
    # Waiting for another process in the directory takes no GPU from others.
    with run_lock(args.out), lease(args.device, suite.jobs_per_gpu) as device:
        from mrp.evaluation.run import Cell, Speed, run_job

        cell = Cell(
            id=job.id,
            suite=job.suite,
            backbone=job.backbone,
            tasks=job.tasks,
            mode=job.mode,
            options=job.options,
            head=job.head,
            head_source=job.head_source,
            head_variant=head.variant if head is not None else None,
            digest=job.digest,
            batch_size=decoding.batch_size,
            max_new_tokens=decoding.max_new_tokens,
            dtype=decoding.dtype,
            invariant=decoding.invariant,
            seed=suite.seed,
            speed=Speed(**decoding.speed.model_dump()) if decoding.speed is not None else None,
        )
        run_job(
            cell,
            args.backbone_path,
            args.head_path,
            args.data,
            args.out,
            device,
            allow_zero=args.allow_zero,
        )
