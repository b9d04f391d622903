"""What every decoding mode is: a few parameters and one round of revealing."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from mrp.decoding.pace import Pace
from mrp.decoding.session import Session
from mrp.errors import UserError


@dataclass(frozen=True)
class Mode(ABC):
    """A decoding mode; its dataclass fields are its parameters."""

    name: ClassVar[str]
    needs_head: ClassVar[bool] = False

    @property
    def states(self) -> int:
        """Candidate states of a block that one backbone forward may score (1: no candidates)."""
        return 1

    @property
    def head_states(self) -> int:
        """Likewise of one head pass."""
        return 1

    @property
    def head_prefix(self) -> bool:
        """Whether the head reads the blocks before the current one, or that one alone."""
        return bool(getattr(self, "prefix", True))

    @property
    def paced(self) -> bool:
        """Whether `Pace` decides how much a round drafts; what drafting takes is then rationed."""
        return False

    @property
    def looks_ahead(self) -> bool:
        """Whether a block's first round has something kept from the block before."""
        return False

    def check(self, block_size: int) -> None:
        """Raise UserError where a parameter does not go with the backbone's block length."""
        for name, limit in (("k", block_size - 1), ("steps", block_size)):
            value = getattr(self, name, 0)
            if isinstance(value, int) and value > limit:
                raise UserError(
                    f"mode {self.name!r}: {name}={value} is too large for blocks of {block_size} "
                    f"tokens; allowed are 1 to {limit}"
                )

    def baseline(self) -> Mode:
        """What this mode is compared to: static decoding by the same rule, a step for each token.

        A mode that caps confidences reveals in another order than one that does not.
        """
        from mrp.decoding.modes.static import Static

        return Static(cap=getattr(self, "cap", 1.0))

    def plan(self, open_: Sequence[int], fresh: Sequence[bool], pace: Pace) -> int:
        """How many head passes or drafts the next round makes at most.

        Decided on the host, which knows how many positions of each lane's block are masked at most,
        `open_` [n], and whether the block is `fresh`: not denoised before. `pace` knows what rounds
        cost and bring here.
        """
        return 0

    def reveals(self, plan: int) -> tuple[int, int] | None:
        """How many tokens a round reveals in every lane that has as many left: at least, at most.

        None if that is not known. Where it is, the host need not look at the device until a block
        may be finished.
        """
        return None

    @abstractmethod
    def round(self, session: Session, plan: int) -> None:
        """Advance every lane by one backbone forward.

        At the start each sample has at least one masked position in its block; at the end at least
        one more is revealed. `plan` is what `plan` said. Finished blocks are stored by the session.
        """
