"""Hostile programs, and whether the sandbox contains them.

    python -m tests.evaluation.hostile      # N tried, N contained, in each isolation

Each program returns a wrong value and tries something forbidden on the way; what it manages to do
it says by ESCAPED. Contained means: no pass, no ESCAPED, no process left, nothing written or
connected outside, an end within the limit.
"""

from __future__ import annotations

import contextlib
import random
import socket
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from mrp.evaluation.sandbox import Isolation, bubblewrap_fault, run_program
from tests.evaluation.hostile_programs import CHEATS, ENDLESS, EXPLOSIONS, PROBES

TESTS = "assert f(1) == 2\nassert f(5) == 6\n"
MARK = "mrp-hostile"  # in the names of files that programs try to make
ENOUGH = 8.0  # seconds for what ends by itself, on a busy machine
SLACK = 20.0  # seconds from the limit to the end, on a busy machine


@dataclass(frozen=True)
class Hostile:
    """A program, the tests it must not pass, its time limit, and how it may end."""

    name: str
    source: str
    tests: str = TESTS
    timeout: float = ENOUGH
    ends: tuple[str, ...] = ("failed", "exited")


def hostile_programs() -> list[Hostile]:
    """All of them."""
    explosions = ("failed", "exited", "timeout", "output")
    return [
        *(Hostile(name, source) for name, source in CHEATS.items()),
        *(Hostile(name, source) for name, source in PROBES.items()),
        *(
            Hostile(name, source, "assert list(f(1)) == 2", 0.4, ("timeout",))
            for name, source in ENDLESS.items()
        ),
        *(Hostile(name, source, ends=explosions, timeout=1) for name, source in EXPLOSIONS.items()),
        Hostile(
            "the tests' loop is ended",
            "def f(x):\n    raise StopIteration",
            "assert all(map(lambda pair: f(pair[0]) == pair[1], [(1, 2)]))",
        ),
        Hostile(
            "an end where the tests expect an exception",
            "import os\ndef f(x):\n    os._exit(0)",
            "try:\n    f(1)\nexcept BaseException:\n    pass",
        ),
        Hostile(
            "the tests' list is emptied",
            "def f(xs):\n    xs.clear()\n    return []",
            "xs = [2, 1]\nassert f(xs) == sorted(xs)",
        ),
    ]


def escape(hostile: Hostile, isolation: Isolation) -> str:
    """Why the program was not contained, "" where it was."""
    # Stands on the command line of every process of this run, and of its forks.
    mark = hostile.timeout + random.random() / 1000
    with outside() as (folder, secret, port, reached):
        source = hostile.source.replace("@FOLDER@", str(folder)).replace("@PORT@", str(port))
        begun = time.monotonic()
        outcome = run_program(
            source,
            hostile.tests,
            ["f", "Node"],
            timeout=mark,
            memory_mb=512,
            isolation=isolation,
        )
        seconds = time.monotonic() - begun
        files = sorted(path.name for path in folder.iterdir())
        problems = {
            "it passed": outcome.passed,
            f"ended by {outcome.reason!r}": not outcome.reason.startswith(hostile.ends),
            f"it says {outcome.output[-300:]!r}": "ESCAPED" in outcome.output + outcome.reason,
            "a process is left": bool(processes_with(f'"cpu": {mark},')),
            f"files outside: {files}": files != ["secret"] or secret.read_text() != "key",
            "files are left": bool(left_files()),
            "the network was reached": reached(),
            f"it took {seconds:.1f} s": seconds > hostile.timeout + SLACK,
            "too much output was kept": len(outcome.output) > 10_000,
        }
    return "; ".join(problem for problem, is_there in problems.items() if is_there)


@contextlib.contextmanager
def outside() -> Iterator[tuple[Path, Path, int, object]]:
    """A folder with a secret, and a server, that no program may touch."""
    with tempfile.TemporaryDirectory() as name, socket.create_server(("127.0.0.1", 0)) as server:
        secret = Path(name) / "secret"
        secret.write_text("key")
        server.setblocking(False)

        def reached() -> bool:
            with contextlib.suppress(BlockingIOError):
                server.accept()[0].close()
                return True
            return False

        yield Path(name), secret, server.getsockname()[1], reached


def left_files() -> list[Path]:
    """What programs made in folders that everyone may write to."""
    folders = (Path("/tmp"), Path("/dev/shm"), Path("/var/tmp"), Path("/"), Path.cwd())
    return [path for folder in folders for path in folder.glob(f"{MARK}*")]


def processes_with(text: str) -> list[str]:
    """The command lines of the running processes that contain a text."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            found.append(path.read_bytes().decode(errors="replace"))
    return [command for command in found if text in command]


def main() -> int:
    """Try all; print the figures, and each that got out."""
    isolations: list[Isolation] = ["bubblewrap", "rlimits"]
    escaped = 0
    for isolation in isolations:
        if isolation == "bubblewrap" and bubblewrap_fault():
            print(f"bubblewrap: not here ({bubblewrap_fault()})")
            continue
        programs = hostile_programs()
        found = {hostile.name: escape(hostile, isolation) for hostile in programs}
        out = {name: why for name, why in found.items() if why}
        for name, why in out.items():
            print(f"  NOT CONTAINED: {name}: {why}")
        print(f"{isolation}: {len(found)} tried, {len(found) - len(out)} contained", flush=True)
        escaped += len(out)
    return 1 if escaped else 0


if __name__ == "__main__":
    sys.exit(main())
