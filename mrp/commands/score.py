"""`mrp score`: the answers of a finished job scored again, without a model."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from mrp.errors import UserError

NAME = "score"
HELP = "score saved samples again, without decoding"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument(
        "--run",
        dest="run_dir",
        type=Path,
        required=True,
        metavar="DIR",
        help="what `mrp decode --out` wrote; record.json and samples.jsonl are replaced",
    )
    parser.add_argument(
        "--data",
        type=Path,
        metavar="DIR",
        help="data files, <task>.jsonl, with targets and tests (default: those of the decoding)",
    )
    parser.add_argument(
        "--allow-zero",
        action="store_true",
        help="accept a benchmark of which nothing is right though there are answers",
    )


def run(args: argparse.Namespace) -> None:
    """Score, and print what changed."""
    from mrp.evaluation.record import RECORD
    from mrp.evaluation.scores import rescore
    from mrp.locks import run_lock

    path = args.run_dir / RECORD
    with run_lock(args.run_dir if args.run_dir.is_dir() else None):
        before = _tasks(path) if path.exists() else {}
        after = rescore(args.run_dir, args.data, args.allow_zero)["tasks"]
    for task, entry in after.items():
        old = before.get(task)
        was = f" (was {old['correct']})" if old is not None else ""
        print(f"{task}: {entry['correct']} of {entry['n']} right{was}{_others(entry)}")
        for note in entry.get("notes", []):
            print(f"  note: {note}")


def _tasks(path: Path) -> dict[str, Any]:
    """The tasks of a record, each with its number of right answers.

    Raises:
        UserError: it is no record.
    """
    from mrp.io import read_json

    record = read_json(path)
    tasks = record.get("tasks") if isinstance(record, dict) else None
    if not isinstance(tasks, dict) or not tasks or not all(map(_is_scored, tasks.values())):
        raise UserError(f"{path}: damaged: no record of a decode job; delete it and decode again")
    return tasks


def _is_scored(entry: Any) -> bool:
    return isinstance(entry, dict) and isinstance(entry.get("correct"), int)


def _others(entry: dict[str, Any]) -> str:
    names = {"strict": "strictly", "paper_rule": "by the paper's rule"}
    shown = [f"{entry[key]['correct']} {name}" for key, name in names.items() if key in entry]
    return "".join(f", {text}" for text in shown)
