"""The micro suite end to end: products, kills, failures, two runs at once."""

from __future__ import annotations

import csv
import json
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import torch

from mrp.grid import Layout, jobs, load_suite
from tests.workflow.conftest import Repo

TIMES = ("time_ratio", "time_ratio_low", "time_ratio_high", "tokens_per_second")


def numbers(repo: Repo) -> list[dict[str, str]]:
    """The rows of tables.csv without the times, which no two runs share."""
    with open(repo.path / "results/tables.csv") as file:
        rows = list(csv.DictReader(file))
    return [{key: row[key] for key in row if key not in TIMES} for row in rows]


def answers(repo: Repo) -> dict[str, str]:
    """All that was decoded, by job."""
    runs = repo.path.glob("results/micro/runs/*")
    return {run.name: (run / "samples.jsonl").read_text() for run in runs}


def test_the_suite_makes_every_product(finished: Repo) -> None:
    suite = load_suite("micro")
    for job in jobs(suite):
        assert (finished.path / Layout(suite).record(job.id)).exists()
    for name in ("pareto", "lookahead", "remask"):
        for form in ("pdf", "png", "svg"):
            assert (finished.path / f"figures/{name}.{form}").stat().st_size > 1000
    assert "</html>" in (finished.path / "results/tables.html").read_text()
    assert [row["status"] for row in numbers(finished)] == ["done"] * 12


def start(repo: Repo) -> subprocess.Popen[str]:
    """A run of its own process group."""
    return subprocess.Popen(
        repo.command(),
        cwd=repo.path,
        env=repo.environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )


def wait_for(there: Callable[[], bool], seconds: float = 60) -> None:
    """Poll until something is there."""
    end = time.monotonic() + seconds
    while not there():
        assert time.monotonic() < end, "it never came"
        time.sleep(0.02)


def test_a_killed_run_goes_on_to_the_same_numbers(finished: Repo, repo: Repo) -> None:
    runs = repo.path / "results/micro/runs"
    shutil.rmtree(runs / "S.mini.static")
    (repo.path / "results/tables.csv").unlink()  # what is there needs no records any more
    first = start(repo)
    wait_for(lambda: (runs / "S.mini.static/journal.jsonl").exists())
    os.killpg(first.pid, signal.SIGSTOP)
    second = repo.run()  # at the same time
    assert second.returncode != 0
    assert "lock" in second.stdout.lower()
    os.killpg(first.pid, signal.SIGKILL)  # as a power cut would
    first.communicate()
    assert not (runs / "S.mini.static/record.json").exists()

    unlocked = repo.run(options=("--unlock",))
    assert unlocked.returncode == 0, unlocked.stdout
    again = repo.run("results/tables.csv")
    assert again.returncode == 0, again.stdout
    assert repo.planned("results/tables.csv") == []
    assert answers(repo) == answers(finished)
    assert numbers(repo) == numbers(finished)


def test_an_edited_setting_trains_again_over_what_a_kill_left(repo: Repo) -> None:
    head = repo.path / "results/micro/heads/S/direct"
    identity = json.loads((head / "provenance.json").read_text())["identity"]
    torch.save({"identity": identity}, head / "training.pt")
    repo.edit_head("direct", "steps", 3)
    target = "results/micro/heads/S/direct/model.safetensors"
    assert repo.planned(target) == ["Train head direct on S"]
    done = repo.run(target)
    assert done.returncode == 0, done.stdout
    said = (repo.path / "results/micro/logs/train_head/S.direct.log").read_text()
    assert said.startswith("mrp: results/micro/heads/S/direct: starting over: steps was 2, is 3; ")
    assert json.loads((head / "provenance.json").read_text())["identity"]["steps"] == 3
    assert (head / "training.pt.old").exists()
    assert repo.planned(target) == []


def test_a_failed_job_keeps_its_log_and_stops_only_what_needs_it(repo: Repo) -> None:
    head = repo.path / "results/micro/heads/S/direct/model.safetensors"
    head.write_bytes(b"damaged")
    runs = repo.path / "results/micro/runs"
    (runs / "S.mini.static/record.json").unlink()
    (repo.path / "results/tables.csv").unlink()
    done = repo.run()
    assert done.returncode == 1
    log = Path("results/micro/logs/decode/S.mini.direct.direct.k1.log")
    assert str(log) in done.stdout
    said = (repo.path / log).read_text()
    assert said.startswith("mrp: error: ")
    assert "model.safetensors" in said
    assert said.strip() in done.stdout  # the profile shows it, too
    assert (runs / "S.mini.static/record.json").exists()  # keep-going
    assert (runs / "S.mini.direct.direct.k1/journal.jsonl").exists()
