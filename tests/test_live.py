"""The line of state: what it counts, messages whole above it, and logs as plain as before."""

from __future__ import annotations

import io
import json
import logging
from collections.abc import Iterator
from pathlib import Path

import pytest

from mrp.live import WINDOW, Live, Pulse, state


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture
def logger() -> Iterator[logging.Logger]:
    made = logging.Logger("workflow", logging.INFO)
    yield made
    for handler in made.handlers[:]:
        handler.close()


def answer(tokens: int) -> str:
    return json.dumps({"key": "k", "counts": {"answer_tokens": tokens}}) + "\n"


def journal(runs: Path, job: str, text: str) -> None:
    (runs / job).mkdir(parents=True, exist_ok=True)
    with open(runs / job / "journal.jsonl", "a") as file:
        file.write(text)


def test_a_pulse_counts_what_is_new_and_whole(tmp_path: Path) -> None:
    now = 100.0
    journal(tmp_path, "old", '{"journal": 1}\n' + answer(1000))
    pulse = Pulse(tmp_path, lambda: now)
    now += 2
    assert pulse.rate() == 0
    journal(tmp_path, "old", answer(30))
    journal(tmp_path, "new", '{"journal": 1}\n' + answer(50) + answer(70)[:-4])
    now += 2
    assert pulse.rate() == pytest.approx(80 / 4)
    journal(tmp_path, "new", answer(70)[-4:])
    now += 1
    assert pulse.rate() == pytest.approx(150 / 5)
    now += 2 * WINDOW
    assert pulse.rate() == 0


def test_a_pulse_forgives_a_journal_that_starts_over(tmp_path: Path) -> None:
    now = 0.0
    journal(tmp_path, "job", answer(5) * 20)
    pulse = Pulse(tmp_path, lambda: now)
    (tmp_path / "job/journal.jsonl").write_text("no json\n" + answer(9))
    now = 1.0
    assert pulse.rate() == 9


def test_messages_stay_whole_above_the_line(logger: logging.Logger, tmp_path: Path) -> None:
    screen = Terminal()
    handler = logging.StreamHandler(screen)
    logger.addHandler(handler)
    live = Live(logger, tmp_path, "micro")
    live.start(3)
    assert "micro   0%" in screen.getvalue()
    logger.info("a job starts", extra={"event": "job_started", "jobs": [7, 8]})
    logger.info("it ends", extra={"event": "job_finished", "job_id": 7})
    logger.error("another fails", extra={"event": "job_error"})
    logger.info("1 of 4", extra={"event": "progress", "done": 1, "total": 4})
    assert (live.running, live.failed) == (0, 1)
    assert live.bar is not None
    assert (live.bar.n, live.bar.total) == (1, 4)
    live.close()
    logger.info("the end")
    for message in ("a job starts", "it ends", "another fails", "1 of 4", "the end"):
        assert f"\r{message}\n" in screen.getvalue() or f"\n{message}\n" in screen.getvalue()
    assert handler.stream is screen
    assert logger.handlers == [handler]
    live.close()  # once more does nothing


def test_a_log_file_gets_what_it_got_before(logger: logging.Logger, tmp_path: Path) -> None:
    file = io.StringIO()
    logger.addHandler(logging.StreamHandler(file))
    live = Live(logger, tmp_path, "micro")
    live.start(3)
    logger.info("a job starts", extra={"event": "job_started", "jobs": [7]})
    live.close()
    assert file.getvalue() == "a job starts\n"
    assert live.bar is None


def test_a_state_leaves_out_what_is_0() -> None:
    assert state(2, 1, 830.4) == "2 at work, 1 failed, 830 tokens/s"
    assert state(0, 0, 0.2) == ""
