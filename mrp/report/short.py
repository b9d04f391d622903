"""A short table for a README: accuracy, tokens per forward and speed, a column a backbone."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pandas as pd

from mrp.errors import UserError
from mrp.report import contrasts
from mrp.report.cells import DASH
from mrp.report.comparisons import select
from mrp.report.frame import Results
from mrp.report.pooling import knob_values, level, mean_over
from mrp.report.settings import setting_name
from mrp.schema import LOSSLESS


def short_table(results: Results, settings: Sequence[str]) -> Iterator[str]:
    """The lines of a Markdown table with a row for each setting, in their order.

    A cell holds means over a backbone's tasks: accuracy in %, tokens per forward, and tokens a
    second over static's where they were timed.

    Args:
        results: of `frame.load_results` or `frame.load_records`.
        settings: jobs' ids without backbone and tasks: `static`, `dynamic.tau0.5`.

    Raises:
        UserError: the suite plans no such job.
    """
    rows = results.rows
    backbones = list(dict.fromkeys(rows["backbone"]))
    tails = rows["job"].str.split(".", n=2).str[2]
    yield f"| accuracy in % @ tokens per forward, speed over static | {' | '.join(backbones)} |"
    yield f"| --- |{' --- |' * len(backbones)}"
    for setting in settings:
        mine = rows[tails == setting]
        if mine.empty:
            raise UserError(
                f"--of {setting}: suite {results.suite!r} has no such setting: give a job's id "
                "without backbone and tasks, as in `dynamic.tau0.5`; `mrp grid` lists the jobs"
            )
        runs = [select(mine, backbone=backbone, status="done") for backbone in backbones]
        lossless = "*lossless:* " if mine["mode"].iloc[0] in LOSSLESS else ""
        name = ", ".join(filter(None, (setting_name(mine.iloc[0]), knob_values(mine))))
        yield f"| {lossless}{name} | {' | '.join(_cell(results, run) for run in runs)} |"


def _cell(results: Results, run: pd.DataFrame) -> str:
    """Accuracy @ tokens per forward, and the ratio to static's speed if it was measured."""
    if run.empty:
        return DASH
    accuracy = level(mean_over(results, run, contrasts.accuracy), "percent").text
    tokens = level(mean_over(results, run, contrasts.tpf), "ratio").text
    time = mean_over(results, run, contrasts.time_ratio)
    speed = "" if time is None else f", {level(time, 'ratio').text}\N{MULTIPLICATION SIGN}"
    return f"{accuracy} @ {tokens}{speed}"
