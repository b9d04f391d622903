"""The paper's suite: its plan, and the whole of its workflow on tiny stand-ins (paper_smoke)."""

from __future__ import annotations

import csv
import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from mrp.config import HEADS_FROM, load_suite
from mrp.grid import Layout, jobs
from tests.workflow import paper_fixture
from tests.workflow.conftest import SOURCE, Repo, copy_repo, finished_copy

# The paper's grid (mode: cells a backbone and task).
DIRECT = 3 * 4  # heads default, k2, direct; K = 1 to 4
SPECULATIVE = 4  # K = 1 to 4
DYNAMIC = REMASK = 5  # tau = 0.5 to 0.9
CELLS = 1 + DIRECT + SPECULATIVE + DYNAMIC + REMASK
BACKBONES, TASKS, HEADS = 3, 4, 3
REPORTS = 3  # pages, tables, figures


def test_the_grid_is_the_papers() -> None:
    suite = load_suite("paper")
    assert BACKBONES * TASKS * CELLS == 324
    for heads in HEADS_FROM:
        found = jobs(suite, heads)
        assert len(found) == len({job.id for job in found}) == 324
        for backbone in ("sdar-1.7b", "sdar-4b", "sdar-8b"):
            for task in ("mrp_gsm8k", "mrp_math500", "mrp_humaneval", "mrp_mbpp"):
                mine = [j for j in found if j.backbone == backbone and j.tasks == (task,)]
                modes = [job.mode for job in mine]
                assert {mode: modes.count(mode) for mode in modes} == {
                    "static": 1,
                    "direct": DIRECT,
                    "speculative": SPECULATIVE,
                    "dynamic": DYNAMIC,
                    "remask": REMASK,
                }
    assert {j.head_source for j in jobs(suite, "released")} == {None, "released"}
    assert {j.head_source for j in jobs(suite, "train")} == {None, "trained"}


def test_the_depth_ablation() -> None:
    found = jobs(load_suite("paper_depth"))
    assert len(found) == 2 * (1 + 5 * (2 + 1))


