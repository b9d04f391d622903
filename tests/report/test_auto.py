"""K that a mode chose itself is called auto wherever K is shown."""

from __future__ import annotations

import pandas as pd
import pytest

from mrp.report import style
from mrp.report.figures import pareto
from mrp.report.findings import build_findings
from mrp.report.frame import AUTO, Results
from mrp.report.tables import build_tables


@pytest.fixture(scope="module")
def chosen(rows: pd.DataFrame) -> pd.DataFrame:
    """The invented grid, where one speculative job has K = auto."""
    changed = rows.copy()
    changed.loc[changed["job"] == "S.mini.speculative.k2.k4", "k"] = AUTO
    return changed


def test_in_tables_and_findings(results: Results, chosen: pd.DataFrame) -> None:
    (table,) = [table for table in build_tables(chosen, None) if table.id == "speculative"]
    labels = [row.labels[-1].text for row in table.groups[0].rows]
    assert labels.count("auto") == 1
    assert "inf" not in labels
    texts = [item.text for finding in build_findings(results, chosen) for item in finding.evidence]
    assert any("K = auto" in text for text in texts)
    assert not any("inf" in text for text in texts)


def test_in_figures(chosen: pd.DataFrame) -> None:
    with style.styled():
        figure = pareto(chosen).figure
        texts = [text.get_text() for axes in figure.axes for text in axes.texts]
    assert any("auto" in text for text in texts)
    assert not any("inf" in text for text in texts)
