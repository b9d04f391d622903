"""Hostile programs are contained and cannot pass; honest ones pass, in every isolation."""

from __future__ import annotations

import os
import random
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest

from mrp.errors import UserError
from mrp.evaluation import sandbox
from mrp.evaluation.sandbox import Isolation, Outcome, bubblewrap_fault, run_program
from tests.evaluation.hostile import TESTS, Hostile, escape, hostile_programs, processes_with

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


GOOD = "def f(x):\n    return x + 1\n"


@pytest.mark.parametrize("hostile", hostile_programs(), ids=lambda hostile: hostile.name)
def test_a_hostile_program_is_contained(hostile: Hostile) -> None:
    """By the weaker isolation, which is there on every machine."""
    assert escape(hostile, "rlimits") == ""


@pytest.mark.slow
@pytest.mark.skipif(bool(bubblewrap_fault()), reason="bubblewrap does not work here")
@pytest.mark.parametrize("hostile", hostile_programs(), ids=lambda hostile: hostile.name)
def test_bubblewrap_contains_a_hostile_program(hostile: Hostile) -> None:
    assert escape(hostile, "bubblewrap") == ""


@pytest.mark.parametrize(
    ("source", "told"),
    [
        (GOOD, "it passed"),
        ("def f(x):\n    print('ESC' + 'APED')", "it says"),
        ("import time\ntime.sleep(99)", "ended by 'timeout"),
    ],
)
def test_what_is_not_contained_is_told(source: str, told: str, isolation: Isolation) -> None:
    assert escape(Hostile("", source, timeout=2), isolation).startswith(told)


ORPHAN = """
import sys
from mrp.evaluation.sandbox import run_program
source = "import ctypes, time\\nctypes.CDLL(None).prctl(1, 0, 0, 0, 0)\\ntime.sleep(99)"
run_program(source, "f()", ["f"], timeout=float(sys.argv[1]), isolation=sys.argv[2])
"""


def test_no_program_outlives_a_killed_run(isolation: Isolation) -> None:
    mark = 50 + random.random() / 1000
    run = subprocess.Popen([sys.executable, "-c", ORPHAN, str(mark), isolation])
    try:
        wait_until(lambda: len(processes_with(f'"cpu": {mark},')) >= 2)
        time.sleep(0.5)  # until the program sleeps, most likely
    finally:
        run.kill()
        run.wait()
    wait_until(lambda: not processes_with(f'"cpu": {mark},'))


def wait_until(condition: Callable[[], bool], seconds: float = 30.0) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.02)


def test_the_timeout_reaches_the_program(isolation: Isolation) -> None:
    outcome = run("import time\ntime.sleep(1.5)\n" + GOOD, isolation, timeout=0.5)
    assert outcome.reason.startswith("timeout: longer than 0.5")


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
    outcome = run(source, isolation, tests, timeout=60)  # a busy machine may be slow to import
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
    assert run_program(GOOD, tests, ["f"], timeout=30, setup=setup).passed
    assert not run_program(fake, tests, ["f"], timeout=30, setup=setup).passed
    assert not run_program("", tests, ["f"], timeout=30, setup=setup).passed


def test_broken_tests_are_no_verdict() -> None:
    with pytest.raises(ValueError, match="broken: SyntaxError"):
        run_program(GOOD, "assert f(1) ==", ["f"], timeout=30)
    with pytest.raises(ValueError, match="broken: ModuleNotFoundError"):
        run_program(GOOD, TESTS, ["f"], timeout=30, setup="import not_there")
    with pytest.raises(ValueError, match="prove nothing"):
        run_program(GOOD, " ", ["f"], timeout=30)


def test_without_bubblewrap_the_outcome_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sandbox, "bubblewrap_fault", lambda: "bwrap is not installed")
    outcome = run_program(GOOD, TESTS, ["f"], timeout=30)
    assert outcome.passed
    assert outcome.isolation == "rlimits"
    assert outcome.note == "programs ran WITHOUT bubblewrap (bwrap is not installed)"
    with pytest.raises(UserError, match="'bubblewrap' does not work here"):
        run_program(GOOD, TESTS, ["f"], timeout=30, isolation="bubblewrap")


def test_programs_run_beside_each_other_and_leave_no_file_open(isolation: Isolation) -> None:
    run(GOOD, isolation)
    before, threads = len(os.listdir("/proc/self/fd")), threading.active_count()
    with ThreadPoolExecutor(2) as pool:
        outcomes = list(pool.map(lambda _: run(GOOD, isolation), range(4)))
    assert all(outcome.passed for outcome in outcomes)
    assert len(os.listdir("/proc/self/fd")) == before
    assert threading.active_count() == threads
