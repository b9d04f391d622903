"""What `mrp tune` prints and writes: the frontier, the choice, and what it rests on."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from mrp.report.statistics import wilson
from mrp.tuning.candidates import STATIC, Candidate, grid_line
from mrp.tuning.race import FEW, Facts, Race, Seen, Target

NEAR = 0.9  # of the leader's speed: close enough to be timed beside it


def finalists(race: Race, most: int = 4) -> list[Candidate]:
    """The leader and the next fastest that are good enough, those to be timed side by side."""
    facts = race.facts
    near = NEAR * facts.ratio(race.leader)
    good = [
        candidate
        for candidate in facts.seen
        if candidate not in (STATIC, race.leader)
        and not race.is_out(candidate)
        and facts.verdict(candidate) == "good"
        and facts.ratio(candidate) >= near
    ]
    good.sort(key=facts.ratio, reverse=True)
    leader = [] if race.leader == STATIC else [race.leader]
    return [*leader, *good][:most]


def frontier(race: Race, chosen: Candidate) -> list[Candidate]:
    """What is worth a row, slow ones first.

    That is static, the choice, the best of each mode that is good enough, and whatever nothing
    tested beats both in accuracy and in speed; the last on FEW problems at least.
    """
    facts = race.facts
    tested = [c for c in facts.seen if len(facts.outcomes(c)[0]) >= FEW or c.text == STATIC]
    gains = {candidate: gain(facts, candidate) for candidate in tested}
    fast = {candidate: facts.ratio(candidate) for candidate in tested}
    rows = {
        one
        for one in tested
        if not any(
            fast[two] >= fast[one]
            and gains[two] >= gains[one]
            and (fast[two] > fast[one] or gains[two] > gains[one])
            for two in tested
        )
    }
    best: dict[str, Candidate] = {}
    for candidate in sorted(tested, key=lambda one: fast[one]):
        if facts.verdict(candidate) == "good" and not race.is_out(candidate):
            best[candidate.mode] = candidate
    return sorted(rows | set(best.values()) | {STATIC, chosen}, key=facts.ratio)


def gain(facts: Facts, candidate: Candidate) -> float:
    """Accuracy minus static's, as far as is known; that of no right answer if nothing is."""
    found = facts.difference(candidate)
    return -1.0 if found is None else found.value


def promise(target: Target) -> str:
    """The target in words."""
    if target.points is None:
        lost = "lossless: static's own text"
    else:
        ruled = "the whole 95 % interval" if target.sure else "the estimate, not by its interval"
        lost = f"at most {100 * target.points:g} points of accuracy lost, decided by {ruled}"
    return f"{lost}; the fastest by {'the clock' if target.by == 'time' else 'tokens per forward'}"


def lines(
    race: Race, chosen: Candidate, timed: Mapping[Candidate, Mapping[str, Any]]
) -> Iterator[str]:
    """The table and what it says, a line each.

    Args:
        race: one that has been run.
        chosen: its leader, or the finalist that was timed best.
        timed: ratios measured in turns, by candidate.
    """
    facts = race.facts
    rows: list[tuple[str, ...]] = [("", "problems", "accuracy %", "points lost", "TPF", "x static")]
    for candidate in frontier(race, chosen):
        mark = "* " if candidate == chosen else "  "
        rows.append((mark + str(candidate), *_row(facts, candidate, timed.get(candidate))))
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for name, *cells in rows:
        padded = [cell.rjust(width) for cell, width in zip(cells, widths[1:], strict=True)]
        yield "  ".join([name.ljust(widths[0]), *padded])
    yield ""
    yield from _caveats(facts, chosen)


