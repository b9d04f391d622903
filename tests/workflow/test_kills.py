"""Two random kills of a run of the micro suite; tests/workflow/kills.py has the long form."""

from __future__ import annotations

import random
import shutil

import pytest

from tests.workflow.conftest import Repo
from tests.workflow.kills import Kills, differences


@pytest.mark.slow
def test_a_run_killed_twice_ends_like_an_undisturbed_one(finished: Repo, repo: Repo) -> None:
    results = repo.path / "results"
    for part in ("runs/S.mini.static", "runs/S.mini.direct.direct.k1", "heads/S/direct"):
        shutil.rmtree(results / "micro" / part)
    (results / "tables.csv").unlink()
    seed = random.randrange(10**6)
    print(f"seed {seed}")
    kills = Kills(repo, random.Random(seed), longest=6.0)
    try:
        assert kills.kill_once()  # all its processes
        assert kills.kill_once()  # Snakemake alone: its jobs run on beside the next run's
        kills.finish()
    finally:
        kills.end()
    assert [line.split(" after ")[0] for line in kills.done] == [
        "SIGKILL to all",
        "SIGKILL to snakemake",
    ]
    assert differences(finished, repo) == []
