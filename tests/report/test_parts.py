"""Records of a grid that ran in parts on several machines: put together, they are those of one."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from mrp.cli import build_parser, main
from mrp.commands import grid
from mrp.errors import UserError
from mrp.grid import jobs
from mrp.io import sha256_file
from mrp.report import gathering
from mrp.report.frame import load_records
from mrp.report.gathering import read_runs
from mrp.report.markdown import _measured_facts
from mrp.report.packing import write_records
from mrp.report.records import MANIFEST, RECORDS, SAMPLES
from tests.report.synthetic import Written, write_results
from tests.report.test_records import forged, forgeries

SUITE = """\
name: small
backbones:
  S: {path: assets/embedded/backbone}
heads:
  k2: {variant: k2, path: "assets/embedded/heads/{backbone}/k2"}
tasks: [[mini_math, mini_code]]
data: {test: TEST}
grid:
  - {mode: static}
  - {mode: static, steps: 8}
  - {mode: speculative, head: k2, k: [1, 2]}
  - {mode: dynamic, tau: [0.5, 0.7]}
"""
N = 10
STATIC = "S.mini.static"
DYNAMIC = "S.mini.dynamic.tau0.5"
A = [STATIC, "S.mini.speculative.k2.k2"]  # what ran on the first machine


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Written:
    return write_results(tmp_path_factory.mktemp("whole"), N, text=SUITE)


def ids(whole: Written) -> list[str]:
    return [job.id for job in jobs(whole.suite)]


def part_of(whole: Written, folder: Path, names: Iterable[str]) -> Path:
    """A results folder with some of the runs."""
    runs = folder / "small" / "runs"
    runs.mkdir(parents=True)
    for name in names:
        (runs / name).symlink_to(whole.layout.run_dir(name))
    return folder


def pack(whole: Written, results: Path, out: Path, *add: Path, command: str = "here") -> Path:
    write_records(str(whole.suite_file), results, "released", command, out, add)
    return out


def told(records: Path) -> Any:
    return json.loads((records / MANIFEST).read_text("utf-8"))


def rewritten(records: Path, to: Path, old: str, new: str, job: str = "") -> Path:
    """Records with another text in the record of one job, or of all; the hash is made to fit."""
    lines = (records / RECORDS).read_text("utf-8").split("\n")
    lines = [line.replace(old, new) if f'"{job}' in line else line for line in lines]
    to.mkdir()
    forged(records, to, RECORDS, "\n".join(lines).encode())
    return to


@pytest.fixture(scope="module")
def first(whole: Written, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("first")
    return pack(whole, part_of(whole, folder / "results", A), folder / "a", command="first")


@pytest.fixture(scope="module")
def single(whole: Written, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return pack(whole, whole.results, tmp_path_factory.mktemp("single"))


def same_runs(one: Path, other: Path) -> bool:
    return all(
        (one / name).read_bytes() == (other / name).read_bytes() for name in (RECORDS, SAMPLES)
    )


def test_parts_are_the_whole(whole: Written, first: Path, single: Path, tmp_path: Path) -> None:
    rest = part_of(whole, tmp_path / "results", [name for name in ids(whole) if name not in A])
    both = pack(whole, rest, tmp_path / "both", first, command="second")
    assert same_runs(both, single)
    manifest = told(both)
    assert "parts" not in told(single)
    assert manifest["command"] == ["second", "first"]
    assert [(part["command"], part["jobs"]) for part in manifest["parts"]] == [
        ("second", 4),
        ("first", 2),
    ]
    assert manifest["parts"][1]["of"] == A
    assert manifest["parts"][1]["created"] == told(first)["created"]
    assert manifest["hours_of_decoding"] == told(single)["hours_of_decoding"]
    hours = [part["hours_from_first_to_last"] for part in manifest["parts"]]
    assert manifest["hours_from_first_to_last"] == pytest.approx(sum(hours))
    assert dict(_measured_facts(manifest, []))["Started by"] == "`second`, `first`"
    assert set(load_records(whole.suite, both).rows["status"]) == {"done"}
    # Again, and once more onto itself: the same bytes.
    again = pack(whole, rest, tmp_path / "again", first, first, command="second")
    assert (again / MANIFEST).read_bytes() == (both / MANIFEST).read_bytes()
    pack(whole, tmp_path / "none", again, again)
    assert (again / MANIFEST).read_bytes() == (both / MANIFEST).read_bytes()
    assert same_runs(again, both)


def test_a_job_of_both_is_taken_from_here(
    whole: Written, first: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    results = part_of(whole, tmp_path / "results", [DYNAMIC])
    copy = results / "small" / "runs" / STATIC
    copy.mkdir()
    for name in ("record.json", "samples.jsonl"):
        text = (whole.layout.run_dir(STATIC) / name).read_text("utf-8")
        (copy / name).write_text(text.replace('"text":"3+4=7;#7"', '"text":"7"'), "utf-8")
    here = pack(whole, results, tmp_path / "here")
    both = pack(whole, results, tmp_path / "both", first)
    assert [(part["command"], part["of"]) for part in told(both)["parts"]] == [
        ("here", [STATIC, DYNAMIC]),
        ("first", A[1:]),
    ]
    (warning,) = caplog.messages
    assert f"--add {first} answers otherwise than --results {results}, whose runs stay" in warning
    assert f"({STATIC}: " in warning
    mine, its = load_records(whole.suite, here), load_records(whole.suite, both)
    for task in ("mini_math", "mini_code"):
        assert (
            mine.outcomes[STATIC, task].texts.tolist() == its.outcomes[STATIC, task].texts.tolist()
        )


def test_what_is_not_of_the_grid_is_left_out(
    whole: Written, first: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    results = part_of(whole, tmp_path / "results", [DYNAMIC])
    code = rewritten(first, tmp_path / "code", '"digest":"', '"digest":"0', STATIC)
    weights = rewritten(first, tmp_path / "weights", "ab" * 32, "ef" * 32)
    with caplog.at_level(logging.WARNING):
        both = pack(whole, results, tmp_path / "both", code)
    assert [part["jobs"] for part in told(both)["parts"]] == [1, 1]
    assert f"1 of 2 jobs left out: 1 of other settings or other code ({STATIC})" in caplog.text
    caplog.clear()
    both = pack(whole, results, tmp_path / "both", weights)
    assert "2 of 2 jobs left out: 2 of other weights or other data" in caplog.text
    assert told(both)["jobs"] == 1
    assert "parts" not in told(both)
    none = rewritten(first, tmp_path / "none", '"digest":"', '"digest":"0')
    with pytest.raises(UserError, match=r"no record of suite 'small' there to pack, nor in --add"):
        pack(whole, tmp_path / "nowhere", tmp_path / "no", none)


def test_a_run_of_other_code_gives_way(whole: Written, first: Path, tmp_path: Path) -> None:
    results = part_of(whole, tmp_path / "results", [])
    old = results / "small" / "runs" / STATIC
    old.mkdir()
    for name in ("record.json", "samples.jsonl"):
        text = (whole.layout.run_dir(STATIC) / name).read_text("utf-8")
        (old / name).write_text(text.replace('"digest": "', '"digest": "0'), "utf-8")
    assert told(pack(whole, results, tmp_path / "alone"))["of_other_code"] == 1
    both = told(pack(whole, results, tmp_path / "both", first))
    assert both["of_other_code"] == 0
    assert [part["of"] for part in both["parts"]] == [A]


def test_damaged_parts_are_one_line(whole: Written, single: Path, tmp_path: Path) -> None:
    manifest = told(single)
    part = {"command": "x", "suite_sha256": "0", "of": ids(whole)}

    def said(**fields: Any) -> tuple[str, bytes]:
        return MANIFEST, json.dumps({**manifest, **fields}).encode()

    record, rest = (single / RECORDS).read_text("utf-8").split("\n", 1)

    def changed(**fields: Any) -> tuple[str, bytes]:
        return RECORDS, f"{json.dumps({**json.loads(record), **fields})}\n{rest}".encode()

    facts = json.loads(record)["provenance"]
    wrong = {
        **forgeries(single),
        "parts of others": said(parts=[{**part, "of": A}]),
        "a part twice": said(parts=[part, part]),
        "no parts": said(parts=7),
        "no command": said(command=None),
        "training without time": said(trained={"S": {}}),
        "data in words": changed(data="x"),
        "no time zone": changed(provenance={**facts, "created": "2026-11-30T09:00:00"}),
        "no time": changed(provenance={**facts, "created": 7}),
    }
    for number, (what, (name, content)) in enumerate(wrong.items()):
        folder = tmp_path / str(number)
        folder.mkdir()
        forged(single, folder, name, content)
        try:
            pack(whole, tmp_path / "none", tmp_path / "out", folder)
            text = "no error"
        except UserError as error:
            text = str(error)
        assert text.startswith(f"--add {folder}: damaged ("), what
        assert "\n" not in text, what
    assert not (tmp_path / "out").exists()


def test_other_suites_are_refused(whole: Written, first: Path, tmp_path: Path) -> None:
    words = ["pack", "--suite", "embedded", "--records", str(tmp_path / "out"), "--add", str(first)]
    args = build_parser().parse_args(words)
    with pytest.raises(UserError, match=r"--add .*: records of suite 'small', but --suite is 'emb"):
        args.run(args)
    args = build_parser().parse_args(["pack", "--suite", "embedded", "--add", str(first)])
    with pytest.raises(UserError, match="are of --records DIR"):
        args.run(args)


def test_processes_read_what_one_reads(whole: Written, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gathering, "SMALL", 0)
    folders = [whole.layout.run_dir(name) for name in ids(whole)]
    alone, together = list(read_runs(folders)), list(read_runs(folders, 2))
    assert [run.record for run in together] == [run.record for run in alone]
    for one, other in zip(alone, together, strict=True):
        for task, outcome in one.outcomes.items():
            assert outcome.texts.tolist() == other.outcomes[task].texts.tolist()
            assert outcome.problems == other.outcomes[task].problems
    with pytest.raises(UserError, match=r"nowhere.record\.json: no such file"):
        list(read_runs([folders[0], whole.results / "nowhere"], 2))


# ---- what is still to be run ---------------------------------------------------------------------


def missing(capsys: pytest.CaptureFixture[str], *words: object) -> list[str]:
    assert main(["grid", "--missing", *map(str, words)]) == 0
    return capsys.readouterr().out.splitlines()


def test_missing_jobs_are_targets(
    whole: Written, first: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    results = part_of(whole, tmp_path / "results", [DYNAMIC])
    words = ("--suite", whole.suite_file, "--results", results)
    targets = {name: f"{results}/small/runs/{name}/record.json" for name in ids(whole)}
    left = [target for name, target in targets.items() if name != DYNAMIC]
    assert missing(capsys, *words) == left
    left = [target for target in left if target not in {targets[name] for name in A}]
    assert missing(capsys, *words, "--records", first) == left
    old = rewritten(first, tmp_path / "old", '"digest":"', '"digest":"0', STATIC)
    assert missing(capsys, *words, "--records", old) == [targets[STATIC], *left]
    both = missing(capsys, *words, "--records", old, "--records", first)
    assert both == left
    assert missing(capsys, "--suite", whole.suite_file, "--results", whole.results) == []
    args = build_parser().parse_args(["grid", "--records", str(first)])
    with pytest.raises(UserError, match="--records is of --missing"):
        grid.run(args)
    assert sha256_file(first / RECORDS) == told(first)["files"][RECORDS]
