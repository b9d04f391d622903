"""An invented table of results as large as the replica's, with modes that no table knows yet.

Not from records: figures read the tidy table alone.
"""

from __future__ import annotations

import random
import zlib
from collections.abc import Iterator
from typing import Any

import numpy as np
import pandas as pd

from mrp.config import OPTIONS
from mrp.report import comparisons, frame
from mrp.report.statistics import wilson
from mrp.schema import LOSSLESS

BACKBONES = {"S": 0.0, "M": 3.0, "L": 5.0}  # points above S
TASKS = {"mini_math": 0.0, "mini_code": 2.0}
N = 2000
STATIC = 90.0
DIRECT = {"default": 74, "k2": 78, "direct": 70}
ACCEPTED = {"default": 0.69, "k2": 0.71, "direct": 0.55, None: 0.62}
DYNAMIC = {0.5: (24, 3.91), 0.6: (58, 2.55), 0.7: (79, 2.09), 0.8: (86, 1.89), 0.9: (89.5, 1.79)}
DEPTHS = {"layers-1": 1, "layers-2": 2, "layers-4": 4, "layers-8": 8}
SEEDS = ("default-seed1", "default-seed2")
Setting = tuple[dict[str, Any], float, float, float]  # labels, accuracy (%), TPF, cost of a forward


def replica(modes: tuple[str, ...] = ()) -> pd.DataFrame:
    """The table; `modes` are added to the grid, each with a curve over tau."""
    rows = [
        _row(backbone, task, *setting, up=BACKBONES[backbone] + TASKS[task])
        for backbone in BACKBONES
        for setting in _grid(backbone, modes)
        for task in TASKS
    ]
    table = pd.DataFrame(rows, dtype=object)
    numbers = (*frame.NUMERIC_OPTIONS, *frame.NUMBERS, *comparisons.NUMBERS)
    absent = dict.fromkeys((name for name in (*OPTIONS, *numbers) if name not in table), np.nan)
    return table.assign(**absent).astype(dict.fromkeys(numbers, float)).copy()


def _grid(backbone: str, modes: tuple[str, ...]) -> Iterator[Setting]:
    more = [*SEEDS, "gt-1-4", *DEPTHS] if backbone == "S" else []
    yield {"mode": "static", "cap": 1.0}, STATIC, 1.0, 1.0
    for steps, accuracy in ((8, 28), (6, 10), (4, 5)):
        yield {"mode": "static", "steps": steps, "cap": 1.0}, accuracy, 16 / steps, 1.0
    for head in (*DIRECT, *more):
        base = DIRECT.get(head, 74) + _deeper(head, 40)
        yield from (_direct(head, k, base, 1.0) for k in _ks(head))
    yield from (_direct("k2", k, 75 - 3 * k, 2.0) for k in (1, 2, 3, 4))
    for head in ("default", "k2", *more):
        accepted = ACCEPTED.get(head, 0.69) + _deeper(head, 1)
        yield from (_verified("speculative", head, k, accepted) for k in _ks(head))
    for k in (1, 2, 3, 4):
        yield _verified("self_speculative", None, k, ACCEPTED[None])
        yield _verified("lattice", "k2", k, 0.78)
        yield _verified("self_lattice", None, k, 0.72)
    for tau, (accuracy, tpf) in DYNAMIC.items():
        yield {"mode": "dynamic", "tau": tau}, accuracy, tpf, 1.0
        for gain, way in (
            (0.2, {"head": "default", "condition": "revealed", "passes": "one"}),
            (0.1, {"head": "k2", "condition": "masked", "passes": "one"}),
            (0.5, {"head": "default", "condition": "revealed", "passes": "halves"}),
        ):
            label = {"mode": "remask", "tau": tau, "rule": "confidence", "delta": 1.0, **way}
            yield label, accuracy + gain * (STATIC - accuracy), tpf * 0.89, 1.3
    for number, mode in enumerate(modes):
        for tau in (0.3, 0.6, 0.9):
            accuracy, tpf = 50 + 40 * tau - 3 * number, 3.5 - 2 * tau + 0.1 * number
            yield {"mode": mode, "tau": tau}, accuracy, tpf, 1.1


