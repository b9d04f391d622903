"""Copies of the repository in which the micro suite can run, one of them finished."""

from __future__ import annotations

import fcntl
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
import yaml

from tests import forks

SOURCE = Path(__file__).parents[2]
PARTS = ("Snakefile", "environment.yml", "config", "mrp", "profiles", "workflow")


@dataclass(frozen=True)
class Repo:
    """A copy of the repository and what one does in it."""

    path: Path
    extra: tuple[tuple[str, str], ...] = ()  # further environment variables
    forked: bool = False  # its jobs are forks, less the time for imports (tests.forks)

    def command(
        self, *arguments: str, suite: str = "micro", config: tuple[str, ...] = ()
    ) -> list[str]:
        """The command line of a workflow run on the CPU; `config` are further key=value pairs."""
        config = ("--config", f"suite={suite}", "device=cpu", *config, "--")
        return [sys.executable, "-m", "snakemake", "--cores", "2", *config, *arguments]

    def environment(self) -> dict[str, str]:
        """This process's, with the copy's own source."""
        cache = str(self.path / ".cache")
        own = {"PYTHONPATH": str(self.path), "XDG_CACHE_HOME": cache}
        return {**os.environ, **own, **dict(self.extra)}

    def run(
        self,
        *targets: str,
        options: tuple[str, ...] = (),
        suite: str = "micro",
        config: tuple[str, ...] = (),
    ) -> subprocess.CompletedProcess[str]:
        """Run the workflow; stdout and stderr come together."""
        command = self.command(*targets, suite=suite, config=config)
        command[3:3] = options
        if self.forked or {"-n", "--lint"} & {*options}:
            return forks.snakemake(command[3:], self.path, self.environment(), self.forked)
        return subprocess.run(
            command,
            cwd=self.path,
            env=self.environment(),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=600,
        )

    def planned(self, *targets: str, suite: str = "micro") -> list[str]:
        """The messages of the jobs that a run would start, sorted; the reports' as "report"."""
        done = self.run(*targets, options=("-n",), suite=suite)
        assert done.returncode == 0, done.stdout
        jobs = re.findall(r"^Job \d+: (.*?)(?: \(progress.*)?$", done.stdout, re.MULTILINE)
        assert jobs or "Nothing to be done" in done.stdout, done.stdout
        return sorted(
            re.sub(r"^(Write results|Write a page|Draw the).*", "report", job) for job in jobs
        )

    def edit(self, name: str, old: str, new: str) -> None:
        """Replace a text in a file, once."""
        text = (self.path / name).read_text()
        assert text.count(old) == 1, f"{name}: {text.count(old)} times {old!r}"
        (self.path / name).write_text(text.replace(old, new))

    def edit_suite(self, **changes: object) -> None:
        """Replace keys of the micro suite."""
        path = self.path / "config/suites/micro.yaml"
        path.write_text(yaml.safe_dump({**self.suite(), **changes}, sort_keys=False))

    def edit_head(self, head: str, setting: str, value: object) -> None:
        """Replace a train setting of one of the micro suite's heads."""
        heads = self.suite()["heads"]
        assert isinstance(heads, dict)
        heads[head]["train"][setting] = value
        self.edit_suite(heads=heads)

    def suite(self) -> dict[str, object]:
        """The micro suite as it stands."""
        loaded: dict[str, object] = yaml.safe_load(
            (self.path / "config/suites/micro.yaml").read_text()
        )
        return loaded


def copy_repo(to: Path) -> Repo:
    """The repository without results."""
    to.mkdir()
    for part in PARTS:
        if (SOURCE / part).is_dir():
            ignore = shutil.ignore_patterns("__pycache__")
            shutil.copytree(SOURCE / part, to / part, ignore=ignore)
        else:
            shutil.copy2(SOURCE / part, to / part)
    (to / "README.md").write_text("# A readme\n")
    return Repo(to)


def finished_copy(
    factory: pytest.TempPathFactory,
    suite: str,
    prepare: Callable[[Path], None] | None = None,
    forked: bool = False,
) -> Repo:
    """A copy in which `suite` ran to its end, made once; `prepare` is given its folder before."""
    shared = factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        shared = shared.parent  # one copy for all workers: the first makes it, the others wait
    place = shared / f"finished-{suite}"
    with open(shared / f"{suite}.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if (place / "results/tables.html").exists():
            return Repo(place)
        shutil.rmtree(place, ignore_errors=True)
        repo = copy_repo(place)
        if prepare is not None:
            prepare(place)
        done = replace(repo, forked=forked).run(suite=suite)
        assert done.returncode == 0, done.stdout
        return repo


@pytest.fixture(scope="session")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Repo:
    """A copy in which the micro suite ran to its end, as a user runs it. Not to be changed."""
    return finished_copy(tmp_path_factory, "micro")


@pytest.fixture
def repo(finished: Repo, tmp_path: Path) -> Repo:
    """A finished copy of the test's own, with all times and metadata as they were."""
    shutil.copytree(finished.path, tmp_path / "repo", symlinks=True)
    return Repo(tmp_path / "repo", forked=True)


@pytest.fixture
def fresh(tmp_path: Path) -> Repo:
    """A copy in which nothing ran."""
    return copy_repo(tmp_path / "fresh")
