from __future__ import annotations

import io
import logging

import pytest

import mrp.evaluation.progress as progress
from mrp.evaluation.progress import Progress

COUNTS = {"generated": 16, "denoise": 6, "verify": 2, "answer_tokens": 10}


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_lines_now_and_then_without_a_terminal(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    now = 0.0
    monkeypatch.setattr(progress.time, "perf_counter", lambda: now)
    monkeypatch.setattr("sys.stderr", io.StringIO())
    with caplog.at_level(logging.INFO), Progress(total=9, done=1, enabled=True) as bar:
        for now in (5.0, 10.0, 20.0, 25.0, 40.0):  # noqa: B007 (read by the clock)
            bar.update(COUNTS)
    assert caplog.messages == [
        "4 of 9 samples, TPF 2.00, 2 tokens/s",
        "6 of 9 samples, TPF 2.00, 1 tokens/s",
    ]


def test_a_bar_on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = Terminal()
    monkeypatch.setattr("sys.stderr", terminal)
    with Progress(total=2, done=1, enabled=True) as bar:
        bar.update(COUNTS)
    assert "2/2" in terminal.getvalue()
    assert "TPF 2.00" in terminal.getvalue()


def test_silence_when_not_enabled(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    terminal = Terminal()
    monkeypatch.setattr("sys.stderr", terminal)
    with caplog.at_level(logging.INFO), Progress(total=2, done=0, enabled=False) as bar:
        bar.update(COUNTS)
    assert terminal.getvalue() == caplog.text == ""
