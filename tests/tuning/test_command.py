"""`mrp tune` from the command line."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from mrp.cli import main
from mrp.schema import LOSSLESS, GridEntry

ASSETS = Path(__file__).parents[2] / "assets/embedded"
HEAD = ASSETS / "heads/S/k2"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--lose", "-1"], "--lose -1: points of accuracy, at least 0 and below 100"),
        (["--lose", "nan"], "--lose nan: points of accuracy"),
        (["--lossless", "--calibration", "0"], "--calibration 0: at least 1"),
        (["--lossless", "--batch-size", "0"], "--batch-size 0: at least 1"),
        (["--lossless", "--sure"], "--sure: only --lose POINTS"),
        (["--lossless", "--tasks", " ,"], "--tasks ' ,': name at least one"),
        (["--lossless", "--head", str(HEAD), "--head", "other/k2"], "named 'k2' is given already"),
        (["--lossless", "--head", "other/my head"], "rename it"),
        (["--lossless", "--head", "no/such"], "no/such"),
        (["--lossless", "--tasks", "mini_maths"], "mini_maths"),
        (["--lossless", "--calibration", "1", "--tasks", "mini_math"], "less than two batches"),
    ],
)
def test_a_mistake_is_one_line(
    arguments: list[str], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["tune", "--device", "cpu", *arguments]) == 2
    said = capsys.readouterr().err.strip()
    assert words in said
    assert "\n" not in said


@pytest.mark.parametrize("arguments", [[], ["--lossless", "--lose", "2"]])
def test_one_target_is_needed(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stopped:
        main(["tune", *arguments])
    assert stopped.value.code == 2
    assert "--lossless" in capsys.readouterr().err


def test_it_prints_a_table_and_writes_the_entry_that_it_shows(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "entry.yaml"
    few = ["--tasks", "mini_math", "--calibration", "2", "--max-new-tokens", "16"]
    assert main(["tune", "--device", "cpu", "--lossless", *few, "--out", str(out)]) == 0
    said = capsys.readouterr().out
    assert said.endswith(out.read_text())
    (entry,) = yaml.safe_load(out.read_text())
    mode = GridEntry.model_validate(entry).mode
    table = said.partition("points lost")[2].partition("\n\n")[0].splitlines()[1:]
    (chosen,) = [line for line in table if line.startswith("* ")]
    assert chosen[2:].split()[0] == mode
    if mode != "static":  # on a CPU the clock may well choose that
        assert mode in LOSSLESS
        assert "All 2 answers of the choice are static's, token for token." in said
