"""The pages in a real browser, opened from disk: scripts, links, and what axe finds."""

from __future__ import annotations

import base64
import csv
import importlib.resources
import io
import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from mrp.cli import main
from tests.report.synthetic import Written

pytestmark = pytest.mark.browser
selenium = pytest.importorskip("selenium")

from selenium import webdriver  # noqa: E402
from selenium.webdriver.common.by import By  # noqa: E402
from selenium.webdriver.common.keys import Keys  # noqa: E402
from selenium.webdriver.remote.webelement import WebElement  # noqa: E402
from selenium.webdriver.support.select import Select  # noqa: E402

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "google-chrome", "chrome"))), None)
DRIVER = shutil.which("chromedriver")
if CHROMIUM is None or DRIVER is None:
    pytest.skip("needs chromium and chromedriver", allow_module_level=True)
SERIOUS = ("serious", "critical")
FLAGS = (
    *("--headless=new", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-sync"),
    *("--disable-background-networking", "--disable-component-update", "--disable-dev-shm-usage"),
)


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[webdriver.Chrome]:
    options = webdriver.ChromeOptions()
    options.binary_location = CHROMIUM
    for flag in (*FLAGS, f"--user-data-dir={tmp_path_factory.mktemp('profile')}"):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    os.environ["SE_OFFLINE"] = "true"  # it would look for newer browsers
    driver = webdriver.Chrome(options, webdriver.ChromeService(DRIVER))
    yield driver
    driver.quit()


@pytest.fixture(scope="module")
def results(written: Written, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Tables and pages of the invented results."""
    results = tmp_path_factory.mktemp("browser") / "results"
    shutil.copytree(written.results, results)
    common = ["--suite", str(written.suite_file), "--results", str(results)]
    assert main(["report", "pages", *common]) == 0
    assert main(["report", "tables", *common, "--out", str(results)]) == 0
    return results


@pytest.fixture
def page(browser: webdriver.Chrome, results: Path) -> Iterator[webdriver.Chrome]:
    """tables.html, freshly opened; no test may leave an error in the console."""
    browser.set_window_size(1280, 900)
    browser.get((results / "tables.html").as_uri())
    yield browser
    assert [entry for entry in browser.get_log("browser") if entry["level"] == "SEVERE"] == []


def table(page: webdriver.Chrome, name: str) -> WebElement:
    return page.find_element(By.CSS_SELECTOR, f"#{name} table")


def column(page: webdriver.Chrome, name: str, heading: str) -> list[list[str]]:
    """The shown numbers of a column, group by group, the baseline left out."""
    found: list[list[str]] = page.execute_script(
        """
        const [table, heading] = arguments;
        const at = [...table.tHead.rows[0].cells].findIndex(c => c.textContent.startsWith(heading));
        return [...table.tBodies].filter(b => !b.hidden).map(b => [...b.rows]
          .filter(r => !r.hidden && !r.className.match(/group|reference/) && r.cells[at])
          .map(r => r.cells[at].dataset.value ?? r.cells[at].textContent.trim()));
        """,
        table(page, name),
        heading,
    )
    return found


def click_heading(page: webdriver.Chrome, name: str, heading: str) -> str | None:
    for cell in table(page, name).find_elements(By.CSS_SELECTOR, "thead th"):
        if cell.text.lstrip("\u2191\u2193\u00a0").startswith(heading):
            page.execute_script("arguments[0].click()", cell.find_element(By.TAG_NAME, "button"))
            return cell.get_attribute("aria-sort")
    raise AssertionError(heading)


def test_sorting_goes_down_up_and_back(page: webdriver.Chrome) -> None:
    before = column(page, "direct", "TPF")
    assert click_heading(page, "direct", "TPF") == "descending"
    down = [[float(value) for value in group] for group in column(page, "direct", "TPF")]
    assert all(group == sorted(group, reverse=True) for group in down)
    assert sorted(map(len, down)) == sorted(map(len, before))
    assert click_heading(page, "direct", "TPF") == "ascending"
    up = [[float(value) for value in group] for group in column(page, "direct", "TPF")]
    assert [group[::-1] == sorted(group, reverse=True) for group in up]
    assert click_heading(page, "direct", "TPF") is None
    assert column(page, "direct", "TPF") == before


def choose(page: webdriver.Chrome, name: str, value: str) -> None:
    for label in page.find_elements(By.CSS_SELECTOR, "#filters label"):
        if label.text.split()[0] == name:
            Select(label.find_element(By.TAG_NAME, "select")).select_by_value(value)
            return
    raise AssertionError(name)


def test_filters_narrow_all_tables_and_let_go_again(page: webdriver.Chrome) -> None:
    everything = page.find_element(By.ID, "shown").text
    choose(page, "task", "mini_code")
    choose(page, "mode", "speculative")
    choose(page, "K", "3")
    assert column(page, "speculative", "K") == [["3", "3", "3"]]  # default, k2, default-here
    assert column(page, "direct", "K") == []
    assert column(page, "remask", "Accuracy") == []
    shown = page.find_element(By.ID, "shown").text
    assert shown.startswith("3 of ")
    page.find_element(By.CSS_SELECTOR, "#filters button").click()
    assert page.find_element(By.ID, "shown").text == everything
    assert everything.split()[0] == everything.split()[2]


def test_other_modes_are_found_by_filter_and_by_words(page: webdriver.Chrome) -> None:
    choose(page, "mode", "wino")
    assert column(page, "others", "At") == [["τ = 0.5", "τ = 0.7"]] * 2
    assert column(page, "speculative", "K") == []
    assert page.find_element(By.ID, "shown").text.startswith("4 of ")
    search = page.find_element(By.CSS_SELECTOR, "#filters input[type=search]")
    search.send_keys("math 0.7")
    assert column(page, "others", "At") == [["τ = 0.7"]]
    page.find_element(By.CSS_SELECTOR, "#filters button").click()
    search.send_keys("WINO")
    assert column(page, "others", "At") == [["τ = 0.5", "τ = 0.7"]] * 2
    assert [len(group) for group in column(page, "lossy", "Runs")] == [1]


def test_words_find_modes_that_no_label_names(page: webdriver.Chrome) -> None:
    everything = column(page, "direct", "K")
    search = page.find_element(By.CSS_SELECTOR, "#filters input[type=search]")
    search.send_keys("direct")
    assert column(page, "direct", "K") == everything
    assert column(page, "remask", "Accuracy") == []
    search.clear()
    for word in ("Self_Speculative", "self-speculative"):
        search.send_keys(word)
        assert column(page, "direct", "K") == []
        assert column(page, "speculative", "K") == [["1", "2", "3", "4"]] * 2
        search.clear()


def test_tables_without_rows_go_and_are_counted(page: webdriver.Chrome) -> None:
    sections = page.find_elements(By.CSS_SELECTOR, "main section:has(table)")
    says = page.find_element(By.ID, "emptied")
    assert not says.is_displayed()
    choose(page, "mode", "wino")
    left = [section.get_attribute("id") for section in sections if section.is_displayed()]
    assert left == ["others", "lossy"]
    assert says.text == f"{len(sections) - 2} tables without such a row are hidden."
    links = page.find_elements(By.CSS_SELECTOR, "nav a")
    assert [link.text[0] for link in links if link.is_displayed()][:3] == ["5", "7", "W"]
    page.find_element(By.CSS_SELECTOR, "#filters input[type=search]").send_keys("nowhere")
    assert says.text == "No table has such a row."
    page.find_element(By.CSS_SELECTOR, "#filters button").click()
    assert all(section.is_displayed() for section in sections)
    assert not says.is_displayed()


# How far things stick out: of the page, of tables' own areas, and of the cells with runs' names.
STICKS_OUT = """
const out = element => element.scrollWidth - element.clientWidth;
const areas = [...document.querySelectorAll(".scroll")];
return [out(document.documentElement), Math.max(...areas.map(out)),
  Math.max(...[...document.querySelectorAll(".scroll th[scope=row]")].map(cell =>
    Math.max(...[...cell.children].map(e => e.getBoundingClientRect().right)) -
    cell.getBoundingClientRect().right))];
"""


@pytest.mark.parametrize("which", ["tables.html", "embedded/html/index.html"])
def test_nothing_sticks_out_at_any_width(
    browser: webdriver.Chrome, results: Path, which: str
) -> None:
    browser.get((results / which).as_uri())
    for width in (1280, 1184, 800, 400):
        size = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": False}
        browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
        page, areas, names = browser.execute_script(STICKS_OUT)
        assert page == 0, width
        assert names <= 0, width
        assert areas == 0 or (width < 1184 and which == "tables.html"), width
    browser.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})


@pytest.mark.skipif(shutil.which("pdftotext") is None, reason="needs pdftotext")
def test_heads_of_tables_stand_on_every_printed_page(
    page: webdriver.Chrome, tmp_path: Path
) -> None:
    choose(page, "mode", "direct")
    printed = page.execute_cdp_cmd("Page.printToPDF", {"preferCSSPageSize": True})["data"]
    (tmp_path / "page.pdf").write_bytes(base64.b64decode(printed))
    command = ["pdftotext", "-layout", str(tmp_path / "page.pdf"), "-"]
    text = subprocess.run(command, capture_output=True, check=True, text=True).stdout
    head, row = "Drafts from", r"^ *\S+ +(?:residual|direct)(?:, chained)? +[1-4] +\d"
    pages = [part for part in text.split("\f") if re.search(row, part, re.MULTILINE)]
    assert len(pages) > 1
    assert all(head in part for part in pages)


def copied(page: webdriver.Chrome, name: str, form: str) -> str:
    for button in page.find_elements(By.CSS_SELECTOR, f"#{name} .copy button"):
        if button.text == form:
            page.execute_script("arguments[0].click()", button)
            text = table(page, name).get_attribute("data-copied")
            assert text is not None
            return text
    raise AssertionError(form)


def test_copies_hold_the_rows_that_are_shown(page: webdriver.Chrome) -> None:
    choose(page, "task", "mini_math")
    choose(page, "K", "2")
    click_heading(page, "direct", "Accuracy")
    rows = list(csv.reader(io.StringIO(copied(page, "direct", "CSV"))))
    assert rows[0][:5] == ["backbone", "task", "Drafts from", "Objective", "K"]
    assert all(len(row) == len(rows[0]) for row in rows)
    at = next(i for i, name in enumerate(rows[0]) if name.startswith("Accuracy"))
    shares = [100 * float(value) for value in column(page, "direct", "Accuracy")[0]]
    assert [float(row[at]) for row in rows[1:] if row[4]] == pytest.approx(shares)
    markdown = copied(page, "direct", "Markdown").split("\n")
    assert len(markdown) == len(rows) + 1
    assert {line.count(" | ") for line in markdown} == {len(rows[0]) - 1}
    tex = copied(page, "direct", "LaTeX")
    assert tex.count(r"\\") == len(rows)
    assert tex.startswith(r"\begin{tabular}")


def shown(page: webdriver.Chrome, name: str) -> tuple[int, list[list[str]]]:
    """How many columns of labels a table has, and every shown row's main texts, as wide as it."""
    labels, rows = page.execute_script(
        """
        const [table] = arguments;
        const text = cell => cell.querySelector(".main, .stay")?.textContent.trim() ?? "";
        return [table.tHead.querySelectorAll("th:not(.num)").length,
          [...table.tBodies].filter(b => !b.hidden).flatMap(b => [...b.rows])
            .filter(r => !r.hidden && !r.classList.contains("group"))
            .map(r => [...r.cells].flatMap(c => [text(c), ...Array(c.colSpan - 1).fill("")]))];
        """,
        table(page, name),
    )
    return labels, rows


def split_cells(name: str, form: str, text: str) -> list[list[str]]:
    """A copied table's headings and rows, cell by cell."""
    if form == "CSV":
        return list(csv.reader(io.StringIO(text)))
    if form == "Markdown":
        lines = [re.split(r"(?<!\\)\|", line)[1:-1] for line in text.split("\n")]
        assert {cell.strip() for cell in lines.pop(1)} == {"---"}, name
    else:
        full = [line.removesuffix(r" \\") for line in text.split("\n") if line.endswith(r"\\")]
        lines = [re.split(r"(?<!\\)&", line) for line in full]
    return [[cell.strip() for cell in line] for line in lines]


def names_of_tables(page: webdriver.Chrome) -> list[str]:
    sections = page.find_elements(By.CSS_SELECTOR, "main section:has(table)")
    return [section.get_attribute("id") or "" for section in sections]


@pytest.mark.parametrize("form", ["Markdown", "LaTeX", "CSV"])
def test_a_copy_is_whole_and_tells_its_rows_apart(page: webdriver.Chrome, form: str) -> None:
    names = names_of_tables(page)
    assert len(names) >= 9
    for name in names:
        text = copied(page, name, form)
        headings, *rows = split_cells(name, form, text)
        labels, on_page = shown(page, name)
        assert {len(row) for row in rows} == {len(headings)} == {len(on_page[0]) + 2}, name
        assert len(rows) == len(on_page), name
        own = [tuple(row[: labels + 2]) for row in rows]
        assert len(set(own)) == len(own), (name, [one for one in own if own.count(one) > 1])
        assert all(row[0] == "S" and row[1] for row in rows), name
        if form == "LaTeX":
            assert text.isascii(), name
            assert "?" not in text, name
    wide = page.find_elements(By.CSS_SELECTOR, "td.missing")
    assert len(wide) > 0  # one cell for a whole row, of a run without a record


def test_copied_numbers_are_those_of_the_page(page: webdriver.Chrome) -> None:
    for name in names_of_tables(page):
        labels, on_page = shown(page, name)
        headings, *rows = split_cells(name, "CSV", copied(page, name, "CSV"))
        numbers = 0
        for texts, row in zip(on_page, rows, strict=True):
            for text, value, heading in zip(texts, row[2:], headings[2:], strict=True):
                if texts.index(text) < labels:
                    continue
                plain = text.replace("\u2212", "-")
                digits = re.fullmatch(r"[+-]?\d+(?:\.(\d*))?\u00d7?", plain)
                if digits is None:
                    assert value == plain, (name, heading)
                    continue
                numbers += 1
                half = 0.5001 * 10.0 ** -len(digits[1] or "")
                number = float(plain.rstrip("\u00d7"))
                assert abs(float(value) - number) <= half, (name, heading, text, value)
        assert numbers > 1, name


def test_a_cell_opens_its_run_and_the_slider_replays_an_answer(page: webdriver.Chrome) -> None:
    link = page.find_element(
        By.CSS_SELECTOR, "#speculative td[data-job='S.mini.speculative.k2.k4'] a"
    )
    page.execute_script("arguments[0].click()", link)
    assert page.find_element(By.TAG_NAME, "h1").text == "S.mini.speculative.k2.k4"
    card = page.find_element(By.CSS_SELECTOR, "#mini_math .sample")
    page.execute_script("arguments[0].open = true", card)
    slider = card.find_element(By.CSS_SELECTOR, "input[type=range]")
    says = card.find_element(By.TAG_NAME, "output")
    last = int(slider.get_attribute("max") or 0)
    pieces = card.find_elements(By.CSS_SELECTOR, ".trace span")
    assert last > 0
    assert says.text.startswith(f"round {last} of {last}: {len(pieces)} of {len(pieces)} tokens")
    slider.send_keys(Keys.HOME)
    assert says.text.startswith(f"round 0 of {last}: 0 of {len(pieces)} tokens")
    assert {piece.get_attribute("class") for piece in pieces} == {"masked"}
    seen = 0
    for _ in range(last):
        slider.send_keys(Keys.RIGHT)
        now = len(card.find_elements(By.CSS_SELECTOR, ".trace span:not(.masked)"))
        assert now >= seen
        seen = now
    assert seen == len(pieces)


def test_a_runs_filters_count_what_they_show(browser: webdriver.Chrome, results: Path) -> None:
    job = "S.mini.dynamic.tau0.5"
    browser.get((results / "embedded" / "html" / f"{job}.html").as_uri())
    section = browser.find_element(By.ID, "mini_math")
    counts = {}
    for button in section.find_elements(By.CSS_SELECTOR, "[data-filter]"):
        if button.is_displayed():
            browser.execute_script("arguments[0].click()", button)
            counts[button.get_attribute("data-filter")] = len(
                section.find_elements(By.CLASS_NAME, "sample")
            )
    assert counts["all"] == counts["right"] + counts["wrong"]
    assert 0 < counts["lost"] <= counts["wrong"]


@pytest.mark.parametrize(("width", "scheme"), [(1280, "light"), (390, "dark")])
@pytest.mark.parametrize("which", ["tables.html", "embedded/html/S.mini.remask.k2.tau0.5.html"])
def test_axe_finds_nothing_serious(
    browser: webdriver.Chrome, results: Path, width: int, scheme: str, which: str
) -> None:
    browser.execute_cdp_cmd(
        "Emulation.setEmulatedMedia",
        {"features": [{"name": "prefers-color-scheme", "value": scheme}]},
    )
    browser.set_window_size(width, 900)
    browser.get((results / which).as_uri())
    if which != "tables.html":
        card = browser.find_element(By.CLASS_NAME, "sample")
        browser.execute_script("arguments[0].open = true", card)
    source = (importlib.resources.files("axe_core_python") / "axe.min.js").read_text("utf-8")
    browser.execute_script(source)
    found: dict[str, Any] = browser.execute_async_script(
        "const done = arguments[arguments.length - 1];"
        "axe.run({resultTypes: ['violations']}).then(done, error => done({error: String(error)}))"
    )
    assert "error" not in found, found
    bad = [
        (violation["id"], node["html"][:200], node["failureSummary"])
        for violation in found["violations"]
        if violation["impact"] in SERIOUS
        for node in violation["nodes"]
    ]
    assert bad == []
    # Nothing but the tables' own scroll areas is wider than the window.
    assert browser.execute_script("return document.documentElement.scrollWidth") <= width
