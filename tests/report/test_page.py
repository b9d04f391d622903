"""tables.html and tables.csv: complete, traceable, self-contained, the same twice."""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from html.parser import HTMLParser
from pathlib import Path

import pandas as pd
import pytest

from mrp.report.cells import MINUS, TIMES
from mrp.report.frame import Results, load_results
from mrp.report.page import origin, write_tables
from mrp.report.published import read_published
from tests.report.conftest import FAILED, MISSING, N
from tests.report.synthetic import Written, write_results

VOID = {"meta", "link", "br", "img", "hr", "input"}


@dataclass
class Box:
    """A table cell as a reader meets it."""

    table: str
    group: str
    column: str
    attributes: dict[str, str | None]
    unit: str = ""  # below the column's heading
    jobs: str = ""  # of the row, where its cells do not say
    text: str = ""
    number: str = ""  # the text without what stands smaller below it


@dataclass
class Page(HTMLParser):
    """Reads the page: balanced tags, visible text, and every cell with its place."""

    open: list[str] = field(default_factory=list)
    words: list[str] = field(default_factory=list)
    boxes: list[Box] = field(default_factory=list)
    headings: list[str] = field(default_factory=list)
    units: list[str] = field(default_factory=list)
    jobs: str = ""
    table: str = ""
    group: str = ""
    in_group: bool = False
    column: int = 0
    main: bool = False

    def __post_init__(self) -> None:
        super().__init__(convert_charrefs=True)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        attributes = dict(attrs)
        if tag not in VOID:
            self.open.append(tag)
        self.main = attributes.get("class") == "main"
        if tag == "section":
            self.table = attributes["id"] or ""
        if tag == "thead":
            self.headings, self.units = [], []
        if tag == "tr":
            self.column = 0
            self.jobs = attributes.get("data-jobs") or ""
            self.in_group = attributes.get("class") == "group"
            if self.in_group:
                self.group = ""
        if tag == "th" and "thead" in self.open:
            self.headings.append("")
            self.units.append("")
        elif tag in ("td", "th"):
            heading, unit = self.headings[self.column], self.units[self.column]
            self.boxes.append(Box(self.table, self.group, heading, attributes, unit, self.jobs))
            self.column += int(attributes.get("colspan") or 1)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag
        self.main = False

    def handle_data(self, data: str) -> None:
        if "style" in self.open or "script" in self.open:
            return
        self.words.append(data)
        if "thead" in self.open and "th" in self.open and "span" not in self.open:
            self.headings[-1] += data.strip()
        elif "thead" in self.open and "th" in self.open:
            self.units[-1] += data.strip()
        elif self.in_group and "th" in self.open and "span" in self.open:
            self.group = self.group or data.strip()
        elif self.boxes and ("td" in self.open or "th" in self.open):
            self.boxes[-1].text += data
            if self.main:
                self.boxes[-1].number += data.replace(MINUS, "-")


@pytest.fixture(scope="module")
def page_text(results: Results, tmp_path_factory: pytest.TempPathFactory) -> str:
    out = tmp_path_factory.mktemp("page")
    write_tables(results, None, out)
    return (out / "tables.html").read_text("utf-8")


@pytest.fixture(scope="module")
def page(page_text: str) -> Page:
    found = Page()
    found.feed(page_text)
    found.close()
    assert found.open == []
    return found


def test_goals_beyond_the_paper_stand_apart(page_text: str) -> None:
    papers, _, goals = page_text.partition('<section id="beyond-the-paper">')
    assert '<a href="#beyond-the-paper">' in papers
    assert "No lossless way of decoding changes an answer" in goals
    assert "No lossless way" not in papers
    assert "<h3>Speculative decoding changes no answer" in papers


def test_nothing_is_loaded_from_anywhere(page_text: str) -> None:
    assert not re.search(r"https?:|//\w|<script[^>]*src|@import|url\(|<img|<iframe", page_text)
    assert re.findall(r'(?:href|src)="([^#"]+)', page_text) == ["data:,"]


def test_links_lead_somewhere(page_text: str) -> None:
    targets = re.findall(r'href="#([^"]+)"', page_text)
    assert len(targets) >= 6
    assert all(f'id="{target}"' in page_text for target in targets)


def test_no_machine_words_are_visible(page: Page) -> None:
    text = " ".join(page.words)
    assert not re.search(r"\b(nan|None|NaN|inf|NaT|True|False)\b", text)
    assert "{{" not in text


def test_missing_cells_say_why(written: Written, page: Page) -> None:
    text = " ".join(" ".join(page.words).split())
    assert f"{MISSING} not run" in text
    assert f"failed: {written.layout.log('decode', FAILED).as_posix()}" in text
    # In the tables: a row in speculative and in direct for each task, and cells of the first.
    reasons = [box for box in page.boxes if box.attributes.get("class") == "missing"]
    assert [box.table for box in reasons] == ["speculative", "speculative", "direct", "direct"]
    assert [b.text for b in page.boxes if b.table == "residual-or-direct"].count("failed") == 2


