"""tables.tex: the page's tables for a paper, with booktabs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from mrp.report.cells import Cell, Row, Table

PREAMBLE = r"""% Written by `mrp report tables`. Compiles by itself; a paper takes a table's
% environment and loads array, booktabs, longtable and textcomp.
\documentclass{article}
\usepackage[T1]{fontenc}
\usepackage[utf8]{inputenc}
\usepackage[landscape,margin=1.5cm]{geometry}
\usepackage{array,booktabs,longtable,textcomp}
\setlength{\tabcolsep}{2.5pt}
\begin{document}
\scriptsize
"""
# What stands for itself in HTML and not in TeX; the page copies its tables by it, too.
SPECIAL = {
    "\\": r"\textbackslash{}",
    "^": r"\^{}",
    "~": r"\~{}",
    **{character: f"\\{character}" for character in "{}$&#%_"},
    "<": r"$<$",
    ">": r"$>$",
    "|": r"$|$",
    "\N{MINUS SIGN}": "$-$",
    "\N{MULTIPLICATION SIGN}": r"$\times$",
    "\N{PLUS-MINUS SIGN}": r"$\pm$",
    "\N{EN DASH}": "--",
    "\N{LATIN SMALL LETTER E WITH ACUTE}": r"\'e",
    "\N{LATIN SMALL LETTER U WITH DIAERESIS}": r"\"u",
    "\N{MIDDLE DOT}": r"\textperiodcentered{}",
    "\N{GREEK SMALL LETTER TAU}": r"$\tau$",
    "\N{GREEK SMALL LETTER DELTA}": r"$\delta$",
    "\N{GREEK SMALL LETTER GAMMA}": r"$\gamma$",
}


LONG = 30  # characters
# A column of texts that are longer.
WORDS = r">{\raggedright\arraybackslash}p{3.2cm}"


def latex(suite: str, tables: Sequence[Table]) -> str:
    """A document with every table of a suite; the best of a column in bold, as on the page."""
    parts = [line for table in tables for line in _table(suite, table)]
    return PREAMBLE + "\n".join(parts) + "\n\\end{document}\n"


def escape(text: str) -> str:
    """Any text as TeX source; what TeX's fonts lack becomes a question mark."""
    escaped = (SPECIAL.get(character, character) for character in text)
    return "".join(part if part.isascii() else "?" for part in escaped)


def _table(suite: str, table: Table) -> Iterator[str]:
    columns = "".join(
        WORDS if _holds_sentences(table, place) else "l" if place < table.labels else "r"
        for place in range(len(table.columns))
    )
    yield rf"\begin{{longtable}}{{@{{}}{columns}@{{}}}}"
    yield rf"\caption{{{escape(table.title)} (suite {escape(suite)}).}}\\"
    yield r"\toprule"
    yield _line(escape(heading) for heading, _ in table.columns)
    yield _line(escape(unit) for _, unit in table.columns)
    yield r"\midrule"
    yield r"\endhead"
    for number, group in enumerate(table.groups):
        if number:
            yield r"\addlinespace"
        title = rf"\textbf{{{escape(group.title)}}} {escape(group.note)}".rstrip()
        yield rf"\multicolumn{{{len(table.columns)}}}{{@{{}}l}}{{{title}}}\\"
        for row in group.rows:
            yield _row(row, table)
    yield r"\bottomrule"
    yield r"\end{longtable}"


def _holds_sentences(table: Table, place: int) -> bool:
    """Whether a column has a text so long that it has to be broken into lines."""
    rows = [row for group in table.groups for row in group.rows]
    if place < table.labels:
        texts = [row.labels[place].label for row in rows]
    else:
        texts = [row.cells[place - table.labels].text for row in rows if row.cells]
    return max(map(len, texts), default=0) > LONG


def _row(row: Row, table: Table) -> str:
    labels = [escape(cell.label) for cell in row.labels]
    if row.missing:
        width = len(table.columns) - table.labels
        return _line([*labels, rf"\multicolumn{{{width}}}{{l}}{{{escape(row.missing)}}}"])
    return _line([*labels, *(_cell(cell) for cell in row.cells)])


def _cell(cell: Cell) -> str:
    text = escape(cell.text)
    return rf"\textbf{{{text}}}" if cell.best else text


def _line(cells: Iterator[str] | Sequence[str]) -> str:
    return " & ".join(cells) + r" \\"
