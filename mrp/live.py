"""One line of state under a workflow's messages: jobs done, time left, jobs at work, tokens/s.

    live = Live(logger, Path("results/embedded/runs"), "embedded")
    live.start(total=41)   # until live.close()

It is shown on a terminal only: a log file gets the same lines as without it. Snakemake's logger is
taken for what it is to the standard library, so the library needs no Snakemake.
"""

from __future__ import annotations

import atexit
import json
import logging
import threading
import time
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Any, TextIO

from tqdm import tqdm

WINDOW = 30.0  # seconds over which tokens/s are counted
INTERVAL = 1.0  # seconds between two looks at the journals
LINE = "{desc} {percentage:3.0f}% |{bar:20}| {n_fmt}/{total_fmt} jobs, {remaining} left{postfix}"


class Pulse:
    """Answer tokens a second of all decode jobs together, by what their journals gained lately."""

    def __init__(self, runs: Path, clock: Callable[[], float] = time.monotonic) -> None:
        """Watch `runs`/*/journal.jsonl from now on."""
        self._runs, self._clock = Path(runs), clock
        self._read = {path: path.stat().st_size for path in self._journals()}  # bytes known
        self._gains: deque[tuple[float, int]] = deque([(clock(), 0)])  # when, tokens

    def rate(self) -> float:
        """Tokens/s over the last WINDOW seconds; 0 where nothing was finished in them."""
        now = self._clock()
        self._gains.append((now, sum(map(self._gained, self._journals()))))
        # The oldest entry only says since when is counted.
        while len(self._gains) > 2 and self._gains[1][0] <= now - WINDOW:
            self._gains.popleft()
        tokens = sum(gain for _, gain in list(self._gains)[1:])
        return tokens / max(now - self._gains[0][0], 1e-9)

    def _journals(self) -> list[Path]:
        return list(self._runs.glob("*/journal.jsonl"))

    def _gained(self, path: Path) -> int:
        """Tokens in the whole lines that were appended since the last look."""
        known = self._read.get(path, 0)
        try:
            if path.stat().st_size < known:  # begun anew
                known = 0
            with open(path, "rb") as file:
                file.seek(known)
                new = file.read()
        except OSError:  # a job that starts over moves it away
            return 0
        whole = new[: new.rfind(b"\n") + 1]
        self._read[path] = known + len(whole)
        return sum(map(_answer_tokens, whole.splitlines()))


def _answer_tokens(line: bytes) -> int:
    """Of a journal's line; 0 for its header, and for a line that is none."""
    try:
        return int(json.loads(line)["counts"]["answer_tokens"])
    except (ValueError, KeyError, TypeError, OverflowError, RecursionError):
        return 0


class Live(logging.Handler):
    """Keeps the line under what a logger writes to a terminal; hears of the jobs from it, too."""

    def __init__(self, logger: logging.Logger, runs: Path, label: str) -> None:
        """Show nothing yet."""
        super().__init__()
        self.logger, self.runs, self.label = logger, Path(runs), label
        self.bar: tqdm[Any] | None = None
        self.pulse: Pulse | None = None
        self.running = self.failed = 0
        self._raised: list[tuple[logging.StreamHandler[Any], TextIO]] = []
        self._stopped = threading.Event()

    def start(self, total: int) -> None:
        """Show the line for `total` jobs, if the logger writes to a terminal."""
        handlers = [
            handler
            for handler in self.logger.handlers
            if isinstance(handler, logging.StreamHandler) and handler.stream.isatty()
        ]
        if not handlers or not total:
            return
        stream = handlers[0].stream
        self.bar = tqdm(
            total=total,
            desc=self.label,
            bar_format=LINE,
            file=stream,
            smoothing=0,  # the time left by the mean job: they differ a lot
            leave=False,
            dynamic_ncols=True,
        )
        for handler in handlers:
            self._raised.append((handler, handler.stream))
            handler.setStream(_Above(handler.stream))
        self.pulse = Pulse(self.runs)
        self.logger.addHandler(self)
        atexit.register(self.close)
        threading.Thread(target=self._refresh, daemon=True).start()

    def emit(self, record: logging.LogRecord) -> None:
        """Count a workflow's event: jobs that started, ended, failed."""
        event = str(getattr(record, "event", ""))
        if event == "job_started":
            self.running += len(getattr(record, "jobs", []))
        elif event in ("job_finished", "job_error"):
            self.running = max(0, self.running - 1)
            self.failed += event == "job_error"
        elif event == "progress" and self.bar is not None:
            self.bar.total = getattr(record, "total", self.bar.total)
            self.bar.update(getattr(record, "done", 0) - self.bar.n)

    def close(self) -> None:
        """Take the line away; messages go where they went before."""
        self._stopped.set()
        if self.bar is not None:
            self.logger.removeHandler(self)
            for handler, stream in self._raised:
                handler.setStream(stream)
            self._raised.clear()
            self.bar.close()
            self.bar = None
            atexit.unregister(self.close)
        super().close()

    def _refresh(self) -> None:
        while not self._stopped.wait(INTERVAL):
            bar, pulse = self.bar, self.pulse
            if bar is not None and pulse is not None:
                bar.set_postfix_str(state(self.running, self.failed, pulse.rate()))


def state(running: int, failed: int, rate: float) -> str:
    """2 at work, 1 failed, 830 tokens/s: what is 0 is left out."""
    parts = [(running, f"{running} at work"), (failed, f"{failed} failed")]
    parts.append((round(rate), f"{rate:.0f} tokens/s"))
    return ", ".join(text for value, text in parts if value)


class _Above:
    """A stream whose text appears above the line: collected, then written in one go."""

    def __init__(self, stream: TextIO) -> None:
        self.stream, self.text = stream, ""

    def write(self, text: str) -> int:
        self.text += text
        return len(text)

    def flush(self) -> None:
        if self.text:
            tqdm.write(self.text, file=self.stream, end="")
            self.text = ""
        self.stream.flush()

    def isatty(self) -> bool:
        return self.stream.isatty()
