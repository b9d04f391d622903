"""Runs a program nobody has read against tests, so that it can neither harm nor cheat.

Two processes, each in its own container. The *candidate* loads the program. The *judge* runs the
tests; to it, the program's functions are stand-ins that send arguments over a pipe and get plain
data back (`mrp.evaluation.guest`). The program never shares a process with the tests, their
comparisons, or the verdict, which the judge writes into a pipe of its own together with a random
token that only this process and the judge know.

Covered, so that none of it passes, hangs or leaves anything behind:

* ending early (`os._exit(0)`, `sys.exit`, signals, crashes, `atexit`): no verdict, or a failed one;
* cheating: printing or writing a pass, replacing `print`, `assert`'s exception, `builtins`, the
  checker or the standard library, walking frames, `gc` or its own source for the token or the
  tests, objects that equal everything (a result is equal by its data or not at all), emptying
  the tests' lists (arguments are copies), ending the tests' loops with StopIteration;
* never ending: CPU and wall time, with SIGKILL; ignored signals and deep sleeps change nothing;
* memory (address space), output (kept and total), open files, file size, core dumps;
* processes: a system call filter denies new ones (threads are allowed), so no child can survive,
  and outliving this one; it also denies sockets, signals to others, tracing, and shared memory that
  outlives a process;
* files: with bubblewrap only the interpreter and its libraries exist, read-only, with a small
  private /tmp and an empty environment; without it, Landlock allows the same reads and no write,
  and the filter no change of owners, modes, times and attributes. (That a path exists can be told.)

Not covered: faults of the kernel or the interpreter; a program that computes its answer from the
questions (the tests' arguments are visible to it, their expected values are not), or finds it in an
installed package; one core kept busy until the limit. Without bubblewrap everything rests on the
filter, Landlock and the limits; `Outcome.note` names each that the system lacks (without Landlock,
say, the host's files are as readable as they are to the user). As root without the filter nothing
is run.

Not the same as one shared process: tests see no changes a program makes to its arguments, cannot
pass functions or objects of their own, and an object of the program equals only itself.
"""

from __future__ import annotations

import json
import logging
import os
import secrets
import selectors
import shutil
import signal
import subprocess
import sys
import sysconfig
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import IO, Any, Literal

from mrp.errors import UserError

# Imported for their byte code, which the guests find and could not write themselves.
from mrp.evaluation.guest import candidate as _candidate  # noqa: F401
from mrp.evaluation.guest import judge as _judge  # noqa: F401

logger = logging.getLogger(__name__)

Isolation = Literal["bubblewrap", "rlimits"]

GUEST = Path(__file__).parent / "guest"
INSIDE = "/sandbox"  # where bubblewrap shows the guest's code
START_SECONDS = 60.0  # for two interpreters on a busy machine; counts towards no program's time
SCRATCH_BYTES = 16_000_000  # of the private /tmp, and of one file in it
KEPT_OUTPUT = 10_000  # bytes of output in the outcome


@dataclass(frozen=True)
class Outcome:
    """What became of a program.

    `reason` is "passed" or one line that starts with failed, exited, timeout or output. `output`
    is the start of what program and tests printed. `note` is empty, or says what protects less
    than bubblewrap does.
    """

    passed: bool
    reason: str
    output: str
    isolation: Isolation
    note: str


