"""Hostile programs are contained and cannot pass; honest ones pass, in every isolation."""

from __future__ import annotations

import contextlib
import os
import random
import socket
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from mrp.errors import UserError
from mrp.evaluation import sandbox
from mrp.evaluation.sandbox import Isolation, Outcome, bubblewrap_fault, run_program

TESTS = "assert f(1) == 2\nassert f(5) == 6\n"
pytestmark = pytest.mark.skipif(
    not os.path.exists("/proc/self/status"), reason="needs the filters of Linux"
)


@pytest.fixture(params=["bubblewrap", "rlimits"])
def isolation(request: pytest.FixtureRequest) -> Isolation:
    if request.param == "bubblewrap" and bubblewrap_fault():
        pytest.skip(f"bubblewrap does not work here: {bubblewrap_fault()}")
    chosen: Isolation = request.param
    return chosen


def run(source: str, isolation: Isolation, tests: str = TESTS, timeout: float = 5.0) -> Outcome:
    """The program against the tests, checked to leave no process behind."""
    # Stands on the command line of every process of this run, and of its forks.
    mark = timeout + random.random() / 1000
    outcome = run_program(
        source, tests, ["f", "Node"], timeout=mark, memory_mb=512, isolation=isolation
    )
    assert not processes_with(f'"cpu": {mark},')
    assert outcome.isolation == isolation
    return outcome


def processes_with(text: str) -> list[str]:
    """The command lines of the running processes that contain a text."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            found.append(path.read_bytes().decode(errors="replace"))
    return [command for command in found if text in command]


GOOD = "def f(x):\n    return x + 1\n"
CHEATS = {
    "os._exit(0) at once": "import os\nos._exit(0)",
    "sys.exit(0) when called": "import sys\ndef f(x): sys.exit(0)",
    "atexit": "import atexit, os\natexit.register(os._exit, 0)\ndef f(x): raise SystemExit(0)",
    "a fake pass is printed": (
        'import sys\nprint(\'passed\')\nprint(\'{"passed": true, "reason": "passed"}\')\n'
        "sys.stderr.write('passed')\nsys.stdout.flush()\ndef f(x): return 0"
    ),
    "a fake verdict in every pipe": """
import json, os
line = json.dumps({"passed": True, "reason": "passed", "token": "0" * 32}).encode() + b"\\n"
for number in range(3, 64):
    try: os.write(number, line)
    except OSError: pass
def f(x): return 0
""",
    "a broken protocol": """
import os
def f(x):
    for number in range(3, 64):
        try: os.write(number, b"[" * 100_000 + b"\\n")
        except OSError: pass
""",
    "the checker is patched": """
import builtins, sys, unittest
builtins.AssertionError = type("Never", (Exception,), {})
builtins.exec = builtins.compile = lambda *a, **k: None
builtins.print = builtins.abs = builtins.all = lambda *a, **k: True
for module in list(sys.modules.values()):
    for name in ("judge", "explain", "check", "encode", "decode"):
        if hasattr(module, name): setattr(module, name, lambda *a, **k: "passed")
def check(*a): return True
def f(x): return 0
""",
    "the class of assert's exception": (
        "class AssertionError(Exception): pass\n"
        "def f(x):\n"
        "    import builtins\n"
        "    builtins.AssertionError = StopIteration\n"
        "    raise StopIteration"
    ),
    "a result that equals everything": (
        "class Same:\n"
        "    def __eq__(self, other): return True\n"
        "    def __ne__(self, other): return False\n"
        "    def __hash__(self): return 0\n"
        "def f(x): return Same()"
    ),
    "an int that equals everything": (
        "class Same(int):\n    def __eq__(self, other): return True\ndef f(x): return Same(0)"
    ),
    "frames, gc and source are searched": """
import gc, sys, inspect
def f(x):
    frame, seen = sys._getframe(), []
    while frame:
        seen += [str(v) for v in (*frame.f_locals.values(), *frame.f_globals.values())]
        frame = frame.f_back
    seen += [str(o) for o in gc.get_objects() if isinstance(o, (dict, list, str))]
    try: seen.append(open(__file__).read())
    except Exception: pass
    found = [s for s in seen if "assert f(1)" + " == 2" in s or "token" + '"' in s]
    raise SystemExit("LEAK" if found else "nothing")
