"""The worked examples of the documentation: their blocks are what is run."""

from __future__ import annotations

import fcntl
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from mrp.io import read_json
from tests.docs.pages import EXAMPLES, ROOT, blocks, commands, write
from tests.workflow.conftest import Repo, copy_repo

LONGEST = 40  # lines of code and settings


def example(name: str) -> Path:
    return ROOT / "docs" / f"{name}.md"


def with_files(place: Path, *names: str) -> Repo:
    """A copy of the repository with the files of these examples."""
    repo = copy_repo(place)
    shutil.copytree(ROOT / "assets/embedded", place / "assets/embedded")
    for name in names:
        for block in blocks(example(name)):
            if block.file is not None:
                write(block, place)
    return repo


@pytest.fixture(scope="module")
def tried(tmp_path_factory: pytest.TempPathFactory) -> Repo:
    """A copy in which all four examples were followed, in one process."""
    shared = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        shared = shared.parent  # one copy for all workers: the first makes it, the others wait
    place = shared / "examples"
    with open(shared / "examples.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if place.exists():
            return Repo(place)
        repo = with_files(place, *EXAMPLES)
        lines = [line for name in EXAMPLES for line in commands(example(name))]
        done = subprocess.run(
            [sys.executable, "-m", "tests.docs.run_commands", *lines],
            cwd=place,
            env={**repo.environment(), "PYTHONPATH": f"{place}{os.pathsep}{ROOT}"},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        (place / "output.txt").write_text(done.stdout)
        return repo


@pytest.mark.parametrize("name", EXAMPLES)
def test_an_example_is_short(name: str) -> None:
    assert all(block.file or block.language == "sh" for block in blocks(example(name)))
    lines = [
        line
        for block in blocks(example(name))
        if block.file is not None
        for line in block.text.splitlines()
        if line.strip() and not line.startswith(" " if block.language == "diff" else "#")
    ]
    assert 0 < len(lines) < LONGEST


@pytest.mark.parametrize("name", EXAMPLES)
def test_an_example_works(tried: Repo, name: str) -> None:
    """Every line of it ran, and every job of its suite has a record."""
    output = (tried.path / "output.txt").read_text()
    lines = commands(example(name))
    assert lines
    assert [f"$ {line}" for line in lines if f"$ {line}\n" not in output] == [], output
    assert output.rstrip().endswith("all done"), output
    found = records(tried, name)
    assert len(found) >= 2
    (page,) = (tried.path / "results").glob(f"{found.popitem()[1]['job']['suite']}/tables.html")
    text = page.read_text("utf-8")
    assert all(job in text for job in found)


def records(repo: Repo, name: str) -> dict[str, dict[str, Any]]:
    """The records of an example's suite by job."""
    (suite,) = (Path(b.file).stem for b in blocks(example(name)) if b.file and "suites/" in b.file)
    runs = repo.path / "results" / suite / "runs"
    return {run.name: read_json(run / "record.json") for run in runs.iterdir()}


def test_the_mode_is_between_static_and_dynamic(tried: Repo) -> None:
    tpf = {
        record["job"]["mode"]: record["tasks"]["mini_math"]["tpf"]
        for record in records(tried, "adding-a-mode").values()
    }
    assert tpf["static"] == 1 < tpf["alternate"] < tpf["dynamic"]


def test_the_tasks_own_function_scores(tried: Repo) -> None:
    for job, record in records(tried, "adding-a-task").items():
        text = (tried.path / "results/my_task/runs" / job / "samples.jsonl").read_text()
        samples = [json.loads(line) for line in text.splitlines()]
        assert len(samples) == 3
        for sample in samples:
            last = re.findall(r"\d+", sample["text"])[-1]
            assert sample["correct"] == (sample["target"] == ("even", "odd")[int(last) % 2])
        right = sum(sample["correct"] for sample in samples)
        assert record["tasks"]["parity"]["correct"] == right


def test_the_heads_are_those_that_were_made(tried: Repo) -> None:
    layers = {
        record["head"]["name"]: (record["head"]["layers"], record["head"]["source"])
        for record in records(tried, "adding-a-head").values()
        if record["head"] is not None
    }
    assert layers["mine"] == (1, "trained")
    assert layers["theirs"] == (2, "released")


@pytest.mark.slow
@pytest.mark.parametrize("name", EXAMPLES)
def test_an_example_works_in_the_real_workflow(name: str, tmp_path: Path) -> None:
    repo = with_files(tmp_path / "repo", name)
    here = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    for line in commands(example(name)):
        done = subprocess.run(
            line.replace("snakemake ", "snakemake --cores 2 "),
            shell=True,
            cwd=repo.path,
            env={**repo.environment(), "PATH": here},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        assert done.returncode == 0, done.stdout
    page = (repo.path / "results/tables.html").read_text()
    assert all(job in page for job in records(repo, name))
