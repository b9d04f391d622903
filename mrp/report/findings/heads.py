"""Claims about direct decoding: which head is better, what it costs, how deep it should be."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from mrp.report.cells import lookahead
from mrp.report.contrasts import mean, pooled
from mrp.report.findings.place import Head, Place
from mrp.report.findings.readings import Measured
from mrp.report.settings import Line

FLAT = 0.01  # points of accuracy: what further layers may bring where the gain is called over
SWEET = (2, 3)


def residual_ahead(place: Place) -> Iterator[Measured]:
    """Residual heads minus the direct one, over all K."""
    for name, mine, theirs, ks in _pairs(place, ("default", "k2"), "direct"):
        gap = mean(place.accuracy(mine[k]) - place.accuracy(theirs[k]) for k in ks)
        yield Measured(name, f"on average over K = {listed(ks)}", gap, "points", above=0)


def lead_grows(place: Place) -> Iterator[Measured]:
    """The same at the largest K minus the same at the smallest."""
    for name, mine, theirs, ks in _pairs(place, ("default", "k2"), "direct"):
        if len(ks) < 2:
            continue
        least, most = (place.accuracy(mine[k]) - place.accuracy(theirs[k]) for k in (ks[0], ks[-1]))
        quantity = f"more at K = {lookahead(ks[-1])} than at K = {lookahead(ks[0])}"
        yield Measured(name, quantity, most - least, "points", above=0)


def chaining_pays(place: Place) -> Iterator[Measured]:
    """The head trained on two chained reveals minus the default one, where there is a chain."""
    for name, mine, theirs, ks in _pairs(place, ("k2",), "default"):
        chained = [k for k in ks if k >= 2]
        if chained:
            gap = mean(place.accuracy(mine[k]) - place.accuracy(theirs[k]) for k in chained)
            yield Measured(name, f"on average over K = {listed(chained)}", gap, "points", above=0)


def trades(place: Place) -> Iterator[Measured]:
    """Direct decoding loses accuracy and gains speed, and more so with every K."""
    static = place.static
    for head in place.heads("default", "k2", "direct"):
        by_k = place.of("direct", head)
        if static is None or not by_k:
            continue
        least, most = by_k[min(by_k)], by_k[max(by_k)]
        at = f"at K = {lookahead(least['k'])}"
        lost = place.accuracy(least) - place.accuracy(static)
        yield Measured(head.name, f"against static {at}", lost, "points", below=0)
        time = place.time(least)
        if time is not None:
            yield Measured(head.name, f"by the clock {at}", time, "ratio", above=1)
        else:
            yield Measured(head.name, at, place.tpf(least), "tpf", above=1)
        if len(by_k) > 1:
            further = place.accuracy(most) - place.accuracy(least)
            quantity = f"more from there to K = {lookahead(most['k'])}"
            yield Measured(head.name, quantity, further, "points", below=0)


def sweet_depth(place: Place) -> Iterator[Measured]:
    """Direct decoding with two or three layers against one, and against many."""
    depths = place.depths("direct")
    middle = [layers for layers in SWEET if layers in depths]
    if not middle or min(depths) >= middle[0] or max(depths) <= middle[-1]:
        return
    best = middle[-1]
    for other, limit in ((min(depths), 0.0), (max(depths), -FLAT)):
        ks = sorted(depths[best].keys() & depths[other].keys())
        found = pooled(
            [place.accuracy(depths[best][k]) - place.accuracy(depths[other][k]) for k in ks]
        )
        if found is not None:
            quantity = f"against {other} layer{'' if other == 1 else 's'}, over K = {listed(ks)}"
            yield Measured(f"{best} layers", quantity, found, "points", above=limit)


def listed(ks: Sequence[float]) -> str:
    """1, 2, 3."""
    return ", ".join(lookahead(k) for k in ks)


def _pairs(
    place: Place, variants: tuple[str, ...], rival: str
) -> Iterator[tuple[str, dict[float, Line], dict[float, Line], list[float]]]:
    """(names, rows by K, the rival's rows by K, K of both) for main heads of one source."""
    for head in place.heads(*variants):
        for other in place.heads(rival):
            mine, theirs = place.of("direct", head), place.of("direct", other)
            ks = sorted(mine.keys() & theirs.keys())
            if other.source == head.source and ks:
                yield _versus(head, other), mine, theirs, ks


def _versus(head: Head, other: Head) -> str:
    return f"{head.name} minus {other.name}"
