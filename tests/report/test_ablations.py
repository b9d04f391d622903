"""The tables of means: every number can be recomputed from the rows it is of."""

from __future__ import annotations

import re
from pathlib import Path

import pandas as pd
import pytest

from mrp.report.ablations import build_ablations
from mrp.report.cells import Row, Table
from mrp.report.comparisons import select
from mrp.report.contest import build_contest
from mrp.report.frame import Results, load_records
from mrp.report.markdown import write_findings
from mrp.report.packing import write_records
from mrp.report.settings import setting_name
from mrp.schema import LOSSLESS
from tests.report.conftest import N
from tests.report.synthetic import Written

TASKS = ("mini_math", "mini_code")


@pytest.fixture(scope="module")
def tables(replica_results: Results, replica_rows: pd.DataFrame) -> dict[str, Table]:
    built = [
        *build_contest(replica_results, replica_rows),
        *build_ablations(replica_results, replica_rows),
    ]
    return {table.id: table for table in built}


def the_row(table: Table, backbone: str, *labels: str) -> Row:
    (group,) = [group for group in table.groups if group.title == backbone]
    (row,) = [
        row
        for row in group.rows
        if all(label in [cell.text for cell in row.labels] for label in labels)
    ]
    return row


def average(rows: pd.DataFrame, name: str, jobs: list[str]) -> float:
    found = rows[rows["job"].isin(jobs)]
    assert len(found) == len(jobs) * len(TASKS)
    return float(found[name].mean())


def test_every_table_is_there(tables: dict[str, Table]) -> None:
    assert list(tables) == [
        *("lossless", "lossy", "lookahead", "depth", "options", "remasking", "seeds")
    ]
    for name, backbones in (("lossy", ["S", "M"]), ("remasking", ["S", "M"]), ("depth", ["S"])):
        assert [group.title for group in tables[name].groups] == backbones


def test_one_choice_at_a_time(tables: dict[str, Table], replica_rows: pd.DataFrame) -> None:
    row = the_row(tables["options"], "S", "scale 2 instead of 1")
    usual = average(replica_rows, "accuracy", ["S.mini.direct.k2.k1", "S.mini.direct.k2.k4"])
    here = average(
        replica_rows, "accuracy", ["S.mini.direct.k2.k1.scale2", "S.mini.direct.k2.k4.scale2"]
    )
    values = [cell.value for cell in row.cells[:3]]
    assert values == pytest.approx([usual, here, here - usual])
    low, high = row.cells[2].detail.split(" to ")
    assert low[0] == high[0] == "\N{MINUS SIGN}"
    assert row.cells[2].tone == "down"
    changes = {row.labels[0].text for group in tables["options"].groups for row in group.rows}
    assert changes == {
        "scale 2 instead of 1",
        "without prefix instead of with prefix",
        "cap 0.9 instead of 1",
        "by halves instead of in one pass",
        "trained on gt-1-4 instead of gt-1",
    }


def test_depth_is_over_what_all_depths_have(
    tables: dict[str, Table], replica_rows: pd.DataFrame
) -> None:
    row = the_row(tables["depth"], "S", "direct, K = 1, 4", "3")
    jobs = ["S.mini.direct.default.k1", "S.mini.direct.default.k4"]
    assert row.cells[0].value == pytest.approx(average(replica_rows, "accuracy", jobs))
    row = the_row(tables["depth"], "S", "speculative, K = 3", "8")
    assert row.cells[1].value == pytest.approx(
        average(replica_rows, "tpf", ["S.mini.speculative.layers-8.k3"])
    )


def test_seeds_and_their_spread(tables: dict[str, Table], replica_rows: pd.DataFrame) -> None:
    row = the_row(tables["seeds"], "S", "k2", "K = 4")
    values = [
        100 * average(replica_rows, "accuracy", [f"S.mini.direct.{head}.k4"])
        for head in ("k2", "k2-seed1", "k2-seed2")
    ]
    assert row.cells[0].text == ", ".join(f"{value:.1f}" for value in values)
    assert row.cells[1].value == pytest.approx(max(values) - min(values))


def test_repetitions_stand_in_no_other_table(tables: dict[str, Table]) -> None:
    texts = [
        cell.text
        for name, table in tables.items()
        for group in table.groups
        for row in group.rows
        for cell in row.labels
        if name != "seeds"
    ]
    assert texts
    assert not [text for text in texts if "seed" in text]


def test_lossless_ways_are_counted_and_ranked(
    tables: dict[str, Table], replica_rows: pd.DataFrame
) -> None:
    row = the_row(tables["lossless"], "M", "speculative, k2")
    assert row.cells[0].text == f"{4 * N} of {4 * N}"  # two tasks at two K
    (group,) = [group for group in tables["lossless"].groups if group.title == "M"]
    times = [row.cells[-2].value for row in group.rows]
    assert times == sorted(times, reverse=True)  # type: ignore[type-var]


def test_the_frontier_is_of_runs_that_nothing_beats(
    tables: dict[str, Table], replica_rows: pd.DataFrame
) -> None:
    expected = 0
    for task in TASKS:
        cell = select(replica_rows, backbone="M", task=task)
        for _, mine in select(cell, mode="dynamic").iterrows():
            as_good = (cell["tpf"] >= mine["tpf"]) & (cell["accuracy"] >= mine["accuracy"])
            better = (cell["tpf"] > mine["tpf"]) | (cell["accuracy"] > mine["accuracy"])
            expected += not (as_good & better).any()
    row = the_row(tables["lossy"], "M", "dynamic")
    assert row.cells[1].text.startswith(f"{expected} and ")
    assert row.cells[1].text.endswith(" of 6")


