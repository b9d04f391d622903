"""How far a decode job is: a bar on a terminal, a line now and then in a log file."""

from __future__ import annotations

import logging
import sys
import time
from collections import Counter
from types import TracebackType
from typing import Any

from tqdm import tqdm

from mrp.decoding import tokens_per_forward

logger = logging.getLogger(__name__)

LOG_INTERVAL = 15.0  # seconds between two lines in a log file


class Progress:
    """Counts finished samples and shows them with tokens per forward and tokens per second."""

    def __init__(self, total: int, done: int, enabled: bool) -> None:
        """Start at `done` of `total` samples; show nothing unless `enabled`."""
        self.total, self.done, self.enabled = total, done, enabled
        self.counts: Counter[str] = Counter()
        self.started = self.logged = time.perf_counter()
        self.bar: tqdm[Any] | None = None
        if enabled and sys.stderr.isatty():
            self.bar = tqdm(total=total, initial=done, unit="sample", dynamic_ncols=True)

    def update(self, counts: dict[str, int]) -> None:
        """Note one more finished sample and its counts."""
        self.done += 1
        self.counts.update(counts)
        if self.bar is not None:
            self.bar.set_postfix_str(self._rates(), refresh=False)
            self.bar.update()
        elif self.enabled and time.perf_counter() - self.logged >= LOG_INTERVAL:
            self.logged = time.perf_counter()
            logger.info("%d of %d samples, %s", self.done, self.total, self._rates())

    def __enter__(self) -> Progress:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self.bar is not None:
            self.bar.close()

    def _rates(self) -> str:
        seconds = max(time.perf_counter() - self.started, 1e-9)
        rate = self.counts["answer_tokens"] / seconds
        return f"TPF {tokens_per_forward(self.counts):.2f}, {rate:.0f} tokens/s"
