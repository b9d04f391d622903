"""How far a training run is, with its newest losses."""

from __future__ import annotations

import sys
from collections.abc import Mapping

from mrp.progress import Display

LINES = 20  # of a whole run without a terminal


class Progress(Display):
    """Progress of `total` steps, of which `start` are done; silent where `shown` is false."""

    def __init__(self, label: str, total: int, start: int, shown: bool) -> None:
        super().__init__(total, start, "step", shown, label)
        self._said = start * LINES // total

    def say(self, text: str) -> None:
        """Print one line of news."""
        if self.bar is not None:
            self.bar.write(f"{self.label}: {text}", file=sys.stderr)
        elif self.shown:
            print(f"{self.label}: {text}", file=sys.stderr, flush=True)

    def update(self, step: int, values: Mapping[str, str]) -> None:
        """Show that `step` steps are done, with the newest numbers."""
        self.advance(step, ", ".join(f"{name} {value}" for name, value in values.items()))

    def is_due(self) -> bool:
        """Every few percent."""
        return self.done * LINES // self.total > self._said

    def write_line(self, numbers: str) -> None:
        """On stderr."""
        self._said = self.done * LINES // self.total
        self.say(f"step {self.done}/{self.total}, {numbers}")
