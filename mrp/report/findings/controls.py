"""Whether the setting can show anything: a good baseline, and what happens without any head."""

from __future__ import annotations

from collections.abc import Iterator

import pandas as pd

from mrp.report.findings.place import Place
from mrp.report.findings.readings import Measured

SYNTHETIC = "mini_"  # tasks that were made so that static's accuracy leaves room both ways
ROOM = (0.80, 0.98)
COLLAPSE = 0.20  # points of accuracy
COLLAPSE_TPF = 1.9


def room(place: Place) -> Iterator[Measured]:
    """Static's accuracy, on the generated tasks."""
    static = place.static
    if static is not None and place.task.startswith(SYNTHETIC):
        low, high = ROOM
        yield Measured("static", "right", place.accuracy(static), "percent", low, high)


def collapse(place: Place) -> Iterator[Measured]:
    """Static with fewer steps: several tokens from the same logits."""
    static = place.static
    if static is None:
        return
    for row in place.usual:
        if row["mode"] != "static" or pd.isna(row["steps"]) or row["tpf"] < COLLAPSE_TPF:
            continue
        subject = f"{row['steps']:.0f} steps a block"
        lost = place.accuracy(row) - place.accuracy(static)
        yield Measured(subject, "against static", lost, "points", below=-COLLAPSE)
        yield Measured(subject, "reached", place.tpf(row), "tpf")


def dynamic_loses(place: Place) -> Iterator[Measured]:
    """Dynamic at its lowest tau against its highest."""
    by_tau = place.of("dynamic")
    if len(by_tau) >= 2:
        low, high = min(by_tau), max(by_tau)
        lost = place.accuracy(by_tau[low]) - place.accuracy(by_tau[high])
        quantity = f"at τ = {low:g} against τ = {high:g}"
        yield Measured("dynamic", quantity, lost, "points", below=0)
