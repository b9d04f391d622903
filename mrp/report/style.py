"""How the figures look: one place for colours, markers, fonts, sizes and file formats."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")

import matplotlib.pyplot as plt
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from matplotlib.transforms import Bbox

from mrp.io import atomic_write

COLUMN, FULL = 3.3, 6.8  # inches: one column and the full width of a two-column paper
NOTE_LETTERS = 21  # an inch of a legend's note
FORMATS = ("pdf", "png", "svg")

# Okabe and Ito's colours, which people with any colour vision tell apart, and Tol's where they end.
BLACK, GREY, FAINT = "#1a1a1a", "#8c8c8c", "#d9d9d9"
ORANGE, SKY, GREEN, BLUE = "#e69f00", "#56b4e9", "#009e73", "#0072b2"
VERMILLION, PURPLE = "#d55e00", "#cc79a7"
INDIGO, WINE, OLIVE, BROWN, SLATE = "#332288", "#882255", "#999933", "#7a4b1e", "#4a6072"
VIOLET = "#8f6bd1"


@dataclass(frozen=True)
class Look:
    """How a mode is drawn, wherever it is: no two modes share a colour or a marker."""

    colour: str
    marker: Any  # as matplotlib calls it


LOOKS = {
    "static": Look(GREY, "D"),
    "direct": Look(BLUE, "o"),
    "speculative": Look(GREEN, "s"),
    "self_speculative": Look(PURPLE, "v"),
    "lattice": Look(INDIGO, "h"),
    "self_lattice": Look(VIOLET, "H"),
    "dynamic": Look(ORANGE, "^"),
    "remask": Look(VERMILLION, "X"),
    "wino": Look(WINE, "<"),
    "factor": Look(SKY, ">"),
    "entropy": Look(OLIVE, "p"),
    "klass": Look(BROWN, "P"),
    "freedave": Look(SLATE, "d"),
}
# For modes that have no line above, in the order of their names.
SPARE = [
    Look(colour, marker)
    for marker, colour in product(
        ((4, 1, 0), (6, 1, 0), "8", (5, 0, 180)),  # stars of 4 and 6 rays, an octagon, a pentagon
        ("#117733", "#aa4499", "#5e4fa2", "#b2182b", "#01665e", "#bf812d"),
    )
]
STATIC_MARKER = "*"  # the baseline
HEAD_COLOURS = {"default": BLUE, "k2": GREEN, "direct": VERMILLION}
HEAD_MARKERS = {"default": "o", "k2": "s", "direct": "^"}
# For what has no colour of its own: variants of one mode, one after the other.
SERIES = tuple(
    Look(colour, marker)
    for colour, marker in (
        *((VERMILLION, "X"), (BLUE, "o"), (GREEN, "s"), (PURPLE, "v"), (BROWN, "P")),
        *((SKY, ">"), (INDIGO, "h"), (OLIVE, "p"), (WINE, "<"), (SLATE, "d")),
    )
)
DASHES: tuple[Any, ...] = ("-", (0, (4, 1.6)), (0, (1.2, 1.2)), (0, (5, 1.4, 1.2, 1.4)))

SETTINGS: dict[str, Any] = {
    "font.family": "DejaVu Sans",  # comes with matplotlib: the same file on every machine
    "font.size": 6.8,
    "axes.titlesize": 7.2,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "axes.titlepad": 4,
    "axes.labelsize": 6.8,
    "axes.labelpad": 2,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.linewidth": 0.6,
    "axes.edgecolor": "#555555",
    "axes.grid": True,
    "axes.axisbelow": True,
    "axes.xmargin": 0.06,
    "axes.ymargin": 0.09,  # room for labels above the best points
    "grid.color": "#ebebeb",
    "grid.linewidth": 0.5,
    "xtick.labelsize": 6.2,
    "ytick.labelsize": 6.2,
    "xtick.major.width": 0.6,
    "ytick.major.width": 0.6,
    "xtick.major.size": 2.4,
    "ytick.major.size": 2.4,
    "xtick.major.pad": 2,
    "ytick.major.pad": 2,
    "xtick.color": "#333333",
    "ytick.color": "#333333",
    "lines.linewidth": 1.0,
    "lines.markersize": 3.6,
    "legend.frameon": False,
    "legend.fontsize": 6.5,
    "legend.handlelength": 2.2,
    "legend.columnspacing": 1.4,
    "legend.labelspacing": 0.35,
    "figure.constrained_layout.h_pad": 0.035,
    "figure.constrained_layout.w_pad": 0.05,
    "savefig.dpi": 240,
    "pdf.fonttype": 42,  # TrueType inside the file, so that text stays text
    "svg.fonttype": "path",  # glyphs as outlines: the same picture without the font
    "svg.hashsalt": "mrp",
}
# No creation date: the same records give the same bytes.
OPTIONS: dict[str, dict[str, Any]] = {
    "pdf": {"metadata": {"CreationDate": None}},
    "png": {"pil_kwargs": {"compress_level": 4}},  # a little larger, and much faster
    "svg": {"metadata": {"Date": None}},
}


def looks(modes: Iterable[str]) -> Mapping[str, Look]:
    """The looks of modes; one that LOOKS does not know takes the next spare one."""
    wanted = dict.fromkeys(modes)
    unknown = sorted(set(wanted) - set(LOOKS))
    spare = {mode: SPARE[number % len(SPARE)] for number, mode in enumerate(unknown)}
    return {mode: LOOKS.get(mode) or spare[mode] for mode in wanted}


def for_text(colour: str) -> str:
    """A colour for small text: darkened until its contrast to white is 4.5 (WCAG AA)."""
    parts = to_rgb(colour)
    while _contrast_to_white(parts) < 4.5:
        parts = tuple(0.95 * part for part in parts)  # type: ignore[assignment]
    return "#" + "".join(f"{int(255 * part):02x}" for part in parts)


def _contrast_to_white(parts: Iterable[float]) -> float:
    linear = [p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts]
    light = sum(w * p for w, p in zip((0.2126, 0.7152, 0.0722), linear, strict=True))
    return 1.05 / (light + 0.05)


@contextmanager
def styled() -> Iterator[None]:
    """Draw in this style, and leave matplotlib's settings as they were."""
    with plt.style.context(SETTINGS, after_reset=True):
        yield