def _ks(head: str) -> tuple[int, ...]:
    return (1, 3) if head in DEPTHS else (1, 2, 3, 4)


def _deeper(head: str, gain: float) -> float:
    return 0.03 * gain * float(np.log2(DEPTHS.get(head, 3) / 3))


def _direct(head: str, k: int, base: float, scale: float) -> Setting:
    label = {"mode": "direct", "head": head, "k": k, "scale": scale}
    return label, base - 6 * (k - 1), 16 / -(-16 // (k + 1)), 1 + 0.2 * k


def _verified(mode: str, head: str | None, k: int, accepted: float) -> Setting:
    share = accepted * 0.83 ** (k - 1)
    label = {"mode": mode, "head": head, "k": k, "cap": 1.0, **_rounds(share, k)}
    return label, STATIC, 1 + 0.83 * k * share, 1 + 0.16 * k * (head is not None)


def _rounds(share: float, k: int) -> dict[str, Any]:
    """Rounds by accepted drafts, where each of K is accepted with the same odds."""
    odds = share ** (1 / 1.4)
    counts = [round(4000 * odds**a * (1 - odds)) for a in range(k)] + [round(4000 * odds**k)]
    accepted = sum(a * often for a, often in enumerate(counts))
    return {
        "accepted_rounds": " ".join(map(str, counts)),
        "verify": sum(counts),
        "proposed": k * sum(counts),
        "accepted": accepted,
        "acceptance": accepted / (k * sum(counts)),
    }


def _row(
    backbone: str,
    task: str,
    label: dict[str, Any],
    accuracy: float,
    tpf: float,
    cost: float,
    up: float,
) -> dict[str, Any]:
    mode, head = label["mode"], label.get("head")
    named = (backbone, mode, head, *(label[name] for name in OPTIONS if name in label))
    job = ".".join(str(part) for part in named if part is not None)
    luck = random.Random(zlib.crc32(f"{job} {task}".encode()))
    exact = mode == "static" or mode in LOSSLESS
    accuracy += up * 3 * (1 - accuracy / 100) + (0 if exact else luck.gauss(0, 0.6))
    right = round(N * min(0.99, max(0.02, accuracy / 100)))
    share, speed = wilson(right, N), tpf / cost * luck.uniform(0.97, 1.03)
    baseline = mode == "static" and "steps" not in label
    row = {
        "suite": "replica",
        "job": job,
        "backbone": backbone,
        "task": task,
        "head": head,
        "head_variant": (head if head in DIRECT else "default") if head else None,
        "head_source": "trained" if head else None,
        "trained_here": False,
        "head_reveal": ("gt-1-4" if head == "gt-1-4" else "gt-1") if head else None,
        "head_seed_of": "default" if head in SEEDS else None,
        "head_layers": DEPTHS.get(head, 3) if head else None,
        "status": "done",
        "note": "",
        "n": N,
        "correct": right,
        "accuracy": share.value,
        "accuracy_low": share.low,
        "accuracy_high": share.high,
        "tpf": tpf,
        "tpf_low": 0.99 * tpf,
        "tpf_high": 1.01 * tpf,
        "accepted_rounds": "",
        **({} if baseline else {"time_ratio": speed}),
        **({} if baseline else {"time_ratio_low": 0.97 * speed, "time_ratio_high": 1.03 * speed}),
        **label,
    }
    if mode == "remask":
        gain = share.value - (DYNAMIC[label["tau"]][0] + up) / 100
        at_speed = {"vs_dynamic_at_tpf": gain - 0.04, "vs_dynamic_at_time": gain - 0.3}
        for name, value in {"vs_dynamic": gain, **at_speed}.items():
            row |= {name: value, f"{name}_low": value - 0.02, f"{name}_high": value + 0.02}
    return row
