"""The process that runs the program under test and calls its functions when the judge asks.

Everything in here belongs to the program as soon as that is loaded; the judge believes nothing
this process says beyond the values it returns.
"""

from __future__ import annotations

import builtins
import json
import operator
import os
import random
import sys
import types
from typing import Any

from .confine import confine
from .wire import Channel, Gone, decode, encode


def main() -> None:
    """Answer requests until the judge goes away."""
    settings = json.loads(sys.argv[1])
    channel = private_channel()
    sys.path[:] = [*(p for p in sys.path if p not in settings["own"]), *settings["packages"]]
    channel.send({"ready": confine(settings)})
    # The judge's random numbers are fixed too: the same program gets the same verdict again.
    random.seed(0)
    host = Host()
    while True:
        try:
            request = channel.receive()
        except Gone:
            return
        try:
            reply: dict[str, Any] = {"value": host.answer(request)}
        except BaseException as error:
            reply = describe(error)
        channel.send(reply)


def private_channel() -> Channel:
    """Move the pipes off the standard streams; the program prints to the error stream."""
    channel = Channel(os.dup(0), os.dup(1))
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    os.dup2(2, 1)
    return channel


def describe(error: BaseException) -> dict[str, Any]:
    """An exception as the name of its nearest built-in class and its message."""
    known = next(k for k in type(error).__mro__ if getattr(builtins, k.__name__, None) is k)
    try:
        text = str(error)[:500]
    except Exception:
        text = ""
    return {"error": known.__name__, "name": type(error).__name__, "text": text}


class Host:
    """The loaded program and the objects that the judge holds numbers of."""

    def __init__(self) -> None:
        # A real module: dataclasses and pickle look their classes' module up by name.
        self.module = types.ModuleType("candidate")
        sys.modules["candidate"] = self.module
        end = object()  # what the judge's END stands for
        self.kept: list[Any] = [end]
        self.numbers = {id(end): 0}

    def answer(self, request: dict[str, Any]) -> Any:
        """Do what one request says and return the encoded result."""
        action = request["do"]
        if action == "load":
            exec(compile(request["source"], "<program>", "exec"), self.module.__dict__)
            return None
        if action == "names":
            return [
                [name, encode(getattr(self.module, name), self.keep)]
                for name in request["names"]
                if hasattr(self.module, name)
            ]
        target = self.kept[request["on"]]
        arguments = [decode(item, self.kept.__getitem__) for item in request["args"]]
        if action == "call":
            named = {k: decode(v, self.kept.__getitem__) for k, v in request["named"].items()}
            return encode(target(*arguments, **named), self.keep)
        operation = getattr(builtins, action, None) or getattr(operator, action)
        return encode(operation(target, *arguments), self.keep)

    def keep(self, thing: Any) -> Any:
        """Remember an object and give its number; a NumPy number is the number it stands for."""
        if type(thing).__module__ == "numpy" and getattr(thing, "shape", None) == ():
            return encode(thing.item(), self.keep)
        number = self.numbers.setdefault(id(thing), len(self.kept))
        if number == len(self.kept):
            self.kept.append(thing)
        return {"t": "handle", "v": number}
