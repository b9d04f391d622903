"""Links of the README and the documentation lead somewhere; what is outside is only read."""

from __future__ import annotations

import re
from pathlib import Path
from urllib.parse import urlsplit

import pytest
import yaml

from tests.docs.pages import LARGEST_PICTURE, ROOT

DOCS = ROOT / "docs"
PAGES = [
    *(ROOT / name for name in ("README.md", "CHANGELOG.md", "assets/embedded/README.md")),
    *sorted(DOCS.rglob("*.md")),
]
_FENCE = re.compile(r"^(```|~~~).*?^\1", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"!?\[[^\]]*\]\(<?([^()\s>]+)>?\)|^\[[^\]]+\]:\s*(\S+)", re.MULTILINE)


def links(page: Path) -> list[str]:
    """The targets of a page's links and pictures, those in code left out."""
    text = re.sub(r"`[^`\n]*`", "", _FENCE.sub("", page.read_text("utf-8")))
    return [a or b for a, b in _LINK.findall(text)] + re.findall(r'\b(?:src|href)="([^"]+)"', text)


def anchors(page: Path) -> set[str]:
    """What may stand behind # in a link to a page: its headings, and what mkdocstrings adds."""
    text = page.read_text("utf-8")
    headings = re.findall(r"^#+ +(.*)$", _FENCE.sub("", text), re.MULTILINE)
    slugs = {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in headings}
    return slugs | set(re.findall(r"^::: (\S+)", text, re.MULTILINE))


def problem(page: Path, link: str) -> str | None:
    """What is wrong with a link."""
    parts = urlsplit(link)
    if parts.scheme or parts.netloc:
        return None if parts.scheme == "https" and "." in parts.netloc else "no https address"
    target = (page.parent / parts.path).resolve() if parts.path else page
    if not target.exists():
        return "leads nowhere"
    if page.is_relative_to(DOCS) and not target.is_relative_to(DOCS):
        return "leads out of docs/, where the built pages have nothing"
    if parts.fragment and parts.fragment not in anchors(target):
        return "names no heading there"
    return None


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    wrong = {link: found for link in links(page) if (found := problem(page, link))}
    assert not wrong


def test_the_check_finds_what_is_wrong(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("# A title, it is\n[a](none.md) [b](#no) [c](http://x.y) [d](#a-title-it-is)\n")
    assert links(page) == ["none.md", "#no", "http://x.y", "#a-title-it-is"]
    assert [problem(page, link) is None for link in links(page)] == [False, False, False, True]


def test_pictures_are_small() -> None:
    pictures = list((DOCS / "assets").glob("*.png"))
    assert pictures
    assert all(picture.stat().st_size < LARGEST_PICTURE for picture in pictures)


def test_every_page_is_in_the_navigation() -> None:
    navigation = yaml.safe_load((ROOT / "mkdocs.yml").read_text())["nav"]

    def files(entries: list[dict[str, object]]) -> list[str]:
        found: list[str] = []
        for entry in entries:
            (value,) = entry.values()
            found += files(value) if isinstance(value, list) else [str(value)]
        return found

    assert sorted(files(navigation)) == sorted(page.name for page in DOCS.glob("*.md"))