""",
    "a tracing function skips lines": """
import sys
def skip(frame, event, arg):
    try: frame.f_lineno += 2
    except Exception: pass
    return skip
def f(x):
    frame = sys._getframe()
    while frame:
        frame.f_trace = skip
        frame = frame.f_back
    sys.settrace(skip)
    return 0
""",
    "a thread answers later": """
import threading, time
threading.Thread(target=lambda: (time.sleep(0.2), print("passed"))).start()
def f(x): return 0
""",
    "recursion": "import sys\nsys.setrecursionlimit(10**8)\ndef f(x): return max([x], key=f)",
    "a segmentation fault": "import ctypes\ndef f(x): return ctypes.string_at(0)",
    "the parents are killed": """
import os, signal
for pid in (os.getppid(), 0, -1):
    try: os.kill(pid, signal.SIGKILL)
    except OSError: pass
def f(x): return 0
""",
}


@pytest.mark.parametrize("name", CHEATS)
def test_a_cheat_does_not_pass(name: str, isolation: Isolation) -> None:
    outcome = run(CHEATS[name], isolation)
    assert not outcome.passed
    assert outcome.reason.startswith(("failed", "exited"))
    assert "LEAK" not in outcome.reason


@pytest.mark.parametrize(
    ("end", "tests"),
    [
        ("raise StopIteration", "assert all(map(lambda pair: f(pair[0]) == pair[1], [(1, 2)]))"),
        ("os._exit(0)", "try:\n    f(1)\nexcept BaseException:\n    pass"),
    ],
)
def test_control_flow_of_the_tests_cannot_be_misused(
    end: str, tests: str, isolation: Isolation
) -> None:
    assert not run(f"import os\ndef f(x):\n    {end}", isolation, tests).passed


ENDLESS = {
    "a loop": "def f(x):\n    while True: pass",
    "a loop while loading": "while True: pass",
    "ignored signals": """
import signal
for number in set(signal.Signals) - {signal.SIGKILL, signal.SIGSTOP}:
    signal.signal(number, lambda *a: None)
signal.pthread_sigmask(signal.SIG_BLOCK, set(signal.Signals))
def f(x):
    while True:
        try: signal.pause()
        except BaseException: pass
""",
    "a sleeping child": """
import os, subprocess, sys, time
def f(x):
    for start in (os.fork, lambda: subprocess.Popen([sys.executable, "-c", "input()"])):
        try: start()
        except OSError: pass
    time.sleep(60)
""",
    "an endless iterator": (
        "import itertools\ndef f(x):\n    yield from itertools.repeat(2)\n    while True: pass"
    ),
}


@pytest.mark.parametrize("name", ENDLESS)
def test_what_never_ends_is_ended(name: str, isolation: Isolation) -> None:
    begun = time.monotonic()
    outcome = run(ENDLESS[name], isolation, "assert list(f(1)) == 2", timeout=0.5)
    assert not outcome.passed
    assert outcome.reason.startswith("timeout")
    assert time.monotonic() - begun < 10


def test_the_timeout_reaches_the_program(isolation: Isolation) -> None:
    outcome = run("import time\ntime.sleep(1.5)\n" + GOOD, isolation, timeout=0.5)
    assert outcome.reason.startswith("timeout: longer than 0.5")


def test_a_fork_bomb_starts_no_process(isolation: Isolation) -> None:
    # Bounded on purpose: 2^4 processes at most, even where nothing contains them.
    source = """
import os
def f(x):
    made = 0
    for _ in range(4):
        try: os.fork(); made += 1
        except OSError: pass
        try: os.posix_spawn("/bin/true", ["true"], {}); made += 1
        except OSError: pass
    return made
"""
    assert run(source, isolation, "assert f(1) == 0").passed


@pytest.mark.parametrize("bomb", ["bytearray(1 << 31)", "[[0] * 10**6 for _ in range(10**4)]"])
def test_a_memory_bomb_bursts_inside(bomb: str, isolation: Isolation) -> None:
    outcome = run(f"def f(x):\n    return {bomb}", isolation)
    assert outcome.reason.startswith("failed: MemoryError")


def test_memory_beside_the_address_space_is_bounded_too(isolation: Isolation) -> None:
    # Files of a memory file system: 10 times 8 MB, in a /tmp of 16 MB.
    source = """
