"""The API page has everything that the packages export."""

from __future__ import annotations

import importlib
import inspect
import re

import pytest

from mrp.schema import MODES, OPTIONS
from tests.docs.pages import ROOT

PACKAGES = ("mrp.models", "mrp.decoding", "mrp.data", "mrp.speed", "mrp.grid")


@pytest.mark.parametrize("package", PACKAGES)
def test_what_is_exported_is_documented(package: str) -> None:
    text = (ROOT / "docs/api.md").read_text("utf-8")
    listed = {name.rpartition(".")[2] for name in re.findall(r"^::: (\S+)", text, re.MULTILINE)}
    for members in re.findall(r"members: \[([^\]]+)\]", text):
        listed |= {name.strip() for name in members.split(",")}
    module = importlib.import_module(package)
    exported = {name: getattr(module, name) for name in module.__all__}
    # Constants stand in the docstrings of what takes them.
    named = {
        name for name, what in exported.items() if inspect.isroutine(what) or inspect.isclass(what)
    }
    assert named <= listed, named - listed


def test_every_mode_and_option_is_described() -> None:
    text = (ROOT / "docs/method.md").read_text("utf-8")
    missing = [name for name in MODES if not re.search(rf"(\*\*|`){name}(\(|\*\*|`)", text)]
    missing += [name for name in OPTIONS if not re.search(rf"`{name}`|[(,] ?{name}[,)]", text)]
    # K and τ are letters there; steps are S.
    assert set(missing) <= {"k", "tau", "steps"}