def _row(facts: Facts, candidate: Candidate, timed: Mapping[str, Any] | None) -> tuple[str, ...]:
    same = candidate.text == STATIC
    right, _, _ = facts.outcomes(STATIC if same else candidate)
    share = wilson(sum(right), len(right))
    lost = facts.difference(candidate)
    rows, n = facts.seen[candidate], facts.n(candidate)
    static = facts.seen[STATIC][:n]
    tpf = sum(row.generated for row in rows) / sum(row.forwards for row in rows)
    if candidate == STATIC:
        ratio = "1"
    elif timed is None:
        ratio = f"~{_pace(rows) / _pace(static):.2f}"
    elif timed["low"] is None:
        ratio = f"{timed['ratio']:.2f}"
    else:
        ratio = f"{timed['ratio']:.2f} ({timed['low']:.2f}-{timed['high']:.2f})"
    none = lost is None or same
    return (
        str(sum(len(row.right) for row in rows)),
        f"{100 * share.value:.1f} ({100 * share.low:.1f}-{100 * share.high:.1f})",
        "none" if none or lost is None else _lost(-lost.value, -lost.high, -lost.low),
        f"{tpf:.2f}",
        ratio,
    )


def _pace(rows: Sequence[Seen]) -> float:
    return sum(row.tokens for row in rows) / sum(row.seconds for row in rows)


def _lost(value: float, low: float, high: float) -> str:
    return f"{100 * value + 0:.1f} ({100 * low:.1f} to {100 * high:.1f})"


def _caveats(facts: Facts, chosen: Candidate) -> Iterator[str]:
    if facts.target.points is not None:
        lost = facts.difference(chosen)
        if chosen.text == STATIC:
            yield "Nothing faster was found that loses so little: the choice gives static's text."
        elif lost is not None and -lost.low > facts.target.points + 1e-9:
            yield (
                f"The interval reaches {-100 * lost.low:.1f} points lost: these problems decide by "
                "their estimate only, and the fastest of many looks better than it is. Confirm it "
                "on others."
            )
    rows = facts.seen[chosen]
    pairs = list(zip(rows, facts.seen[STATIC], strict=False))
    if chosen.text == STATIC and chosen != STATIC:
        other = sum(
            mine != static
            for row, base in pairs
            for mine, static in zip(row.answers, base.answers, strict=True)
        )
        count = sum(len(row.right) for row in rows)
        yield (
            f"{other} of {count} answers differ from static's, by rounding."
            if other
            else f"All {count} answers of the choice are static's, token for token."
        )


def effort(facts: Facts, candidates: int, seconds: float) -> str:
    """How much was decoded, beside what an exhaustive search would decode."""
    answers = sum(len(row.right) for rows in facts.seen.values() for row in rows)
    every = candidates * sum(len(row.right) for row in facts.seen[STATIC])
    share = 100 * answers / every
    return (
        f"The search decoded {answers} answers, {share:.1f} % of the {every} of all candidates on "
        f"all problems; with the timing in turns that took {seconds:.0f} s."
    )


def entry(
    race: Race,
    chosen: Candidate,
    heads: Mapping[str, str],
    tasks: Sequence[str],
    timed: Mapping[str, Any] | None = None,
) -> str:
    """The choice as lines of a suite's grid, with comments on where it comes from.

    `timed`: its time ratio measured in turns, which goes before the race's own.
    """
    facts = race.facts
    right, _, _ = facts.outcomes(STATIC if chosen.text == STATIC else chosen)
    share, ratio = 100 * sum(right) / len(right), facts.ratio(chosen)
    if facts.target.by == "time" and timed is not None:
        ratio = timed["ratio"]
    kind = "tokens/s" if facts.target.by == "time" else "tokens per forward"
    told = [
        f"# mrp tune: {promise(facts.target)}.",
        f"# {', '.join(tasks)}, {len(right)} problems: {share:.1f} % right, "
        f"{ratio:.2f} x static's {kind}.",
    ]
    if chosen.head is not None:
        told.append(f"# Its head, under `heads:`, is {heads[chosen.head]}")
    return "\n".join([*told, grid_line(chosen), ""])