def test_verdicts_on_one_frontier(tables: dict[str, Table], replica_rows: pd.DataFrame) -> None:
    """Means over tasks, by hand: who is at least as good in both measures, and better in one."""
    rows = replica_rows[(replica_rows["backbone"] == "S") & replica_rows["head_seed_of"].isna()]
    lossless = rows["mode"].isin(LOSSLESS)
    capped = rows["cap"].lt(1)
    static = rows["mode"].eq("static") & rows["steps"].isna()
    by_time, by_accuracy = ("tpf", "time_ratio"), ("tpf", "accuracy")
    sides = [  # a cap makes another text: what has it competes with its like alone
        ("lossless", lossless & ~capped, -1, by_time),
        ("lossless", lossless & capped, -1, by_time),
        ("lossy", ~lossless & ~static, -2, by_accuracy),
    ]
    for name, chosen, at, measures in sides:
        names = set(rows[chosen].apply(setting_name, axis=1))
        assert names
        means = rows[chosen].groupby("job", sort=False)[[*measures]].mean()
        points = [tuple(values) for values in means.to_numpy()]
        best = {
            job
            for job, mine in zip(means.index, points, strict=True)
            if not any(
                other != mine and other[0] >= mine[0] and other[1] >= mine[1] for other in points
            )
        }
        (group,) = [group for group in tables[name].groups if group.title == "S"]
        shown = [row for row in group.rows if row.labels[0].text in names]
        on = [row for row in shown if row.cells[at].text == "on the frontier"]
        settings = rows[rows["job"].isin(best)].apply(setting_name, axis=1)
        assert {row.labels[0].text for row in on} == set(settings)
        for row in shown:
            if row not in on:
                assert row.cells[at].text.startswith("dominated by ")
                assert row.cells[at].detail.endswith(" ahead")


def test_a_sweep_of_k_has_a_row_for_each(
    tables: dict[str, Table], replica_rows: pd.DataFrame
) -> None:
    """Heads that were run with two K, for depth and seeds, are none."""
    for group in tables["lookahead"].groups:
        rows = [[cell.text for cell in row.labels] for row in group.rows]
        assert rows == [["self-speculative", f"K = {k}"] for k in (1, 2, 3)]
        for k, row in enumerate(group.rows, start=1):
            job = f"{group.title}.mini.self_speculative.k{k}"
            assert row.cells[1].value == pytest.approx(average(replica_rows, "tpf", [job]))
            assert row.cells[1].detail


def test_every_remask_run_is_judged_three_ways(
    tables: dict[str, Table], replica_rows: pd.DataFrame
) -> None:
    """A row for each setting and tau: at the same tau, the same TPF and in the same time."""
    for group in tables["remasking"].groups:
        runs = select(replica_rows, backbone=group.title, mode="remask", head_seed_of=None)
        assert sorted(job for row in group.rows for job in row.jobs) == sorted(set(runs["job"]))
        for row in group.rows:
            for cell in row.cells[-3:]:
                assert cell.value is not None or cell.text.startswith("no dynamic"), row.labels


def test_the_findings_page(replica: Written, replica_results: Results, tmp_path: Path) -> None:
    """From packed records: the same numbers as from the runs, the same bytes each time."""
    (tmp_path / "figures").mkdir()
    (tmp_path / "figures" / "pareto.svg").write_text("<svg/>")
    packed = tmp_path / "packed"
    write_records(str(replica.suite_file), replica.results, "released", "snakemake", packed)
    for name in ("one", "two"):
        again = load_records(replica.suite, packed)
        write_findings(again, tmp_path / "docs" / f"{name}.md", tmp_path / "figures")
    text = (tmp_path / "docs" / "one.md").read_text("utf-8")
    assert text == (tmp_path / "docs" / "two.md").read_text("utf-8")
    assert text.startswith("# Findings of suite small\n")
    assert "![Accuracy against tokens per forward](../figures/pareto.svg)" in text
    assert "| Claim | The paper | Here | S | M | Verdict |" in text
    assert "Started by: `snakemake`" in text
    papers, _, goals = text.partition("\n## Beyond the paper\n")
    assert "| Claim | Here | S | M | Verdict |" in goals
    assert "| A draft lattice reveals at least 1.2 times" in goals
    assert "| A draft lattice reveals" not in papers
    assert re.search(r"^    - S · mini_code \w[\w ]*: best lattice: TPF ", goals, re.MULTILINE)
    assert not any(word in text for word in ("nan", "None", "inf)"))
    for line in text.splitlines():
        if line.startswith("|"):
            assert line.endswith("|")
    write_findings(replica_results, tmp_path / "docs" / "three.md", tmp_path / "figures")
    words = " ".join((tmp_path / "docs" / "three.md").read_text("utf-8").split())
    assert re.search(r"\| remask, \w+", words)
    assert not re.search(r"(?<!r)emask, ", words)  # no cell loses a letter
    from_runs = (tmp_path / "docs" / "three.md").read_text("utf-8").splitlines()
    assert set(from_runs) <= set(text.splitlines())
