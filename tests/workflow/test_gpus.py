"""How many GPUs a plan asks for, and what is refused before anything runs. Dry runs."""

from __future__ import annotations

import re

import pytest

from tests import forks
from tests.workflow.conftest import Repo


def plan(repo: Repo, visible: int, *words: str) -> tuple[int, str]:
    """Exit code and output of a dry run with this many pretended GPUs."""
    environment = {**repo.environment(), "MRP_FAKE_GPUS": str(visible)}
    done = forks.snakemake(["-n", "-p", *words], repo.path, environment)
    return done.returncode, done.stdout


@pytest.mark.parametrize(
    ("visible", "options", "each"),
    [
        (3, [], "2"),  # all that are visible may be busy at once
        (3, ["--resources", "gpu=1"], "1"),  # a training takes no more than may be busy
        (0, [], "0"),
    ],
)
def test_trainings_ask_for_their_gpus(
    visible: int, options: list[str], each: str, fresh: Repo
) -> None:
    code, said = plan(fresh, visible, *options, "--config", "suite=micro", "gpus_per_training=2")
    assert code == 0, said
    assert re.findall(r"mrp train-\w+ .*?--gpus (\d+)", said) == [each] * 3


@pytest.mark.parametrize(
    ("setting", "said"),
    [
        ("gpus_per_training=4", "gpus_per_training: 4, but visible are 3 (0, 1, 2)"),
        ("gpus_per_training=two", "gpus_per_training: 'two' is no whole number of at least 1"),
    ],
)
def test_numbers_that_cannot_be_are_one_line(setting: str, said: str, fresh: Repo) -> None:
    code, output = plan(fresh, 3, "--config", "suite=micro", setting)
    assert code == 1
    assert f"mrp: error: {said}" in output
    assert "Traceback" not in output


def test_a_file_where_a_run_belongs_is_one_line(fresh: Repo) -> None:
    place = fresh.path / "results/micro/runs/S.mini.static"
    place.parent.mkdir(parents=True)
    place.touch()
    code, output = plan(fresh, 0, "--config", "suite=micro")
    assert code == 1
    assert "mrp: error: results/micro/runs/S.mini.static: a folder belongs here: move" in output
    assert "Traceback" not in output
