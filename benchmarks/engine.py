"""Everything that docs/performance.md says of a GPU, measured in one go.

    python3 -m benchmarks.engine --out DIR [--backbone DIR --head DIR --prompts FILE]

Each part runs in a process of its own within a time limit, so that none stops the others, and is
made of calls of `mrp bench`, whose JSON and output go to DIR. What is printed is a digest, with a
line for every aim at the end. Checkpoints are trained ones of any size, for drafts that mean
something; without them those parts are left out.
"""

from __future__ import annotations

import argparse
import contextlib
import gc
import json
import platform
import subprocess
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Any

TESTS = ["tests/decoding", "tests/training/test_gpu.py", "tests/speed"]
COMMON = ["--prompt-length", "128", "--new-tokens", "128"]
AUTO = "speculative,k=auto,shortlist=64"
LOSSLESS = [f"speculative,k={k}" for k in (1, 2, 3, 4)]
LINES = 2600  # characters of the tests' report that are printed

# What is aimed at: shape -> forward with pick at batch 1 in floors, static over the eager loop,
# throughput of batch 16 over batch 1.
AIMS = {"1.7b": (1.8, 15.0, 11.0), "8b": (1.3, 7.5, 8.0)}

Calls = dict[str, list[str]]  # arguments of `mrp bench` by the name of the result


def shape_calls(shape: str, args: argparse.Namespace) -> Calls:
    """Forwards, the eager loop, and `k: auto` at every batch size, on random weights."""
    common = ["--shape", shape, *COMMON, *ceilings(args)]
    calls = {f"eager-{shape}": ["--batch", "1", "--baseline", "eager-loop", "--repeats", "2"]}
    for batch, repeats in (("1,2,4", "6"), ("8,16", "3")):
        name = f"auto-{shape}-{batch.replace(',', '-')}"
        calls[name] = ["--batch", batch, "--mode", AUTO, "--repeats", repeats]
    return {name: [*common, *call] for name, call in calls.items()}


def floor_calls(shape: str, args: argparse.Namespace) -> Calls:
    """The forwards alone; static decoding is timed beside them in any case."""
    call = ["--shape", shape, *COMMON, *ceilings(args), "--batch", "1", "--repeats", "2"]
    return {f"floor-{shape}": call}


def trained_calls(args: argparse.Namespace) -> Calls:
    """Drafts of a trained head: time beside what is predicted, and where bf16 parts from static."""
    models = ["--backbone", str(args.backbone), "--head", str(args.head)]
    models += ["--head-variant", args.head_variant] if args.head_variant else []
    modes = [part for mode in LOSSLESS for part in ("--mode", mode)]
    auto = ["--mode", "speculative,k=auto"]
    speed = ["--prompts", str(prompts(args, 64)), "--new-tokens", "96", *ceilings(args)]
    parting = ["--prompts", str(prompts(args, 128)), "--new-tokens", "96", "--divergence"]
    return {
        "trained-1": [
            *(*models, *speed, *modes, *auto),
            *("--batch", "1", "--chunks", "16", "--repeats", "3"),
        ],
        "trained-16": [
            *(*models, *speed, *modes, *auto),
            *("--batch", "16", "--chunks", "2", "--repeats", "3"),
        ],
        "divergence": [*models, *parting, *modes[4:6], *auto, "--batch", "16"],
        "divergence-self": [*models[:2], *parting, "--mode", "self_speculative,k=3"],
    }


def ceilings(args: argparse.Namespace) -> list[str]:
    """The device's, as far as they are given."""
    return ["--bandwidth", str(args.bandwidth), "--device", args.device] + (
        ["--teraflops", str(args.teraflops)] if args.teraflops else []
    )


def prompts(args: argparse.Namespace, count: int) -> Path:
    """The first prompts of --prompts in a file of their own."""
    path = Path(args.out) / f"prompts-{count}.jsonl"
    lines = Path(args.prompts).read_text("utf-8").split("\n")
    path.write_text("\n".join(lines[:count]) + "\n", "utf-8")
    return path


def parts(args: argparse.Namespace) -> dict[str, tuple[int, Callable[[], Calls]]]:
    """Each part's time limit in seconds and its calls."""
    found: dict[str, tuple[int, Callable[[], Calls]]] = {}
    if args.backbone and args.head and args.prompts:
        found["trained"] = (100, lambda: trained_calls(args))
    for shape in args.shapes:
        found[shape] = (130, lambda shape=shape: shape_calls(shape, args))  # type: ignore[misc]
    for shape in args.floors:
        found[f"floor-{shape}"] = (50, lambda shape=shape: floor_calls(shape, args))  # type: ignore[misc]
    return found


