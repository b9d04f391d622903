"""The decoding modes by name."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import MISSING, fields
from typing import Any, get_args

from mrp.decoding.modes.base import Mode
from mrp.decoding.modes.branches import MOST_DRAFTS
from mrp.decoding.modes.direct import Direct
from mrp.decoding.modes.dynamic import Dynamic
from mrp.decoding.modes.entropy import Entropy
from mrp.decoding.modes.factor import Factor
from mrp.decoding.modes.freedave import FreeDave
from mrp.decoding.modes.klass import Klass
from mrp.decoding.modes.lattice import MOST_WINDOW, Lattice, SelfLattice
from mrp.decoding.modes.remask import Condition, Passes, Remask, Rule
from mrp.decoding.modes.speculative import SelfSpeculative, Speculative
from mrp.decoding.modes.static import Static
from mrp.decoding.modes.wino import Wino
from mrp.decoding.pace import MOST
from mrp.errors import UserError

MODES: dict[str, type[Mode]] = {
    mode.name: mode
    for mode in (
        Static,
        Dynamic,
        Direct,
        Speculative,
        SelfSpeculative,
        Lattice,
        SelfLattice,
        Remask,
        Factor,
        Entropy,
        Klass,
        Wino,
        FreeDave,
    )
}
CHOOSING = (Speculative.name, SelfSpeculative.name)  # the modes that may choose K themselves
LEAST_CAP = 1e-6  # the odds against a lower one can be infinite, which says: not masked
FRACTIONS = ("tau", "back", "floor", "cap", "scale", "delta", "factor", "gamma", "kl")
MOST_WHOLE = 999_999  # of any number of things: more than there are
CHOICES = {
    "condition": get_args(Condition),
    "rule": get_args(Rule),
    "passes": get_args(Passes),
    "prefix": (True, False),
    "ahead": (True, False),
}


def make_mode(name: str, **options: Any) -> Mode:
    """Build a mode from its name and options; options that are None count as not given.

    Raises:
        UserError: unknown mode or option, a missing option, or a value out of range; a mode whose
            class is not finished.
    """
    if name not in MODES:
        raise UserError(f"mode: {name!r} is not one of {', '.join(MODES)}")
    if missing := sorted(MODES[name].__abstractmethods__):
        where = MODES[name].__module__.replace(".", "/")
        raise UserError(
            f"mode {name!r}: its class in {where}.py lacks {', '.join(missing)}: write it"
        )
    given = {key: value for key, value in options.items() if value is not None}
    known = {field.name for field in fields(MODES[name])}
    for key, value in given.items():
        if key not in known:
            allowed = ", ".join(sorted(known)) or "none"
            raise UserError(f"mode {name!r} takes no option {key!r} (it takes: {allowed})")
        _check_range(name, key, value)
    for field in fields(MODES[name]):
        if field.default is MISSING and field.name not in given:
            raise UserError(f"mode {name!r} needs {field.name}")
    if given.get("passes") == "halves" and given.get("condition") == "masked":
        raise UserError(
            f"mode {name!r}: condition='masked' is for one pass; with passes='halves' the head "
            "reads half of the fresh tokens: leave one of the two out"
        )
    if given.get("rule") == "residual" and given.get("floor"):
        raise UserError(f"mode {name!r}: floor is a confidence; rule='residual' has delta instead")
    for key, problem in _too_large(given):
        raise UserError(f"mode {name!r}: {key}={given[key]} {problem}")
    return MODES[name](**given)


def _too_large(given: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Options that do no more than a smaller value: there are only so many drafts a round."""
    k, passes, window = (given.get(key, 0) for key in ("k", "head_passes", "window"))
    if 0 < (MOST if k == "auto" else k) <= passes:
        auto = f" ({MOST} drafts at most)" if k == "auto" else ""
        yield "head_passes", f"is too large for k={k}{auto}: less than that, or 0 for one a draft"
    if k != "auto" and 0 < k < window > Lattice.window:  # the default goes with every k
        yield "window", f"is too large for k={k}: at most that"
    if given.get("budget") and k > MOST_DRAFTS:
        yield "k", f"is too large with a budget of states: at most {MOST_DRAFTS}"


def _check_range(name: str, key: str, value: Any) -> None:
    if key in CHOICES and value not in CHOICES[key]:
        allowed = ", ".join(map(str, CHOICES[key]))
        raise UserError(f"mode {name!r}: {key}={value!r} is not one of {allowed}")
    if key in FRACTIONS and (isinstance(value, bool) or not isinstance(value, int | float)):
        raise UserError(f"mode {name!r}: {key}={value!r} must be a number")
    if key == "tau" and not 0 < value < 1:
        raise UserError(f"mode {name!r}: tau={value} must lie between 0 and 1, both excluded")
    if key == "k" and value == "auto" and name in CHOOSING:
        return
    if key in ("back", "floor") and not 0 <= value < 1:
        raise UserError(f"mode {name!r}: {key}={value} must be at least 0 and below 1")
    if key in ("k", "steps", "history") and (not _whole(value) or value < 1):
        auto = ' or "auto"' if key == "k" and name in CHOOSING else ""
        raise UserError(f"mode {name!r}: {key}={value} must be a whole number of at least 1{auto}")
    if _whole(value) and value > MOST_WHOLE:
        raise UserError(f"mode {name!r}: {key}={str(value)[:20]}... must be at most {MOST_WHOLE}")
    if key in ("shortlist", "head_passes", "budget") and (not _whole(value) or value < 0):
        none = "0 for one a draft" if key == "head_passes" else "0 for none"
        raise UserError(f"mode {name!r}: {key}={value} must be a whole number, {none}")
    if key == "window" and not (_whole(value) and 1 <= value <= MOST_WINDOW):
        allowed = f"a whole number, 1 (the chain alone) to {MOST_WINDOW}"
        raise UserError(f"mode {name!r}: window={value} must be {allowed}")
    if key == "cap" and not LEAST_CAP <= value <= 1:
        raise UserError(f"mode {name!r}: cap={value} must be {LEAST_CAP} to 1 (no cap)")
    if key in ("scale", "delta", "factor", "gamma", "kl") and not 0 < value < float("inf"):
        raise UserError(f"mode {name!r}: {key}={value} must be above 0 and finite")


def _whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


__all__ = ["MODES", "Mode", "make_mode"]
