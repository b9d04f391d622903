"""Functions of a few small tensors, each of which a GPU runs as one kernel.

What a round does beside its forwards is small: which position is next, which drafts stand, what is
written where. On a GPU every operation of it takes some two microseconds whatever its size, and a
round of a small model has more of them than a forward has kernels. So each of these functions is
written twice: in torch, as the rule that is read, and run elsewhere; and under the same name in
`mrp.decoding.fast`, modules `lanes`, `places`, `drafts` and `sets`, as a kernel that the tests hold
against the rule.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, Concatenate, ParamSpec, TypeVar

import torch
from torch import Tensor

from mrp.decoding.fast import supported

P = ParamSpec("P")
R = TypeVar("R")
Rule = Callable[Concatenate[Tensor, P], R]
RULES: dict[str, Callable[..., Any]] = {}  # by name, themselves


def fused(rule: Rule[P, R]) -> Rule[P, R]:
    """`rule`, or its kernel where the first argument is on a GPU that has it."""
    name = rule.__name__
    # Kernels are found by name: two rules of one name would run as one kernel.
    assert RULES.get(name, rule).__module__ == rule.__module__, f"{name}: there is such a rule"
    RULES[name] = rule

    @functools.wraps(rule)
    def call(first: Tensor, /, *args: P.args, **kwargs: P.kwargs) -> R:
        kernel: Rule[P, R] = kernels_on(first.device).get(name, rule)
        return kernel(first, *args, **kwargs)

    return call


@functools.cache
def kernels_on(device: torch.device) -> dict[str, Callable[..., Any]]:
    """The kernels for a device by name; none where the rules themselves run."""
    if not supported(device):
        return {}
    from mrp.decoding.fast import drafts, lanes, places, sets

    return vars(lanes) | vars(drafts) | vars(places) | vars(sets)