def run_part(name: str, args: argparse.Namespace) -> int:
    """Make the calls of one part in this process; returns how many failed."""
    import torch

    from mrp.commands import bench
    from mrp.errors import UserError

    failed = 0
    for call, arguments in parts(args)[name][1]().items():
        parser = argparse.ArgumentParser()
        bench.add_arguments(parser)
        began = time.perf_counter()
        try:
            bench.run(parser.parse_args([*arguments, "--out", str(args.out / f"{call}.json")]))
        except (Exception, UserError):
            traceback.print_exc()
            failed += 1
        print(f"[{call}: {time.perf_counter() - began:.0f} s]", flush=True)
        gc.collect()
        if torch.cuda.is_available():
            with contextlib.suppress(RuntimeError):
                torch.cuda.empty_cache()
    return failed


def measure(name: str, limit: int, args: argparse.Namespace, rest: list[str]) -> None:
    """Run a part in a process of its own and print the digest of what it wrote."""
    began, log = time.perf_counter(), args.out / f"{name}.log"
    paths = [args.out / f"{result}.json" for result in parts(args)[name][1]()]
    for path in paths:
        path.unlink(missing_ok=True)
    command = [sys.executable, "-m", "benchmarks.engine", *rest, "--part", name]
    status = call(command, limit, log)
    print(f"== {name}: {status}, {time.perf_counter() - began:.0f} s")
    for path in paths:
        if not path.exists():
            print(f"  {path.stem}: nothing measured")
            continue
        for line in digest(json.loads(path.read_text())):
            print(line)
    if status != "done":
        print("\n".join(log.read_text(errors="replace").splitlines()[-6:])[-900:])
    sys.stdout.flush()


def run_tests(limit: int, args: argparse.Namespace) -> None:
    """The tests that need a GPU, before anything is measured."""
    began, log = time.perf_counter(), args.out / "tests.log"
    options = ["-o", "addopts=", "-q", "-m", "gpu", "--tb=short", "-p", "no:cacheprovider"]
    options += ["--continue-on-collection-errors"]
    command = [sys.executable, "-m", "pytest", *options, "--durations=4", *TESTS]
    status = call(command, limit, log)
    print(f"== tests: {status}, {time.perf_counter() - began:.0f} s")
    print(log.read_text(errors="replace")[-LINES if status != "done" else -700 :])
    sys.stdout.flush()


def call(command: list[str], limit: int, log: Path) -> str:
    """Run a command within `limit` seconds, its output in `log`; returns how it ended."""
    with log.open("w") as stream:
        try:
            code = subprocess.run(
                command, stdout=stream, stderr=subprocess.STDOUT, timeout=limit, check=False
            ).returncode
        except subprocess.TimeoutExpired:
            return f"stopped after {limit} s"
    return f"failed with {code}" if code else "done"


def digest(result: dict[str, Any]) -> Iterator[str]:
    """The lines that are printed of one call's JSON."""
    if "modes" in result:
        for entry in result["modes"]:
            margins = entry["margins"]
            within = sum(margin <= 2 for margin in margins)
            pairs = list(zip(margins, entry["roundings"], strict=True))[-3:]
            largest = ", ".join(f"{margin:.1f} (off by {error:.1f})" for margin, error in pairs)
            yield (
                f"  {result['dtype']} {entry['mode']}: {entry['diverged']} of {entry['samples']} "
                f"samples part from static, {within} within 2 steps, {entry['near']} near ties; "
                f"largest {largest or '-'}"
            )
        return
    for batch in result["batches"]:
        first = batch is result["batches"][0]
        roles = [
            f"{cost['role']} {cost['ms']:.3f} ({1 / cost['share']:.2f})"
            for cost in batch["costs"]
            if first or cost["role"].startswith(("backbone + pick", "verify"))
        ]
        model = Path(result["model"]).name
        yield f"  {model} batch {batch['batch_size']}, ms (x floor): " + "; ".join(roles)
        for line in batch["contenders"]:
            low, high, accepted = line["low"], line["high"], line["acceptance"]
            shown = [f"{line['tokens_per_second']:.1f} tok/s", f"ratio {line['ratio']:.3f}"]
            if low is not None:
                shown.append(f"[{low:.3f}, {high:.3f}]")
            if line["predicted"] is not None and line["mode"] != "static":
                shown.append(f"predicted {line['predicted']:.3f}")
            if line["predicted_by_rounds"] is not None and line["mode"] != "static":
                shown.append(f"by rounds {line['predicted_by_rounds']:.3f}")
            shown.append(f"TPF {line['tpf']:.2f}")
            if accepted is not None:
                shown.append(f"accepted {accepted:.3f}, head passes {line['head_passes']}")
            yield f"    {line['mode']}: " + " ".join(shown)


