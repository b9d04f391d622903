"""`mrp generate`: try one prompt, and see who revealed which token when."""

from __future__ import annotations

import argparse

from mrp.commands.decoding_options import add_decoding_arguments, backbone_path, knobs

NAME = "generate"
HELP = "answer one prompt; --trace shows which step revealed each token, and who"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument("prompt", help="the user's message; - reads it from standard input")
    add_decoding_arguments(parser)
    group = parser.add_argument_group("output")
    group.add_argument("--max-new-tokens", type=int, default=112, help="(default: %(default)s)")
    group.add_argument(
        "--trace",
        action="store_true",
        help="show for every token the round that revealed it, who did, and how often it was "
        "masked again",
    )


def run(args: argparse.Namespace) -> None:
    """Decode and print."""
    from mrp.leases import lease

    with lease(args.device) as device:
        _generate(args, device)


def _generate(args: argparse.Namespace, device: str) -> None:
    import sys

    from rich.console import Console

    from mrp.evaluation.adapter import MRPModel
    from mrp.evaluation.trace import show_trace

    model = MRPModel(
        backbone_path(args),
        args.head,
        args.mode,
        batch_size=1,
        max_new_tokens=args.max_new_tokens,
        device=device,
        dtype=args.dtype,
        **knobs(args),
    )
    text = sys.stdin.read().removesuffix("\n") if args.prompt == "-" else args.prompt
    request = model.request(model.apply_chat_template([{"role": "user", "content": text}]), {})
    outcome = model.answer([request])[0]
    print(outcome.text)
    if args.trace:
        tokens = [model.tokenizer.decode([token]) for token in outcome.decoded.trace.ids]
        block_size = model.backbone.config.block_size
        first_block = block_size - len(request.prompt) % block_size
        show_trace(Console(), outcome.decoded, tokens, first_block, block_size)
