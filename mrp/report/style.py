"""How the figures look: one place for colours, markers, fonts and file formats."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")

import matplotlib.pyplot as plt
from matplotlib.figure import Figure

from mrp.io import atomic_write

COLUMN = 3.4  # inches: a column of a two-column paper; every panel is as wide
FORMATS = ("pdf", "png", "svg")

# Okabe and Ito's colours, which people with any colour vision tell apart.
BLACK, GREY = "#1a1a1a", "#8c8c8c"
ORANGE, SKY, GREEN, BLUE = "#e69f00", "#56b4e9", "#009e73", "#0072b2"
VERMILLION, PURPLE = "#d55e00", "#cc79a7"
MODE_COLOURS = {
    "static": GREY,
    "direct": BLUE,
    "speculative": GREEN,
    "self_speculative": PURPLE,
    "dynamic": ORANGE,
    "remask": VERMILLION,
}
# Colour is never the only sign: a head has its marker as well, whoever uses it.
MARKERS = {"default": "o", "k2": "s", "direct": "^"}
HEAD_COLOURS = {"default": BLUE, "k2": GREEN, "direct": VERMILLION}
OTHER_MARKER = "D"  # modes without a head
# Ways of remasking that differ from the usual one.
MASKED_MARKER, RESIDUAL_MARKER = "v", "P"

SETTINGS: dict[str, Any] = {
    "font.family": "DejaVu Sans",  # comes with matplotlib: the same file on every machine
    "font.size": 7.5,
    "axes.titlesize": 8.5,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "axes.labelsize": 8,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.linewidth": 0.6,
    "axes.edgecolor": "#555555",
    "axes.grid": True,
    "axes.axisbelow": True,
    "axes.xmargin": 0.06,
    "axes.ymargin": 0.09,  # room for labels above the best points
    "grid.color": "#e6e6e6",
    "grid.linewidth": 0.5,
    "xtick.labelsize": 7,
    "ytick.labelsize": 7,
    "xtick.major.width": 0.6,
    "ytick.major.width": 0.6,
    "xtick.color": "#333333",
    "ytick.color": "#333333",
    "lines.linewidth": 1.1,
    "lines.markersize": 3.8,
    "legend.frameon": False,
    "legend.fontsize": 7.2,
    "legend.handlelength": 2.4,
    "figure.constrained_layout.use": True,
    "savefig.dpi": 200,
    "pdf.fonttype": 42,  # TrueType inside the file, so that text stays text
    "svg.fonttype": "path",  # glyphs as outlines: the same picture without the font
    "svg.hashsalt": "mrp",
}
# No creation date: the same records give the same bytes.
METADATA: dict[str, dict[str, Any]] = {
    "pdf": {"CreationDate": None},
    "png": {},
    "svg": {"Date": None},
}


@contextmanager
def styled() -> Iterator[None]:
    """Draw in this style, and leave matplotlib's settings as they were."""
    with plt.style.context(SETTINGS, after_reset=True):
        yield


def panels(rows: int, columns: int, height: float) -> tuple[Figure, list[list[Any]]]:
    """A figure of panels, `height` inches each, with room for the legend below."""
    size = (COLUMN * columns, height * rows + 0.7)
    figure, axes = plt.subplots(rows, columns, figsize=size, squeeze=False)
    return figure, [list(row) for row in axes]


def legend(figure: Figure, handles: Sequence[Any], note: str = "") -> None:
    """One legend for all panels, each entry once, below them."""
    by_label = {str(handle.get_label()): handle for handle in handles}
    columns = max(2, int(figure.get_size_inches()[0] / 2.2))
    figure.legend(
        by_label.values(),
        by_label.keys(),
        loc="outside lower center",
        ncols=min(columns, max(1, len(by_label))),
        title=note or None,
        title_fontsize=7,
    )


def freeze(figure: Figure) -> None:
    """Settle the layout for good, so that places measured now are those in the files."""
    figure.draw_without_rendering()
    figure.set_layout_engine("none")


def save(figure: Figure, out: Path, name: str) -> list[Path]:
    """Write the figure in every format; the same figure gives the same bytes."""
    freeze(figure)
    files = []
    for form in FORMATS:
        path = Path(out) / f"{name}.{form}"
        atomic_write(
            path,
            lambda temporary, form=form: figure.savefig(  # type: ignore[misc]
                temporary, format=form, metadata=METADATA[form]
            ),
        )
        files.append(path)
    plt.close(figure)
    return files
