"""CITATION.cff says what pyproject.toml says, and names the paper."""

from __future__ import annotations

import tomllib
from typing import Any

import pytest
import yaml

from tests.docs.pages import ROOT


@pytest.fixture(scope="module")
def citation() -> dict[str, Any]:
    loaded: dict[str, Any] = yaml.safe_load((ROOT / "CITATION.cff").read_text("utf-8"))
    return loaded


def test_the_format_is_valid(citation: dict[str, Any]) -> None:
    """The keys that version 1.2.0 of the format asks for, and the types that readers rely on."""
    assert citation["cff-version"] == "1.2.0"
    assert {"message", "title", "authors"} <= citation.keys()
    assert citation["type"] == "software"
    for work in (citation, *citation["references"]):
        assert work["title"]
        assert work["authors"]
        for author in work["authors"]:
            assert author.keys() in ({"name"}, {"given-names", "family-names"})


def test_it_agrees_with_the_package(citation: dict[str, Any]) -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    assert citation["version"] == project["version"]
    assert citation["license"] == project["license"]
    assert citation["keywords"] == project["keywords"]
    assert [author["name"] for author in citation["authors"]] == [
        author["name"] for author in project["authors"]
    ]


def test_the_paper_is_cited(citation: dict[str, Any]) -> None:
    (paper,) = citation["references"]
    assert paper["url"] in (ROOT / "README.md").read_text("utf-8")
    assert paper["identifiers"][0]["value"].endswith(paper["url"].rpartition("/")[2])
    assert len(paper["authors"]) == 9
