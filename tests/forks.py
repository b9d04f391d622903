"""Programs that start as forks of a process which has their libraries loaded.

    done = snakemake(["-n", "--config", "suite=micro"], folder, environment)
    done = snakemake(["--cores", "2"], folder, environment, jobs=True)   # and each `mrp` of it

A short command spends most of its time on importing Snakemake or torch. Here one process of the
whole test session has done that, all workers of pytest share it, and it ends with the last of them.
Nothing of mrp is imported before the fork: each command is a process of its own, which reads the
source of its own PYTHONPATH in its own folder and environment.
"""

from __future__ import annotations

import contextlib
import fcntl
import functools
import gc
import importlib
import json
import os
import runpy
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

# What is loaded before the fork, by the program that it is for.
LIBRARIES = {
    "snakemake": (
        *("snakemake.cli", "snakemake.dag", "snakemake.report", "snakemake.workflow"),
        *("numpy", "pydantic", "smart_open", "yaml"),
    ),
    "mrp.cli": (
        *("torch", "torch._dynamo", "lm_eval.api.task", "pandas", "pydantic", "yaml", "jinja2"),
        *("transformers.models.auto.tokenization_auto", "safetensors.torch", "math_verify"),
        *(
            "matplotlib.pyplot",
            "matplotlib.backends.backend_pdf",
            "matplotlib.backends.backend_svg",
        ),
    ),
}

# One thread each; `--threads` of a job sets another number of torch's.
THREADS = {f"{name}_NUM_THREADS": "1" for name in ("OMP", "MKL", "OPENBLAS", "RAYON")}
STARTED: list[subprocess.Popen[bytes]] = []  # by this process; they end by themselves


def snakemake(
    words: Sequence[str], folder: Path, environment: Mapping[str, str], jobs: bool = False
) -> subprocess.CompletedProcess[str]:
    """`python -m snakemake` with these words in `folder`; stdout and stderr come together.

    `jobs`: the `mrp` commands that it starts are forks, too.
    """
    # The Snakefile takes the `mrp` beside its Python.
    python = os.path.join(commands(server("mrp.cli")), "python") if jobs else sys.executable
    with tempfile.TemporaryFile() as output, open(os.devnull) as nothing:
        files = (nothing.fileno(), output.fileno(), output.fileno())
        where = server("snakemake")
        code = ask(where, "snakemake", words, files, os.fspath(folder), environment, python)
        output.seek(0)
        return subprocess.CompletedProcess([*words], code, output.read().decode())


def ask(
    where: str,
    program: str,
    words: Sequence[str],
    files: Sequence[int] = (0, 1, 2),
    folder: str | None = None,
    environment: Mapping[str, str] = os.environ,
    python: str = sys.executable,
) -> int:
    """Run a program in a fork and wait for it; its exit code, negative for a signal's number.

    Args:
        where: the socket of the process that forks.
        program: a module, run as by `python -m`.
        words: its arguments.
        files: its stdin, stdout and stderr.
        folder: its working directory; ours without.
        environment: its environment.
        python: what it takes for the path of its Python.
    """
    request = [program, words, folder or os.getcwd(), dict(environment), python]
    with socket.socket(socket.AF_UNIX) as wire:
        wire.settimeout(600)
        wire.connect(where)
        socket.send_fds(wire, [b"?"], files)
        wire.sendall(json.dumps(request).encode())
        wire.shutdown(socket.SHUT_WR)
        answer = wire.makefile().read()
    return int(answer) if answer else 1


@functools.cache
def server(program: str) -> str:
    """The socket of the process that forks for `program`; the first that asks starts it."""
    session = os.environ.get("PYTEST_XDIST_TESTRUNUID", str(os.getpid()))
    place = os.path.join(tempfile.gettempdir(), f"forks-{session}-{program}")
    with open(f"{place}.lock", "w") as starting:
        fcntl.flock(starting, fcntl.LOCK_EX)
        alive = os.open(f"{place}.users", os.O_RDONLY | os.O_CREAT)
        fcntl.flock(alive, fcntl.LOCK_SH)  # as long as this process lives
        with socket.socket(socket.AF_UNIX) as wire:
            if not wire.connect_ex(place):
                return place
        command = [sys.executable, "-P", __file__, program, place]
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            env={**os.environ, **THREADS},
        )
        STARTED.append(process)
        assert process.stdout is not None
        assert process.stdout.read(1) == b"!", f"{command} did not start"
    return place


# ---- the process that forks ----------------------------------------------------------------------


def commands(place: str) -> str:
    """The folder of the command `mrp` whose processes are forks."""
    return f"{place}.bin"


def write_command(place: str) -> None:
    """Write that command."""
    file = Path(commands(place), "mrp")
    file.parent.mkdir(exist_ok=True)
    file.write_text(
        f"#!{sys.executable} -IS\n"
        f"import sys\nsys.path.insert(0, {os.path.dirname(__file__)!r})\n"
        f"import forks\nsys.exit(forks.ask({place!r}, 'mrp.cli', sys.argv[1:]))\n"
    )
    file.chmod(0o755)


def serve(listener: socket.socket, place: str) -> tuple[Any, list[int]]:
    """Fork for each that asks; returns in the fork alone: what is asked, and its three files."""
    listener.settimeout(1)
    while True:
        with contextlib.suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        try:
            wire, _ = listener.accept()
        except TimeoutError:
            if is_unused(place):
                os._exit(0)
            continue
        if os.fork():
            wire.close()
            continue
        listener.close()
        wire.setblocking(True)
        _, files, *_ = socket.recv_fds(wire, 1, 3)
        asked = wire.makefile("rb").read()
        if not asked:
            os._exit(0)
        child = os.fork()
        if not child:
            wire.close()
            return json.loads(asked), files
        for file in files:
            os.close(file)
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        wire.sendall(str(code).encode())
        os._exit(0)


def is_unused(place: str) -> bool:
    """Whether all who could ask have ended; then this takes the files away."""
    with open(f"{place}.lock") as starting, open(f"{place}.users") as users:
        try:
            for file in (starting, users):
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        for name in (place, f"{place}.users", f"{place}.lock"):
            os.unlink(name)
        shutil.rmtree(commands(place), ignore_errors=True)
        return True


def main() -> None:
    """Load a program's libraries, and be each of the forks."""
    program, place = sys.argv[1:]
    for library in LIBRARIES[program]:
        importlib.import_module(library)
    if program == "snakemake":
        from snakemake.cli import get_argument_parser

        get_argument_parser()  # loads the plugins
    else:
        write_command(place)
    assert "mrp" not in sys.modules
    gc.collect()
    gc.freeze()  # or a collection in a fork would copy all of it
    listener = socket.socket(socket.AF_UNIX)
    Path(place).unlink(missing_ok=True)
    listener.bind(place)
    listener.listen(64)
    os.write(1, b"!")
    os.dup2(2, 1)

    (program, words, folder, environment, python), files = serve(listener, place)
    for number, file in enumerate(files):
        os.dup2(file, number)
        os.close(file)
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    time.tzset()
    sys.path[:0] = environment.get("PYTHONPATH", "").split(os.pathsep)
    sys.argv, sys.executable = [program, *words], python
    runpy.run_module(program, run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
