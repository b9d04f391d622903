"""`mrp eval`: one cell of the grid by hand."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from mrp.commands.decoding_options import add_decoding_arguments, backbone_path, knobs
from mrp.errors import UserError

NAME = "eval"
HELP = "score one mode on some tasks and print a table"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    add_decoding_arguments(parser)
    group = parser.add_argument_group("evaluation")
    group.add_argument(
        "--tasks",
        default="mini_math,mini_code",
        help="task names with commas between them (default: %(default)s)",
    )
    group.add_argument("--limit", type=int, metavar="N", help="the first N examples of each task")
    group.add_argument("--batch-size", type=int, default=32, help="(default: %(default)s)")
    group.add_argument(
        "--max-new-tokens",
        type=int,
        metavar="N",
        help="longest answer (default: 4096 for the paper's benchmarks, 112 for the mini tasks)",
    )
    group.add_argument(
        "--data",
        type=Path,
        metavar="DIR",
        help="data files, <task>.jsonl: those of `mrp data`, or a benchmark's test split with the "
        "hub's columns (default: mini tasks are generated, benchmarks come from the hub's cache)",
    )
    group.add_argument(
        "--out",
        type=Path,
        metavar="DIR",
        help="write record.json and samples.jsonl here; a killed run goes on from here",
    )
    group.add_argument(
        "--allow-zero",
        action="store_true",
        help="accept a benchmark of which nothing is right though there are answers",
    )
    group.add_argument(
        "--speed-prompts",
        type=int,
        default=0,
        metavar="N",
        help="also measure the speed against static on the first N prompts of each task",
    )


def run(args: argparse.Namespace) -> None:
    """Evaluate and print."""
    from mrp.leases import lease

    with lease(args.device) as device:
        _evaluate(args, device)


def _evaluate(args: argparse.Namespace, device: str) -> None:
    from mrp.evaluation.run import Cell, Speed, run_job
    from mrp.evaluation.scores import ImpossibleZero

    options = knobs(args)
    tasks = [task.strip() for task in args.tasks.split(",") if task.strip()]
    if len(set(tasks)) < len(tasks):
        raise UserError(f"--tasks {args.tasks}: a task is given twice; name each once")
    if args.speed_prompts < 0:
        raise UserError(f"--speed-prompts {args.speed_prompts}: at least 1, or 0 for none")
    words = [args.mode, *(f"{name}={value}" for name, value in options.items())]
    title = " ".join([*words, f"head={args.head}"] if args.head else words)
    speed = Speed(args.speed_prompts, args.batch_size, repeats=3) if args.speed_prompts else None
    backbone = backbone_path(args)
    cell = Cell(
        id=".".join(["eval", *words]),
        suite="by hand",
        backbone=str(backbone),
        tasks=tuple(tasks),
        mode=args.mode,
        options=options,
        head=str(args.head) if args.head else None,
        head_variant=args.head_variant,
        digest="by hand",
        batch_size=args.batch_size,
        max_new_tokens=args.max_new_tokens,
        dtype=args.dtype,
        invariant=args.invariant,
        limit=args.limit,
        speed=speed,
    )
    try:
        record = run_job(
            cell, backbone, args.head, args.data, args.out, device, allow_zero=args.allow_zero
        )
    except ImpossibleZero as error:
        _print_table(title, error.record)  # without --out it is all that is left
        raise
    _print_table(title, record)


def _print_table(title: str, record: dict[str, Any]) -> None:
    """One row a task; the paper's own score beside ours where a task has one; then the notes."""
    from rich import box
    from rich.console import Console
    from rich.table import Table

    table = Table(title=title, title_justify="left", box=box.SIMPLE)
    table.add_column("task", no_wrap=True)
    has_paper_rule = any("paper_rule" in row for row in record["tasks"].values())
    paper = ["paper %"] if has_paper_rule else []
    for column in ("right", "acc %", *paper, "TPF", "e2e TPF", "tok/ans", "tok/s"):
        table.add_column(column, justify="right", no_wrap=True)
    table.add_column("x static (95 %)", justify="right")
    for task, row in record["tasks"].items():
        table.add_row(
            task,
            f"{row['correct']}/{row['n']}",
            f"{100 * row['accuracy']:.1f}",
            *([_paper_score(row)] if has_paper_rule else []),
            f"{row['tpf']:.2f}",
            f"{row['tpf_end_to_end']:.2f}",
            f"{row['answer_tokens_mean']:.1f}",
            f"{row['tokens_per_second']:.0f}",
            _speed(row["speed"]),
        )
    console = Console()
    console.print(table)
    if has_paper_rule:
        console.print("acc %: the right value counts; paper %: the paper's own rule")
    for task, row in record["tasks"].items():
        for note in row.get("notes", []):
            console.print(f"[bold]{task}: {note}[/bold]", highlight=False)


def _paper_score(row: dict[str, Any]) -> str:
    return f"{100 * row['paper_rule']['accuracy']:.1f}" if "paper_rule" in row else "-"


def _speed(speed: dict[str, Any] | None) -> str:
    if speed is None:
        return "-"
    if speed["low"] is None:
        return f"{speed['ratio']:.2f}"
    return f"{speed['ratio']:.2f} ({speed['low']:.2f}-{speed['high']:.2f})"
