"""`mrp tune`: mode and knobs for what one is ready to lose, from a few problems."""

from __future__ import annotations

import argparse
import logging
from pathlib import Path

from mrp.commands.decoding_options import add_checkpoint_arguments, backbone_path
from mrp.errors import UserError

NAME = "tune"
HELP = "pick mode and knobs: the fastest that is lossless, or that loses at most so many points"

logger = logging.getLogger(__name__)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    add_checkpoint_arguments(parser, many_heads=True)
    group = parser.add_argument_group("target")
    target = group.add_mutually_exclusive_group(required=True)
    target.add_argument("--lossless", action="store_true", help="static's text, token for token")
    target.add_argument(
        "--lose",
        type=float,
        metavar="POINTS",
        help="at most so many percentage points of accuracy less than static, over all tasks",
    )
    group.add_argument(
        "--by",
        choices=("time", "tpf"),
        default="time",
        help="what fast means: time, by the clock on this machine, or tpf, tokens per forward "
        "(default: %(default)s)",
    )
    group.add_argument(
        "--sure",
        action="store_true",
        help="the whole 95 %% interval of the loss has to keep to POINTS, not the estimate alone",
    )
    group = parser.add_argument_group("calibration set")
    group.add_argument(
        "--tasks",
        default="mini_math,mini_code",
        help="task names with commas between them (default: %(default)s)",
    )
    group.add_argument(
        "--calibration", type=int, default=32, metavar="N", help="problems a task (default: 32)"
    )
    group.add_argument(
        "--data",
        type=Path,
        metavar="DIR",
        help="the problems' files, <task>.jsonl (default: mini tasks are generated, apart from all "
        "test sets; benchmarks come from the hub's cache)",
    )
    group.add_argument(
        "--level",
        choices=("embedded", "hard", "replica"),
        default="embedded",
        help="difficulty of generated problems (default: %(default)s)",
    )
    group.add_argument(
        "--batch-size",
        type=int,
        default=1,
        metavar="N",
        help="problems decoded together, as they will be (default: %(default)s)",
    )
    group.add_argument(
        "--max-new-tokens", type=int, metavar="N", help="longest answer (default: the task's own)"
    )
    parser.add_argument(
        "--out", type=Path, metavar="FILE", help="write the suite entry here, as YAML"
    )


def run(args: argparse.Namespace) -> None:
    """Search and print."""
    from mrp.leases import lease

    for flag in ("calibration", "batch_size", "max_new_tokens"):
        value = getattr(args, flag)
        if value is not None and value < 1:
            raise UserError(f"--{flag.replace('_', '-')} {value}: at least 1")
    if args.lose is not None and not 0 <= args.lose < 100:
        raise UserError(f"--lose {args.lose:g}: points of accuracy, at least 0 and below 100")
    if args.sure and args.lose is None:
        raise UserError("--sure: only --lose POINTS has a loss to be sure of; leave one out")
    with lease(args.device) as device:
        _tune(args, device)


def _tune(args: argparse.Namespace, device: str) -> None:
    from mrp.io import atomic_write_text
    from mrp.tuning import summary
    from mrp.tuning.candidates import STATIC, chains
    from mrp.tuning.problems import Bench
    from mrp.tuning.race import Race, Target

    tasks = list(dict.fromkeys(name.strip() for name in args.tasks.split(",") if name.strip()))
    if not tasks:
        raise UserError(f"--tasks {args.tasks!r}: name at least one task, such as mini_math")
    heads = _heads(args.head or [])
    bench = Bench(
        backbone_path(args),
        {name: Path(path) for name, path in heads.items()},
        device,
        args.dtype,
        args.max_new_tokens,
        args.head_variant,
    )
    bench.prepare(tasks, args.calibration, args.data, args.level, args.batch_size)
    lossless = args.lose is None
    block = bench.backbone.config.block_size
    every = chains(list(heads), block, lossless)
    count = 1 + sum(len(chain.members) for chain in every)
    rows = chains(list(heads), block, lossless, args.by == "tpf")
    target = Target(None if lossless else args.lose / 100, args.by, args.sure)
    units = len(bench.chunks)
    print(
        f"{count} candidates, {units * args.batch_size} problems of {', '.join(tasks)}, "
        f"{args.batch_size} at a time"
    )
    print(f"target: {summary.promise(target)}\n")
    race = Race(rows, bench.measure, units, target, first=bench.first(len(tasks)), say=logger.info)
    chosen = race.run()
    finalists = summary.finalists(race)
    timed = bench.in_turns(finalists, repeats=2) if finalists else {}
    if args.by == "time" and timed:
        # Static is as good as all of them, and its ratio is 1.
        ratios = {STATIC: 1.0} | {one: float(found["ratio"]) for one, found in timed.items()}
        chosen = race.settle(sorted(ratios, key=lambda one: -ratios[one]))
    print("\n".join(summary.lines(race, chosen, timed)))
    print(summary.effort(race.facts, count, bench.seconds), end="\n\n")
    text = summary.entry(race, chosen, heads, tasks, timed.get(chosen))
    print(text, end="")
    if args.out is not None:
        atomic_write_text(args.out, text)


def _heads(paths: list[Path]) -> dict[str, str]:
    """The heads by name: the last part of their paths.

    Raises:
        UserError: two have the same, or a suite would not take it.
    """
    from pydantic import TypeAdapter, ValidationError

    from mrp.schema import Name

    found: dict[str, str] = {}
    for path in paths:
        name = path.name.partition("@")[0]
        try:
            TypeAdapter(Name).validate_python(name)
        except ValidationError:
            raise UserError(
                f"--head {path}: the folder's name {name!r} becomes the head's in a suite, which "
                "takes letters, digits, dots, - and _: rename it"
            ) from None
        if name in found:
            raise UserError(
                f"--head {path}: a head named {name!r} is given already ({found[name]}): heads are "
                "told apart by their folders' names; rename one"
            )
        found[name] = str(path)
    return found