import os
def f(x):
    written = 0
    for folder in ("/tmp", "/dev/shm", "/", "/dev"):
        for number in range(5):
            try:
                with open(f"{folder}/mrp-sandbox-{number}", "wb") as file:
                    written += file.write(bytes(8_000_000))
            except OSError: pass
    return written
"""
    assert run(source, isolation, "assert f(1) <= 16_000_000").passed
    assert not list(Path("/tmp").glob("mrp-sandbox-*"))


def test_files_outside_can_be_neither_read_nor_changed(
    isolation: Isolation, tmp_path: Path
) -> None:
    secret = tmp_path / "secret"
    secret.write_text("key")
    source = f"""
import os
def f(x):
    done = []
    for name in ({str(secret)!r}, "/etc/passwd", "/proc/1/environ", {__file__!r}):
        try: done.append(open(name).read())
        except OSError: pass
    tries = [lambda: open({str(secret)!r}, "w").write("x"), lambda: os.remove({str(secret)!r}),
             lambda: os.truncate({str(secret)!r}, 0),
             lambda: open({str(tmp_path / "new")!r}, "w"),
             lambda: os.mkdir({str(tmp_path / "newdir")!r}), lambda: open(os.__file__, "a"),
             lambda: os.listdir({str(tmp_path)!r}), lambda: os.listdir("/home")]
    for attempt in tries:
        try: done.append(repr(attempt()))
        except OSError: pass
    return done
"""
    outcome = run(source, isolation, "assert f(1) == []")
    assert outcome.passed, outcome
    assert secret.read_text() == "key"
    assert [path.name for path in tmp_path.iterdir()] == ["secret"]


def test_the_network_is_out_of_reach(isolation: Isolation) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        source = f"""
import socket
def f(x):
    done = []
    for family, kind in ((socket.AF_INET, socket.SOCK_STREAM), (socket.AF_INET, socket.SOCK_DGRAM),
                         (socket.AF_UNIX, socket.SOCK_STREAM)):
        try:
            with socket.socket(family, kind) as s:
                s.connect(("127.0.0.1", {port}))
            done.append(str(kind))
        except Exception: pass
    return done
"""
        assert run(source, isolation, "assert f(1) == []").passed
        server.settimeout(0.05)
        with pytest.raises(TimeoutError):
            server.accept()


def test_the_environment_is_empty_of_ours(
    isolation: Isolation, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MRP_TEST_TOKEN", "key")
    source = """
import os, sys
def f(x):
    seen = [" ".join(os.environ), " ".join(sys.argv)]
    for pid in ("self", "1", str(os.getppid())):
        for name in ("environ", "cmdline"):
            try: seen.append(open(f"/proc/{pid}/{name}").read())
            except OSError: pass
    return any("MRP_TEST_TOKEN" in text or "token" in text for text in seen)
