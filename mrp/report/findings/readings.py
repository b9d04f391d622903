"""What a claim is judged by: a number with an interval and the side it has to be on, or a count."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from math import inf
from typing import TypeAlias

from mrp.report.cells import percent, percent_span, points, signed, signed_span, span, times
from mrp.report.contrasts import Contrast, mean, share_of
from mrp.report.statistics import Estimate

HOLDS, FAILS, OPEN, MIXED = "holds", "does not hold here", "undecided", "mixed"
FEW = 30  # problems: as many that are all alike leave room for a tenth that are not (rule of three)
INCOMPLETE = "incomplete"  # no verdict: some of the runs that it would rest on have no record


@dataclass(frozen=True)
class Measured:
    """A number of one backbone on one task, or of several together.

    Attributes:
        subject: what is judged, such as a head; readings of one subject are pooled.
        quantity: what the number is, in words that follow it; readings of one quantity are pooled.
        contrast: the number.
        unit: "percent" or "points" of accuracy, "tpf" or "ratio", "more tpf" or "more ratio" for
            differences of those, "times" for a quotient.
        above, below: where its whole interval has to lie for the claim to hold; without either
            the number only stands beside the others, as a control.
        note: what else there is to say here.
        goal: whether the limit is one that was set in advance, so that the text says if it is met.
    """

    subject: str
    quantity: str
    contrast: Contrast
    unit: str
    above: float = -inf
    below: float = inf
    note: str = ""
    goal: bool = False

    @property
    def verdict(self) -> str:
        """Holds where the interval lies inside the limits, fails where it lies outside.

        Empty for a control. Undecided where a bootstrap over few problems has no width: that they
        are all alike says little of others.
        """
        if self.above == -inf and self.below == inf:
            return ""
        estimate = self.estimate
        if self.all_alike:
            return OPEN
        if self.above < estimate.low and estimate.high < self.below:
            return HOLDS
        return FAILS if estimate.high < self.above or estimate.low > self.below else OPEN

    @property
    def estimate(self) -> Estimate:
        """The number with its interval; Wilson's for an accuracy of which all resamples agree."""
        return share_of(self.contrast) if self.unit == "percent" else self.contrast.estimate

    @property
    def all_alike(self) -> bool:
        """Whether all resamples agree because there are too few problems to differ."""
        problems = self.contrast.problems
        few = problems is not None and problems < FEW
        return few and self.contrast.flat and self.unit != "percent"

    @property
    def number(self) -> str:
        """The number and its interval."""
        text, problems = show(self.estimate, self.unit), self.contrast.problems
        if problems is None or self.unit == "percent" or not self.contrast.flat:
            return text
        why = f"{problems} problems, all alike" if self.all_alike else "no spread over problems"
        return f"{text.rpartition(' (')[0]} (no interval: {why})"

    @property
    def against_limit(self) -> str:
        """Whether a goal is met, in words; by how much it is missed, if not."""
        if not self.goal:
            return ""
        value = self.contrast.value
        missing = max(self.above - value, value - self.below)
        if missing <= 0:
            return ": met"
        by = f"{percent(missing)} points" if self.unit == "points" else times(missing)
        return f": missed by {by}" if set(by) & set("123456789") else ": just missed"


@dataclass(frozen=True)
class Quotient(Measured):
    """One number over another; of several places, the quotient of the means.

    Attributes:
        parts: the two numbers.
    """

    parts: tuple[Contrast, ...] = ()

    @classmethod
    def of(
        cls,
        subject: str,
        quantity: str,
        one: Contrast,
        other: Contrast,
        *,
        above: float = -inf,
        below: float = inf,
        note: str = "",
    ) -> Quotient:
        """`one` over `other`; with a goal, if there is a limit."""
        goal = above > -inf or below < inf
        limits = {"above": above, "below": below}
        ratio = one / other
        return cls(
            subject, quantity, ratio, "times", **limits, note=note, goal=goal, parts=(one, other)
        )


@dataclass(frozen=True)
class Counted:
    """How many of `n` answers are as they must be: all of them, or the claim fails."""

    subject: str
    quantity: str
    same: int
    n: int

    @property
    def verdict(self) -> str:
        """Holds if all are."""
        return HOLDS if self.same == self.n else FAILS

    @property
    def number(self) -> str:
        """The count."""
        return f"{self.same} of {self.n}"


