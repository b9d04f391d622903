"""What came out: the paper's claims, each judged by a rule from the records' intervals.

Nothing is typed in by hand: a claim holds where the whole interval is on its side, does not hold
where the whole interval is on the other side, and is undecided in between.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

import numpy as np
import pandas as pd

from mrp.report.cells import (
    RowSeries,
    lookahead,
    percent,
    percent_span,
    points,
    signed,
    span,
    times,
)
from mrp.report.comparisons import (
    curve_of,
    gain_at_equal_tpf,
    pair,
    reference,
    select,
)
from mrp.report.frame import Results
from mrp.report.statistics import (
    Estimate,
    Floats,
    mean_of,
    paired_difference,
    percentile,
)
from mrp.report.tables import remask_label

HOLDS, FAILS, OPEN, MIXED = "holds", "does not hold here", "undecided", "mixed"
SYNTHETIC = "mini_"  # tasks that were made so that static's accuracy leaves room both ways
ROOM = (0.80, 0.98)
COLLAPSE = 0.20  # points of accuracy
COLLAPSE_TPF = 1.9
WANTED_TPF = 1.5


@dataclass(frozen=True)
class Evidence:
    """What one backbone's runs on one task say about a claim."""

    place: str
    verdict: str
    text: str


@dataclass(frozen=True)
class Finding:
    """A claim, how it is judged, and the evidence."""

    claim: str
    rule: str
    evidence: tuple[Evidence, ...]

    @property
    def verdict(self) -> str:
        """The verdict of all evidence if it agrees, else mixed."""
        verdicts = {item.verdict for item in self.evidence}
        return verdicts.pop() if len(verdicts) == 1 else MIXED


@dataclass(frozen=True)
class Place:
    """One backbone on one task: the rows with a record."""

    results: Results
    title: str
    rows: pd.DataFrame

    def one(self, **wanted: object) -> RowSeries | None:
        """The row with these values, if its job has a record."""
        found = select(self.rows, **wanted)
        return None if found.empty else found.iloc[0]

    def correct(self, row: RowSeries) -> Floats:
        """Right (1) or wrong (0), problem by problem [n]."""
        found = self.results.outcomes[row["job"], row["task"]].correct
        return found.astype(np.float64)

    def minus(self, first: RowSeries, second: RowSeries) -> Estimate:
        """Difference of two rows' accuracies."""
        one, two = pair(self.results, first, second)
        return paired_difference(one.correct, two.correct)

    def speeds(self, row: RowSeries) -> Floats:
        """A row's tokens per forward in each resample [RESAMPLES]."""
        return curve_of(self.results, [row]).speeds[:, 0]


Found = Iterator[tuple[str, str]]  # (verdict, text)


def build_findings(results: Results, rows: pd.DataFrame) -> list[Finding]:
    """The claims about which the records say anything.

    Args:
        results: of `frame.load_results`.
        rows: of `comparisons.compare`.
    """
    done = select(rows, status="done")
    places = [
        Place(results, f"{backbone} · {task}", cell)
        for (backbone, task), cell in done.groupby(["backbone", "task"], sort=False)
    ]
    findings = []
    for claim, rule, judge_place in CLAIMS:
        evidence = tuple(
            Evidence(place.title, verdict, text)
            for place in places
            for verdict, text in judge_place(place)
        )
        if evidence:
            findings.append(Finding(claim, rule, evidence))
    return findings


# ---- the claims ----------------------------------------------------------------------------------


def _room(place: Place) -> Found:
    static = reference(place.rows)
    if static is None or not str(static["task"]).startswith(SYNTHETIC):
        return
    low, high = static["accuracy_low"], static["accuracy_high"]
    inside = ROOM[0] <= low and high <= ROOM[1]
    outside = high < ROOM[0] or low > ROOM[1]
    text = f"static {percent(static['accuracy'])} % ({percent_span(low, high)})"
    yield HOLDS if inside else FAILS if outside else OPEN, text


def _collapse(place: Place) -> Found:
    static = reference(place.rows)
    controls = select(place.rows, mode="static").dropna(subset=["steps"])
    for _, row in controls[controls["tpf"] >= COLLAPSE_TPF].iterrows():
        if static is None:
            continue
        lost = place.minus(static, row)
        yield (
            _above(lost, COLLAPSE),
            f"{row['steps']:.0f} steps a block (TPF {row['tpf']:.2f}): "
            f"{percent(row['accuracy'])} %, {_points(lost, flip=True)} against static",
        )


def _falls_behind(place: Place) -> Found:
    for residual, direct, ks in _head_pairs(place, ("default", "k2"), "direct"):
        if len(ks) < 2:
            continue
        least, most = (
            [place.one(mode="direct", head=head, k=k) for head in (residual, direct)]
            for k in (ks[0], ks[-1])
        )
        ahead = place.minus(most[0], most[1])  # type: ignore[arg-type]
        per_problem = [place.correct(row) for row in (*most, *least) if row is not None]
        growth = mean_of(per_problem[0] - per_problem[1] - per_problem[2] + per_problem[3])
        first = place.minus(least[0], least[1])  # type: ignore[arg-type]
        yield (
            _all([_above(ahead, 0), _above(growth, 0)]),
            f"{residual} ahead of {direct} by {points(first.value)} points at K = {ks[0]:.0f}, "
            f"{_points(ahead)} at K = {ks[-1]:.0f}; growth {_points(growth)}",
        )


