"""The grid: ids, digests, paths, and what does and does not make a job another one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

import mrp
from mrp import grid
from mrp.errors import UserError
from mrp.grid import Job, Layout, Suite, check_checkpoints, find_job, jobs, load_suite
from mrp.source import DATA_CODE, DECODE_CODE, REPORT_CODE, TRAIN_CODE, code_version

GOOD: dict[str, Any] = {
    "name": "good",
    "backbones": {"S": {"path": "org/backbone"}, "M": {"train": {"steps": 3}}},
    "heads": {
        "k2": {"variant": "k2", "path": "heads/of/{backbone}"},
        "mine": {"variant": "default", "train": {"steps": 3}},
    },
    "tasks": [["mini_math", "mini_code"], "mini_math"],
    "grid": [
        {"mode": "static"},
        {"mode": "direct", "head": ["k2", "mine"], "k": [1, 2]},
        {"mode": "remask", "head": "k2", "tau": 0.5, "condition": ["revealed", "masked"]},
    ],
}


def suite(folder: Path, **changes: Any) -> Suite:
    path = folder / "good.yaml"
    path.write_text(yaml.safe_dump({**GOOD, **changes}, sort_keys=False))
    return load_suite(path)


def by_id(loaded: Suite) -> dict[str, Job]:
    return {job.id: job for job in jobs(loaded)}


def test_lists_multiply_and_ids_are_readable(tmp_path: Path) -> None:
    found = jobs(suite(tmp_path))
    assert len(found) == 2 * 2 * (1 + 4 + 2)
    assert [job.id for job in found][:7] == [
        "S.mini.static",
        "S.mini.direct.k2.k1",
        "S.mini.direct.k2.k2",
        "S.mini.direct.mine.k1",
        "S.mini.direct.mine.k2",
        "S.mini.remask.k2.tau0.5",
        "S.mini.remask.k2.tau0.5.masked",
    ]
    assert found[7].id == "S.mini_math.static"
    assert len({job.digest for job in found if job.backbone == "S"}) == len(found) / 2


def test_options_hold_the_defaults_that_apply(tmp_path: Path) -> None:
    found = by_id(suite(tmp_path))
    assert found["S.mini.static"].options == {}
    assert found["S.mini.direct.k2.k1"].options == {"k": 1, "scale": 1.0}
    assert found["S.mini.remask.k2.tau0.5.masked"].options == {
        "tau": 0.5,
        "condition": "masked",
        "rule": "confidence",
    }
    residual = {"mode": "remask", "head": "k2", "tau": 0.5, "rule": "residual", "delta": [1, 2]}
    found = by_id(suite(tmp_path, grid=[residual]))
    assert found["S.mini.remask.k2.tau0.5.residual"].options["delta"] == 1.0
    assert found["S.mini.remask.k2.tau0.5.residual.delta2"].options["delta"] == 2.0


def test_every_job_makes_a_mode(tmp_path: Path) -> None:
    from mrp.decoding import make_mode

    for name in ("embedded", "micro"):
        for job in jobs(load_suite(name)):
            assert make_mode(job.mode, **job.options).needs_head == (job.head is not None)


def test_the_same_cell_twice_is_an_error(tmp_path: Path) -> None:
    twice = [{"mode": "dynamic", "tau": [0.5]}, {"mode": "static"}, {"mode": "dynamic", "tau": 0.5}]
    with pytest.raises(UserError, match=r"grid\[2\]: job S.mini.dynamic.tau0.5 .* from grid\[0\]"):
        jobs(suite(tmp_path, grid=twice))
    spelled_out = [{"mode": "direct", "head": "k2", "k": 1, "scale": [1, 1.0]}]
    with pytest.raises(UserError, match="is there already"):
        jobs(suite(tmp_path, grid=spelled_out))


def test_labels_of_task_groups_are_unique(tmp_path: Path) -> None:
    tasks = [["mini_math", "mini_code"], ["mini_code", "mini_math"], ["mini_code"]]
    assert grid.task_labels(suite(tmp_path, tasks=tasks)) == [
        "mini",
        "mini_code+mini_math",
        "mini_code",
    ]


@pytest.mark.parametrize(
    ("change", "changed"),
    [
        ({"seed": 1}, "all"),
        ({"data": {"test": 5}}, "all"),
        ({"decoding": {"max_new_tokens": 5}}, "all"),
        ({"tasks": [*GOOD["tasks"], "mini_code"]}, "none"),
        ({"grid": GOOD["grid"][::-1]}, "none"),
        ({"grid": [*GOOD["grid"], {"mode": "dynamic", "tau": 0.7}]}, "none"),
        ({"backbones": {**GOOD["backbones"], "L": {"path": "x/y"}}}, "none"),
    ],
)
def test_digests_change_with_what_they_cover(
    tmp_path: Path, change: dict[str, Any], changed: str
) -> None:
    before, after = by_id(suite(tmp_path)), by_id(suite(tmp_path, **change))
    assert set(before) <= set(after)
    same = [before[name].digest == after[name].digest for name in before]
    assert not any(same) if changed == "all" else all(same)


def test_a_retuned_head_is_another_training_but_the_same_decoding(tmp_path: Path) -> None:
    before = suite(tmp_path)
    heads = {**GOOD["heads"], "mine": {"variant": "default", "train": {"steps": 4}}}
    after = suite(tmp_path, heads=heads)
    other_grid = suite(tmp_path, grid=[{"mode": "static"}])
    other_seed = suite(tmp_path, seed=1)
    digests = [
        grid.training_digest(loaded, loaded.heads["mine"])
        for loaded in (before, other_grid, after, other_seed)
    ]
    assert digests[0] == digests[1]
    assert len(set(digests)) == 3
    assert by_id(before) == by_id(after)


def test_find_job_names_a_near_one(tmp_path: Path) -> None:
    loaded = suite(tmp_path)
    assert find_job(loaded, "S.mini.static").mode == "static"
    with pytest.raises(UserError, match=r"no job 'S.mini.statik': did you mean S.mini.static\?"):
        find_job(loaded, "S.mini.statik")


def test_paths(tmp_path: Path) -> None:
    layout = Layout(suite(tmp_path))
    assert layout.record("S.mini.static") == Path("results/good/runs/S.mini.static/record.json")
    assert layout.backbone_dir("S") == Path("org/backbone")
    assert layout.backbone_inputs("S") == []  # on the hub
    trained = Path("results/good/backbones/M/model.safetensors")
    assert layout.backbone_inputs("M") == [trained]
    assert layout.head_dir("S", "k2") == Path("heads/of/S")
    assert layout.head_inputs("S", "k2") == [Path("heads/of/S/config.json")]
    assert layout.head_inputs("M", "mine") == [Path("results/good/heads/M/mine/model.safetensors")]
    assert layout.head_inputs("S", None) == []


# ---- code versions -------------------------------------------------------------------------------


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
    for patterns in (DECODE_CODE, TRAIN_CODE, DATA_CODE, REPORT_CODE):
        for pattern in patterns:
            assert list(root.glob(pattern)), pattern


def test_the_generated_tasks_are_those_of_the_data_package() -> None:
    from mrp.data import TASKS

    assert set(grid.GENERATED) == set(TASKS)


def test_a_missing_released_checkpoint_is_named(tmp_path: Path) -> None:
    """A hub id has no files here; a folder must have them."""
    with pytest.raises(UserError, match=r"heads.k2.path: heads/of/S: no checkpoint here"):
        check_checkpoints(suite(tmp_path))
