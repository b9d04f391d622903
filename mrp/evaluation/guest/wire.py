"""Values as plain data between two processes that do not trust each other.

One JSON document a line. Decoding builds only values of the types named here, so nothing that
arrives can carry code: no pickle, no class of the sender, no overridden comparison.
"""

from __future__ import annotations

import json
import os
import sys
from collections import deque
from collections.abc import Callable
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from fractions import Fraction
from typing import Any

LONGEST = 8_000_000  # bytes a message
SAFE_TYPES: dict[str, type] = {
    kind.__name__: kind
    for kind in (bool, bytes, complex, dict, float, frozenset, int, list, set, str, tuple)
}
SEQUENCES: dict[str, Callable[[Any], Any]] = {
    "tuple": tuple,
    "set": set,
    "frozenset": frozenset,
    "deque": deque,
}
TEXTS: dict[type, tuple[str, Callable[[Any], str], Callable[[str], Any]]] = {
    bytes: ("bytes", bytes.hex, bytes.fromhex),
    Decimal: ("decimal", str, Decimal),
    Fraction: ("fraction", str, Fraction),
    complex: ("complex", repr, complex),
    datetime: ("datetime", datetime.isoformat, datetime.fromisoformat),
    date: ("date", date.isoformat, date.fromisoformat),
    time: ("time", time.isoformat, time.fromisoformat),
}
FROM_TEXT = {tag: parse for tag, _, parse in TEXTS.values()}


class Gone(Exception):
    """The other process ended, or closed its end."""


class BadMessage(Exception):
    """What arrived is no message, is too long, or names an unknown type."""


def encode(value: Any, keep: Callable[[Any], Any]) -> Any:
    """Value -> JSON-able data. `keep` turns what is not plain into a tagged stand-in.

    Subclasses of the plain types become the plain type.
    """
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, int):
        number = int(value)
        return number if abs(number) < 1 << 53 else {"t": "int", "v": hex(number)}
    if isinstance(value, float):
        return float(value)
    if isinstance(value, str):
        return str.__str__(value)
    if isinstance(value, list):
        return [encode(item, keep) for item in value]
    if isinstance(value, dict):
        return {"t": "dict", "v": [[encode(k, keep), encode(v, keep)] for k, v in value.items()]}
    for tag, kind in (("tuple", tuple), ("set", set), ("frozenset", frozenset), ("deque", deque)):
        if isinstance(value, kind):
            return {"t": tag, "v": [encode(item, keep) for item in value]}
    if type(value) in TEXTS:
        tag, write, _ = TEXTS[type(value)]
        return {"t": tag, "v": write(value)}
    if isinstance(value, timedelta):
        return {"t": "timedelta", "v": [value.days, value.seconds, value.microseconds]}
    if isinstance(value, range):
        return {"t": "range", "v": [encode(n, keep) for n in (value.start, value.stop, value.step)]}
    if isinstance(value, type) and SAFE_TYPES.get(value.__name__) is value:
        return {"t": "type", "v": value.__name__}
    return keep(value)


def decode(data: Any, resolve: Callable[[int], Any]) -> Any:
    """The inverse of `encode`; `resolve` gives what a stand-in's number means here.

    Raises:
        BadMessage: an unknown tag or a value that does not fit it.
    """
    if isinstance(data, list):
        return [decode(item, resolve) for item in data]
    if not isinstance(data, dict):
        return data
    try:
        tag, body = data["t"], data["v"]
        if tag == "handle":
            return resolve(body)
        if tag == "int":
            return int(body, 16)
        if tag == "dict":
            return {decode(k, resolve): decode(v, resolve) for k, v in body}
        if tag in SEQUENCES:
            return SEQUENCES[tag](decode(item, resolve) for item in body)
        if tag in FROM_TEXT:
            return FROM_TEXT[tag](body)
        if tag == "timedelta":
            return timedelta(*body)
        if tag == "range":
            return range(*decode(body, resolve))
        if tag == "type":
            return SAFE_TYPES[body]
    except (ArithmeticError, KeyError, TypeError, ValueError) as error:
        raise BadMessage(f"unreadable value: {error}") from None
    raise BadMessage(f"unknown type {tag!r}")


class Channel:
    """Messages over a pair of pipe ends."""

    def __init__(self, incoming: int, outgoing: int) -> None:
        self._incoming = os.fdopen(incoming, "rb")
        self._outgoing = os.fdopen(outgoing, "wb")
        sys.set_int_max_str_digits(0)

    def send(self, message: Any) -> None:
        """Write one message.

        Raises:
            Gone: nobody reads any more.
            BadMessage: it is too long.
        """
        line = json.dumps(message).encode() + b"\n"
        if len(line) > LONGEST:
            raise BadMessage(f"a value of {len(line)} bytes; at most {LONGEST} can be passed")
        try:
            self._outgoing.write(line)
            self._outgoing.flush()
        except OSError:
            raise Gone from None

    def receive(self) -> Any:
        """Wait for one message.

        Raises:
            Gone: the other side ended.
            BadMessage: the line is too long or not JSON.
        """
        line = self._incoming.readline(LONGEST + 1)
        if not line.endswith(b"\n"):
            if len(line) > LONGEST:
                raise BadMessage("a message without an end")
            raise Gone
        try:
            return json.loads(line)
        except (ValueError, RecursionError) as error:
            raise BadMessage(f"not a message: {error}") from None
