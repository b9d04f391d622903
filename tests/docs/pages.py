"""The documentation's fenced blocks, and how a worked example is run from them."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
EXAMPLES = ("adding-a-head", "adding-a-mode", "adding-a-backbone", "adding-a-task")
LARGEST_PICTURE = 300_000  # bytes

# A block of a file stands under the file's name: `path/to/it`:
_FENCE = re.compile(r"(?:^`([^`\n]+)`:\n\n)?^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


@dataclass(frozen=True)
class Block:
    """A fenced block: the file named above it, if there is one, its language, its text."""

    language: str
    file: str | None
    text: str


def blocks(page: Path) -> list[Block]:
    """A page's fenced blocks in order."""
    found = _FENCE.findall(page.read_text("utf-8"))
    return [Block(language, file or None, text) for file, language, text in found]


def write(block: Block, root: Path) -> None:
    """Do in `root` what a block of a file says: write that file, or change it (diff)."""
    assert block.file is not None
    path = root / block.file
    if block.language != "diff":
        assert not path.exists(), f"{block.file} is there already"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(block.text, "utf-8")
        return
    lines = block.text.splitlines(keepends=True)
    old = "".join(line[1:] for line in lines if line[0] in " -")
    new = "".join(line[1:] for line in lines if line[0] in " +")
    text = path.read_text("utf-8")
    assert text.count(old) == 1, f"{block.file}: {text.count(old)} times\n{old}"
    path.write_text(text.replace(old, new), "utf-8")


def commands(page: Path) -> list[str]:
    """The command lines of a page's shell blocks, in order."""
    return [
        line
        for block in blocks(page)
        if block.language == "sh"
        for line in block.text.splitlines()
        if line
    ]
