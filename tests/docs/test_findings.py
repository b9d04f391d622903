"""The committed pages of findings are what the committed records give, byte for byte."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from mrp.config import load_suite
from mrp.report.frame import load_records
from mrp.report.markdown import write_findings

DOCS = Path(__file__).parents[2] / "docs"


@pytest.mark.parametrize(
    ("suite", "page", "figures"),
    [
        ("replica", "findings.md", DOCS / "assets" / "replica"),
        ("embedded", "findings-embedded.md", None),
    ],
)
def test_a_page_is_of_its_records(
    suite: str, page: str, figures: Path | None, tmp_path: Path
) -> None:
    """Else: mrp report findings --suite SUITE --records docs/SUITE --out docs/PAGE [--figures]."""
    results = load_records(load_suite(suite), DOCS / suite)
    written = write_findings(results, tmp_path / page, figures).read_text()
    if figures is not None:  # linked relative to where the page stands
        written = written.replace(os.path.relpath(figures, tmp_path), f"assets/{suite}")
    assert written == (DOCS / page).read_text()