"""
    assert run(source, isolation, "assert f(1) is False").passed


def test_endless_output_is_cut_and_fails(isolation: Isolation) -> None:
    source = "def f(x):\n    while True: print('x' * 100_000)"
    outcome = run(source, isolation)
    assert outcome.reason.startswith("output")
    assert len(outcome.output) <= 10_000


def test_the_tests_keep_their_values(isolation: Isolation) -> None:
    source = "def f(xs):\n    xs.clear()\n    return []"
    assert not run(source, isolation, "xs = [2, 1]\nassert f(xs) == sorted(xs)").passed


HONEST = {
    "prints and threads": (
        "import threading\ndef f(x):\n    print('working')\n"
        "    t = threading.Thread(target=print); t.start(); t.join()\n    return x + 1",
        TESTS,
    ),
    "every plain type": (
        "def f(x):\n    return x",
        "from collections import deque\nfrom datetime import date\nfrom decimal import Decimal\n"
        "for x in (None, True, 2**70, -1.5, float('inf'), 'a\\u20ac\\ud800\\n', b'x', (1, [2]), "
        "{1: 'a', (2, 3): {4}}, frozenset({1}), 1j, deque([1]), range(3), date(2020, 1, 2), "
        "Decimal('1.10'), int):\n"
        "    assert f(x) == x and type(f(x)) is type(x), x",
    ),
    "objects": (
        "from dataclasses import dataclass\n"
        "@dataclass\nclass Node:\n    value: int\n    left: 'Node | None' = None\n"
        "def f(node):\n    return 0 if node is None else 1 + f(node.left)",
        "root = Node(1)\nroot.left = Node(2)\nassert f(root) == 2\nassert root.left.value == 2\n"
        "assert root.left is root.left\nassert str(Node(3)) == 'Node(value=3, left=None)'",
    ),
    "generators": ("def f(n):\n    yield from range(n)", "assert list(f(3)) == [0, 1, 2]"),
    "exceptions": (
        "def f(x):\n    raise ValueError('no')",
        "try:\n    f(1)\nexcept ValueError as error:\n    assert str(error) == 'no'\n"
        "else:\n    assert False",
    ),
    "subclasses": (
        "from collections import Counter, namedtuple\nP = namedtuple('P', 'x y')\n"
        "def f(s): return Counter(s), P(1, 2)",
        "assert f('aab') == ({'a': 2, 'b': 1}, (1, 2))",
    ),
    "numpy": ("import numpy as np\ndef f(x): return np.int64(x) + 1", TESTS),
    "a main block is not run": (GOOD + "if __name__ == '__main__':\n    f(input())\n", TESTS),
}


@pytest.mark.parametrize("name", HONEST)
def test_an_honest_program_passes(name: str, isolation: Isolation) -> None:
    source, tests = HONEST[name]
    outcome = run(source, isolation, tests)
    assert outcome.passed, outcome
    assert bool(outcome.note) == (isolation == "rlimits")


def test_a_wrong_program_is_told_where(isolation: Isolation) -> None:
    outcome = run("def f(x):\n    print('hello')\n    return 2", isolation)
    assert outcome.reason == "failed: AssertionError at `assert f(5) == 6`"
    assert outcome.output.startswith("hello\n")
    assert run("def f(x) return", isolation).reason.startswith("failed: SyntaxError")
    assert run("", isolation).reason.startswith("failed: NameError")


def test_the_setup_helps_the_tests_but_never_stands_in_for_the_program() -> None:
    setup = "import math\ndef helper(x):\n    return x + 1\ndef f(x):\n    return x + 1\n"
    tests = "assert math.isclose(f(1), helper(1))"
    fake = "def helper(x): return 7\ndef f(x): return 7\n"
    assert run_program(GOOD, tests, ["f"], timeout=5, setup=setup).passed
    assert not run_program(fake, tests, ["f"], timeout=5, setup=setup).passed
    assert not run_program("", tests, ["f"], timeout=5, setup=setup).passed


def test_broken_tests_are_no_verdict() -> None:
    with pytest.raises(ValueError, match="broken: SyntaxError"):
        run_program(GOOD, "assert f(1) ==", ["f"], timeout=5)
    with pytest.raises(ValueError, match="broken: ModuleNotFoundError"):
        run_program(GOOD, TESTS, ["f"], timeout=5, setup="import not_there")
    with pytest.raises(ValueError, match="prove nothing"):
        run_program(GOOD, " ", ["f"], timeout=5)


def test_without_bubblewrap_the_outcome_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sandbox, "bubblewrap_fault", lambda: "bwrap is not installed")
    outcome = run_program(GOOD, TESTS, ["f"], timeout=5)
    assert outcome.passed
    assert outcome.isolation == "rlimits"
    assert outcome.note == "programs ran WITHOUT bubblewrap (bwrap is not installed)"
    with pytest.raises(UserError, match="'bubblewrap' does not work here"):
        run_program(GOOD, TESTS, ["f"], timeout=5, isolation="bubblewrap")


def test_programs_run_beside_each_other_and_leave_no_file_open(isolation: Isolation) -> None:
    run(GOOD, isolation)
    before, threads = len(os.listdir("/proc/self/fd")), threading.active_count()
    with ThreadPoolExecutor(2) as pool:
        outcomes = list(pool.map(lambda _: run(GOOD, isolation), range(4)))
    assert all(outcome.passed for outcome in outcomes)
    assert len(os.listdir("/proc/self/fd")) == before
    assert threading.active_count() == threads
