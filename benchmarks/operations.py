"""How many small operations a round of each mode has beside its forwards and picks.

    python3 -m benchmarks.operations [--lines MODE]

On a GPU each takes some two microseconds, whatever it computes, so that rounds of a small model are
as long as they are many. Counted on a CPU, on a tiny random model, in rounds as they are captured:
with the rules of `mrp.decoding.fused` in torch, and with each as the one kernel that it is on a
GPU. An operation counts if it writes memory: views and allocations do not. `--lines` names the
lines of one mode's round that have the most.
"""

from __future__ import annotations

import argparse
import traceback
from collections import Counter
from collections.abc import Callable
from typing import Any
from unittest.mock import patch

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from mrp.decoding import Decoder, fused, make_mode
from mrp.decoding.forwards import EagerForwards
from mrp.decoding.session import Session
from tests.tiny import tiny_backbone, tiny_head

MODES: dict[str, dict[str, Any]] = {
    "static": {},
    "dynamic": {"tau": 0.7},
    "self_speculative": {"k": 4},
    "self_lattice": {"k": 5, "window": 3, "ahead": True},
    "speculative": {"k": 4},
    "lattice": {"k": 5, "window": 3, "ahead": True, "head_passes": 1},
    "lattice with a budget": {"k": 6, "head_passes": 1, "budget": 16},
    "direct": {"k": 2},
    "remask": {"tau": 0.5, "passes": "halves"},
    "freedave": {"k": 3, "tau": 0.7},
    "factor": {"factor": 1.0},
    "entropy": {"gamma": 0.1},
    "klass": {"tau": 0.5},
    "wino": {"tau": 0.5},
}


class Count(TorchDispatchMode):
    """Counts operations by the line of mrp that asks for them, while it is `on`."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.on = False
        self.lines: Counter[str] = Counter()

    def add(self) -> None:
        """One more, of the innermost line of mrp."""
        stack = (
            frame for frame in reversed(traceback.extract_stack()) if "/mrp/" in frame.filename
        )
        frame = next(frame for frame in stack if not frame.filename.endswith("fused.py"))
        self.lines[f"{frame.filename.split('/mrp/')[-1]}: {frame.line}"] += 1

    def without(self, work: Callable[..., Any]) -> Callable[..., Any]:
        """`work`, not counted."""

        def call(*args: Any, **kwargs: Any) -> Any:
            was, self.on = self.on, False
            try:
                return work(*args, **kwargs)
            finally:
                self.on = was

        return call

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        if self.on and "empty" not in func.__name__:
            given, made = ({*map(memory, tree_leaves(part))} for part in ((args, kwargs), out))
            if func._schema.is_mutable or made - given:
                self.add()
        return out


def memory(leaf: Any) -> int:
    """What tells a tensor's memory from another's; 0 for anything else."""
    return leaf.untyped_storage().data_ptr() if isinstance(leaf, Tensor) else 0


def operations(name: str, knobs: dict[str, Any], kernels: bool) -> dict[str, float]:
    """Operations of a mean round with all its drafts and no block to store, by line."""
    count, rounds = Count(), 0
    mode = make_mode(name.split()[0], **knobs)

    class Uncounted(EagerForwards):
        pass

    for forward in ("backbone", "head", "pick", "pick_and_shortlist", "pick_shortlist", "logits"):
        setattr(Uncounted, forward, count.without(getattr(EagerForwards, forward)))

    class Kernels(dict[str, Any]):
        def get(self, name: str, rule: Any = None) -> Any:
            def kernel(*args: Any) -> Any:
                if count.on:
                    count.add()
                return count.without(rule)(*args)

            return kernel

    run = Session.round

    def counted(session: Session, mode: Any, plan: int, stores: int, waiting: int) -> set[str]:
        nonlocal rounds
        count.on = not stores and not waiting and plan >= knobs.get("k", plan)
        rounds += count.on
        try:
            return run(session, mode, plan, stores, waiting)
        finally:
            count.on = False

    backbone = tiny_backbone(3, 16, ends=False)
    head = tiny_head(backbone) if mode.needs_head else None
    found: dict[str, Any] = Kernels() if kernels else {}
    with (
        patch.object(Session, "round", counted),
        patch.object(fused, "kernels_on", lambda device: found),
        count,
    ):
        decoder = Decoder(backbone, head, mode, 1, rounds="fixed", choose=Uncounted)
        list(decoder.decode([[5] * 20], [64]))
    return {line: number / rounds for line, number in count.lines.most_common()}


def main() -> None:
    """Print the table, or one mode's lines."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--lines", choices=MODES, metavar="MODE", help="one mode's lines")
    wanted = parser.parse_args().lines
    if wanted:
        for line, number in operations(wanted, MODES[wanted], kernels=True).items():
            print(f"{number:5.1f}  {line}")
        return
    print("| mode | operations a round, rules in torch | as kernels |\n| --- | --- | --- |")
    for name, knobs in MODES.items():
        knob = " ".join(f"{key}={value}" for key, value in knobs.items())
        numbers = (sum(operations(name, knobs, kernels).values()) for kernels in (False, True))
        print(f"| {name} {knob} | {' | '.join(f'{number:.0f}' for number in numbers)} |")


if __name__ == "__main__":
    torch.set_num_threads(1)
    main()