def verdicts(out: Path) -> Iterator[str]:
    """A line for every aim that was measured."""
    results = {path.stem: json.loads(path.read_text()) for path in sorted(out.glob("*.json"))}
    batches = {
        (name, batch["batch_size"]): batch
        for name, result in results.items()
        for batch in result.get("batches", ())
    }

    def verdict(what: str, value: float, met: bool, aim: str) -> str:
        return f"  {'met    ' if met else 'NOT MET'} {what}: {value:.3f} (aim {aim})"

    rates: dict[tuple[str, int], float] = {}
    auto: dict[str, dict[int, float]] = {}
    for (name, size), batch in batches.items():
        shape = Path(results[name]["model"]).name
        modes = {line["mode"]: line for line in batch["contenders"]}
        if "auto" not in name and shape in AIMS:
            costs = {cost["role"]: 1 / cost["share"] for cost in batch["costs"]}
            value, aim = costs["backbone + pick"], AIMS[shape][0]
            yield verdict(f"{shape} forward + pick in floors", value, value <= aim, f"<= {aim}")
        if "eager-loop" in modes and shape in AIMS:
            value, aim = modes["static"]["ratio"], AIMS[shape][1]
            yield verdict(f"{shape} static over the eager loop", value, value >= aim, f">= {aim}")
        if name.startswith("auto-"):
            rates[shape, size] = modes["static"]["tokens_per_second"]
        for mode, line in modes.items():
            if "k=auto" in mode:
                auto.setdefault(f"{shape} {mode} over static", {})[size] = line["ratio"]
            for key, text in (("predicted", ""), ("predicted_by_rounds", ", by rounds")):
                if line[key] is not None and mode != "static":
                    value = line["ratio"] / line[key]
                    what = f"{shape} {mode} at batch {size} over its prediction{text}"
                    yield verdict(what, value, abs(value - 1) <= 0.07, "1 +- 0.07")
    for what, by_size in auto.items():
        least = min(by_size.values())
        shown = " ".join(f"{size}: {by_size[size]:.3f}" for size in sorted(by_size))
        yield verdict(f"{what}, at batch {shown}; least", least, least >= 0.98, ">= 0.98")
    for shape, (_, _, aim) in AIMS.items():
        if (shape, 1) in rates and (shape, 16) in rates:
            value = rates[shape, 16] / rates[shape, 1]
            yield verdict(f"{shape} batch 16 over batch 1", value, value >= aim, f">= {aim}")
    for name, result in results.items():
        for entry in result.get("modes", ()):
            largest = max(entry["margins"], default=0.0)
            yield verdict(f"{name}: {entry['mode']}, steps", largest, largest <= 2, "<= 2")
            far = entry["diverged"] - entry["near"]
            what = f"{name}: {entry['mode']}, beyond the format's own error"
            yield verdict(what, far, not far, "0")


def arguments(given: list[str] | None = None) -> tuple[argparse.Namespace, list[str]]:
    """The arguments, and those that a part's process is given again."""
    parser = argparse.ArgumentParser(prog="python3 -m benchmarks.engine", description=__doc__)
    parser.add_argument("--out", type=Path, required=True, metavar="DIR")
    parser.add_argument("--backbone", type=Path, metavar="DIR", help="a trained checkpoint")
    parser.add_argument("--head", type=Path, metavar="DIR", help="its head")
    parser.add_argument("--head-variant", choices=("default", "k2", "direct"))
    parser.add_argument("--prompts", type=Path, metavar="FILE", help='jsonl with a "prompt" a line')
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--bandwidth", type=float, default=4.3, metavar="TB/s")
    parser.add_argument("--teraflops", type=float, help="default: measured")
    parser.add_argument("--shapes", type=names, default=["1.7b", "8b"])
    parser.add_argument("--floors", type=names, default=["4b"])
    parser.add_argument("--no-tests", action="store_true")
    parser.add_argument("--only", type=names, help="parts to run (default: all)")
    parser.add_argument("--part", help=argparse.SUPPRESS)
    rest = list(sys.argv[1:] if given is None else given)
    args = parser.parse_args(rest)
    for flag in ("backbone", "head", "prompts"):
        path = getattr(args, flag)
        if path is not None and not path.exists():
            parser.error(f"--{flag} {path} is not there")
    if args.backbone and not (args.head and args.prompts):
        parser.error("--backbone: give --head and --prompts with it")
    return args, rest


def names(text: str) -> list[str]:
    """Names from a list with commas; none from an empty one."""
    return [part for part in text.split(",") if part]


def main(given: list[str] | None = None) -> int:
    """Measure what is asked for and print the digest."""
    args, rest = arguments(given)
    args.out.mkdir(parents=True, exist_ok=True)
    if args.part:
        return run_part(args.part, args)
    began = time.perf_counter()
    found = {package: version(package) for package in ("torch", "triton") if installed(package)}
    print(f"python {platform.python_version()}, {found}, {time.strftime('%Y-%m-%dT%H:%M:%S')}")
    if not args.no_tests:
        run_tests(220, args)
    for name, (limit, _) in parts(args).items():
        if args.only is None or name in args.only:
            measure(name, limit, args, rest)
    print("== aims")
    for line in verdicts(args.out):
        print(line)
    print(f"== all: {time.perf_counter() - began:.0f} s")
    return 0


def installed(package: str) -> bool:
    """Whether a package's version can be told."""
    try:
        return bool(version(package))
    except ModuleNotFoundError:
        return False


if __name__ == "__main__":
    sys.exit(main())
