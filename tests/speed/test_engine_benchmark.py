from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from benchmarks.engine import arguments, digest, main, parts, run_part, verdicts


def line(mode: str, ratio: float, **more: Any) -> dict[str, Any]:
    """A contender as `mrp bench` writes it."""
    predicted = {"predicted": None, "predicted_by_rounds": None}
    return {"mode": mode, "ratio": ratio, "tokens_per_second": 100 * ratio, **predicted, **more}


def write(out: Path, name: str, model: str, lines: dict[int, list[dict[str, Any]]]) -> None:
    costs = [{"role": "backbone + pick", "ms": 1.0, "share": 0.5}]
    batches = [
        {"batch_size": size, "costs": costs, "contenders": contenders}
        for size, contenders in lines.items()
    ]
    (out / f"{name}.json").write_text(json.dumps({"model": model, "batches": batches}))


def test_every_aim_gets_a_line(tmp_path: Path) -> None:
    write(tmp_path, "eager-8b", "8b", {1: [line("eager-loop", 1.0), line("static", 7.6)]})
    auto = {
        size: [line("static", 1.0 if size == 1 else 8.5), line("speculative,k=auto", ratio)]
        for size, ratio in ((1, 0.985), (16, 0.97))
    }
    write(tmp_path, "auto-8b", "8b", auto)
    k2 = line("speculative,k=2", 1.3, predicted=1.45, predicted_by_rounds=1.31)
    write(tmp_path, "trained-1", "some/where/L", {1: [line("static", 1.0, predicted=1.0), k2]})
    (tmp_path / "divergence.json").write_text(
        json.dumps(
            {
                "dtype": "bfloat16",
                "modes": [
                    {
                        "mode": "speculative,k=3",
                        "samples": 64,
                        "diverged": 2,
                        "margins": [0.5, 3.5],
                        "roundings": [0.1, 4.0],
                        "near": 2,
                    }
                ],
            }
        )
    )
    assert [text.strip() for text in verdicts(tmp_path)] == [
        "NOT MET 8b forward + pick in floors: 2.000 (aim <= 1.3)",
        "met     8b static over the eager loop: 7.600 (aim >= 7.5)",
        "NOT MET L speculative,k=2 at batch 1 over its prediction: 0.897 (aim 1 +- 0.07)",
        "met     L speculative,k=2 at batch 1 over its prediction, by rounds: 0.992 "
        "(aim 1 +- 0.07)",
        "NOT MET 8b speculative,k=auto over static, at batch 1: 0.985 16: 0.970; least: 0.970 "
        "(aim >= 0.98)",
        "met     8b batch 16 over batch 1: 8.500 (aim >= 8.0)",
        "NOT MET divergence: speculative,k=3, steps: 3.500 (aim <= 2)",
        "met     divergence: speculative,k=3, beyond the format's own error: 0.000 (aim 0)",
    ]
    (shown,) = digest(json.loads((tmp_path / "divergence.json").read_text()))
    assert shown.endswith(
        "2 of 64 samples part from static, 1 within 2 steps, 2 near ties; "
        "largest 0.5 (off by 0.1), 3.5 (off by 4.0)"
    )


def test_a_part_that_fails_stops_no_other(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    given = ["--out", str(tmp_path), "--device", "cpu", "--teraflops", "0.1", "--no-tests"]
    given += ["--shapes", "", "--floors", "huge,tiny", "--only", "floor-huge"]
    args, _ = arguments(given)
    assert list(parts(args)) == ["floor-huge", "floor-tiny"]
    assert run_part("floor-tiny", args) == 0
    (shown, *_) = digest(json.loads((tmp_path / "floor-tiny.json").read_text()))
    assert shown.startswith("  tiny batch 1, ms (x floor): backbone ")
    assert main(given) == 0
    shown = capsys.readouterr().out
    assert "floor-huge: failed with 1" in shown
    assert "choose one of 1.7b, 4b, 8b, tiny" in shown
    assert "floor-huge: nothing measured" in shown
