"""Code versions: what changes the hash of a part of the source, and that every part is there."""

from __future__ import annotations

from pathlib import Path

import pytest

import mrp
from mrp import grid
from mrp.errors import UserError
from mrp.schema import MODES
from mrp.source import (
    DATA_CODE,
    DECODE_CODE,
    GUEST_CODE,
    REPORT_CODE,
    TRAIN_CODE,
    code_version,
    mode_code,
    reached_files,
)


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A stand-in for mrp's own source, to be edited."""
    (tmp_path / "models").mkdir()
    monkeypatch.setattr(mrp, "__file__", str(tmp_path / "__init__.py"))
    return tmp_path / "models" / "a.py"


def version_of(file: Path, source: str) -> str:
    file.write_text(source)
    code_version.cache_clear()
    version = code_version("models/*.py")
    code_version.cache_clear()
    return version


SOURCE = '''"""What it is."""


def f(x: int) -> int:
    """Twice."""
    # why
    return 2 * x
'''


@pytest.mark.parametrize(
    "edit",
    [
        SOURCE.replace("# why", "# because"),
        SOURCE.replace("    # why\n", ""),
        SOURCE.replace('"""Twice."""', '"""Two times."""'),
        SOURCE.replace('    """Twice."""\n', ""),
        SOURCE.replace('"""What it is."""\n', ""),
        SOURCE.replace("2 * x", "(2 *   x)"),
    ],
)
def test_comments_docstrings_and_layout_do_not_count(package: Path, edit: str) -> None:
    assert edit != SOURCE
    assert version_of(package, SOURCE) == version_of(package, edit)


@pytest.mark.parametrize(
    "edit",
    [
        SOURCE.replace("2", "3"),
        SOURCE.replace("2", "2.0"),
        SOURCE.replace("*", "+"),
        SOURCE.replace("(x: int)", "(x: int = 1)"),
        SOURCE + "\nf(1)\n",
    ],
)
def test_what_a_program_does_counts(package: Path, edit: str) -> None:
    assert version_of(package, SOURCE) != version_of(package, edit)


def test_new_and_moved_files_count(package: Path) -> None:
    before = version_of(package, SOURCE)
    package.with_name("b.py").write_text("")
    assert version_of(package, SOURCE) != before
    package.with_name("b.py").unlink()
    package.rename(package.with_name("c.py"))
    assert version_of(package.with_name("c.py"), SOURCE) != before


def test_a_tasks_own_files_count_for_its_jobs() -> None:
    assert grid._task_files("mini_math") == [
        "evaluation/tasks/mini_math.yaml",
        "evaluation/tasks/mini.py",
    ]


def test_every_part_of_the_code_that_a_job_names_exists() -> None:
    root = Path(mrp.__file__).parent
    for patterns in (DECODE_CODE, GUEST_CODE, TRAIN_CODE, DATA_CODE, REPORT_CODE):
        for pattern in patterns:
            assert list(root.glob(pattern)), pattern


def test_a_modes_code_is_its_own_file_with_what_that_builds_on() -> None:
    def files(mode: str) -> set[str]:
        return {name.removeprefix("decoding/modes/") for name in mode_code(mode)}

    shared = {"decoding/*.py", "decoding/fast/*.py", "base.py", "static.py"}
    assert files("static") == shared
    assert files("self_lattice") == shared | {"branches.py", "lattice.py", "speculative.py"}
    for mode in MODES:
        assert files(mode) >= shared
        assert mode == "static" or files(mode) > shared, f"{mode}: its file is not found"


def test_what_is_imported_for_types_alone_decides_nothing(package: Path) -> None:
    package.write_text("")
    text = "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from mrp.models import a\n"
    package.with_name("typed.py").write_text(text)
    reached_files.cache_clear()
    assert reached_files("models/typed.py") == {"models/typed.py"}
    package.with_name("typed.py").write_text(f"{text}else:\n    from mrp.models import a\n")
    reached_files.cache_clear()
    assert reached_files("models/typed.py") == {"models/typed.py", "models/a.py"}


@pytest.mark.parametrize("source", ["def round(:\n", "x = 1\n  y = 2\n", "a\0b"])
def test_a_file_that_is_no_program_is_named(package: Path, source: str) -> None:
    package.with_name("broken.py").write_text(source)
    for ask in (lambda: code_version("models/*.py"), lambda: reached_files("models/broken.py")):
        code_version.cache_clear()
        reached_files.cache_clear()
        with pytest.raises(UserError, match=r"broken\.py: no valid Python.*: correct it$"):
            ask()


def test_guests_code_counts_for_tasks_that_run_programs(
    package: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = package.parents[1]
    (root / "evaluation/guest").mkdir(parents=True)
    (root / "evaluation/tasks").mkdir()
    (root / "evaluation/sandbox.py").write_text("")
    (root / "evaluation/verdicts.py").write_text("from mrp.evaluation.sandbox import run\n")
    (root / "evaluation/code.py").write_text("from mrp.evaluation import verdicts\n")
    (root / "evaluation/mathematics.py").write_text("from mrp.errors import UserError\n")
    for name, module in (("runs", "code"), ("reads", "mathematics")):
        line = f"process_results: !function mrp.evaluation.{module}.score\n"
        (root / f"evaluation/tasks/{name}.yaml").write_text(line)
    monkeypatch.setattr(grid, "TASKS", root / "evaluation/tasks")
    reached_files.cache_clear()
    assert set(GUEST_CODE) <= set(grid._task_files("runs"))
    assert not set(GUEST_CODE) & set(grid._task_files("reads"))
    reached_files.cache_clear()