Reading: TypeAlias = Measured | Counted


def pool(readings: Sequence[Reading]) -> list[Reading]:
    """Readings of several tasks or backbones together, in the order of their subjects.

    Means for numbers, sums for counts; a backbone or task that lacks a subject is left out there.
    """
    groups: dict[tuple[str, str], list[Reading]] = {}
    for reading in readings:
        groups.setdefault((reading.subject, reading.quantity), []).append(reading)
    return [_together(group) for group in groups.values()]


def _together(group: list[Reading]) -> Reading:
    first = group[0]
    if isinstance(first, Counted):
        counts = [reading for reading in group if isinstance(reading, Counted)]
        return replace(
            first, same=sum(count.same for count in counts), n=sum(count.n for count in counts)
        )
    notes = {reading.note for reading in group if isinstance(reading, Measured)}
    note = first.note if len(notes) == 1 else ""
    if isinstance(first, Quotient):
        parts = [reading.parts for reading in group if isinstance(reading, Quotient)]
        one, other = (mean(part[place] for part in parts) for place in (0, 1))
        return replace(first, contrast=one / other, parts=(one, other), note=note)
    numbers = [reading.contrast for reading in group if isinstance(reading, Measured)]
    return replace(first, contrast=mean(numbers), note=note)


def verdict_of(readings: Iterable[Reading]) -> str:
    """One verdict for readings of one level.

    A subject holds if all its quantities do and fails if one does. The claim holds, fails or is
    undecided where all subjects agree, and is mixed where some hold and some fail. One answer that
    is not as it must be fails the claim for all.
    """
    subjects: dict[str, list[str]] = {}
    for reading in readings:
        if isinstance(reading, Counted) and reading.verdict == FAILS:
            return FAILS
        if reading.verdict:
            subjects.setdefault(reading.subject, []).append(reading.verdict)
    return agree(_all(found) for found in subjects.values())


def agree(verdicts: Iterable[str]) -> str:
    """The verdict of all if it is the same; mixed where one holds and another fails."""
    found = set(verdicts)
    if len(found) == 1:
        return found.pop()
    return MIXED if MIXED in found or {HOLDS, FAILS} <= found else OPEN


def _all(verdicts: Sequence[str]) -> str:
    return FAILS if FAILS in verdicts else OPEN if OPEN in verdicts else HOLDS


def in_words(readings: Sequence[Reading]) -> list[str]:
    """A text for each subject, its quantities in a row; counts that are full as one total."""
    counts = [reading for reading in readings if isinstance(reading, Counted)]
    full = [count for count in counts if count.verdict == HOLDS]
    texts: dict[str, str] = {}
    if full:
        answers = sum(count.n for count in full)
        ways = "one way" if len(full) == 1 else f"{len(full)} ways"
        texts[""] = f"{answers} of {answers} {full[0].quantity}, in {ways} of decoding"
    for reading in readings:
        if reading in full:
            continue
        note = f" ({reading.note})" if isinstance(reading, Measured) and reading.note else ""
        limit = reading.against_limit if isinstance(reading, Measured) else ""
        said = f"{reading.number} {reading.quantity}{limit}{note}"
        before = texts.get(reading.subject)
        texts[reading.subject] = f"{before}, {said}" if before else f"{reading.subject}: {said}"
    return list(texts.values())


def show(estimate: Estimate, unit: str) -> str:
    """A number with its interval, in its unit."""
    value, low, high = estimate.value, estimate.low, estimate.high
    if unit == "percent":
        return f"{percent(value)} % ({percent_span(low, high)})"
    if unit == "points":
        return f"{points(value)} points ({points(low)} to {points(high)})"
    if unit == "tpf":
        return f"TPF {value:.2f} ({span(low, high)})"
    if unit == "ratio":
        return f"{times(value)} static ({span(low, high)})"
    if unit == "times":
        return f"{times(value)} ({span(low, high)})"
    name = {"more tpf": " TPF", "more ratio": "\N{MULTIPLICATION SIGN} static"}[unit]
    return f"{signed(value, 2)}{name} ({signed_span(low, high)})"
