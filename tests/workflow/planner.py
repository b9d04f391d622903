"""Dry runs of Snakemake, each in a fork of one process that has it imported.

    done = dry_run(["-n", "--config", "suite=micro"], folder, environment)

A dry run spends most of its time on the start. Nothing of mrp is imported before the fork: each
reads the source of its own PYTHONPATH, as the command `snakemake` in `folder` would.
"""

from __future__ import annotations

import importlib
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from functools import cache
from pathlib import Path


def dry_run(
    words: list[str], folder: Path, environment: Mapping[str, str]
) -> subprocess.CompletedProcess[str]:
    """`snakemake` with these words in `folder`; stdout and stderr come together."""
    server = _server()
    assert server.stdin is not None
    assert server.stdout is not None
    server.stdin.write(json.dumps([words, str(folder), dict(environment)]) + "\n")
    server.stdin.flush()
    code, said = json.loads(server.stdout.readline())
    return subprocess.CompletedProcess(words, code, said)


@cache
def _server() -> subprocess.Popen[str]:
    """This file as a process; it ends with this one, which holds its stdin."""
    return subprocess.Popen(
        [sys.executable, "-P", __file__], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )


def serve() -> None:
    """A fork for each line of stdin; its exit code and output as a line on stdout."""
    from snakemake import cli

    for late in ("dag", "report", "workflow"):
        importlib.import_module(f"snakemake.{late}")
    for late in ("numpy", "pydantic", "smart_open", "yaml"):
        importlib.import_module(late)
    cli.get_argument_parser()  # loads the plugins
    assert "mrp" not in sys.modules
    for line in sys.stdin:
        words, folder, environment = json.loads(line)
        with tempfile.TemporaryFile() as output:
            child = os.fork()
            if not child:
                os.chdir(folder)
                os.environ.clear()
                os.environ.update(environment)
                sys.path[:0] = environment.get("PYTHONPATH", "").split(os.pathsep)
                sys.argv = ["snakemake", *words]
                for stream in (1, 2):
                    os.dup2(output.fileno(), stream)
                try:
                    cli.main(words)
                except SystemExit as end:
                    sys.stdout.flush()
                    sys.stderr.flush()
                    os._exit(int(end.code or 0))
                os._exit(70)
            code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
            output.seek(0)
            print(json.dumps([code, output.read().decode()]), flush=True)


if __name__ == "__main__":
    serve()