def run_program(
    source: str,
    tests: str,
    names: Sequence[str],
    *,
    timeout: float,
    memory_mb: int = 1024,
    setup: str = "",
    output_bytes: int = 1_000_000,
    isolation: Isolation | None = None,
) -> Outcome:
    """Load `source`, then run `tests` against it.

    Args:
        source: the untrusted program.
        tests: Python that raises (usually `assert`) where the program is wrong.
        names: what the tests take from the program; every other name is the tests' own.
        timeout: seconds of wall time from the start of loading; also the limit of CPU time.
        memory_mb: address space of either process.
        setup: trusted Python that runs before the tests and beside them: imports, helpers.
        output_bytes: a program that prints more fails.
        isolation: force one; None takes bubblewrap where it works.

    Raises:
        UserError: bubblewrap is asked for and does not work, or no isolation can be set up.
        ValueError: the tests or the setup are broken, or no names are given.
    """
    if not names or not tests.strip():
        raise ValueError("a program without tests, or tests without a name of it, prove nothing")
    fault = bubblewrap_fault()
    if isolation == "bubblewrap" and fault:
        raise UserError(f"isolation 'bubblewrap' does not work here ({fault}): choose 'rlimits'")
    chosen: Isolation = isolation or ("rlimits" if fault else "bubblewrap")
    token = secrets.token_hex(16)
    case = {
        "program": source,
        "tests": tests,
        "setup": setup,
        "names": list(names),
        "token": token,
    }
    with started(chosen, case, timeout, memory_mb) as pair:
        run = Supervision(pair, token, timeout, output_bytes)
        passed, reason = run.verdict()
    return Outcome(passed, reason, run.text(), chosen, note(chosen, fault, run.missing))


def note(isolation: Isolation, fault: str, missing: Sequence[str]) -> str:
    """What protects less than it could, for the record; also a warning, once a process."""
    parts = []
    if isolation == "rlimits":
        parts.append(f"programs ran WITHOUT bubblewrap ({fault or 'not asked for'})")
    if missing:
        parts.append(f"missing here: {', '.join(sorted(set(missing)))}")
    text = "; ".join(parts)
    if text:
        warn_once(text)
    return text


@lru_cache
def warn_once(text: str) -> None:
    """Log a warning that was not logged before."""
    logger.warning("sandbox: %s", text)


# The two processes


@dataclass
class Pair:
    """The started processes, and the ends of their pipes that this process reads."""

    candidate: subprocess.Popen[bytes]
    judge: subprocess.Popen[bytes]
    output: IO[bytes]
    verdicts: IO[bytes]

    def kill(self) -> None:
        """End both, whatever they do."""
        for process in (self.candidate, self.judge):
            # The group is this process's own: it was started as the leader of a new session.
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()


@contextmanager
def started(
    isolation: Isolation, case: dict[str, Any], timeout: float, memory_mb: int
) -> Iterator[Pair]:
    """Start candidate and judge with pipes between them; nothing is left of them afterwards."""
    with tempfile.TemporaryFile() as stored:
        stored.write(json.dumps(case).encode())
        stored.seek(0)
        request_out, request_in = os.pipe()
        reply_out, reply_in = os.pipe()
        output_out, output_in = os.pipe()
        inner = [request_out, request_in, reply_out, reply_in, output_in]
        settings = guest_settings(isolation, timeout, memory_mb)
        processes: list[subprocess.Popen[bytes]] = []
        try:
            candidate = start(
                isolation, "candidate", settings, stdin=request_out, stdout=reply_in,
                stderr=output_in,
            )  # fmt: skip
            processes.append(candidate)
            ends = {"incoming": reply_out, "outgoing": request_in}
            judge = start(
                isolation, "judge", settings | ends, stdin=stored, stdout=subprocess.PIPE,
                stderr=output_in, pass_fds=tuple(ends.values()),
            )  # fmt: skip
        except BaseException:
            os.close(output_out)
            for process in processes:
                process.kill()
                process.wait()
            raise
        finally:
            # With our copies closed, a process's end is seen as the end of its pipes.
            for end in inner:
                os.close(end)
    assert judge.stdout is not None
    with open(output_out, "rb", buffering=0) as output, judge.stdout:
        pair = Pair(candidate, judge, output, judge.stdout)
        try:
            yield pair
        finally:
            pair.kill()
            wait_for_end(output)


