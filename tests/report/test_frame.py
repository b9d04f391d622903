"""The tidy table: every expected job has its rows, and every number comes from the samples."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from mrp.errors import UserError
from mrp.grid import jobs
from mrp.report.comparisons import compare, select
from mrp.report.frame import Results, load_results
from mrp.report.statistics import wilson
from tests.report.conftest import FAILED, MISSING, N
from tests.report.synthetic import Written


@pytest.fixture
def copy(written: Written, tmp_path: Path) -> Written:
    """Results to damage."""
    shutil.copytree(written.results, tmp_path / "results")
    return Written(written.suite, written.suite_file, tmp_path / "results")


def samples(written: Written, job: str, task: str) -> list[dict[str, object]]:
    text = (written.layout.run_dir(job) / "samples.jsonl").read_text("utf-8")
    return [line for line in map(json.loads, text.splitlines()) if line["task"] == task]


def test_a_row_for_every_job_and_task(written: Written, rows: pd.DataFrame) -> None:
    expected = [(job.id, task) for job in jobs(written.suite) for task in job.tasks]
    assert list(zip(rows["job"], rows["task"], strict=True)) == expected


def test_rows_without_a_record_say_why(written: Written, rows: pd.DataFrame) -> None:
    assert set(select(rows, job=MISSING)["note"]) == {"not run"}
    log = written.layout.log("decode", FAILED)
    assert set(select(rows, job=FAILED)["note"]) == {f"failed: {log.as_posix()}"}
    assert select(rows, status="done")["note"].eq("").all()
    assert rows[rows["status"] != "done"]["accuracy"].isna().all()


def test_numbers_are_those_of_the_samples(written: Written, rows: pd.DataFrame) -> None:
    for _, row in select(rows, status="done").iterrows():
        lines = samples(written, row["job"], row["task"])
        correct = sum(bool(line["correct"]) for line in lines)
        total = pd.DataFrame([line["counts"] for line in lines]).sum()
        decoding = total["denoise"] + total["verify"]
        assert (row["n"], row["correct"]) == (N, correct)
        assert row["accuracy"] == correct / N
        assert row["accuracy_low"] == wilson(correct, N).low
        assert row["tpf"] == pytest.approx(total["generated"] / decoding)
        assert row["tpf_low"] <= row["tpf"] <= row["tpf_high"]
        everything = decoding + total["prefill"]
        assert row["tpf_end_to_end"] == pytest.approx(total["generated"] / everything)
        passes = total["head_draft"] + total["head_remask"] + total["head_store"]
        assert row["head_per_token"] == pytest.approx(passes / total["generated"])
        if total["proposed"]:
            assert row["acceptance"] == pytest.approx(total["accepted"] / total["proposed"])
        else:
            assert pd.isna(row["acceptance"])


def test_comparisons_are_those_of_the_samples(written: Written, rows: pd.DataFrame) -> None:
    for _, row in select(rows, status="done").iterrows():
        static = samples(written, "S.mini.static", row["task"])
        mine = samples(written, row["job"], row["task"])
        pairs = list(zip(mine, static, strict=True))
        if row["job"] == "S.mini.static":
            assert pd.isna(row["vs_static"])
            continue
        assert row["same_text"] == sum(a["text"] == b["text"] for a, b in pairs)
        assert row["won"] == sum(bool(a["correct"] and not b["correct"]) for a, b in pairs)
        assert row["lost"] == sum(bool(b["correct"] and not a["correct"]) for a, b in pairs)
        assert row["vs_static"] == pytest.approx((row["won"] - row["lost"]) / N)
        assert row["vs_static_low"] <= row["vs_static"] <= row["vs_static_high"]


def test_remask_is_compared_at_equal_tau_and_at_equal_speed(rows: pd.DataFrame) -> None:
    for _, row in select(rows, mode="remask").iterrows():
        cell = select(rows, task=row["task"])
        dynamic = select(cell, mode="dynamic", tau=row["tau"]).iloc[0]
        assert row["vs_dynamic"] == pytest.approx(row["accuracy"] - dynamic["accuracy"])
        gain = row["accuracy"] - row["dynamic_at_tpf"]
        assert row["vs_dynamic_at_tpf"] == pytest.approx(gain)
        # The interpolated accuracy lies between those of the two neighbours in speed.
        points = cell[cell["job"].str.match(r"S\.mini\.(static$|dynamic)")].sort_values("tpf")
        slower, faster = points[points["tpf"] <= row["tpf"]], points[points["tpf"] >= row["tpf"]]
        ends = sorted([slower["accuracy"].iloc[-1], faster["accuracy"].iloc[0]])
        assert ends[0] - 1e-9 <= row["dynamic_at_tpf"] <= ends[1] + 1e-9


@pytest.mark.parametrize("slower", [1.0, 0.3])
def test_remask_in_equal_time_is_on_dynamics_lines(results: Results, slower: float) -> None:
    """Beside a point slower than all of dynamic's and static's stands the slowest of these."""
    measured = ["time_ratio", "time_ratio_low", "time_ratio_high"]
    known = results.rows.copy()
    known.loc[known["mode"] == "remask", measured] *= slower
    rows = compare(replace(results, rows=known))
    outside = []
    for _, row in select(rows, mode="remask").iterrows():
        cell = select(rows, task=row["task"])
        points = cell[cell["job"].str.match(r"S\.mini\.(static$|dynamic)")]
        points = points.assign(time_ratio=points["time_ratio"].fillna(1)).sort_values("time_ratio")
        there = np.interp(row["time_ratio"], points["time_ratio"], points["accuracy"])
        assert row["vs_dynamic_at_time"] == pytest.approx(row["accuracy"] - there)
        assert row["vs_dynamic_at_time_low"] <= row["vs_dynamic_at_time_high"]
        outside.append(row["time_ratio"] < points["time_ratio"].min())
    assert any(outside) == (slower < 1)


@pytest.mark.parametrize(
    ("name", "damage"),
    [
        ("record.json", lambda text: text[: len(text) // 2]),
        ("record.json", lambda text: text.replace('"generated"', '"made"')),
        ("record.json", lambda text: text.replace('"schema": 1', '"schema": 99')),
        ("record.json", lambda text: "[]"),
        ("samples.jsonl", lambda text: text[:-20]),
        ("samples.jsonl", lambda text: text.replace('"correct":true', '"correct":false')),
        ("samples.jsonl", lambda text: text.split("\n", 1)[1]),
        ("samples.jsonl", lambda text: text.replace('"counts"', '"count"')),
    ],
)
def test_a_damaged_file_is_named(copy: Written, name: str, damage: object) -> None:
    path = copy.layout.run_dir("S.mini.dynamic.tau0.5") / name
    assert callable(damage)
    path.write_text(damage(path.read_text("utf-8")), encoding="utf-8")
    with pytest.raises(UserError) as caught:
        load_results(copy.suite, copy.results)
    assert "S.mini.dynamic.tau0.5" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_samples_that_are_gone_are_named(copy: Written) -> None:
    (copy.layout.run_dir("S.mini.static") / "samples.jsonl").unlink()
    with pytest.raises(UserError, match=r"static/samples\.jsonl: no such file"):
        load_results(copy.suite, copy.results)


def test_a_record_of_other_settings_is_not_shown(copy: Written) -> None:
    path = copy.layout.record("S.mini.dynamic.tau0.5")
    record = json.loads(path.read_text("utf-8"))
    record["job"]["digest"] = "another"
    path.write_text(json.dumps(record), encoding="utf-8")
    found = select(load_results(copy.suite, copy.results).rows, job="S.mini.dynamic.tau0.5")
    assert set(found["status"]) == {"outdated"}
    assert found["accuracy"].isna().all()


def test_no_record_at_all_is_an_error(written: Written, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="no record of suite 'embedded'"):
        load_results(written.suite, tmp_path)


def test_outcomes_are_in_document_order(results: Results) -> None:
    outcome = results.outcomes["S.mini.static", "mini_code"]
    assert outcome.problems == tuple(str(i) for i in range(N))
