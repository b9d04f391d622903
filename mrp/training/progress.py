"""Showing a run on stderr: a bar on a terminal, a line every few percent elsewhere."""

from __future__ import annotations

import sys
from collections.abc import Mapping

from tqdm import tqdm

LINES = 20


class Progress:
    """Progress of `total` steps, of which `start` are done; silent where `shown` is false."""

    def __init__(self, label: str, total: int, start: int, shown: bool) -> None:
        self.label, self.total, self.shown = label, total, shown
        self.bar = None
        self._said = start * LINES // total
        if shown and sys.stderr.isatty():
            self.bar = tqdm(total=total, initial=start, desc=label, unit="step", dynamic_ncols=True)

    def say(self, text: str) -> None:
        """Print one line of news."""
        if self.bar is not None:
            self.bar.write(f"{self.label}: {text}", file=sys.stderr)
        elif self.shown:
            print(f"{self.label}: {text}", file=sys.stderr, flush=True)

    def update(self, step: int, values: Mapping[str, str]) -> None:
        """Show that `step` steps are done, with the newest numbers."""
        if self.bar is not None:
            self.bar.set_postfix(values, refresh=False)
            self.bar.update(step - self.bar.n)
        elif step * LINES // self.total > self._said:
            self._said = step * LINES // self.total
            numbers = ", ".join(f"{name} {value}" for name, value in values.items())
            self.say(f"step {step}/{self.total}, {numbers}")

    def close(self) -> None:
        """Leave the bar as it stands."""
        if self.bar is not None:
            self.bar.close()
