"""The figures: all formats, the numbers beside them, legible labels, the same twice."""

from __future__ import annotations

import itertools
from pathlib import Path

import pandas as pd
import pytest

from mrp.report import style
from mrp.report.figures import frontier, lookahead, pareto, write_figures
from tests.report.conftest import FAILED

NAMES = ("pareto", "lookahead", "remask")


@pytest.fixture(scope="module")
def out(rows: pd.DataFrame, tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("figures")
    write_figures(rows, directory)
    return directory


def test_every_format_is_there(out: Path) -> None:
    expected = {f"{name}.{form}" for name in NAMES for form in ("pdf", "png", "svg", "csv")}
    assert {file.name for file in out.iterdir()} == expected


def test_same_records_same_bytes(rows: pd.DataFrame, out: Path, tmp_path: Path) -> None:
    for file in write_figures(rows.copy(), tmp_path):
        assert file.read_bytes() == (out / file.name).read_bytes(), file.name


def test_fonts_are_inside_and_dates_are_not(out: Path) -> None:
    for name in NAMES:
        pdf = (out / f"{name}.pdf").read_bytes()
        assert b"/FontFile2" in pdf
        assert b"/Type3" not in pdf
        assert b"CreationDate" not in pdf
        svg = (out / f"{name}.svg").read_text("utf-8")
        assert "<dc:date>" not in svg
        assert "<text" not in svg  # glyphs are outlines


def test_the_csv_holds_the_records_numbers(rows: pd.DataFrame, out: Path) -> None:
    known = rows.set_index(["job", "task"])
    for name in NAMES:
        numbers = pd.read_csv(out / f"{name}.csv")
        assert len(numbers) > 20
        assert FAILED not in set(numbers["job"])
        for _, row in numbers.iterrows():
            source = known.loc[(row["job"], row["task"])]
            assert row["accuracy"] == pytest.approx(source["accuracy"], rel=1e-5)
            assert row["tpf"] == pytest.approx(source["tpf"], rel=1e-5)


def test_no_label_covers_another(rows: pd.DataFrame) -> None:
    with style.styled():
        figure = pareto(rows).figure
        renderer = figure.canvas.get_renderer()  # type: ignore[attr-defined]
        for axes in figure.axes:
            boxes = [text.get_window_extent(renderer).padded(-0.5) for text in axes.texts]
            assert len(boxes) > 15
            assert not any(one.overlaps(two) for one, two in itertools.combinations(boxes, 2))


def test_frontier() -> None:
    points = [(1.0, 90.0), (2.0, 80.0), (2.0, 85.0), (1.5, 70.0), (3.0, 10.0), (0.5, 90.0)]
    assert frontier(points) == [(1.0, 90.0), (2.0, 85.0), (3.0, 10.0)]


def test_panels_without_records_say_so(rows: pd.DataFrame) -> None:
    empty = rows[rows["mode"] == "static"].assign(status="not run")
    with style.styled():
        drawing = lookahead(empty)
    assert [axes.texts[0].get_text() for axes in drawing.figure.axes] == ["no records"] * 2
    assert drawing.numbers.empty
