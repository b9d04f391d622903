"""Snakemake's own report holds our pages and figures with their captions, without a network."""

from __future__ import annotations

import re
from dataclasses import replace

from mrp.grid import FIGURES
from tests.workflow.conftest import SOURCE, Repo

NOWHERE = tuple((f"{name}_proxy", "http://127.0.0.1:9") for name in ("http", "https", "all"))


def test_the_report_has_every_figure_with_its_caption(repo: Repo) -> None:
    done = replace(repo, extra=NOWHERE).run(options=("--report", "report.html"))
    assert done.returncode == 0, done.stdout
    text = (repo.path / "report.html").read_text("utf-8")
    for name in ("workflow", "tables", "runs", *FIGURES):
        caption = (SOURCE / "workflow/report" / f"{name}.rst").read_text("utf-8")
        start = re.match(r"[\w -]+", caption)
        assert start is not None
        assert start[0] in text, name
    assert all(f"{name}.svg" in text for name in FIGURES)
