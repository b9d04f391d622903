"""How far a decode job is, with tokens per forward and tokens per second."""

from __future__ import annotations

import logging
import time
from collections import Counter

from mrp.decoding import tokens_per_forward
from mrp.progress import Display

logger = logging.getLogger(__name__)

LOG_INTERVAL = 15.0  # seconds between two lines in a log file


class Progress(Display):
    """Counts finished samples."""

    def __init__(self, total: int, done: int, enabled: bool) -> None:
        """Start at `done` of `total` samples; show nothing unless `enabled`."""
        super().__init__(total, done, "sample", enabled)
        self.counts: Counter[str] = Counter()
        self.started = self.logged = time.perf_counter()

    def update(self, counts: dict[str, int]) -> None:
        """Note one more finished sample and its counts."""
        self.counts.update(counts)
        seconds = max(time.perf_counter() - self.started, 1e-9)
        rate = self.counts["answer_tokens"] / seconds
        self.advance(
            self.done + 1, f"TPF {tokens_per_forward(self.counts):.2f}, {rate:.0f} tokens/s"
        )

    def is_due(self) -> bool:
        """Every few seconds."""
        return time.perf_counter() - self.logged >= LOG_INTERVAL

    def write_line(self, numbers: str) -> None:
        """Into the log."""
        self.logged = time.perf_counter()
        logger.info("%d of %d samples, %s", self.done, self.total, numbers)
