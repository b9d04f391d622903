"""What every decoding mode is: a few parameters and one round of revealing."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar

from mrp.decoding.session import Session


@dataclass(frozen=True)
class Mode(ABC):
    """A decoding mode; its dataclass fields are its parameters."""

    name: ClassVar[str]
    needs_head: ClassVar[bool] = False

    @property
    def states(self) -> int:
        """Candidate states of a block that one backbone forward may score (1: no candidates)."""
        return 1

    @abstractmethod
    def round(self, session: Session) -> None:
        """Advance every active sample by about one backbone forward.

        At the start each has at least one masked position in its block; at the end at least one
        more is revealed. Finished blocks are stored by the engine.
        """
