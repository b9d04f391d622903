"""`mrp export`: a backbone and a head in the layout of the released checkpoints."""

from __future__ import annotations

import argparse
from pathlib import Path

NAME = "export"
HELP = "write a backbone and a head as one repository in the layout of the released checkpoints"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument(
        "--backbone",
        required=True,
        metavar="DIR|ID",
        help="the backbone with its tokenizer: a directory, or a hub id that was fetched",
    )
    parser.add_argument(
        "--head", required=True, metavar="DIR|ID", help="the head that was trained on it, likewise"
    )
    parser.add_argument(
        "--out", type=Path, required=True, metavar="DIR", help="where to: a new directory"
    )
    parser.add_argument(
        "--dtype", default="bfloat16", help="float32, bfloat16 or float16 (default: %(default)s)"
    )
    parser.add_argument(
        "--max-shard-size",
        default="5GB",
        metavar="SIZE",
        help="largest weight file, such as 5GB or 500MB (default: %(default)s)",
    )


def run(args: argparse.Namespace) -> None:
    """Export and say what was written."""
    from mrp.export import export
    from mrp.io import human_size

    done = export(args.backbone, args.head, args.out, args.dtype, args.max_shard_size)
    print(
        f"{args.out}: {done['tensors']} tensors, {human_size(done['bytes'])} of {args.dtype} in "
        f"{done['shards']} shards"
    )
