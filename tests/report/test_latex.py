"""tables.tex: every table, and TeX takes it."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mrp.report.ablations import build_ablations
from mrp.report.cells import Table
from mrp.report.contest import build_contest
from mrp.report.frame import Results
from mrp.report.latex import escape, latex
from mrp.report.tables import build_tables

PDFLATEX = shutil.which("pdflatex")


@pytest.fixture(scope="module")
def tables(results: Results, rows: pd.DataFrame) -> list[Table]:
    more = [*build_contest(results, rows), *build_ablations(results, rows)]
    return [*build_tables(rows, None), *more]


@pytest.fixture(scope="module")
def text(tables: list[Table]) -> str:
    return latex("embedded_x", tables)


def test_every_row_has_every_column(text: str, tables: list[Table]) -> None:
    parts = text.split(r"\begin{longtable}")[1:]
    assert len(parts) == len(tables)
    for part, table in zip(parts, tables, strict=True):
        body = part.split(r"\endhead")[1].split(r"\bottomrule")[0]
        lines = [line for line in body.splitlines() if line.endswith(r"\\")]
        full = [line for line in lines if r"\multicolumn" not in line]
        groups = [line for line in lines if line.startswith(r"\multicolumn")]
        assert len(groups) == len(table.groups)
        assert len(lines) == sum(len(group.rows) + 1 for group in table.groups)
        assert {len(re.findall(r"(?<!\\)&", line)) for line in full} == {len(table.columns) - 1}
    assert r"embedded\_x" in text
    assert "?" not in text.split(r"\begin{document}")[1]


def test_labels_tell_rows_apart(text: str, tables: list[Table]) -> None:
    for part, table in zip(text.split(r"\begin{longtable}")[1:], tables, strict=True):
        body = part.split(r"\endhead")[1].split(r"\bottomrule")[0]
        for group in re.split(r"^\\multicolumn.*$", body, flags=re.MULTILINE)[1:]:
            lines = [line for line in group.splitlines() if line.endswith(r"\\")]
            labels = [tuple(re.split(r"(?<!\\) & ", line)[: table.labels]) for line in lines]
            assert len(labels) > 0
            assert len(set(labels)) == len(labels), (table.id, labels)
    assert "remask, k2, masked ids, confidence &" in text
    assert "no head, self-speculative &" in text


@given(st.text())
def test_no_text_is_a_command(text: str) -> None:
    escaped = escape(text)
    bare = re.sub(r"\\(textbackslash\{\}|\^\{\}|~\{\}|'e|\"u|[{}$&#%_])", "", escaped)
    bare = bare.replace("\\textperiodcentered{}", "")
    bare = re.sub(r"\$(-|\\times|\\pm|\\tau|\\delta|\\gamma|<|>|\|)\$", "", bare)
    assert not set(bare) & set("\\{}$&#%_^~")


@pytest.mark.skipif(PDFLATEX is None, reason="needs pdflatex")
def test_it_compiles(text: str, tmp_path: Path) -> None:
    (tmp_path / "tables.tex").write_text(text, encoding="utf-8")
    assert PDFLATEX is not None
    command = [PDFLATEX, "-interaction=nonstopmode", "-halt-on-error", "tables.tex"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-2000:]
    assert (tmp_path / "tables.pdf").stat().st_size > 10_000
