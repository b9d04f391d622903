"""How far a run is: a bar on a terminal, a line now and then in a log file."""

from __future__ import annotations

import sys
from typing import Any

from tqdm import tqdm

from mrp.closing import Closing


class Display(Closing):
    """Shows that `done` of `total` are done; subclasses say when a line is due and write it."""

    def __init__(self, total: int, done: int, unit: str, shown: bool, label: str = "") -> None:
        """Start at `done`; show nothing unless `shown`."""
        self.total, self.done, self.shown, self.label = total, done, shown, label
        self.bar: tqdm[Any] | None = None
        if shown and sys.stderr.isatty():
            self.bar = tqdm(
                total=total, initial=done, unit=unit, desc=label or None, dynamic_ncols=True
            )

    def advance(self, done: int, numbers: str) -> None:
        """Show that `done` are done, with the newest numbers."""
        self.done = done
        if self.bar is not None:
            self.bar.set_postfix_str(numbers, refresh=False)
            self.bar.update(done - self.bar.n)
        elif self.shown and self.is_due():
            self.write_line(numbers)

    def is_due(self) -> bool:
        """Whether it is time for a line."""
        raise NotImplementedError

    def write_line(self, numbers: str) -> None:
        """Write one."""
        raise NotImplementedError

    def close(self) -> None:
        """Leave the bar as it stands."""
        if self.bar is not None:
            self.bar.close()
