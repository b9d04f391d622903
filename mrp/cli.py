"""The `mrp` command: finds the sub-command, and turns failures into one line and an exit code.

Exit codes: 0 done, 1 the machine failed us (memory, disk), 2 a mistake in the input,
130 interrupted. Only `--debug` shows a traceback for those.
"""

from __future__ import annotations

import argparse
import errno
import logging
import os
import sys
import traceback
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NoReturn

from mrp import __version__
from mrp.commands import load_commands
from mrp.errors import UserError
from mrp.source import no_python

EXAMPLE = """\
examples:
  mrp grid --suite embedded                     what the workflow would decode
  mrp generate --mode speculative --k 3 --head assets/embedded/heads/S/k2 "(3*4)+(9+2)+(17-5)?"
  mrp eval --mode dynamic --tau 0.7 --limit 32  one cell of the grid by hand

The whole suite, tables and figures: snakemake
"""
# What torch and the libraries under it read when they are first imported.
THREAD_VARIABLES = (
    "OMP_NUM_THREADS",
    "MKL_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "RAYON_NUM_THREADS",
)
PATHS = ("DIR", "FILE", "DIR|ID")  # how the help calls the value of an option that takes a path

# Failures of the operating system that another path mends.
PATH_FIXES = {
    errno.ENOENT: "check the path",
    errno.EACCES: "change its rights or choose another path",
    errno.EPERM: "change its rights or choose another path",
    errno.EROFS: "choose another path",
    errno.EISDIR: "a file belongs here: move the folder away or choose another path",
    errno.ENOTDIR: "a folder belongs here: move the file away or choose another path",
    errno.EEXIST: "a folder belongs here: move the file away or choose another path",
    errno.ENAMETOOLONG: "choose a shorter path",
}


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code."""
    args = build_parser().parse_args(argv)
    logging.basicConfig(format="mrp: %(message)s", stream=sys.stderr)
    logging.getLogger("mrp").setLevel(logging.INFO)
    if args.threads is not None:
        for variable in THREAD_VARIABLES:
            os.environ[variable] = str(args.threads)
    try:
        args.run(args)
        if sys.stdout is not None:  # `mrp grid >&-`
            sys.stdout.flush()
    except BrokenPipeError:  # `mrp grid | head`: the reader has had enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except KeyboardInterrupt:
        print("mrp: interrupted", file=sys.stderr)
        return 130
    except Exception as error:
        line, code = explain(error, getattr(args, "out", None))
        if line is None or args.debug:
            raise
        print(f"mrp: error: {line}", file=sys.stderr)
        return code
    return 0


def explain(error: Exception, out: object = None) -> tuple[str | None, int]:
    """The line and exit code for a failure; (None, 1) for one that is a bug of ours.

    `out` is where the command writes: what an error of the disk is about if it names no file.
    """
    if isinstance(error, UserError):
        return str(error), 2
    if isinstance(error, SyntaxError):  # a mode or task of the user's own
        return no_python(error.filename or _raised_in(error), error), 2
    if isinstance(error, ImportError):
        fix = "correct the import, or install what is missing (`pip install -e .`)"
        return f"{_raised_in(error)}: {error}: {fix}", 2
    # torch's class by name: importing torch here would slow every command down.
    kind = type(error).__name__
    on_cpu = kind == "RuntimeError" and "DefaultCPUAllocator" in str(error)
    if kind == "OutOfMemoryError" or on_cpu or isinstance(error, MemoryError):
        return (
            "out of memory: lower batch_size (suite: decoding.batch_size or train.batch_size), "
            "or wait until the device is free",
            1,
        )
    if isinstance(error, OSError) and error.errno is not None:
        name = error.filename or out
        where = f"{name}: " if name else ""
        what = (error.strerror or "").lower()
        if error.errno in PATH_FIXES:
            return f"{where}{what}; {PATH_FIXES[error.errno]}", 2
        return f"{where}{what}; see to it and run the same command again", 1
    if (place := _unfinished(error)) is not None:
        fix = "import or define it there" if isinstance(error, NameError) else "correct it"
        return f"{place}: {error}: {fix}", 2
    return None, 1


def _unfinished(error: Exception) -> str | None:
    """The place in a file of mrp that cannot be imported, or uses a name that is not there.

    No file does as it comes; a mode, a task or a line in a registry of the user's own may.
    """
    frames = traceback.extract_tb(error.__traceback__)
    own = [each for each in frames if Path(each.filename).is_relative_to(Path(__file__).parent)]
    imported = [each for each in frames if each.name == "<module>"][-1:]
    named = frames[-1:] if type(error) is NameError else []
    if any(each in own for each in [*imported, *named]):
        return f"{own[-1].filename}, line {own[-1].lineno}"
    return None


def _raised_in(error: Exception) -> str:
    """The file and the line where it was raised."""
    frames = traceback.extract_tb(error.__traceback__)
    return f"{frames[-1].filename}, line {frames[-1].lineno}" if frames else "mrp"


def build_parser() -> argparse.ArgumentParser:
    """The parser of all sub-commands; imports nothing heavy."""
    parser = _Parser(
        prog="mrp",
        description="Multi-token Residual Prediction on block-diffusion language models: "
        "train heads, decode, evaluate, report.",
        epilog=EXAMPLE,
        formatter_class=_Wide,
    )
    parser.add_argument("--version", action="version", version=f"mrp {__version__}")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    for command in load_commands():
        child = commands.add_parser(
            command.NAME,
            help=command.HELP,
            description=f"{command.HELP[0].upper()}{command.HELP[1:]}.",
        )
        command.add_arguments(child)
        common = child.add_argument_group("common")
        common.add_argument(
            "--threads", type=positive, metavar="N", help="CPU threads (default: all cores)"
        )
        common.add_argument(
            "--debug", action="store_true", help="show a traceback in place of the one-line error"
        )
        child.set_defaults(run=command.run)
    return parser


class _Parser(argparse.ArgumentParser):
    """One line for a mistake, as everywhere else; the usage stands in the help."""

    def error(self, message: str) -> NoReturn:
        """Say what is wrong and exit with code 2."""
        self.exit(2, f"mrp: error: {message} (see `{self.prog} --help`)\n")

    def _get_value(self, action: argparse.Action, arg_string: str) -> Any:
        """The value of an argument. An empty path, as of a variable that is not set, is none.

        It would stand for the current folder.
        """
        if (action.type is Path or action.metavar in PATHS) and not arg_string.strip():
            raise argparse.ArgumentError(action, f"{arg_string!r} is an empty path: give one")
        return super()._get_value(action, arg_string)


class _Wide(argparse.RawDescriptionHelpFormatter):
    """A line for each command, the examples as they are written."""

    def __init__(self, prog: str) -> None:
        super().__init__(prog, max_help_position=22, width=100)
        self._action_max_length = 18  # the commands' names are indented twice


def positive(text: str) -> int:
    """An argument's value as an integer of at least 1."""
    value = int(text) if text.isdecimal() else 0
    if value < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is no whole number of at least 1")
    return value


if __name__ == "__main__":
    sys.exit(main())
