"""Takes the README's pictures of the results, from the suite that ran last.

    python -m tests.docs.pictures [--suite embedded] [--job S.mini.remask.default.tau0.5]

Needs chromium and chromedriver. Each picture stays under LARGEST_PICTURE.
"""

from __future__ import annotations

import argparse
import io
import os
import shutil
import tempfile
from pathlib import Path

from PIL import Image
from selenium import webdriver
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys

from tests.docs.pages import LARGEST_PICTURE, ROOT

ASSETS = ROOT / "docs" / "assets"
WIDTH = 1200  # CSS pixels
FLAGS = ("--headless=new", "--no-sandbox", "--disable-gpu", "--no-first-run", "--hide-scrollbars")


def main() -> None:
    """Take both."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--results", type=Path, default=Path("results"))
    parser.add_argument("--suite", default="embedded")
    parser.add_argument("--job", default="S.mini.remask.default.tau0.5")
    args = parser.parse_args()
    run = args.results / args.suite / "html" / f"{args.job}.html"
    with tempfile.TemporaryDirectory() as profile:
        options = webdriver.ChromeOptions()
        options.binary_location = shutil.which("chromium")
        for flag in (*FLAGS, f"--user-data-dir={profile}"):
            options.add_argument(flag)
        os.environ["SE_OFFLINE"] = "true"  # it would look for newer browsers
        driver = webdriver.Chrome(
            options, webdriver.ChromeService(executable_path=shutil.which("chromedriver"))
        )
        try:
            driver.set_window_size(WIDTH, 1100)
            driver.get((args.results / "tables.html").resolve().as_uri())
            save(driver.get_screenshot_as_png(), "tables.png")
            save(trace(driver, run), "trace.png")
        finally:
            driver.quit()


def trace(driver: webdriver.Chrome, run: Path) -> bytes:
    """A run's first wrong answer, half revealed."""
    driver.get(run.resolve().as_uri())
    cards = driver.find_elements(By.CSS_SELECTOR, "#mini_math .sample")
    card = next((card for card in cards if "wrong" in card.text.lower()), cards[0])
    driver.execute_script("arguments[0].open = true", card)
    slider = card.find_element(By.CSS_SELECTOR, "input[type=range]")
    slider.send_keys(Keys.HOME)
    for _ in range(int(slider.get_attribute("max") or 0) * 2 // 3):
        slider.send_keys(Keys.RIGHT)
    picture: bytes = card.screenshot_as_png
    return picture


def save(png: bytes, name: str) -> None:
    """Write a picture with as few colours as its text needs."""
    image = Image.open(io.BytesIO(png)).convert("RGB").quantize(64)
    ASSETS.mkdir(exist_ok=True)
    image.save(ASSETS / name, optimize=True)
    size = (ASSETS / name).stat().st_size
    assert size < LARGEST_PICTURE, f"{name}: {size} bytes"
    print(f"{ASSETS / name}: {size} bytes")


if __name__ == "__main__":
    main()
