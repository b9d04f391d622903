"""Decoding of two checkouts of this repository, side by side on one machine's CPU.

    python3 -m benchmarks.versions --before DIR [--after DIR] [--mode NAME[,KNOB=VALUE...] ...]

Each checkout decodes the same prompts with the same checkpoints (those of --after) in a process of
its own that stays alive, so that they take turns: before, after, after, before, ... What a turn
took is asked of the process: its processor time, which other work on the machine disturbs least,
and wall time. Texts must be equal. Ratios are of totals, before over after: 2 is twice as fast.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

MODES = ["static", "speculative,k=4", "self_speculative,k=4", "direct,k=2", "dynamic,tau=0.7"]

# What both versions understand; one line in for a turn, one line out.
WORKER = """
import json, sys, time, zlib
import torch
from mrp.data import encode_prompt, test_examples
from mrp.decoding import decode, make_mode
from mrp.evaluation.tokenizer import load_tokenizer
from mrp.models import load_backbone, load_head
torch.set_num_threads(1)
backbone_dir, head_dir, count, batch = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
from pathlib import Path
backbone = load_backbone(Path(backbone_dir))
head = load_head(Path(head_dir), backbone)
tokenizer = load_tokenizer(Path(backbone_dir))
prompts = [
    encode_prompt(tokenizer, example.prompt)
    for task in ("mini_math", "mini_code")
    for example in test_examples(task, 0, count, "embedded")
]
for line in sys.stdin:
    name, knobs = json.loads(line)
    wall, cpu = time.perf_counter(), time.process_time()
    with torch.inference_mode():
        mode = make_mode(name, **knobs)
        found = sorted(
            decode(backbone, head if mode.needs_head else None, prompts, mode, 112, batch),
            key=lambda sample: sample.index,
        )
    spent = time.process_time() - cpu, time.perf_counter() - wall
    print(json.dumps([*spent, zlib.crc32(json.dumps([s.ids for s in found]).encode())]), flush=True)
"""


def parsed(text: str) -> tuple[str, dict[str, Any]]:
    """A mode's name and knobs from NAME,KNOB=VALUE,..."""
    name, *knobs = text.split(",")
    return name, {key: json.loads(value) for key, value in (knob.split("=") for knob in knobs)}


def start(checkout: Path, models: Path, args: argparse.Namespace) -> subprocess.Popen[str]:
    """A process that decodes with the code of a checkout."""
    environment = {**os.environ, "PYTHONPATH": str(checkout), "OMP_NUM_THREADS": "1"}
    paths = [models / "assets/embedded/backbone", models / "assets/embedded/heads/S/k2"]
    command = [sys.executable, "-c", WORKER, *map(str, paths), str(args.prompts), str(args.batch)]
    return subprocess.Popen(
        command,
        cwd=checkout,
        env=environment,
        text=True,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )


def turn(process: subprocess.Popen[str], mode: tuple[str, dict[str, Any]]) -> list[float]:
    """Decode once: processor seconds, wall seconds, the texts' checksum."""
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(json.dumps(mode) + "\n")
    process.stdin.flush()
    found: list[float] = json.loads(process.stdout.readline())
    return found


def main(given: list[str] | None = None) -> int:
    """Print a line for each mode."""
    parser = argparse.ArgumentParser(prog="python3 -m benchmarks.versions", description=__doc__)
    parser.add_argument("--before", type=Path, required=True, metavar="DIR")
    parser.add_argument("--after", type=Path, default=Path(__file__).parents[1], metavar="DIR")
    parser.add_argument("--mode", action="append", metavar="NAME[,KNOB=VALUE...]")
    parser.add_argument("--prompts", type=int, default=32, help="a task (default: %(default)s)")
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--turns", type=int, default=3)
    args = parser.parse_args(given)
    workers = [
        start(path.resolve(), args.after.resolve(), args) for path in (args.before, args.after)
    ]
    print(f"{'mode':24} {'processor':>10} {'wall':>8}   seconds a turn, before and after")
    for text in args.mode or MODES:
        mode = parsed(text)
        spent: list[list[list[float]]] = [[], []]
        for worker in workers:
            turn(worker, mode)  # a warm-up
        for number in range(args.turns):
            for which in (0, 1) if number % 2 == 0 else (1, 0):
                spent[which].append(turn(workers[which], mode))
        totals = [[sum(column) for column in zip(*turns, strict=True)] for turns in spent]
        processor, wall = (totals[0][i] / totals[1][i] for i in (0, 1))
        shown = ", ".join(f"{total[0] / args.turns:.2f}" for total in totals)
        texts = {found[2] for turns in spent for found in turns}
        same = "" if len(texts) == 1 else "   TEXTS DIFFER"
        print(f"{text:24} {processor:10.2f} {wall:8.2f}   {shown}{same}", flush=True)
    for worker in workers:
        worker.kill()
    return 0


if __name__ == "__main__":
    sys.exit(main())
