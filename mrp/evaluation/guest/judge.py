"""The process that runs the tests and gives the verdict. No line of the program runs in here.

A function of the program is a stand-in that sends its arguments over and gets plain data back;
all comparing is done here, on values of built-in types.
"""

from __future__ import annotations

import builtins
import json
import random
import sys
import traceback
import types
from typing import Any

from .confine import confine
from .wire import BadMessage, Channel, Gone, decode, encode

# The tests' own loops would take these for their end and skip what is left.
CONTROL = (StopIteration, StopAsyncIteration)
END = 0  # the number of the object that marks an iterator's end


class CandidateError(Exception):
    """An exception of the program that has no safe counterpart here."""


class Candidate:
    """The far process: requests and the stand-ins for its objects."""

    def __init__(self, channel: Channel) -> None:
        self.channel = channel
        self.handles: dict[int, Handle] = {}
        self.broken: Exception | None = None

    def ask(self, **request: Any) -> Any:
        """Send a request and return the decoded answer, or raise what the program raised."""
        try:
            self.channel.send(request)
            reply = self.channel.receive()
            if not isinstance(reply, dict):
                raise BadMessage("a reply that is no object")
            value = decode(reply.get("value"), self.handle)
        except (Gone, BadMessage) as problem:
            # Remembered, since a test that expects some exception would swallow this one.
            self.broken = self.broken or problem
            raise
        if "error" in reply:
            raise rebuild(reply)
        return value

    def handle(self, number: Any) -> Handle:
        """The stand-in of one far object: always the same, so that identity means something."""
        if not isinstance(number, int):
            raise BadMessage("an object without a number")
        if number not in self.handles:
            self.handles[number] = Handle(self, number)
        return self.handles[number]

    def operate(self, action: str, number: int, *arguments: Any, **named: Any) -> Any:
        """Call, index, iterate ... a far object."""
        return self.ask(
            do=action,
            on=number,
            args=[encode(item, stand_in) for item in arguments],
            named={key: encode(item, stand_in) for key, item in named.items()},
        )


class Handle:
    """Stands for an object of the program. Equal only to itself, whatever the object claims."""

    def __init__(self, far: Candidate, number: int) -> None:
        object.__setattr__(self, "_far", far)
        object.__setattr__(self, "_number", number)

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        return self._far.operate("call", self._number, *arguments, **named)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return self._far.operate("getattr", self._number, name)

    def __setattr__(self, name: str, value: Any) -> None:
        self._far.operate("setattr", self._number, name, value)

    def __iter__(self) -> Any:
        return self._far.operate("iter", self._number)

    def __next__(self) -> Any:
        end = self._far.handle(END)
        item = self._far.operate("next", self._number, end)
        if item is end:
            raise StopIteration
        return item

    def __getitem__(self, key: Any) -> Any:
        return self._far.operate("getitem", self._number, key)

    def __bool__(self) -> bool:
        return self._far.operate("bool", self._number) is True

    def __len__(self) -> int:
        return int(self._far.operate("len", self._number))

    def __str__(self) -> str:
        return str(self._far.operate("str", self._number))

    def __repr__(self) -> str:
        return str(self._far.operate("repr", self._number))


def stand_in(value: Any) -> Any:
    """How a value of the tests that is not plain travels: only the program's own objects do."""
    if isinstance(value, Handle):
        return {"t": "handle", "v": value._number}
    raise TypeError(f"a test cannot pass a {type(value).__name__} to the program")


def rebuild(reply: dict[str, Any]) -> Exception:
    """The program's exception as one of ours, so that tests can expect it."""
    name, text = str(reply.get("name")), str(reply.get("text"))
    kind = getattr(builtins, str(reply["error"]), None)
    if isinstance(kind, type) and issubclass(kind, Exception) and not issubclass(kind, CONTROL):
        try:
            return kind(text) if kind is not Exception else CandidateError(f"{name}: {text}")
        except TypeError:
            pass
    return CandidateError(f"{name}: {text}")


class BrokenTests(Exception):
    """The tests or their setup are at fault, not the program."""


def main() -> None:
    """Read the case, wait for the candidate, run the tests, report."""
    settings = json.loads(sys.argv[1])
    case = json.load(sys.stdin)
    channel = Channel(settings["incoming"], settings["outgoing"])
    verdicts = sys.stdout
    sys.stdout = sys.stderr
    sys.path[:] = [*(p for p in sys.path if p not in settings["own"]), *settings["packages"]]
    missing = confine(settings)
    try:
        ready = channel.receive()
    except Gone:
        return  # the candidate said why on the error stream
    print(json.dumps({"missing": [*missing, *ready["ready"]]}), file=verdicts, flush=True)
    random.seed(0)
    try:
        reason = judge(Candidate(channel), case)
        verdict = {"token": case["token"], "passed": reason == "passed", "reason": reason}
    except BrokenTests as error:
        verdict = {"token": case["token"], "broken": str(error)}
    print(json.dumps(verdict), file=verdicts, flush=True)


def judge(far: Candidate, case: dict[str, Any]) -> str:
    """Run the case's tests against the far program: "passed", or why not.

    Raises:
        BrokenTests: the setup fails or the tests are no Python.
    """
    module = types.ModuleType("tests")
    sys.modules["tests"] = module
    space = module.__dict__
    try:
        exec(compile(case["setup"], "<setup>", "exec"), space)
        tests = compile(case["tests"], "<tests>", "exec")
    except BaseException as error:
        raise BrokenTests(f"{type(error).__name__}: {error}") from None
    try:
        far.ask(do="load", source=case["program"])
        # The setup may hold a stub of a function that the program lacks: it must not stand in.
        for name in case["names"]:
            space.pop(name, None)
        space.update(far_names(far, case["names"]))
        exec(tests, space)
    except BaseException as error:
        if far.broken is None:
            return f"failed: {explain(error, case['tests'])}"
    if isinstance(far.broken, Gone):
        return "exited: the program ended before its tests did"
    if far.broken is not None:
        return f"failed: {far.broken}"
    return "passed"


def far_names(far: Candidate, names: list[str]) -> dict[str, Any]:
    """The program's values of exactly the names the tests take from it."""
    pairs = far.ask(do="names", names=names)
    if not isinstance(pairs, list):
        raise BadMessage("no list of names")
    found = {name: value for name, value in pairs if isinstance(name, str)}
    return {name: found[name] for name in names if name in found}


def explain(error: BaseException, tests: str) -> str:
    """One line: the exception, and the line of the tests it came through."""
    text = str(error).strip()
    if not isinstance(error, CandidateError):
        text = f"{type(error).__name__}: {text}" if text else type(error).__name__
    frames = [f for f in traceback.extract_tb(error.__traceback__) if f.filename == "<tests>"]
    lines = tests.splitlines()
    if frames and frames[-1].lineno and frames[-1].lineno <= len(lines):
        text = f"{text} at `{lines[frames[-1].lineno - 1].strip()}`"
    return " ".join(text.split())[:500]
