"""`mrp version`: what is installed."""

from __future__ import annotations

import argparse
import importlib.metadata
import platform

from mrp import __version__

NAME = "version"
HELP = "print the versions of mrp, Python and the libraries that results depend on"

LIBRARIES = (
    "torch",
    "transformers",
    "safetensors",
    "numpy",
    "lm-eval",
    "datasets",
    "snakemake",
    "triton",
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """It takes none."""


def run(args: argparse.Namespace) -> None:
    """Print a line for each."""
    print(f"mrp {__version__}")
    print(f"python {platform.python_version()}")
    for library in LIBRARIES:
        try:
            print(library, importlib.metadata.version(library))
        except importlib.metadata.PackageNotFoundError:
            print(library, "not installed")
