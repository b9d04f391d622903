"""What is open for the length of a `with` block."""

from __future__ import annotations

from typing import Self


class Closing:
    """Closed at the end of its `with` block, also after an error, which goes on."""

    def close(self) -> None:
        """Let go of what is held."""
        raise NotImplementedError

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()
