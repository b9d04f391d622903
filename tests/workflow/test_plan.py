"""What an edit runs again: exactly what it concerns. Dry runs over a finished micro suite."""

from __future__ import annotations

import shutil
import subprocess
import sys

import pytest

from tests.workflow.conftest import Repo

REPORTS = ["report"] * 3
DECODES = [
    "Decode S.mini.direct.default.k1",
    "Decode S.mini.direct.direct.k1",
    "Decode S.mini.dynamic.tau0.5",
    "Decode S.mini.remask.default.tau0.5",
    "Decode S.mini.speculative.default.k2",
    "Decode S.mini.static",
]
TRAINS = ["Train backbone S", "Train head default on S", "Train head direct on S"]


def test_a_fresh_copy_plans_everything_once(fresh: Repo) -> None:
    assert fresh.planned() == [*DECODES, "Generate the test problems", *TRAINS, *REPORTS]
    assert fresh.planned("backbone") == ["Train backbone S"]
    assert fresh.planned("heads") == TRAINS
    assert fresh.planned("figures/pareto.pdf")[-2:] == ["Train head direct on S", "report"]
    record = "results/micro/runs/S.mini.static/record.json"
    assert fresh.planned(record) == [
        "Decode S.mini.static",
        "Generate the test problems",
        "Train backbone S",
    ]


def test_a_finished_suite_has_nothing_to_do(repo: Repo) -> None:
    assert repo.planned() == []
    assert repo.planned("figures/pareto.pdf") == []
    assert repo.planned(suite="config/suites/micro.yaml") == []  # the same suite by its path


def test_comments_documents_and_time_stamps_run_nothing(repo: Repo) -> None:
    # The times as after a fresh clone.
    for file in [repo.path / "config/published.csv", *repo.path.glob("mrp/**/*.py")]:
        file.touch()
    for name, old, new in (
        ("README.md", "A readme", "The readme"),
        ("environment.yml", "# snakemake", "# the workflow"),
        ("mrp/report/tables.py", '"""\n', '"""\n# a comment\n'),
        ("mrp/decoding/modes/static.py", '"""Static decoding', '"""Static, that is decoding'),
        ("mrp/training/losses.py", "from __future__", "# a comment\nfrom __future__"),
        ("workflow/rules/train.smk", "threads: 2", "threads: 3"),
        ("config/suites/micro.yaml", "name: micro", "# a comment\nname: micro"),
        ("config/config.yaml", "device: auto", "device: cpu"),
    ):
        text = (repo.path / name).read_text()
        assert old in text
        (repo.path / name).write_text(text.replace(old, new, 1))
    assert repo.planned() == []


@pytest.mark.parametrize(
    ("file", "concerned"),
    [
        ("mrp/report/tables.py", REPORTS),
        ("mrp/decoding/session.py", [*DECODES, *REPORTS]),
        ("mrp/decoding/modes/static.py", [*DECODES, *REPORTS]),  # the baseline of all
        ("mrp/decoding/modes/dynamic.py", [*DECODES[2:4], *REPORTS]),  # which remask builds on
        ("mrp/evaluation/tasks/mini.py", [*DECODES, *REPORTS]),
        ("mrp/training/losses.py", [*DECODES, *TRAINS, *REPORTS]),
    ],
)
def test_code_runs_what_it_computes(repo: Repo, file: str, concerned: list[str]) -> None:
    with open(repo.path / file, "a") as source:
        source.write("\nCHANGED = True\n")
    assert repo.planned() == concerned


def test_one_tau_is_one_job(repo: Repo) -> None:
    repo.edit("config/suites/micro.yaml", "mode: dynamic, tau: 0.5", "mode: dynamic, tau: 0.6")
    assert repo.planned() == ["Decode S.mini.dynamic.tau0.6", *REPORTS]


def test_a_new_task_adds_only_its_jobs(repo: Repo) -> None:
    repo.edit_suite(tasks=[["mini_math", "mini_code"], "mini_code"])
    added = [job.replace("S.mini.", "S.mini_code.") for job in DECODES]
    assert repo.planned() == [*added, *REPORTS]


def test_another_backbone_adds_only_its_jobs(repo: Repo) -> None:
    backbones = repo.suite()["backbones"]
    assert isinstance(backbones, dict)
    repo.edit_suite(backbones={**backbones, "M": backbones["S"]})
    assert [job for job in repo.planned() if " S" in job] == []


def test_decoding_settings_train_nothing(repo: Repo) -> None:
    repo.edit("config/suites/micro.yaml", "max_new_tokens: 24", "max_new_tokens: 25")
    assert repo.planned() == [*DECODES, *REPORTS]