def start(
    isolation: Isolation, role: str, settings: dict[str, Any], **streams: Any
) -> subprocess.Popen[bytes]:
    """Start one guest process as the leader of its own session, with a cleared environment."""
    command = [*guest_python(isolation, role), json.dumps(settings)]
    if isolation == "bubblewrap":
        command = [*bubblewrap_command(), "--", *command]
    return subprocess.Popen(
        command, cwd="/", env=environment(), start_new_session=True, close_fds=True, **streams
    )


def wait_for_end(output: IO[bytes], seconds: float = 10.0) -> None:
    """Wait until nobody holds the output pipe any more: the killed processes are gone."""
    with selectors.DefaultSelector() as ready:
        ready.register(output, selectors.EVENT_READ)
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            if ready.select(0.1) and not os.read(output.fileno(), 1 << 16):
                return
    logger.warning("sandbox: a killed program still holds its output after %g s", seconds)


def guest_python(isolation: Isolation, role: str) -> list[str]:
    """The interpreter's command line: no site, no user paths, unbuffered (a kill loses nothing)."""
    home = INSIDE if isolation == "bubblewrap" else str(GUEST.parent)
    code = f"import sys; sys.path.append({home!r}); from guest.{role} import main; main()"
    return [os.path.realpath(sys.executable), "-P", "-s", "-S", "-B", "-u", "-c", code]


def guest_settings(isolation: Isolation, timeout: float, memory_mb: int) -> dict[str, Any]:
    """What a guest process confines itself to."""
    outer = isolation == "bubblewrap"
    return {
        "memory": memory_mb << 20,
        "cpu": timeout,
        # No container, no private directory: then nothing at all may be written.
        "file_bytes": SCRATCH_BYTES if outer else 0,
        "readable": [*python_paths(), "/dev/null", "/dev/zero", "/dev/urandom"],
        "writable": ["/dev/null", "/tmp"] if outer else ["/dev/null"],
        "root": os.getuid() == 0,
        "own": [INSIDE if outer else str(GUEST.parent)],
        "packages": package_paths(),
    }


def environment() -> dict[str, str]:
    """The whole environment of a program: nothing of ours, and the same order of sets each run."""
    threads = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
    fixed = {"LANG": "C.UTF-8", "HOME": "/tmp", "TMPDIR": "/tmp", "PYTHONHASHSEED": "0"}
    return fixed | dict.fromkeys(threads, "1")


# Bubblewrap


