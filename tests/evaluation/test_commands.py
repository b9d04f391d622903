from __future__ import annotations

import argparse
import importlib
import io
import json
import re
from pathlib import Path

import pytest
from rich.console import Console

from mrp.data import build
from mrp.decoding import Decoded, Trace
from mrp.errors import UserError
from mrp.evaluation.trace import show_trace
from mrp.grid import jobs, load_suite


def run(name: str, *arguments: str) -> None:
    module = importlib.import_module(f"mrp.commands.{name}")
    parser = argparse.ArgumentParser(prog=f"mrp {module.NAME}")
    module.add_arguments(parser)
    module.run(parser.parse_args([str(argument) for argument in arguments]))


COUNTS = {
    "denoise": 3,
    "verify": 2,
    "generated": 10,
    "answer_tokens": 8,
    "proposed": 4,
    "accepted": 2,
    "bonus": 2,
    "vetoed": 1,
}
DECODED = Decoded(
    index=0,
    ids=[],
    finished=True,
    counts=COUNTS,
    trace=Trace(
        ids=[0] * 10,
        step=[1, 2, 12, 3, 3, 4, 4, 5, 5, 5],
        source=["backbone", "head", "draft", "bonus", *["backbone"] * 6],
        remasked=[0, 0, 3, 0, 0, 0, 0, 0, 0, 0],
    ),
)
TOKENS = ["1", "+", " ", "\n", "=", "abc", "7", "<end>", "<pad>", "<pad>"]


def show(**settings: object) -> str:
    file = io.StringIO()
    show_trace(Console(file=file, **settings), DECODED, TOKENS, 2, 4)  # type: ignore[arg-type]
    return file.getvalue()


def test_trace_without_a_terminal() -> None:
    """Blocks, rounds, sources and vetoes line up; no colour codes."""
    text = show(width=80)
    assert "\x1b" not in text
    blocks = re.findall(r"block \d\n(?:  \w.*\n)+", text)
    assert blocks == [
        "block 1\n  token 1   +\n  round 1   2\n  who   b   h\n  again .   .\n",
        "block 2\n  token ' '  '\\n' =    abc\n  round 12   3    3    4\n"
        "  who   d    n    b    b\n  again 3    .    .    .\n",
        "block 3\n  token 7     <end> <pad> <pad>\n  round 4     5     5     5\n"
        "  who   b     b     b     b\n  again .     .     .     .\n",
    ]
    for letter, word in zip(
        "bhdn", ("own pick", "unverified", "accepted", "after the"), strict=True
    ):
        assert re.search(rf"^  {letter}  .*{word}", text, re.MULTILINE)
    assert "TPF 2.00" in text
    assert "4 proposed, 2 accepted, 2 bonus" in text


def test_trace_on_a_terminal_has_colours_and_fits() -> None:
    text = show(width=40, force_terminal=True, color_system="standard")
    assert "\x1b[35mh" in text
    assert "\x1b[2mb" in text  # what stands behind the end token
    plain = re.sub(r"\x1b\[[0-9;]*m", "", text)
    table = [line for line in plain.splitlines() if line.startswith(("  token", "  round"))]
    assert max(map(len, table)) <= 40


def test_generate(backbone_dir: Path, head_dir: Path, capsys: pytest.CaptureFixture[str]) -> None:
    settings = ["--backbone", backbone_dir, "--head", head_dir, "--device", "cpu"]
    settings += ["--mode", "speculative", "--k", "3", "--max-new-tokens", "12"]
    run("generate", "(1+2)?", *settings)
    answer = capsys.readouterr().out
    run("generate", "(1+2)?", *settings, "--trace")
    traced = capsys.readouterr().out
    assert traced.startswith(answer)
    assert "block 1" in traced
    assert "drafts: " in traced


def test_generate_reads_standard_input(
    backbone_dir: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = ["--backbone", backbone_dir, "--device", "cpu", "--max-new-tokens", "6"]
    run("generate", "7*8", *settings)
    monkeypatch.setattr("sys.stdin", io.StringIO("7*8\n"))
    run("generate", "-", *settings)
    first, second = capsys.readouterr().out.splitlines()
    assert first == second


def test_generate_refuses_unknown_characters(backbone_dir: Path) -> None:
    with pytest.raises(UserError, match="does not know '\u00e9'"):
        run("generate", "caf\u00e9", "--backbone", backbone_dir, "--device", "cpu")


def test_eval_prints_a_table_and_writes_the_run(
    tmp_path: Path, backbone_dir: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run(
        "eval", "--backbone", backbone_dir, "--device", "cpu", "--mode", "dynamic", "--tau", "0.5",
        "--tasks", "mini_math", "--limit", "2", "--max-new-tokens", "8", "--out", tmp_path,
        "--speed-prompts", "2",
    )  # fmt: skip
    table = capsys.readouterr().out
    assert "dynamic tau=0.5" in table
    assert re.search(r"mini_math\s+\d/2", table)
    assert (tmp_path / "record.json").exists()
    assert (tmp_path / "samples.jsonl").exists()


SUITE = """
name: tiny
seed: 3
backbones:
  S: {{path: {backbone}}}
heads:
  k2: {{variant: default, path: {head}}}
tasks: [[mini_math, mini_code]]
data: {{test: 3}}
decoding: {{batch_size: 2, max_new_tokens: 8, speed: {{prompts: 2, batch_size: 2, repeats: 1}}}}
grid:
  - {{mode: static}}
  - {{mode: speculative, head: k2, k: [2, 3]}}
"""


def test_decode_runs_a_job_of_a_suite(tmp_path: Path, backbone_dir: Path, head_dir: Path) -> None:
    suite = tmp_path / "tiny.yaml"
    suite.write_text(SUITE.format(backbone=backbone_dir, head=head_dir))
    build(tmp_path / "data", seed=3, n_test=3, level="embedded")
    job = jobs(load_suite(suite))[-1]
    assert (job.mode, job.options["k"]) == ("speculative", 3)
    shared = ["--suite", suite, "--data", tmp_path / "data", "--device", "cpu"]
    shared += ["--backbone-path", backbone_dir, "--out", tmp_path / "run"]
    run("decode", "--job", job.id, "--head-path", head_dir, *shared)
    record = json.loads((tmp_path / "run" / "record.json").read_text())
    assert record["job"]["id"] == job.id
    assert record["job"]["digest"] == job.digest
    assert record["job"]["k"] == 3
    assert record["head"]["source"] == "released"
    assert record["provenance"]["seed"] == 3
    assert record["tasks"]["mini_code"]["n"] == 3
    assert record["tasks"]["mini_code"]["speed"]["repeats"] == 1
    with pytest.raises(UserError, match=r"has no job 'S\.mini\.magic'"):
        run("decode", "--job", "S.mini.magic", "--head-path", head_dir, *shared)
    with pytest.raises(UserError, match="needs a head"):
        run("decode", "--job", job.id, *shared)


def test_a_missing_backbone_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("mrp.__file__", str(tmp_path / "mrp" / "__init__.py"))
    with pytest.raises(UserError, match="--backbone is missing"):
        run("generate", "x")
    with pytest.raises(UserError, match="no checkpoint here"):
        run("eval", "--backbone", str(tmp_path))
