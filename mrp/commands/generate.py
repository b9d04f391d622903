"""`mrp generate`: try one prompt, and see who revealed which token when."""

from __future__ import annotations

import argparse
import sys

from mrp.commands.decoding_options import add_decoding_arguments, backbone_path, knobs
from mrp.errors import UserError

NAME = "generate"
HELP = "answer one prompt; --trace shows which step revealed each token, and who"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument("prompt", help="the user's message; - reads it from standard input")
    add_decoding_arguments(parser)
    group = parser.add_argument_group("output")
    group.add_argument(
        "--max-new-tokens",
        type=int,
        default=112,
        metavar="N",
        help="the answer's longest length (default: %(default)s)",
    )
    group.add_argument(
        "--trace",
        action="store_true",
        help="show for every token the round that revealed it, who did, and how often it was "
        "masked again",
    )


def run(args: argparse.Namespace) -> None:
    """Decode and print."""
    from mrp.leases import lease

    text = _prompt(args.prompt)
    with lease(args.device) as device:
        _generate(args, text, device)


def _prompt(given: str) -> str:
    """The prompt, from standard input where `-` is given.

    Raises:
        UserError: it is blank or no UTF-8.
    """
    try:
        text = sys.stdin.read().removesuffix("\n") if given == "-" else given
        text.encode()
    except UnicodeError as error:
        raise UserError(f"prompt: no UTF-8 ({error}): convert it, e.g. with iconv") from None
    if not text.strip():
        raise UserError("prompt: it is empty: write what the model is to answer")
    return text


def _generate(args: argparse.Namespace, text: str, device: str) -> None:
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
        invariant=args.invariant,
        head_variant=args.head_variant,
        **knobs(args),
    )
    strange = model.unknown(text)
    if strange is not None:
        raise UserError(
            f"prompt: the tokenizer of {model.backbone_path} does not know {strange!r}: write it "
            "in other characters"
        )
    request = model.request(model.apply_chat_template([{"role": "user", "content": text}]), {})
    outcome = model.answer([request])[0]
    print(outcome.text)
    if args.trace:
        tokens = [model.tokenizer.decode([token]) for token in outcome.decoded.trace.ids]
        block_size = model.backbone.config.block_size
        first_block = block_size - len(request.prompt) % block_size
        show_trace(Console(), outcome.decoded, tokens, first_block, block_size)
