"""Runs command lines of the documentation in one process, for which torch is loaded once.

    python -m tests.docs.run_commands LINE...

`snakemake --config suite=NAME` runs the commands of the workflow's rules one after another; the
real one is run by tests marked slow.
"""

from __future__ import annotations

import runpy
import shlex
import sys

import torch

from mrp import cli, grid
from mrp.schema import GENERATED


def run(line: str) -> None:
    """Run one line; a failure ends the process."""
    program, *arguments = shlex.split(line)
    if program == "python":
        runpy.run_path(arguments[0])
    elif program == "snakemake":
        workflow(arguments[-1].removeprefix("suite="))
    else:
        assert program == "mrp", line
        mrp(*arguments)


def mrp(*arguments: object) -> None:
    """One `mrp` command."""
    code = cli.main([str(argument) for argument in arguments])
    if code:
        sys.exit(code)


def workflow(name: str) -> None:
    """What the rules do for a suite whose backbones have a path."""
    suite = grid.load_suite(name)
    layout = grid.Layout(suite)
    file = grid.suite_file(name)
    if any(task in GENERATED for group in suite.tasks for task in group):
        mrp("data", "--suite", file, "--out", layout.data_dir)
    for backbone in suite.backbones:
        path = layout.backbone_path(backbone)
        for head, spec in suite.heads.items():
            if spec.source() == "trained":
                out = layout.trained_head_dir(backbone, head)
                which = ("--suite", file, "--backbone", backbone, "--head", head)
                mrp("train-head", *which, "--backbone-path", path, "--out", out)
    for job in grid.jobs(suite):
        heads = shlex.split(layout.head_option(job))
        data, out = layout.task_data_dir(job.tasks), layout.run_dir(job.id)
        which = ("--suite", file, "--job", job.id, "--device", "cpu")
        path = layout.backbone_path(job.backbone)
        mrp("decode", *which, "--backbone-path", path, *heads, "--data", data, "--out", out)
    mrp("report", "tables", "--suite", file, "--out", f"results/{name}")


if __name__ == "__main__":
    torch.set_num_threads(1)
    for command in sys.argv[1:]:
        print(f"$ {command}", flush=True)
        run(command)
    print("all done")
