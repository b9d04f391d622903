"""`mrp bench`: tokens per second side by side, the cost of each forward, and its floor."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mrp.errors import UserError

if TYPE_CHECKING:
    from mrp.decoding import Mode
    from mrp.models import Head

NAME = "bench"
MOST = 999_999  # of any number of things: more than fit anywhere
HELP = "measure speed: modes side by side, forwards by role, distance to the hardware's limit"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    group = parser.add_argument_group("models (one of the two)")
    group.add_argument(
        "--shape", help="random weights of a shape: 1.7b, 4b, 8b or tiny; speed per forward"
    )
    group.add_argument(
        "--backbone", metavar="DIR", help="a checkpoint, with its tokenizer for --prompts"
    )
    group.add_argument("--head", metavar="DIR", help="a head's checkpoint, beside --backbone")
    group.add_argument(
        "--head-variant",
        choices=("default", "k2", "direct"),
        metavar="WHICH",
        help="how the head was trained, default, k2 or direct, where its checkpoint does not say",
    )
    group.add_argument("--device", default="auto", help="auto, cpu, cuda or cuda:N")
    group.add_argument(
        "--dtype", help="float32, bfloat16 or float16 (default: bfloat16 on a GPU, else float32)"
    )
    group = parser.add_argument_group("what is measured")
    group.add_argument(
        "--mode",
        action="append",
        default=[],
        metavar="NAME[,KNOB=VALUE...]",
        help="a mode beside static, e.g. speculative,k=3 or dynamic,tau=0.7; may be repeated",
    )
    group.add_argument(
        "--batch", default="1", metavar="N[,N...]", help="batch sizes (default: %(default)s)"
    )
    group.add_argument(
        "--prompts", type=Path, metavar="FILE", help='jsonl with a "prompt" a line (else random)'
    )
    group.add_argument("--prompt-length", type=int, default=128, help="of random prompts")
    group.add_argument("--new-tokens", type=int, default=128, help="longest answer")
    group.add_argument(
        "--chunks", type=int, default=1, help="batches of prompts (default: %(default)s)"
    )
    group.add_argument("--repeats", type=int, default=5, help="timed calls of each chunk")
    group.add_argument(
        "--baseline",
        default="static",
        help="what ratios are taken to: static, or eager-loop, a loop as public code has it",
    )
    group.add_argument(
        "--divergence",
        action="store_true",
        help="instead of times: where speculative modes part from static, and by what margin",
    )
    group.add_argument("--bandwidth", type=float, metavar="TB/s", help="default: measured")
    group.add_argument("--teraflops", type=float, help="default: measured")
    group.add_argument("--out", type=Path, metavar="FILE", help="write the numbers as JSON")


def run(args: argparse.Namespace) -> None:
    """Measure and print."""
    from mrp.leases import lease

    if (args.shape is None) == (args.backbone is None):
        raise UserError("give --shape NAME (random weights) or --backbone DIR, one of the two")
    if args.baseline not in ("static", "eager-loop"):
        raise UserError(f"--baseline {args.baseline!r}: choose static or eager-loop")
    _check(args)
    with lease(args.device) as device:
        result, lines = _measure(args, device)
    print("\n".join(lines))
    if args.out is not None:
        from mrp.io import atomic_write_text

        atomic_write_text(args.out, json.dumps(result, indent=1) + "\n")


def _check(args: argparse.Namespace) -> None:
    """Raise UserError for a flag that is out of range, or lacks the one that it goes with."""
    for flag in ("prompt_length", "new_tokens", "repeats", "chunks"):
        value = getattr(args, flag)
        if not 1 <= value <= MOST:
            raise UserError(f"--{flag.replace('_', '-')} {value}: at least 1, at most {MOST}")
    for flag in ("bandwidth", "teraflops"):
        value = getattr(args, flag)
        if value is not None and not 0 < value < float("inf"):
            raise UserError(f"--{flag} {value}: above 0 and finite, or leave it out to measure it")
    twice = [text for text in args.mode if args.mode.count(text) > 1]
    if twice:
        raise UserError(f"--mode {twice[0]!r} is given twice: name each once")
    if args.divergence and not args.mode:
        raise UserError("--divergence: no mode to compare with static: add --mode NAME")
    if args.backbone is None:
        for flag in ("head", "prompts"):
            if getattr(args, flag) is not None:
                raise UserError(f"--{flag}: goes with --backbone DIR; --shape has random ones")
    if args.head is None and args.head_variant is not None:
        raise UserError("--head-variant: says how --head was trained: add --head DIR")
    if args.out is not None and args.out.is_dir():
        raise UserError(f"--out {args.out}: is a folder: name a file")


def _measure(args: argparse.Namespace, device_name: str) -> tuple[dict[str, Any], list[str]]:
    import torch

    from mrp.models import load_backbone, load_head
    from mrp.speed import bench, costs, divergence
    from mrp.speed.shapes import random_models, random_prompts

    name = device_name
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    device = torch.device(name)
    dtypes = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}
    wanted = args.dtype or ("bfloat16" if device.type == "cuda" else "float32")
    if wanted not in dtypes:
        raise UserError(f"--dtype {wanted!r}: choose one of {', '.join(dtypes)}")
    dtype = dtypes[wanted]
    batches = _batches(args.batch)
    modes = dict(_mode(text) for text in args.mode)
    head: Head | None
    if args.shape is not None:
        backbone, head = random_models(args.shape, device, dtype)
    else:
        backbone = load_backbone(Path(args.backbone), device, dtype)
        if args.head is None:
            head = None
        else:
            head = load_head(Path(args.head), backbone, device, dtype, args.head_variant)
    if head is None and any(mode.needs_head for mode in modes.values()):
        raise UserError("--mode: one of them needs a head: add --head DIR")
    if args.prompts is not None:
        prompts = _prompts(args.prompts, Path(args.backbone or "."))
    else:
        prompts = random_prompts(backbone, args.chunks * max(batches), args.prompt_length)
    if args.divergence:
        report = divergence.report(backbone, head, modes, prompts, args.new_tokens, max(batches))
        return report, divergence.lines(report)
    if args.bandwidth and args.teraflops:
        ceilings = costs.Ceilings(args.bandwidth * 1e12, args.teraflops * 1e12)
    else:
        measured = costs.measure_ceilings(device, dtype)
        ceilings = costs.Ceilings(
            args.bandwidth * 1e12 if args.bandwidth else measured.bytes_per_second,
            args.teraflops * 1e12 if args.teraflops else measured.flops,
        )
    plan = bench.Plan(modes, batches, args.new_tokens, args.repeats, args.chunks, args.baseline)
    result = bench.bench(backbone, head, prompts, plan, ceilings)
    result["model"] = args.shape or str(args.backbone)
    return result, [f"{result['model']}:", *bench.lines(result)]


def _batches(text: str) -> list[int]:
    try:
        sizes = [int(part) for part in text.split(",")]
    except ValueError:
        sizes = [0]
    if min(sizes) < 1 or max(sizes) > MOST:
        raise UserError(
            f"--batch {text!r}: whole numbers of at least 1, at most {MOST}: such as 1,16"
        )
    return sizes


def _mode(text: str) -> tuple[str, Mode]:
    """A mode from "name,knob=value,...", under that text as its label."""
    from mrp.decoding import make_mode

    name, *knobs = text.split(",")
    options: dict[str, Any] = {}
    for knob in knobs:
        key, equals, value = knob.partition("=")
        if not equals:
            raise UserError(f"--mode {text!r}: {knob!r} must read KNOB=VALUE, such as k=3")
        if key in options:
            raise UserError(f"--mode {text!r}: {key} is given twice: leave one of the two out")
        options[key] = _value(value)
    return text, make_mode(name, **options)


def _value(text: str) -> bool | int | float | str:
    if text in ("true", "false"):
        return text == "true"
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text


def _prompts(path: Path, backbone: Path) -> list[list[int]]:
    """The prompts of a jsonl file through the backbone's chat template."""
    from mrp.evaluation.tokenizer import load_tokenizer

    tokenizer = load_tokenizer(backbone)
    prompts = []
    try:
        written = [line for line in path.read_text("utf-8").split("\n") if line.strip()]
        for line in written:
            message = {"role": "user", "content": json.loads(line)["prompt"]}
            text = tokenizer.apply_chat_template(
                [message], add_generation_prompt=True, tokenize=False
            )
            ids = tokenizer(text, add_special_tokens=False)["input_ids"]
            prompts.append([int(i) for i in ids])
    except OSError as error:
        raise UserError(f"--prompts {path}: {error.strerror}: give a jsonl file") from None
    except (ValueError, KeyError, TypeError):
        raise UserError(
            f'--prompts {path}: line {len(prompts) + 1} is no JSON object with a "prompt": mend it'
        ) from None
    if not prompts:
        raise UserError(f"--prompts {path}: it is empty: give at least one line")
    return prompts