# Tables of means over tasks show percents of some numbers only.
POOLED = ("lossless", "lossy", "lookahead", "depth", "options", "remasking", "seeds")
IN_PERCENT = ("Accuracy", "Accepted", "Vetoed", "Dynamic", "vs static", "K = ", "Gain at")


def test_the_text_shown_is_the_value(page: Page) -> None:
    for box in page.boxes:
        value = box.attributes.get("data-value")
        if value is None or box.table in POOLED:
            continue
        if box.column == "Same as static":
            assert box.number == f"{round(float(value) * N)} of {N}"
            continue
        scale = 100 if box.column.startswith(IN_PERCENT) else 1
        shown = box.number.removesuffix(TIMES)
        digits = len(shown.partition(".")[2])
        assert abs(float(shown) - scale * float(value)) <= 0.5001 * 10**-digits, box


def test_best_is_marked_and_never_on_a_baseline(page: Page) -> None:
    best = [box for box in page.boxes if "best" in (box.attributes.get("class") or "")]
    spec = [box for box in best if box.table == "speculative" and box.column == "TPF"]
    assert {box.attributes["data-job"] for box in spec} == {"S.mini.speculative.k2.k4"}
    assert "S.mini.static" not in {box.attributes.get("data-job") for box in best}
    # All answers are static's, so no accuracy is better than another.
    assert not [box for box in best if (box.table, box.column) == ("speculative", "Accuracy")]


def test_heads_trained_here_are_marked(page: Page) -> None:
    marked = [box.text for box in page.boxes if "trained here" in box.text]
    assert marked
    assert all("default-here" in text for text in marked)


def test_the_csv_has_every_row(results: Results, tmp_path: Path) -> None:
    _, _, csv = write_tables(results, None, tmp_path)
    found = pd.read_csv(csv)
    assert len(found) == len(results.rows)
    assert {"job", "task", "status", "note", "accuracy", "tpf", "vs_static_p"} <= set(found)


def test_same_records_same_bytes(written: Written, tmp_path: Path) -> None:
    for name in ("one", "two"):
        fresh = load_results(written.suite, written.results)
        write_tables(fresh, None, tmp_path / name)
    for name in ("tables.html", "tables.csv"):
        assert (tmp_path / "one" / name).read_bytes() == (tmp_path / "two" / name).read_bytes()


def test_published_numbers_stand_beside_the_same_backbone_only(
    results: Results, tmp_path: Path
) -> None:
    text = """\
table,backbone,head,mode,k,tau,task,metric,value
direct,S,default,direct,1,,mini_math,accuracy,77.7
residual_vs_direct,S,default,direct,1,,mini_math,accuracy,77.7
remask,M,,dynamic,,0.5,mini_math,accuracy,55.5
"""
    (tmp_path / "published.csv").write_text(text, encoding="utf-8")
    write_tables(results, read_published(tmp_path / "published.csv"), tmp_path)
    found = Page()
    found.feed((tmp_path / "tables.html").read_text("utf-8"))
    paper = [box for box in found.boxes if box.column == "Paper"]
    assert {box.table for box in paper} == {"direct"}
    # The head trained here is of the same variant.
    assert sum("77.7" in box.text for box in paper) == 2
    assert sum("not published" in box.text for box in paper) > 20
    assert any("paper 77.7" in box.text for box in found.boxes if box.column == "K = 1")
    assert "55.5" not in " ".join(found.words)


def test_what_is_missing_is_said_once(replica_results: Results) -> None:
    """A backbone without any record is one line, and so are baselines that differ in tau alone."""
    rows = replica_results.rows.copy()
    lost = (rows["backbone"] == "M") | (rows["mode"] == "dynamic")
    rows.loc[lost, "status"] = "not run"
    header = origin(replace(replica_results, rows=rows), rows)
    assert header.baselines == (
        "dynamic at τ = 0.5, 0.7, 0.9 of S was not run: what remasking gains and FreeDave keeps "
        "there is unknown",
        "no run of M has a record, and nothing is said of it",
    )


def test_a_page_without_the_baseline(tmp_path: Path) -> None:
    written = write_results(tmp_path, 4, missing=("S.mini.static",))
    write_tables(load_results(written.suite, written.results), None, tmp_path)
    found = Page()
    found.feed((tmp_path / "tables.html").read_text("utf-8"))
    text = " ".join(found.words)
    assert "static was not run" in text
    assert "Static of S was not run: no run of S has a difference to it" in text
    # No difference to it anywhere, and no verdict of what compares with it.
    for box in found.boxes:
        if box.column in ("vs static", "Same as static"):
            assert box.attributes.get("data-value") is None
            assert box.text.strip() in ("static was not run", "")
    assert not re.search(r"\b(nan|None|NaN)\b", text)