@pytest.mark.parametrize(
    ("setting", "value"), [("steps", 3), ("start", "results/micro/heads/S/default")]
)
def test_a_heads_settings_concern_that_head(repo: Repo, setting: str, value: object) -> None:
    repo.edit_head("direct", setting, value)
    assert repo.planned() == [
        "Decode S.mini.direct.direct.k1",
        "Train head direct on S",
        *REPORTS,
    ]


def test_a_mistake_in_the_suite_is_one_line(repo: Repo) -> None:
    repo.edit("config/suites/micro.yaml", "k: 2", "k: 8")
    done = repo.run(options=("-n",))
    assert done.returncode == 1
    assert "mrp: error: config/suites/micro.yaml: grid[2].k: 8 is not allowed" in done.stdout
    assert "Traceback" not in done.stdout


def test_an_unknown_suite_is_one_line(fresh: Repo) -> None:
    done = fresh.run(options=("-n",), suite="mikro")
    assert done.returncode == 1
    assert "mrp: error: suite 'mikro': no file config/suites/mikro.yaml" in done.stdout
    assert "did you mean micro?" in done.stdout


def test_missing_pieces_stop_a_run_and_not_a_plan(repo: Repo) -> None:
    """Not "nothing to be done" because an earlier suite's tables are there."""
    heads = repo.suite()["heads"]
    assert isinstance(heads, dict)
    heads["direct"]["path"] = "no/such/{backbone}/direct"
    heads["default"]["path"] = "owner/nothing-here@main"
    repo.edit_suite(heads=heads)
    lines = (
        "heads.direct.path: no/such/S/direct: no checkpoint here (config.json is missing)",
        "heads.default.path: owner/nothing-here@main is not downloaded",
    )
    plan = repo.run(options=("-n",))
    assert plan.returncode == 0, plan.stdout
    assert "mrp: note: suite 'micro': 2 pieces are missing: " in plan.stdout
    assert all(line in plan.stdout for line in lines)
    assert "Decode S.mini.direct.direct.k1" in plan.stdout

    shutil.rmtree(repo.path / "results/micro/runs/S.mini.static")
    done = repo.run()
    assert done.returncode == 1
    assert "mrp: error: suite 'micro': 2 pieces are missing: " in done.stdout
    assert all(line in done.stdout for line in lines)
    assert "Traceback" not in done.stdout
    # Before any work, also work that could have been done.
    assert not (repo.path / "results/micro/runs/S.mini.static").exists()

    # What needs none of them runs.
    record = "results/micro/runs/S.mini.static/record.json"
    done = repo.run(record)
    assert done.returncode == 0, done.stdout
    assert (repo.path / record).exists()


def test_heads_trained_or_released(repo: Repo) -> None:
    """Both kinds' runs live side by side; what needs no head is shared."""
    heads = repo.suite()["heads"]
    assert isinstance(heads, dict)
    heads["direct"]["path"] = "results/micro/heads/{backbone}/direct"
    repo.edit_suite(heads=heads)
    one = "Decode S.mini.direct.direct.k1"
    assert repo.planned() == [one, *REPORTS]
    done = repo.run(options=("-n",), config=("heads=train",))
    assert done.returncode == 0, done.stdout
    assert "Decode S.mini.direct.direct+trained.k1" in done.stdout
    assert "Decode S.mini.static" not in done.stdout
    assert "Train head" not in done.stdout  # is trained already
    done = repo.run(options=("-n",), config=("heads=here",))
    assert done.returncode == 1
    assert "mrp: error: heads: 'here' is not allowed: allowed: released, train" in done.stdout


def test_results_from_elsewhere_give_tables_and_figures_alone(repo: Repo) -> None:
    pack = ["pack", "--suite", "micro", "--records", "kept"]
    done = subprocess.run(
        [sys.executable, "-m", "mrp.cli", *pack],
        cwd=repo.path,
        env=repo.environment(),
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    for made in ("results/micro", "results/tables.html", "figures/pareto.pdf"):
        path = repo.path / made
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    again = repo.run(config=("results_from=kept",))
    assert again.returncode == 0, again.stdout
    assert not (repo.path / "results/micro/runs").exists()
    for made in ("results/tables.html", "figures/pareto.pdf"):
        assert (repo.path / made).stat().st_size > 1000
    wrong = repo.run(config=("results_from=config",), options=("-n",))
    assert wrong.returncode == 1
    assert "mrp: error: results_from: config holds no manifest.json" in wrong.stdout


def test_the_workflow_is_clean_for_its_linter(fresh: Repo) -> None:
    done = fresh.run(options=("--lint",))
    assert done.returncode == 0, done.stdout
    assert "Congratulations" in done.stdout
