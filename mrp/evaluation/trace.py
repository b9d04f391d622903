"""A decoded answer as a table: token by token the round, the revealer and the vetoes.

Colours on a terminal; the same table in plain letters elsewhere.
"""

from __future__ import annotations

from collections.abc import Iterator

from rich.console import Console
from rich.text import Text

from mrp.decoding import Decoded, tokens_per_forward
from mrp.evaluation.record import LETTERS

MEANINGS = {
    "backbone": "backbone's own pick",
    "head": "head's pick, unverified",
    "draft": "draft, accepted by the backbone",
    "bonus": "backbone's pick after the last accepted draft",
}
STYLES = {"backbone": "blue", "head": "magenta", "draft": "green", "bonus": "yellow"}
MARGIN = 8  # columns for the name of a row


def show_trace(
    console: Console, decoded: Decoded, tokens: list[str], first_block: int, block_size: int
) -> None:
    """Print the legend, one small table a block and the totals.

    Args:
        console: where to print.
        decoded: the answer.
        tokens: its tokens as text, one a generated position, padding included.
        first_block: generated positions in the first block, which the prompt's tail shares.
        block_size: positions in every later block.
    """
    console.print()
    _show_legend(console, decoded)
    answer = decoded.counts["answer_tokens"]
    for number, places in enumerate(_blocks(len(tokens), first_block, block_size), start=1):
        console.print(Text(f"block {number}", style="bold"))
        for line in _fit(places, tokens, max(console.width, 40) - MARGIN):
            _show_line(console, decoded, tokens, line, answer)
    _show_totals(console, decoded)


def _show_legend(console: Console, decoded: Decoded) -> None:
    used = [source for source in LETTERS if source in decoded.trace.source]
    for source in used:
        console.print(Text(f"  {LETTERS[source]}  {MEANINGS[source]}", style=STYLES[source]))
    if any(decoded.trace.remasked):
        console.print("  again: how often the token was masked again before it stayed")


def _blocks(n: int, first: int, size: int) -> Iterator[range]:
    """The places 0 .. n-1 block by block."""
    start, end = 0, first
    while start < n:
        yield range(start, min(end, n))
        start, end = end, end + size


def _fit(places: range, tokens: list[str], width: int) -> Iterator[list[int]]:
    """Cut a block into lines that fit the console."""
    column = _column(places, tokens)
    per_line = max(width // column, 1)
    for start in range(0, len(places), per_line):
        yield list(places[start : start + per_line])


def _show_line(
    console: Console, decoded: Decoded, tokens: list[str], places: list[int], answer: int
) -> None:
    trace = decoded.trace
    column = _column(places, tokens)
    rows = {
        "token": [_visible(tokens[i]) for i in places],
        "round": [str(trace.step[i]) for i in places],
        "who": [LETTERS[trace.source[i]] for i in places],
    }
    if any(trace.remasked):
        rows["again"] = [str(trace.remasked[i] or ".") for i in places]
    for name, cells in rows.items():
        line = Text(f"  {name:<{MARGIN - 2}}")
        for i, cell in zip(places, cells, strict=True):
            # What stands after the end token is filling, not answer.
            style = "dim" if i >= answer else STYLES[trace.source[i]]
            line.append(f"{cell:<{column}}", style=style)
        line.rstrip()
        console.print(line, no_wrap=True, overflow="ignore", crop=False)


def _column(places: range | list[int], tokens: list[str]) -> int:
    return max(3, *(len(_visible(tokens[i])) for i in places)) + 1


def _visible(token: str) -> str:
    """A token in one line; quoted where blanks would hide."""
    return token if token.strip() == token and token.isprintable() and token else repr(token)


def _show_totals(console: Console, decoded: Decoded) -> None:
    counts = decoded.counts
    console.print(
        f"{counts['answer_tokens']} answer tokens ({counts['generated']} positions), "
        f"{counts['denoise']} denoise + {counts['verify']} verify forwards, "
        f"TPF {tokens_per_forward(counts):.2f}"
    )
    if counts["proposed"]:
        console.print(
            f"drafts: {counts['proposed']} proposed, {counts['accepted']} accepted, "
            f"{counts['bonus']} bonus tokens"
        )
    if counts["vetoed"]:
        console.print(f"{counts['vetoed']} tokens masked again")
