"""A short table for a README: accuracy @ tokens per forward, a column a backbone and task."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from mrp.errors import UserError
from mrp.report.cells import DASH, percent
from mrp.report.comparisons import select
from mrp.report.frame import Results
from mrp.report.pooling import knob_values
from mrp.report.settings import setting_name
from mrp.schema import LOSSLESS


def short_table(results: Results, settings: Sequence[str]) -> Iterator[str]:
    """The lines of a Markdown table with a row for each setting, in their order.

    Args:
        results: of `frame.load_results` or `frame.load_records`.
        settings: jobs' ids without backbone and tasks: `static`, `dynamic.tau0.5`.

    Raises:
        UserError: the suite plans no such job.
    """
    rows = results.rows
    columns = list(dict.fromkeys(zip(rows["backbone"], rows["task"], strict=True)))
    tails = rows["job"].str.split(".", n=2).str[2]
    headings = (f"{backbone} `{task}`" for backbone, task in columns)
    yield f"| accuracy in % @ tokens per forward | {' | '.join(headings)} |"
    yield f"| --- |{' --- |' * len(columns)}"
    for setting in settings:
        mine = rows[tails == setting]
        if mine.empty:
            raise UserError(
                f"--of {setting}: suite {results.suite!r} has no such setting: give a job's id "
                "without backbone and tasks, as in `dynamic.tau0.5`; `mrp grid` lists the jobs"
            )
        cells = []
        for backbone, task in columns:
            run = select(mine, backbone=backbone, task=task, status="done")
            found = [f"{percent(row['accuracy'])} @ {row['tpf']:.2f}" for _, row in run.iterrows()]
            cells.append("".join(found) or DASH)
        lossless = "*lossless:* " if mine["mode"].iloc[0] in LOSSLESS else ""
        name = ", ".join(filter(None, (setting_name(mine.iloc[0]), knob_values(mine))))
        yield f"| {lossless}{name} | {' | '.join(cells)} |"
