"""What the paper's suite needs from the hub."""

from __future__ import annotations

from pathlib import Path

import pytest

import mrp
from mrp.config import load_suite
from mrp.fetch.benchmarks import Benchmark
from mrp.fetch.checkpoints import Checkpoint
from mrp.fetch.pieces import pieces

PAPER = Path(mrp.__file__).parents[1] / "config" / "suites" / "paper.yaml"
SIZES = ("1.7b", "4b", "8b")


@pytest.mark.parametrize("heads", ["released", "train"])
def test_the_papers_checkpoints_and_benchmarks(heads: str) -> None:
    found = pieces(load_suite(PAPER), heads)  # type: ignore[arg-type]
    checkpoints = {piece.text: piece.parts for piece in found if isinstance(piece, Checkpoint)}
    expected = {f"heavyball/sdar-{size}-mrp-3lyr": ("backbone",) for size in SIZES}
    if heads == "released":
        # The default head comes with its backbone; of the others' repositories only the heads.
        expected = dict.fromkeys(expected, ("backbone", "head"))
        expected |= {
            f"heavyball/sdar-{size}-mrp-3lyr-{head}": ("head",)
            for size in SIZES
            for head in ("k2", "direct")
        }
    assert checkpoints == expected
    benchmarks = {piece.task: piece for piece in found if isinstance(piece, Benchmark)}
    assert {task: piece.source.id for task, piece in benchmarks.items()} == {
        "mrp_gsm8k": "openai/gsm8k",
        "mrp_math500": "HuggingFaceH4/MATH-500",
        "mrp_humaneval": "openai/openai_humaneval",
        "mrp_mbpp": "google-research-datasets/mbpp",
    }
    assert {str(piece.path) for piece in benchmarks.values()} == {
        f"data/benchmarks/{task}.jsonl" for task in benchmarks
    }
