"""The sub-commands of `mrp`, one module each.

A module has NAME and HELP (one line), `add_arguments(parser)` and `run(args)`. It imports torch and
other slow libraries inside `run` only, so that `mrp --help` answers at once.
"""

from __future__ import annotations

import argparse
import importlib
from typing import Protocol, cast

MODULES = (
    "grid",
    "status",
    "data",
    "train_backbone",
    "train_head",
    "decode",
    "report",
    "compare",
    "fetch",
    "export",
    "pack",
    "unpack",
    "score",
    "eval",
    "tune",
    "bench",
    "generate",
    "version",
)


class Command(Protocol):
    """What a command's module offers."""

    NAME: str
    HELP: str

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Declare the command's arguments."""

    def run(self, args: argparse.Namespace) -> None:
        """Do it; raises UserError for a mistake in the input."""


def load_commands() -> list[Command]:
    """The commands in the order of the help."""
    return [cast(Command, importlib.import_module(f"mrp.commands.{module}")) for module in MODULES]
