"""A page a run: complete, safe against what models write, and linked from the tables."""

from __future__ import annotations

import json
import re
import shutil
from collections import Counter
from html import unescape
from pathlib import Path
from typing import Any

import pytest

from mrp.cli import main
from mrp.errors import UserError
from mrp.grid import Layout, jobs
from mrp.report.runs import SHOWN, _choose, _rerun, write_pages
from mrp.report.templating import embed
from tests.report.synthetic import Written

JOB = "S.mini.speculative.k2.k4"


@pytest.fixture(scope="module")
def pages(written: Written, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The html folder of a copy of the invented results."""
    results = tmp_path_factory.mktemp("pages")
    shutil.copytree(written.results, results, dirs_exist_ok=True)
    write_pages(written.suite, results)
    return Layout(written.suite, results).root / "html"


def embedded(page: str) -> list[list[dict[str, Any]]]:
    return [
        json.loads(text)
        for text in re.findall(r'<script type="application/json">(.*?)</script>', page)
    ]


def test_every_record_has_a_page_and_the_index_lists_them(written: Written, pages: Path) -> None:
    with_record = {job.id for job in jobs(written.suite) if written.layout.record(job.id).exists()}
    assert {path.stem for path in pages.iterdir()} == {*with_record, "index"}
    hrefs = re.findall(r'<th scope="row"><a href="([^"]+)"', (pages / "index.html").read_text())
    assert hrefs == [f"{job.id}.html" for job in jobs(written.suite) if job.id in with_record]


def test_a_page_says_what_the_record_and_the_samples_say(written: Written, pages: Path) -> None:
    page = (pages / f"{JOB}.html").read_text()
    record = json.loads(written.layout.record(JOB).read_text())
    lines = [
        json.loads(line)
        for line in (written.layout.run_dir(JOB) / "samples.jsonl").read_text().splitlines()
    ]
    for (task, entry), shown in zip(record["tasks"].items(), embedded(page), strict=True):
        section = page[page.index(f'<section id="{task}"') :].split("</section>")[0]
        assert f"{entry['correct']} of {entry['n']}" in section
        for name in ("verify", "accepted", "generated"):
            assert f"{entry['counts'][name]:,}</td>" in section
        mine = [line for line in lines if line["task"] == task]
        assert [sample["id"] for sample in shown] == [line["doc_id"] for line in mine]
        assert [sample["text"] for sample in shown] == [line["text"] for line in mine]
        assert [sample["step"] for sample in shown] == [line["trace"]["step"] for line in mine]
        assert {sample["static"] for sample in shown} == {"same"}  # it is lossless
        revealed = Counter(
            count for line in mine for count in Counter(line["trace"]["step"]).values()
        )
        table = section.split("Tokens revealed for good in a round")[1].split("</table>")[0]
        bars = re.findall(r'<th scope="row">(\d+)</th><td class="num">([\d,]+)', table)
        drawn = {int(label): int(count.replace(",", "")) for label, count in bars}
        assert drawn == {n: revealed[n] for n in range(min(revealed), max(revealed) + 1)}
    assert "git" in page
    run = pages.parent / "runs" / JOB
    suite = f"snakemake --config suite={written.suite.name}"
    assert f"<code>rm -r {run}\n{suite} -- {run / 'record.json'}</code>" in page


def test_the_command_decodes_again_with_the_heads_of_the_run(written: Written) -> None:
    (job,) = [job for job in jobs(written.suite) if job.id == JOB]
    remove, again = _rerun(Layout(written.suite, heads="train"), job).splitlines()
    assert remove == f"rm -r results/{written.suite.name}/runs/{JOB}"  # with all kept answers
    assert f"suite={written.suite.name} heads=train -- results/" in again


def test_no_answer_can_break_out_of_the_page() -> None:
    evil = '</script><script>alert(1)</script><!-- \u2028 & \\ "'
    text = str(embed([{"text": evil}]))
    assert "<" not in text
    assert "\u2028" not in text
    assert json.loads(text) == [{"text": evil}]


def test_disagreements_with_static_come_before_the_rest_when_there_are_too_many() -> None:
    def line(doc: int, correct: bool) -> dict[str, Any]:
        return {"doc_id": doc, "correct": correct, "text": "x"}

    n = SHOWN + 30
    pairs = [(line(i, i % 50 != 49), line(i, True)) for i in range(n)]
    disagreeing = [i for i in range(n) if i % 50 == 49]
    others = [i for i in range(n) if i not in disagreeing][: SHOWN - len(disagreeing)]
    assert [mine["doc_id"] for mine, _ in _choose(pairs)] == sorted(disagreeing + others)


def test_the_tables_link_to_pages_that_are_there(
    written: Written, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.copytree(written.results, tmp_path / "results")
    common = ["--suite", str(written.suite_file), "--results", str(tmp_path / "results")]
    assert main(["report", "pages", *common]) == 0
    assert capsys.readouterr().out.startswith("49 pages\n")
    assert main(["report", "tables", *common, "--out", str(tmp_path / "results")]) == 0
    page = (tmp_path / "results" / "tables.html").read_text()
    hrefs = set(re.findall(r'<a href="([^"#]+)">', page))
    assert len(hrefs) == 49
    for href in hrefs:
        target = (tmp_path / "results" / unescape(href)).resolve()
        assert target.is_file()
        assert '<a href="../../tables.html">' in target.read_text()


def test_without_pages_the_tables_have_no_links(written: Written, tmp_path: Path) -> None:
    common = ["--suite", str(written.suite_file), "--results", str(written.results)]
    assert main(["report", "tables", *common, "--out", str(tmp_path)]) == 0
    assert not re.findall(r'<a href="([^"#]+)">', (tmp_path / "tables.html").read_text())


def test_a_damaged_run_is_named(written: Written, tmp_path: Path) -> None:
    shutil.copytree(written.results, tmp_path / "results")
    run = Layout(written.suite, tmp_path / "results").run_dir(JOB)
    (run / "samples.jsonl").write_text('{"task": "mini_math"}\n')
    with pytest.raises(UserError, match=re.escape(f"{run}: damaged")):
        write_pages(written.suite, tmp_path / "results")
    (run / "samples.jsonl").unlink()
    with pytest.raises(UserError, match="no such file, though"):
        write_pages(written.suite, tmp_path / "results")
