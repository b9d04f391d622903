"""Packed records: all that the report needs, in little room, and the same report from them."""

from __future__ import annotations

import dataclasses
import gzip
import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from mrp.cli import build_parser
from mrp.commands import pack
from mrp.errors import UserError
from mrp.io import sha256_file
from mrp.report.frame import Results, load_records
from mrp.report.packing import write_records
from mrp.report.page import write_tables
from mrp.report.records import MANIFEST, RECORDS, SAMPLES, read_records
from tests.report.conftest import FAILED, MISSING, N
from tests.report.synthetic import Written


def packed_into(directory: Path, written: Written) -> Path:
    write_records(str(written.suite_file), written.results, "released", "snakemake", directory)
    return directory


@pytest.fixture(scope="module")
def packed(written: Written, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return packed_into(tmp_path_factory.mktemp("packed"), written)


def test_same_runs_same_bytes(written: Written, packed: Path, tmp_path: Path) -> None:
    again = packed_into(tmp_path, written)
    for name in (RECORDS, SAMPLES, MANIFEST):
        assert (packed / name).read_bytes() == (again / name).read_bytes()


def test_nothing_that_counts_is_lost(written: Written, packed: Path, results: Results) -> None:
    again = load_records(written.suite, packed)
    pd.testing.assert_frame_equal(results.rows, again.rows)
    assert results.provenance == again.provenance
    assert results.outcomes.keys() == again.outcomes.keys()
    for key, outcome in results.outcomes.items():
        for part in dataclasses.fields(outcome):
            one, two = getattr(outcome, part.name), getattr(again.outcomes[key], part.name)
            assert np.array_equal(one, two) if isinstance(one, np.ndarray) else one == two


def test_tables_are_those_of_the_full_results(
    written: Written, packed: Path, results: Results, tmp_path: Path
) -> None:
    write_tables(results, None, tmp_path / "full")
    for name in ("once", "twice"):
        write_tables(load_records(written.suite, packed), None, tmp_path / name)
    for file in ("tables.html", "tables.csv", "tables.tex"):
        full = (tmp_path / "full" / file).read_bytes()
        assert full == (tmp_path / "once" / file).read_bytes()
        assert full == (tmp_path / "twice" / file).read_bytes()


def test_the_manifest_tells_the_origin(packed: Path) -> None:
    manifest = json.loads((packed / MANIFEST).read_text("utf-8"))
    assert manifest["device"] == ["cpu"]
    assert manifest["git"] == ["0123456789abcdef0123456789abcdef01234567"]
    assert manifest["command"] == "snakemake"
    assert manifest["jobs"] == 49
    assert manifest["answers"] == 49 * 2 * N
    assert set(manifest["absent"]) == {MISSING, FAILED}
    assert manifest["of_other_code"] == 0
    assert len(manifest["suite_sha256"]) == 64
    assert manifest["trained"] == {}  # nothing was, here


def test_the_manifest_tells_what_was_trained(written: Written, tmp_path: Path) -> None:
    shutil.copytree(written.results, tmp_path / "results")
    copy = Written(written.suite, written.suite_file, tmp_path / "results")
    directory = copy.layout.trained_head_dir("S", "default-here")
    directory.mkdir(parents=True)
    facts = {"seconds": 90.0, "parameters": 7, "sha256": "ab", "command": "not kept"}
    (directory / "provenance.json").write_text(json.dumps(facts), "utf-8")
    packed = packed_into(tmp_path / "packed", copy)
    manifest = json.loads((packed / MANIFEST).read_text("utf-8"))
    facts.pop("command")
    assert manifest["trained"] == {"S/default-here": facts}
    assert manifest["hours_of_training"] == 0.025


def test_the_samples_are_a_plain_table(packed: Path) -> None:
    with gzip.open(packed / SAMPLES, "rt") as file:
        table = pd.read_csv(file, dtype=str)
    row = table[(table["job"] == "S.mini.speculative.k2.k2") & (table["task"] == "mini_math")]
    assert row["problems"].item() == f"n={N}"
    assert row["like"].item() == "S.mini.static"
    assert row["crc32"].item() == " ".join(["="] * N)
    assert len(row["forwards"].item().split()) == N


def test_records_of_other_code_can_be_read(written: Written, packed: Path, tmp_path: Path) -> None:
    manifest = json.loads((packed / MANIFEST).read_text("utf-8"))
    text = (packed / RECORDS).read_text("utf-8").replace('"digest":"', '"digest":"0')
    (tmp_path / RECORDS).write_text(text, "utf-8")
    (tmp_path / SAMPLES).write_bytes((packed / SAMPLES).read_bytes())
    manifest["files"][RECORDS] = sha256_file(tmp_path / RECORDS)
    (tmp_path / MANIFEST).write_text(json.dumps(manifest), "utf-8")
    assert set(load_records(written.suite, tmp_path).rows["status"]) == {
        "done",
        "not run",
        "failed",
    }


def test_what_does_not_fit_is_one_line(written: Written, packed: Path, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"--records .*: no manifest\.json there"):
        read_records(tmp_path, written.suite)
    other = written.suite.model_copy(update={"seed": 7})
    with pytest.raises(UserError, match="its runs had seed = None, the suite file has 7"):
        read_records(packed, other)
    renamed = written.suite.model_copy(update={"name": "other"})
    with pytest.raises(UserError, match="records of suite 'embedded'"):
        read_records(packed, renamed)
    for name in (RECORDS, SAMPLES, MANIFEST):
        (tmp_path / name).write_bytes((packed / name).read_bytes())
    with (tmp_path / SAMPLES).open("ab") as file:
        file.write(b"\0")
    with pytest.raises(UserError, match=r"samples\.csv\.gz is not the file that was written"):
        read_records(tmp_path, written.suite)


def forged(packed: Path, to: Path, name: str, content: bytes) -> None:
    """The records with another file in place of one, its hash made to fit."""
    for file in (MANIFEST, RECORDS, SAMPLES):
        (to / file).write_bytes((packed / file).read_bytes())
    (to / name).write_bytes(content)
    if name != MANIFEST:
        manifest = json.loads((to / MANIFEST).read_text("utf-8"))
        manifest["files"][name] = sha256_file(to / name)
        (to / MANIFEST).write_text(json.dumps(manifest), "utf-8")


def forgeries(packed: Path) -> dict[str, tuple[str, bytes]]:
    """What is wrong: a file's name, and a content of it that no run of ours wrote."""
    table = gzip.decompress((packed / SAMPLES).read_bytes())
    record, rest = (packed / RECORDS).read_text("utf-8").split("\n", 1)
    manifest = json.loads((packed / MANIFEST).read_text("utf-8"))

    def changed(**fields: Any) -> bytes:
        return f"{json.dumps({**json.loads(record), **fields})}\n{rest}".encode()

    def task(**fields: Any) -> bytes:
        tasks = json.loads(record)["tasks"]
        name = next(iter(tasks))
        return changed(tasks={**tasks, name: {**tasks[name], **fields}})

    def told(**fields: Any) -> bytes:
        return json.dumps({**manifest, **fields}).encode()

    lines = table.split(b"\n")
    cells = lines[1].split(b",")
    return {
        "cut": (SAMPLES, (packed / SAMPLES).read_bytes()[:300]),
        "no gzip": (SAMPLES, b"job,task"),
        "a bomb": (SAMPLES, gzip.compress(lines[0] + b"\n" + bytes(2**24), 1)),
        "the heading only": (SAMPLES, gzip.compress(lines[0])),
        "a line twice": (SAMPLES, gzip.compress(table + lines[1] + b"\n")),
        "endless problems": (SAMPLES, gzip.compress(table.replace(cells[2], b"n=99999999999", 1))),
        "a negative hash": (SAMPLES, gzip.compress(table.replace(b" =", b" -1", 1))),
        "a hash too long": (SAMPLES, gzip.compress(table.replace(b" =", b" ffffffffff", 1))),
        "brackets": (RECORDS, b"[" * 100_000),
        "a head in words": (RECORDS, changed(head="x")),
        "no end of problems": (RECORDS, task(n=10**400)),
        "an infinite count": (RECORDS, task(correct=float("inf"))),
        "a speed in words": (RECORDS, task(tokens_per_second="x")),
        "a speed of lists": (RECORDS, task(tokens_per_second=[])),
        "no heads": (MANIFEST, told(heads=None)),
        "other heads": (MANIFEST, told(heads="x")),
        "another format": (MANIFEST, told(format=True)),
        "no hashes": (MANIFEST, told(files={})),
        "a foreign file": (MANIFEST, told(files={"/etc/passwd": "0", **manifest["files"]})),
        "nothing absent": (MANIFEST, told(absent=None)),
        "a list": (MANIFEST, b"[]"),
    }


def test_forged_records_are_one_line(written: Written, packed: Path, tmp_path: Path) -> None:
    for number, (what, (name, content)) in enumerate(forgeries(packed).items()):
        folder = tmp_path / str(number)
        folder.mkdir()
        forged(packed, folder, name, content)
        try:
            load_records(written.suite, folder)
            text = "no error"
        except UserError as error:
            text = str(error)
        assert text.startswith(f"--records {folder}: damaged ("), what
        assert text.endswith("): write it again with `mrp pack`"), what
        assert "\n" not in text, what


def test_the_command(written: Written, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    parser = build_parser()
    words = [
        "pack",
        "--suite",
        written.suite_file,
        "--results",
        written.results,
        "--records",
        tmp_path,
    ]
    pack.run(parser.parse_args(list(map(str, words))))
    assert f"{49 * 2 * N} answers of 49 jobs" in capsys.readouterr().out
    with pytest.raises(UserError, match="leave out --out"):
        pack.run(parser.parse_args([*map(str, words), "--out", "x.tar.gz"]))
