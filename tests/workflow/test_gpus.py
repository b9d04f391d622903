"""How many GPUs a plan asks for, what is refused before anything runs, who goes first on a GPU."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from mrp.leases import TRAININGS
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


# In place of `mrp`: writes down when it begins and ends, and leaves the files that were asked for.
PRETENDED = """#!/bin/bash
while [ $# -gt 0 ]; do
    case $1 in
        train-*|decode|data) what=$1 ;;
        --job|--head) name=$2 ;;
        --out) out=$2 ;;
    esac
    shift
done
echo "+ $what $name" >> LOG
mkdir -p $out
case $what in
    train-*) sleep 0.3; touch $out/{config.json,model.safetensors,provenance.json} ;;
    decode) touch $out/{record.json,samples.jsonl} ;;
    data) touch $out/{mini_math,mini_code}.jsonl ;;
esac
echo "- $what $name" >> LOG
"""


def test_trainings_leave_places_and_the_most_wanted_come_first(fresh: Repo, tmp_path: Path) -> None:
    names = [f"h{number}" for number in range(TRAININGS + 2)]
    wanted = names[-2:]
    heads = fresh.suite()["heads"]
    assert isinstance(heads, dict)
    fresh.edit_suite(
        jobs_per_gpu=2 * TRAININGS,
        heads=dict.fromkeys(names, heads["default"]),
        grid=[
            {"mode": "static"},
            {"mode": "direct", "head": names, "k": 1},
            {"mode": "direct", "head": wanted, "k": [2, 3]},
        ],
    )
    log, mrp = tmp_path / "log", tmp_path / "bin" / "mrp"
    mrp.parent.mkdir()
    mrp.write_text(PRETENDED.replace("LOG", str(log)))
    mrp.chmod(0o755)
    jobs = ["static", *(f"direct.{name}.k1" for name in names)]
    jobs += [f"direct.{name}.k{k}" for name in wanted for k in (2, 3)]
    words = ["--cores", "16", "--config", "suite=micro", "--"]
    words += [f"results/micro/runs/S.mini.{job}/record.json" for job in jobs]
    environment = {**fresh.environment(), "MRP_FAKE_GPUS": "1"}
    with open(tmp_path / "said", "w+") as said, open(os.devnull) as nothing:
        files = (nothing.fileno(), said.fileno(), said.fileno())
        server, python = forks.server("snakemake"), str(mrp.with_name("python"))
        code = forks.ask(server, "snakemake", words, files, str(fresh.path), environment, python)
        said.seek(0)
        assert code == 0, said.read()
    lines = [line.split() for line in log.read_text().splitlines()]
    trained = [(sign, name) for sign, what, *name in lines if what == "train-head"]
    begun = [index for index, (sign, _) in enumerate(trained) if sign == "+"]
    assert max(2 * count - index for count, index in enumerate(begun)) + 1 == TRAININGS
    first = [name for sign, (name,) in trained if sign == "+"][:TRAININGS]
    assert {*wanted} <= {*first}
    last = max(index for index, line in enumerate(lines) if line[:2] == ["+", "train-head"])
    assert lines.index(["+", "decode", "S.mini.static"]) < last


def test_a_file_where_a_run_belongs_is_one_line(fresh: Repo) -> None:
    place = fresh.path / "results/micro/runs/S.mini.static"
    place.parent.mkdir(parents=True)
    place.touch()
    code, output = plan(fresh, 0, "--config", "suite=micro")
    assert code == 1
    assert "mrp: error: results/micro/runs/S.mini.static: a folder belongs here: move" in output
    assert "Traceback" not in output