@pytest.mark.parametrize(("heads", "trainings"), [("released", 0), ("train", BACKBONES * HEADS)])
def test_a_dry_run_lists_every_job_without_network(fresh: Repo, heads: str, trainings: int) -> None:
    done = subprocess.run(
        [*without_network(), *fresh.command(suite="paper", config=(f"heads={heads}",))[:-1], "-n"],
        cwd=fresh.path,
        env={**fresh.environment(), "HF_HUB_CACHE": str(fresh.path / "empty")},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stdout
    stats = dict(re.findall(r"^(\w+) +(\d+)$", done.stdout.partition("Job stats:")[2], re.M))
    decodes = BACKBONES * TASKS * CELLS
    assert int(stats["decode"]) == decodes == 324
    assert int(stats.get("train_head", 0)) == trainings
    assert int(stats["total"]) == decodes + trainings + REPORTS + 1  # and `all`
    assert not {"data", "train_backbone"} & stats.keys()
    # Each is a job of its own, and what is missing is said once.
    planned = set(re.findall(r"^Job \d+: Decode (\S+)", done.stdout, re.M))
    assert planned == {job.id for job in jobs(load_suite("paper"), heads)}  # type: ignore[arg-type]
    # 3 repositories each with default (backbone and head in one), k2, direct; or 3 backbones and
    # the recipes' data; and 4 benchmarks.
    missing = (9 if heads == "released" else 3 + 1) + 4
    assert f"mrp: note: suite 'paper': {missing} pieces are missing: " in done.stdout


def without_network() -> list[str]:
    """A prefix that runs a command in a network of its own, with nothing in it, if that works."""
    alone = ["unshare", "--map-root-user", "--net"]
    try:
        works = subprocess.run([*alone, "true"], capture_output=True).returncode == 0
    except FileNotFoundError:
        works = False
    return alone if works else []


def test_the_guides_own_suite_is_one(tmp_path: Path) -> None:
    """docs/paper.md's example loads, and has as many jobs as the guide says."""
    guide = (SOURCE / "docs/paper.md").read_text("utf-8")
    (example,) = re.findall(r"^```yaml\n(.*?)^```", guide, re.MULTILINE | re.DOTALL)
    (tmp_path / "mine.yaml").write_text(example)
    suite = load_suite(tmp_path / "mine.yaml")
    said = re.search(r"lists its (\d+) jobs", guide)
    assert said is not None
    assert len(jobs(suite)) == int(said[1])
    assert {job.head_source for job in jobs(suite)} == {None, "released", "trained"}


# ---- the whole workflow --------------------------------------------------------------------------


def prepare(folder: Path) -> None:
    """Put everything that paper_smoke names into a copy of the repository."""
    paper_fixture.build(folder / "data/paper_smoke")


@pytest.fixture(scope="module")
def smoke(tmp_path_factory: pytest.TempPathFactory) -> Repo:
    """A copy in which paper_smoke ran to its end. Not to be changed."""
    return finished_copy(tmp_path_factory, "paper_smoke", prepare, forked=True)


def samples(repo: Repo, job: str, suite: str = "paper_smoke") -> list[dict[str, Any]]:
    text = (repo.path / f"results/{suite}/runs/{job}/samples.jsonl").read_text("utf-8")
    return [json.loads(line) for line in text.split("\n") if line]


def test_every_job_left_its_record(smoke: Repo) -> None:
    suite = load_suite("paper_smoke")
    layout = Layout(suite)
    for job in jobs(suite):
        record = json.loads((smoke.path / layout.record(job.id)).read_text())
        assert record["job"]["digest"] == job.digest
        assert set(record["tasks"]) == {"mrp_gsm8k", "mrp_math500", "mrp_humaneval", "mrp_mbpp"}
        assert (record["head"] or {}).get("source") == job.head_source
        rows = len(samples(smoke, job.id))
        assert rows == sum(entry["n"] for entry in record["tasks"].values()) == 3 + 3 + 2 + 2
    assert {job.head_source for job in jobs(suite)} == {None, "released", "trained"}


def test_products_and_nothing_left_to_do(smoke: Repo) -> None:
    for name in ("pareto", "lookahead", "remask"):
        for form in ("pdf", "png", "svg"):
            assert (smoke.path / f"figures/{name}.{form}").stat().st_size > 1000
    assert smoke.planned(suite="paper_smoke") == []


@pytest.mark.parametrize("backbone", paper_fixture.BACKBONES)
def test_speculative_samples_are_those_of_static(smoke: Repo, backbone: str) -> None:
    static = samples(smoke, f"{backbone}.mrp.static")
    speculative = samples(smoke, f"{backbone}.mrp.speculative.default.k3")
    same = ("task", "doc_id", "prompt", "text", "tokens", "correct")
    assert [[row[key] for key in same] for row in speculative] == [
        [row[key] for key in same] for row in static
    ]
    assert sum(row["counts"]["proposed"] for row in speculative) > 0
    assert all(row["counts"]["verify"] > 0 for row in speculative)


def test_published_numbers_stand_beside_ours(smoke: Repo) -> None:
    with open(smoke.path / "results/tables.csv") as file:
        rows = list(csv.DictReader(file))
    assert [row["status"] for row in rows] == ["done"] * 12 * 4
    published = [row for row in rows if row["published_accuracy"]]
    cells = {(row["backbone"], row["mode"], row["head"], row["k"], row["tau"]) for row in published}
    # Of 4B the paper has direct on GSM8K only, for the default and the direct head.
    assert cells == {
        ("sdar-4b", "direct", "default", "1", ""),
        ("sdar-4b", "direct", "here", "1", ""),
        ("sdar-4b", "direct", "direct", "1", ""),
        ("sdar-4b", "speculative", "default", "3", ""),
        ("sdar-8b", "static", "", "", ""),
        ("sdar-8b", "speculative", "default", "3", ""),
        ("sdar-1.7b", "dynamic", "", "", "0.5"),
        ("sdar-1.7b", "remask", "default", "", "0.5"),
    }
    for row in published:
        gap = float(row["accuracy_here"]) - float(row["published_accuracy"])
        assert float(row["accuracy_gap"]) == pytest.approx(gap, abs=1e-5)
        assert float(row["accuracy_gap_low"]) < gap < float(row["accuracy_gap_high"])
        # Two or three problems reproduce nothing.
        assert row["accuracy_verdict"] in ("within noise", "not reproduced")
    page = (smoke.path / "results/tables.html").read_text("utf-8")
    for heading in ("Accuracy", "Paper", "Difference", "Verdict", "Against the paper"):
        assert heading in page


def test_what_is_missing_comes_at_once_and_before_any_work(smoke: Repo, tmp_path: Path) -> None:
    """Two checkpoints and a benchmark's data; in a copy of the suite under another name."""
    repo = copy_of(smoke, tmp_path / "repo")
    write_copy(repo, "mine")
    models = repo.path / "data/paper_smoke/models"
    shutil.rmtree(models / "sdar-4b-mrp-3lyr-k2")
    (models / "sdar-8b-mrp-3lyr/model-00001-of-00002.safetensors").unlink()
    (repo.path / "data/paper_smoke/benchmarks/mrp_mbpp.jsonl").unlink()
    done = repo.run(suite="mine")
    assert done.returncode == 1
    assert "Traceback" not in done.stdout
    (line,) = [line for line in done.stdout.splitlines() if "pieces are missing" in line]
    assert line.startswith("mrp: error: suite 'mine': 3 pieces are missing: ")
    for part in (
        "heads.k2.path: data/paper_smoke/models/sdar-4b-mrp-3lyr-k2: no checkpoint here",
        "backbones.sdar-8b.path: data/paper_smoke/models/sdar-8b-mrp-3lyr: model-00001-of-00002",
        "data.benchmarks: data/paper_smoke/benchmarks/mrp_mbpp.jsonl: no such file",
        "mrp fetch --suite mine",
    ):
        assert part in line
    assert not (repo.path / "results/mine/runs").exists()


def test_checkpoints_by_hub_id(smoke: Repo, tmp_path: Path) -> None:
    """Ids in place of directories, from a cache, with no network: the same answers."""
    cache = tmp_path / "cache"
    repo = copy_of(smoke, tmp_path / "repo", extra=(("HF_HUB_CACHE", str(cache)),))
    paper_fixture.write_hub_cache(repo.path / "data/paper_smoke", cache)
    suite = write_copy(repo, "ids")
    for spec in (*suite["backbones"].values(), *suite["heads"].values()):
        if "path" in spec:
            spec["path"] = spec["path"].replace("data/paper_smoke/models/", "smoke/")
    (repo.path / "config/suites/ids.yaml").write_text(yaml.safe_dump(suite))
    job = "sdar-1.7b.mrp.remask.default.tau0.5"
    done = repo.run(f"results/ids/runs/{job}/record.json", suite="ids")
    assert done.returncode == 0, done.stdout
    record = json.loads((repo.path / f"results/ids/runs/{job}/record.json").read_text())
    commit = (cache / "models--smoke--sdar-1.7b-mrp-3lyr/refs/main").read_text()
    assert record["provenance"]["backbone_revision"] == commit
    assert record["provenance"]["head_revision"] == commit  # of one repository
    same = ("task", "doc_id", "text", "tokens", "correct", "counts")
    assert [[row[key] for key in same] for row in samples(repo, job, "ids")] == [
        [row[key] for key in same] for row in samples(smoke, job)
    ]


def copy_of(repo: Repo, to: Path, extra: tuple[tuple[str, str], ...] = ()) -> Repo:
    """Another copy of the repository with the same stand-ins and no results."""
    made = copy_repo(to)
    shutil.copytree(repo.path / "data", to / "data")
    return Repo(made.path, extra)


def write_copy(repo: Repo, name: str) -> Any:
    """Copy the suite under another name; returns its content."""
    path = repo.path / "config/suites"
    suite = yaml.safe_load((path / "paper_smoke.yaml").read_text())
    suite["name"] = name
    (path / f"{name}.yaml").write_text(yaml.safe_dump(suite, sort_keys=False))
    return suite
