"""Claims about lossless decoding: nothing changes, forwards are saved, and what the head adds."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from mrp.report.cells import lookahead
from mrp.report.comparisons import select
from mrp.report.contrasts import Contrast, mean
from mrp.report.findings.heads import listed
from mrp.report.findings.place import Head, Place
from mrp.report.findings.readings import Counted, Measured
from mrp.report.settings import Line, is_usual, setting_name

PAPER_GAIN = 1.26  # the smallest mean speedup that the paper reports of speculative decoding
LATTICE = "lattice"
BEST = "at the best K"
AT_BEST = "by the clock at the best K"
CONTROL = "without a head (self-speculative)"


def lossless(modes: Sequence[str]) -> Callable[[Place], Iterator[Counted]]:
    """Every run of these modes, with every head and cap: the answers that are static's."""

    def judge(place: Place) -> Iterator[Counted]:
        rows = place.every[place.every["mode"].isin(modes)].dropna(subset=["same_text"])
        names = rows.apply(setting_name, axis=1) if len(rows) else rows["mode"]
        for name, mine in rows.groupby(names, sort=False):
            same, n = int(mine["same_text"].sum()), int(mine["compared_texts"].sum())
            yield Counted(str(name), "answers are static's, letter for letter", same, n)

    return judge


def as_dynamic(place: Place) -> Iterator[Counted]:
    """FreeDave: the answers that are those of dynamic decoding at the same tau."""
    rows = select(place.rows, mode="freedave").dropna(subset=["same_as_dynamic"])
    if len(rows):
        same, n = int(rows["same_as_dynamic"].sum()), int(rows["compared_to_dynamic"].sum())
        yield Counted("freedave", "answers are dynamic's at the same τ, letter for letter", same, n)


def saves_forwards(place: Place) -> Iterator[Measured]:
    """Speculative decoding's tokens per forward at its best K; beside it, those without a head."""
    heads = _drafting(place)
    for head in heads:
        by_k = place.of("speculative", head)
        best = max(by_k.values(), key=lambda row: float(row["tpf"]))
        note = f"K = {lookahead(best['k'])}, {best['head_per_token']:.2f} head passes a token"
        yield Measured(head.name, BEST, place.tpf(best), "tpf", above=PAPER_GAIN, note=note)
    without = place.of("self_speculative")
    if heads and without:
        best = max(without.values(), key=lambda row: float(row["tpf"]))
        note = f"K = {lookahead(best['k'])}"
        yield Measured(CONTROL, BEST, place.tpf(best), "tpf", note=note)


def saves_time(place: Place) -> Iterator[Measured]:
    """Speculative decoding's time ratio at its best K, and self-speculative's beside it."""
    heads = _drafting(place)
    for head in heads:
        found = _fastest(place, place.of("speculative", head))
        if found is not None:
            note = f"K = {lookahead(found[0])}"
            yield Measured(head.name, AT_BEST, found[1], "ratio", above=1, note=note)
    without = _fastest(place, place.of("self_speculative"))
    if heads and without is not None:
        note = f"K = {lookahead(without[0])}"
        yield Measured(CONTROL, AT_BEST, without[1], "ratio", note=note)


def drafts_better(place: Place) -> Iterator[Measured]:
    """A head against the backbone's own last distribution: tokens per forward at the same K."""
    rivals = place.of("self_speculative")
    for head in _drafting(place):
        mine = place.of("speculative", head)
        ks = sorted(mine.keys() & rivals.keys())
        if ks:
            gap = mean(place.tpf(mine[k]) - place.tpf(rivals[k]) for k in ks)
            quantity = f"than without a head, over K = {listed(ks)}"
            yield Measured(head.name, quantity, gap, "more tpf", above=0)


def head_pays(place: Place) -> Iterator[Measured]:
    """The same by the clock, each at its own best K."""
    without = _fastest(place, place.of("self_speculative"))
    for head in _drafting(place):
        found = _fastest(place, place.of("speculative", head))
        if found is not None and without is not None:
            note = f"with it {found[1].value:.2f} at K = {lookahead(found[0])}, "
            note += f"without {without[1].value:.2f} at K = {lookahead(without[0])}"
            yield Measured(
                head.name,
                "than without a head, each at its best K",
                found[1] - without[1],
                "more ratio",
                above=0,
                note=note,
            )


def shallow_is_faster(place: Place) -> Iterator[Measured]:
    """Speculative decoding's time ratio with the shallowest head against the deepest."""
    depths = place.depths("speculative")
    if len(depths) < 2:
        return
    least, most = min(depths), max(depths)
    ks = sorted(depths[least].keys() & depths[most].keys())
    gaps, forwards = [], []
    for k in ks:
        one, two = (place.time(depths[layers][k]) for layers in (least, most))
        if one is not None and two is not None:
            gaps.append(one - two)
            forwards.append(place.tpf(depths[least][k]) - place.tpf(depths[most][k]))
    if gaps:
        plural = "" if least == 1 else "s"
        yield Measured(
            f"{least} layer{plural}",
            f"than with {most}, over K = {listed(ks)}",
            mean(gaps),
            "more ratio",
            above=0,
            note=f"TPF {mean(forwards).value:+.2f}",
        )


def lattice_accepts_more(place: Place) -> Iterator[Measured]:
    """Verifying subsets of the drafts, too: tokens per forward beside the plain chain's."""
    rows = select(place.rows, mode=LATTICE)
    for name, mine in rows.groupby(rows.apply(setting_name, axis=1) if len(rows) else "mode"):
        gaps: list[Contrast] = []
        for _, row in mine.iterrows():
            chain = select(
                place.rows, mode="speculative", head=row["head"], k=row["k"], cap=row["cap"]
            )
            chain = chain[(chain["head_source"] == row["head_source"]) & is_usual(chain, ("cap",))]
            if not chain.empty:
                gaps.append(place.tpf(row) - place.tpf(chain.iloc[0]))
        if gaps:
            yield Measured(
                str(name), "than the chain alone at the same K", mean(gaps), "more tpf", above=0
            )


def _drafting(place: Place) -> list[Head]:
    """The residual heads that drafted."""
    return [head for head in place.heads("default", "k2") if place.of("speculative", head)]


def _fastest(place: Place, by_k: dict[float, Line]) -> tuple[float, Contrast] | None:
    """The K with the highest time ratio, and that; None where nothing was timed."""
    known = [(k, time) for k, row in by_k.items() if (time := place.time(row)) is not None]
    return max(known, key=lambda item: item[1].value, default=None)