def _chained(place: Place) -> Found:
    for chained, single, ks in _head_pairs(place, ("k2",), "default"):
        rows = [place.one(mode="direct", head=head, k=ks[-1]) for head in (chained, single)]
        if rows[0] is not None and rows[1] is not None:
            gain = place.minus(rows[0], rows[1])
            text = f"{chained} minus {single} at K = {ks[-1]:.0f}: {_points(gain)}"
            yield _above(gain, 0), text


def _dynamic_loses(place: Place) -> Found:
    rows = select(place.rows, mode="dynamic").sort_values("tau")
    if len(rows) < 2:
        return
    low, high = rows.iloc[0], rows.iloc[-1]
    lost = place.minus(high, low)
    yield (
        _above(lost, 0),
        f"{percent(high['accuracy'])} % at τ = {high['tau']:g}, {percent(low['accuracy'])} % at "
        f"τ = {low['tau']:g}: {_points(lost, flip=True)}",
    )


def _gain_at_equal_tau(place: Place) -> Found:
    for name, rows in _remasks(place):
        gains = []
        for _, row in rows.iterrows():
            dynamic = place.one(mode="dynamic", tau=row["tau"])
            if dynamic is not None:
                pair(place.results, row, dynamic)
                gains.append(place.correct(row) - place.correct(dynamic))
        if gains:
            gain = mean_of(np.mean(gains, axis=0))
            text = f"{name}: {_points(gain)} on average over {len(gains)} τ"
            yield _above(gain, 0), text


def _gain_at_equal_tpf(place: Place) -> Found:
    for name, rows in _remasks(place):
        found = [gain_at_equal_tpf(place.results, row, place.rows) for _, row in rows.iterrows()]
        gains = [(value, replicates) for _, value, replicates in filter(None, found)]
        if gains:
            mean = float(np.mean([value for value, _ in gains]))
            gain = percentile(mean, np.mean([replicates for _, replicates in gains], axis=0))
            text = f"{name}: {_points(gain)} on average over {len(gains)} τ"
            yield _above(gain, 0), text
        elif not select(place.rows, mode="dynamic").empty:
            yield OPEN, f"{name}: dynamic has no point as slow or as fast"


def _lossless(place: Place) -> Found:
    for name, rows in _speculators(place, ("speculative", "self_speculative")):
        compared = rows.dropna(subset=["same_text"])
        if compared.empty:
            continue
        same, n = int(compared["same_text"].sum()), int(compared["compared_texts"].sum())
        text = f"{name}: {same} of {n} answers the same, over K = {_ks(compared)}"
        yield HOLDS if same == n else FAILS, text


def _fewer_forwards(place: Place) -> Found:
    for name, rows in _speculators(place, ("speculative",)):
        best = _best(rows, "tpf")
        tpf = Estimate(best["tpf"], best["tpf_low"], best["tpf_high"])
        yield (
            _above(tpf, WANTED_TPF),
            f"{name}: TPF {tpf.value:.2f} ({span(tpf.low, tpf.high)}) at "
            f"K = {lookahead(best['k'])}, with {best['head_per_token']:.2f} head passes a token",
        )


def _head_beats_none(place: Place) -> Found:
    rivals = select(place.rows, mode="self_speculative")
    for name, rows in _speculators(place, ("speculative",)):
        ks = sorted(set(rows["k"]) & set(rivals["k"]))
        if not ks:
            continue
        pairs = [(select(rows, k=k).iloc[0], select(rivals, k=k).iloc[0]) for k in ks]
        gap = percentile(
            float(np.mean([mine["tpf"] - theirs["tpf"] for mine, theirs in pairs])),
            np.mean([place.speeds(mine) - place.speeds(theirs) for mine, theirs in pairs], axis=0),
        )
        text = f"{name}: {_signed(gap)} TPF on average over K = {_ks(rows[rows['k'].isin(ks)])}"
        mine, theirs = pairs[-1]
        if not pd.isna(mine["time_ratio"]) and not pd.isna(theirs["time_ratio"]):
            text += (
                f"; by the clock {times(mine['time_ratio'])} static with it, "
                f"{times(theirs['time_ratio'])} without at K = {lookahead(ks[-1])}"
            )
        yield _above(gap, 0), text


def _faster(place: Place) -> Found:
    for name, rows in _speculators(place, ("speculative", "self_speculative", "direct")):
        timed = rows.dropna(subset=["time_ratio", "time_ratio_low"])
        if timed.empty:
            continue
        best = _best(timed, "time_ratio")
        ratio = Estimate(best["time_ratio"], best["time_ratio_low"], best["time_ratio_high"])
        mode = str(best["mode"]).replace("_", "-")
        label: str = mode if pd.isna(best["head"]) else f"{mode}, {name}"
        yield (
            _above(ratio, 1),
            f"{label}: {times(ratio.value)} static ({span(ratio.low, ratio.high)}) at "
            f"K = {lookahead(best['k'])}, its best",
        )