def panels(
    rows: int, columns: int, height: float, **options: Any
) -> tuple[Figure, list[list[Any]]]:
    """A figure of panels, `height` inches each: a column wide, or the full width for several."""
    size = (COLUMN if columns == 1 else FULL, height * rows + 0.45)
    figure, axes = plt.subplots(
        rows, columns, figsize=size, squeeze=False, layout="constrained", **options
    )
    return figure, [list(row) for row in axes]


def legend(figure: Figure, handles: Sequence[Any], note: str = "") -> None:
    """One legend for all panels, each entry once, below them; `note` explains what is no entry.

    The figure grows by what the legend needs, so that panels keep their size; lines of the note
    that are wider than the figure are broken.
    """
    by_label = {str(handle.get_label()): handle for handle in handles}
    width, height = figure.get_size_inches()
    longest = max((len(label) for label in by_label), default=0)
    columns = max(1, min(len(by_label), int(width / (0.45 + 0.052 * longest))))
    letters = int(NOTE_LETTERS * width)
    note = "\n".join(textwrap.fill(line, letters) for line in note.splitlines())
    lines = -(-len(by_label) // columns) + (note.count("\n") + 1 if note else 0)
    figure.set_size_inches(width, height + 0.125 * lines)
    figure.legend(
        by_label.values(),
        by_label.keys(),
        loc="outside lower center",
        ncols=columns,
        title=note or None,
        title_fontsize=6.3,
    )


def freeze(figure: Figure) -> None:
    """Settle the layout for good, so that places measured now are those in the files."""
    engine = figure.get_layout_engine()
    if engine is not None:
        engine.execute(figure)
        figure.set_layout_engine(None)  # "none" would let every format be drawn twice
        for panel in figure.axes:  # the layout's last digits differ between two processes
            panel.set_position(Bbox(panel.get_position().get_points().round(6)))


def save(figure: Figure, out: Path, name: str) -> list[Path]:
    """Write the figure in every format; the same figure gives the same bytes."""
    freeze(figure)
    files = []
    for form in FORMATS:
        path = Path(out) / f"{name}.{form}"
        atomic_write(
            path,
            lambda temporary, form=form: figure.savefig(  # type: ignore[misc]
                temporary, format=form, **OPTIONS[form]
            ),
        )
        files.append(path)
    plt.close(figure)
    return files