@lru_cache
def bubblewrap_fault() -> str:
    """Why bubblewrap cannot be used, in a few words; "" where it works (tried once a process)."""
    if shutil.which("bwrap") is None:
        return "bwrap is not installed"
    code = [*guest_python("bubblewrap", "judge")[:-1], "import json, ctypes, resource"]
    command = [*bubblewrap_command(), "--", *code]
    try:
        tried = subprocess.run(
            command, env=environment(), capture_output=True, text=True, timeout=START_SECONDS
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return str(error)
    return "" if tried.returncode == 0 else f"bwrap: {tried.stderr.strip()[-200:]}"


def bubblewrap_command() -> list[str]:
    """The container: nothing shared, no capability, no /proc, only Python's files, read-only."""
    binds = [part for path in python_paths() for part in ("--ro-bind", path, path)]
    devices = [f"/dev/{name}" for name in ("null", "zero", "urandom")]
    size = str(SCRATCH_BYTES)
    return [
        shutil.which("bwrap") or "bwrap",
        "--unshare-all", "--unshare-user", "--die-with-parent", "--new-session", "--clearenv",
        *(part for pair in environment().items() for part in ("--setenv", *pair)),
        "--uid", "65534", "--gid", "65534", "--hostname", "sandbox", "--cap-drop", "ALL",
        # Before the binds: an environment under /tmp must not be hidden by the private one.
        "--size", size, "--tmpfs", "/tmp",
        *binds, "--ro-bind", str(GUEST), f"{INSIDE}/guest",
        *(part for device in devices for part in ("--dev-bind", device, device)),
        "--chdir", "/tmp", "--remount-ro", "/",
    ]  # fmt: skip


@lru_cache
def python_paths() -> tuple[str, ...]:
    """The files an interpreter needs: itself, its library, the system's libraries, packages."""
    base = Path(sys.base_prefix)
    wanted = [
        Path(os.path.realpath(sys.executable)),
        *(base / name for name in ("lib", "lib64")),
        *(Path(sysconfig.get_paths()[key]) for key in ("stdlib", "platstdlib")),
        *(Path(name) for name in ("/lib", "/lib64", "/usr/lib", "/usr/lib64")),
        *(Path(name) for name in ("/etc/ld.so.cache", "/usr/share/zoneinfo")),
        *(Path(name) for name in package_paths()),
    ]
    return tuple(dict.fromkeys(str(path) for path in wanted if path.exists()))


@lru_cache
def package_paths() -> list[str]:
    """Where installed packages lie, for programs that use NumPy; without their start-up files."""
    paths = sysconfig.get_paths()
    return list(dict.fromkeys(paths[key] for key in ("purelib", "platlib")))


# Supervision


class Supervision:
    """Watches a running pair: the judge's messages, the output, the clock."""

    def __init__(self, pair: Pair, token: str, timeout: float, output_bytes: int) -> None:
        self.pair = pair
        self.token = token
        self.timeout = timeout
        self.output_bytes = output_bytes
        self.output = bytearray()
        self.printed = 0
        self.missing: list[str] = []
        self._messages = bytearray()

    def verdict(self) -> tuple[bool, str]:
        """Wait for the verdict, the time limit or the output limit: (passed, reason).

        Raises:
            UserError: the processes cannot be set up.
            ValueError: the tests are broken.
        """
        with selectors.DefaultSelector() as ready:
            ready.register(self.pair.output, selectors.EVENT_READ, self._read_output)
            ready.register(self.pair.verdicts, selectors.EVENT_READ, self._read_messages)
            start = self._next(ready, time.monotonic() + START_SECONDS)
            if "missing" not in start:
                lines = self.text().strip().splitlines() or [str(start["stopped"])]
                raise UserError(f"the sandbox does not start: {lines[-1][:300]}")
            self.missing = start["missing"]
            message = self._next(ready, time.monotonic() + self.timeout)
        if "broken" in message:
            raise ValueError(f"the tests themselves are broken: {message['broken']}")
        if "stopped" in message:
            return False, message["stopped"]
        passed = message.get("passed") is True and message.get("token") == self.token
        return passed, message["reason"]

    def _next(self, ready: selectors.BaseSelector, deadline: float) -> dict[str, Any]:
        """The judge's next message, or {"stopped": why there is none}."""
        while b"\n" not in self._messages:
            left = deadline - time.monotonic()
            if left <= 0:
                return {"stopped": f"timeout: longer than {self.timeout:g} s"}
            for key, _ in ready.select(left):
                if not key.data():
                    ready.unregister(key.fileobj)
                    if key.fileobj is self.pair.verdicts:
                        return {"stopped": "exited: the tests ended without a verdict"}
            if self.printed > self.output_bytes:
                return {"stopped": f"output: more than {self.output_bytes} bytes"}
        line, _, rest = bytes(self._messages).partition(b"\n")
        self._messages = bytearray(rest)
        message: dict[str, Any] = json.loads(line)
        return message

    def _read_output(self) -> bool:
        """Take what was printed, keep its start; False at the end."""
        part = os.read(self.pair.output.fileno(), 1 << 16)
        self.printed += len(part)
        self.output += part[: KEPT_OUTPUT - len(self.output)]
        return bool(part)

    def _read_messages(self) -> bool:
        """Take what the judge wrote; False at the end."""
        part = os.read(self.pair.verdicts.fileno(), 1 << 16)
        self._messages += part
        return bool(part)

    def text(self) -> str:
        """The kept output."""
        return self.output.decode(errors="replace")
