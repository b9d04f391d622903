"""pyproject.toml, environment.yml and the constraints name one set of dependencies."""

from __future__ import annotations

import ast
import re
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet

import mrp

ROOT = Path(mrp.__file__).parents[1]
# What conda calls differently.
PYPI_NAMES = {"pytorch": "torch", "matplotlib-base": "matplotlib", "snakemake-minimal": "snakemake"}
IMPORT_NAMES = {"pyyaml": "yaml", "lm-eval": "lm_eval", "math-verify": "math_verify"}


@pytest.fixture(scope="module")
def project() -> dict[str, Any]:
    loaded: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text())
    return loaded["project"]


def required(project: dict[str, Any]) -> dict[str, SpecifierSet]:
    found = [Requirement(text) for text in project["dependencies"]]
    return {requirement.name: requirement.specifier for requirement in found}


def test_conda_gets_the_same_set(project: dict[str, Any]) -> None:
    environment = yaml.safe_load((ROOT / "environment.yml").read_text())
    listed: dict[str, SpecifierSet] = {}
    for entry in environment["dependencies"]:
        if isinstance(entry, dict):
            for text in entry["pip"]:
                listed[Requirement(text).name] = Requirement(text).specifier
        else:
            name, _, versions = entry.partition(" ")
            listed[PYPI_NAMES.get(name, name)] = SpecifierSet(versions)
    assert listed.pop("python") == SpecifierSet(project["requires-python"])
    del listed["pip"]
    assert listed == required(project)


def test_the_cpu_pin_is_within_the_range(project: dict[str, Any]) -> None:
    lines = (ROOT / "requirements/cpu.txt").read_text().splitlines()
    pins = [Requirement(line) for line in lines if line and not line.startswith("#")]
    assert [pin.name for pin in pins] == ["torch"]
    (pin,) = pins[0].specifier
    assert pin.operator == "=="
    assert required(project)["torch"].contains(pin.version)


def test_the_version_is_one(project: dict[str, Any]) -> None:
    assert project["version"] == mrp.__version__


def test_every_import_is_a_dependency(project: dict[str, Any]) -> None:
    allowed = {IMPORT_NAMES.get(name, name) for name in required(project)}
    allowed |= set(sys.stdlib_module_names) | {"mrp", "pydantic_core"}
    allowed |= {"triton"}  # comes with torch's CUDA builds; imported only where it is there
    for path in (ROOT / "mrp").rglob("*.py"):
        # The sandbox's guest runs outside the package: its files import each other by bare name.
        siblings = (
            {file.stem for file in path.parent.glob("*.py")}
            if path.parent.name == "guest"
            else set()
        )
        for node in ast.walk(ast.parse(path.read_bytes())):
            if isinstance(node, ast.Import):
                names = [alias.name for alias in node.names]
            else:
                names = [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            assert {name.split(".")[0] for name in names} <= allowed | siblings, path


def test_every_dependency_is_imported(project: dict[str, Any]) -> None:
    source = "".join(path.read_text() for path in (ROOT / "mrp").rglob("*.py"))
    for name in required(project):
        module = IMPORT_NAMES.get(name, name)
        if module != "snakemake":  # runs the commands from outside
            assert re.search(rf"\b(import|from) {module}\b", source), name


@pytest.mark.parametrize("data", ["evaluation/tasks/mini_math.yaml", "py.typed"])
def test_data_files_are_where_the_package_has_them(data: str) -> None:
    assert (ROOT / "mrp" / data).is_file()
