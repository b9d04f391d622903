"""Command lines that the pages show are ones that the commands take."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from mrp.cli import build_parser
from mrp.grid import load_suite
from tests.docs.pages import ROOT

PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
LINES = [
    pytest.param(line.strip(), id=f"{page.stem}:{line.strip()[:40]}")
    for page in PAGES
    for line in re.findall(r"^(?: {4})?mrp [^-].*(?<!\\)$", page.read_text("utf-8"), re.MULTILINE)
]
# Made by the reader of the page.
OWN_SUITES = {"NAME", "mine", "my_head", "my_mode", "my_backbone", "my_task"}


@pytest.mark.parametrize("line", LINES)
def test_a_shown_command_is_taken(line: str) -> None:
    arguments = build_parser().parse_args(shlex.split(line, comments=True)[1:])
    suite = getattr(arguments, "suite", None)
    if suite is not None and suite not in OWN_SUITES:
        load_suite(suite)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: Path(page).stem)
def test_a_shown_suite_is_there(page: Path) -> None:
    for suite in re.findall(r"suite=(\w+)", page.read_text("utf-8")):
        assert suite in OWN_SUITES or (ROOT / "config/suites" / f"{suite}.yaml").is_file(), suite
