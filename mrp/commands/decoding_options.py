"""The arguments that several commands share: checkpoints, mode and its knobs."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import mrp
from mrp.errors import UserError


def add_checkpoint_arguments(parser: argparse.ArgumentParser, many_heads: bool = False) -> None:
    """Add --backbone, --head (as often as one likes with `many_heads`), --device and --dtype."""
    group = parser.add_argument_group("checkpoints")
    group.add_argument(
        "--backbone",
        type=Path,
        metavar="DIR|ID",
        help="backbone checkpoint with its tokenizer: a directory, or a hub id "
        "owner/name[@revision] that was fetched (default: the shipped embedded one)",
    )
    group.add_argument(
        "--head",
        type=Path,
        metavar="DIR|ID",
        action="append" if many_heads else "store",
        help="head checkpoint, likewise, for direct, speculative, lattice, remask"
        + ("; may be repeated" if many_heads else ""),
    )
    group.add_argument(
        "--head-variant",
        choices=("default", "k2", "direct"),
        metavar="WHICH",
        help="how the head was trained, default, k2 or direct, where its checkpoint does not say, "
        "as released ones do not (a direct head's output replaces the hidden state)",
    )
    group.add_argument(
        "--device", default="auto", help="auto, cpu, cuda or cuda:N (default: %(default)s)"
    )
    group.add_argument(
        "--dtype", default="float32", help="float32, bfloat16 or float16 (default: %(default)s)"
    )


def add_decoding_arguments(parser: argparse.ArgumentParser) -> None:
    """Add --backbone, --head, --mode, the modes' knobs, --device and --dtype."""
    add_checkpoint_arguments(parser)
    group = parser.add_argument_group("decoding")
    group.add_argument(
        "--mode",
        default="static",
        help="static, dynamic, direct, speculative, self_speculative, lattice, self_lattice, "
        "remask, or a rival without a head: factor, entropy, klass, wino, freedave "
        "(default: static)",
    )
    group.add_argument(
        "--k",
        type=_k,
        help="picks a round after the backbone's own, 1 to block length - 1; auto: what pays "
        "(direct, freedave, all speculative and lattice modes; auto: speculative and "
        "self_speculative only)",
    )
    group.add_argument(
        "--tau",
        type=float,
        help="confidence threshold, above 0 and below 1 (dynamic, remask, klass, wino, freedave)",
    )
    group.add_argument(
        "--steps",
        type=int,
        help="denoising steps a block, 1 to block length (static; default: block length)",
    )
    group.add_argument(
        "--scale",
        type=float,
        help="factor on each correction, above 0 (direct, speculative, lattice; default: 1)",
    )
    group.add_argument(
        "--condition",
        help="what the head reads: revealed or masked, the latter not with --passes halves "
        "(remask; default: revealed)",
    )
    group.add_argument(
        "--rule",
        help="what vetoes a token: confidence or residual (remask; default: confidence)",
    )
    group.add_argument(
        "--delta", type=float, help="bound of --rule residual, above 0 (remask; default: 1)"
    )
    group.add_argument(
        "--floor",
        type=float,
        help="what a fresh token's corrected confidence must reach, at least 0 and below 1; "
        "only with --rule confidence (remask; default: 0, as --tau)",
    )
    group.add_argument(
        "--passes",
        help="how the head judges: one look at all fresh tokens, or halves, each with that half "
        "masked (remask; default: one)",
    )
    group.add_argument(
        "--prefix",
        action=argparse.BooleanOptionalAction,
        help="whether the head reads the text before the current block "
        "(direct, speculative, lattice, remask; default: --prefix)",
    )
    group.add_argument(
        "--cap",
        type=float,
        help="confidences above this tie and the leftmost comes first, 1e-6 to 1 "
        "(static, all speculative and lattice modes; default: 1, none)",
    )
    group.add_argument(
        "--window",
        type=int,
        metavar="W",
        help="how many of the drafts not yet taken the backbone may choose from, 1 (the chain) "
        "to 6, at most --k (lattice, self_lattice; default: 2)",
    )
    group.add_argument(
        "--ahead",
        action=argparse.BooleanOptionalAction,
        help="look at the next block while one is being finished, and draft its first tokens from "
        "that; not with --shortlist (lattice, self_lattice; default: --no-ahead)",
    )
    group.add_argument(
        "--budget",
        type=int,
        metavar="N",
        help="verify the N states that the backbone most likely arrives at, rivals of the first "
        "draft among them, in place of the window's; 2 at least, --k 6 at most, not with --window "
        "or --shortlist (lattice, self_lattice; default: 0, none)",
    )
    group.add_argument(
        "--head-passes",
        type=int,
        metavar="N",
        help="after N head passes, fewer than --k, a round takes the remaining drafts from the "
        "last one (speculative, lattice; default: 0, a pass for each draft)",
    )
    group.add_argument(
        "--shortlist",
        type=int,
        metavar="N",
        help="the head chooses among the backbone's N likeliest tokens of each position "
        "(direct, speculative, lattice; default: 0, the whole vocabulary)",
    )
    group.add_argument(
        "--invariant",
        action="store_true",
        help="products whose result for a block is the same, bit for bit, beside any others, so "
        "that lossless modes equal static decoding to the last near tie; slower on a GPU",
    )
    group = parser.add_argument_group("rivals")
    group.add_argument(
        "--factor",
        type=float,
        help="bound of (n + 1) (1 - confidence of the n-th surest), above 0 (factor)",
    )
    group.add_argument(
        "--gamma", type=float, help="budget of entropy a step, nats, above 0 (entropy)"
    )
    group.add_argument(
        "--kl",
        type=float,
        help="divergence from the step before below which a position is stable, nats, above 0 "
        "(klass; default: 0.01)",
    )
    group.add_argument(
        "--history", type=int, help="steps for which it has to be, at least 1 (klass; default: 2)"
    )
    group.add_argument(
        "--back",
        type=float,
        help="probability below which a token is taken back, at least 0 and below 1 "
        "(wino; default: 0.9)",
    )


def _k(text: str) -> int | str:
    """A number of picks, or "auto"."""
    try:
        return "auto" if text == "auto" else int(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is neither a whole number nor auto") from None


def knobs(args: argparse.Namespace) -> dict[str, Any]:
    """The knobs that were given.

    Raises:
        UserError: --delta without the rule that reads it, or --head-variant without a head.
    """
    from mrp.schema import OPTIONS

    if args.delta is not None and args.mode == "remask" and args.rule != "residual":
        raise UserError("--delta: only --rule residual uses it; add that or leave --delta out")
    if args.head_variant is not None and args.head is None:
        raise UserError(
            "--head-variant: says how --head was trained: add --head DIR or leave it out"
        )
    return {name: getattr(args, name) for name in OPTIONS if getattr(args, name) is not None}


def backbone_path(args: argparse.Namespace) -> Path:
    """--backbone, or the backbone shipped with the repository.

    Raises:
        UserError: neither is there.
    """
    if args.backbone is not None:
        return Path(args.backbone)
    shipped = Path(mrp.__file__).resolve().parents[1] / "assets" / "embedded" / "backbone"
    if not shipped.is_dir():
        raise UserError(f"--backbone is missing and {shipped} is not there: give --backbone DIR|ID")
    return shipped