CLAIMS: tuple[tuple[str, str, Callable[[Place], Found]], ...] = (
    (
        "Static decoding is good, and leaves room to lose",
        f"accuracy's interval within {ROOM[0]:.0%} to {ROOM[1]:.0%}",
        _room,
    ),
    (
        "Without a head, several tokens from the same logits ruin the answers",
        f"at TPF 2 and above, the loss against static is more than {100 * COLLAPSE:.0f} points",
        _collapse,
    ),
    (
        "A head trained directly falls behind a residual one as K grows",
        "the residual head is ahead at the largest K, and more so than at the smallest",
        _falls_behind,
    ),
    (
        "Training on two chained reveals pays at the largest K",
        "the k2 head is ahead of the default head there",
        _chained,
    ),
    (
        "Speculative decoding changes no answer",
        "every answer equals static's, letter for letter",
        _lossless,
    ),
    (
        "Speculative decoding saves forwards",
        f"TPF above {WANTED_TPF} at its best K",
        _fewer_forwards,
    ),
    (
        "A head drafts better than the backbone's own last distribution",
        "more tokens per forward than self-speculative decoding at the same K",
        _head_beats_none,
    ),
    (
        "Fewer forwards are less time, too",
        "tokens per second above static's at the best K, on this device and with these sizes",
        _faster,
    ),
    (
        "Dynamic decoding loses accuracy as τ falls",
        "less accurate at its lowest than at its highest τ",
        _dynamic_loses,
    ),
    (
        "Remasking gains at the same τ",
        "more accurate than dynamic at the same τ, on average",
        _gain_at_equal_tau,
    ),
    (
        "Remasking gains at the same speed",
        "more accurate than dynamic interpolated at the same TPF, on average",
        _gain_at_equal_tpf,
    ),
)


# ---- parts ---------------------------------------------------------------------------------------


def _above(estimate: Estimate, limit: float) -> str:
    if estimate.low > limit:
        return HOLDS
    return FAILS if estimate.high < limit else OPEN


def _all(verdicts: Iterable[str]) -> str:
    """Holds if all do, fails if one does."""
    found = list(verdicts)
    return FAILS if FAILS in found else OPEN if OPEN in found else HOLDS


def _points(estimate: Estimate, flip: bool = False) -> str:
    """+3.1 points (+1.0 to +5.2); `flip` turns a loss into a negative difference."""
    value, low, high = estimate.value, estimate.low, estimate.high
    if flip:
        value, low, high = -value, -high, -low
    return f"{points(value)} points ({points(low)} to {points(high)})"


def _signed(estimate: Estimate) -> str:
    return f"{signed(estimate.value, 2)} ({signed(estimate.low, 2)} to {signed(estimate.high, 2)})"


def _best(rows: pd.DataFrame, name: str) -> RowSeries:
    return rows.sort_values(name, ascending=False, kind="stable").iloc[0]


def _ks(rows: pd.DataFrame) -> str:
    return ", ".join(lookahead(k) for k in sorted(set(rows["k"])))


def _head_pairs(
    place: Place, variants: tuple[str, ...], rival: str
) -> Iterator[tuple[str, str, list[float]]]:
    """(head, rival head, K that both have) in direct decoding, for heads of the same source."""
    rows = select(place.rows, mode="direct")
    rows = rows[(rows["scale"] == 1) & (rows["shortlist"] == 0)]
    rivals = select(rows, head_variant=rival)
    for (head, source), mine in rows[rows["head_variant"].isin(variants)].groupby(
        ["head", "head_source"], sort=False
    ):
        for other, theirs in select(rivals, head_source=source).groupby("head", sort=False):
            ks = sorted(set(mine["k"]) & set(theirs["k"]))
            if ks:
                yield str(head), str(other), ks


def _remasks(place: Place) -> Iterator[tuple[str, pd.DataFrame]]:
    """Each variant of remasking with its rows over tau."""
    rows = select(place.rows, mode="remask")
    for _, mine in rows.groupby(["head", "condition", "rule", "delta"], sort=False, dropna=False):
        label = remask_label(mine.iloc[0])
        yield f"{label.text.removeprefix('remask, ')} ({label.detail})", mine


def _speculators(place: Place, modes: tuple[str, ...]) -> Iterator[tuple[str, pd.DataFrame]]:
    """Each way of drafting with its rows over K."""
    rows = place.rows[place.rows["mode"].isin(modes)]
    for _, mine in rows.groupby(["mode", "head", "shortlist"], sort=False, dropna=False):
        first = mine.iloc[0]
        name = str(first["mode"]).replace("_", "-") if pd.isna(first["head"]) else first["head"]
        name += f", shortlist {first['shortlist']:.0f}" if first["shortlist"] > 0 else ""
        trained = first["head_source"] == "trained"
        yield f"{name} (trained here)" if trained else name, mine
