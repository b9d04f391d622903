"""The figures, a module each: PDF, PNG and SVG with the plotted numbers as CSV beside them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pandas as pd

from mrp.io import atomic_write_text
from mrp.report import style
from mrp.report.figures.acceptance import acceptance
from mrp.report.figures.depth import depth
from mrp.report.figures.headline import headline
from mrp.report.figures.lookahead import lookahead
from mrp.report.figures.pareto import pareto, pareto_time
from mrp.report.figures.parts import Drawing
from mrp.report.figures.remask import remask
from mrp.report.page import DIGITS

# The same names, in the same order, as mrp.grid.FIGURES.
DRAWERS: dict[str, Callable[[pd.DataFrame], Drawing]] = {
    "headline": headline,
    "pareto": pareto,
    "pareto_time": pareto_time,
    "lookahead": lookahead,
    "remask": remask,
    "acceptance": acceptance,
    "depth": depth,
}


def write_figures(rows: pd.DataFrame, out: Path) -> list[Path]:
    """Write all figures to `out`; the same records give the same bytes.

    A figure for which the suite has no runs says so in a sentence.

    Args:
        rows: of `comparisons.compare`.

    Returns:
        The files.
    """
    files = []
    for name, draw in DRAWERS.items():
        with style.styled():
            drawing = draw(rows)
            files += style.save(drawing.figure, out, name)
        path = Path(out) / f"{name}.csv"
        text = drawing.numbers.to_csv(index=False, float_format=DIGITS, lineterminator="\n")
        atomic_write_text(path, text)
        files.append(path)
    return files
