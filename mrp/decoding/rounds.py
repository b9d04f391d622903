"""How the rounds of a mode are run on a session: as exactly what is needed, here.

`mrp.decoding.graphs` has the same in shapes of rounded size, for replaying them. Whoever runs them
owns the session, which knows nothing of it: so both, and every graph, are freed as soon as nobody
decodes with them, and not some time later by the garbage collector.
"""

from __future__ import annotations

from collections.abc import Sequence, Set

import torch
from torch import Tensor

from mrp.decoding.history import blocks_back
from mrp.decoding.modes.base import Mode
from mrp.decoding.session import PREFILL_BLOCKS, Session


class ExactRounds:
    """Runs the rounds of one mode on one session; they look at the data for what they can skip."""

    def __init__(self, session: Session, mode: Mode) -> None:
        self.session, self.mode = session, mode

    def admit(self, lanes: Sequence[int], prompts: Sequence[list[int]]) -> None:
        """Put prompts into lanes and prefill them."""
        self.session.admit(lanes, prompts)

    def run(self, plan: int, stores: list[int], waiting: list[int]) -> Set[str]:
        """One round: store the blocks of lanes `stores`, let the head read those of `waiting`.

        `waiting` names a lane once for every block of it that the head has not read.

        Returns:
            Which of "stores", "waiting" the head has not read at its end either.
        """
        if plan >= 0 and len(waiting) > self.session.slots:
            self.catch_up(waiting)
            waiting = []
        if waiting and plan <= 0:  # no head pass to ride along in
            return self._run(plan, stores, [], []) | {"waiting"}
        return self._run(plan, stores, waiting, blocks_back(waiting, stores) if waiting else [])

    def ready(self, plan: int, stores: list[int], waiting: list[int]) -> bool:
        """Whether such a round needs no capture first."""
        return True

    def read(self) -> tuple[Tensor, Tensor]:
        """Board and tally of the lanes in use, on the host: the one look at the device.

        [n, 3, B] and [n, len(TALLY)]; they may be overwritten by the next look.
        """
        n = self.session.n
        return self.session.board[:n].cpu(), self.session.tally[:n].cpu()

    def _run(self, plan: int, stores: list[int], waiting: list[int], back: list[int]) -> Set[str]:
        """A round that all of these ride along in; `back`: see `blocks_back`."""
        session = self.session
        self._list(
            (stores, session.store_lanes),
            (waiting, session.waiting_lanes),
            (back, session.waiting_back),
        )
        return session.round(self.mode, plan, len(stores), len(waiting))

    def _list(self, *lists: tuple[list[int], Tensor]) -> None:
        """Write numbers to the beginning of buffers on the device."""
        for numbers, buffer in lists:
            if numbers:
                buffer[: len(numbers)] = torch.tensor(numbers, device=buffer.device)

    def catch_up(self, waiting: list[int]) -> None:
        """Let the head read blocks that do not ride along in a round, being too many or so."""
        session = self.session
        assert session.history is not None
        every = torch.tensor((waiting, blocks_back(waiting, [])), device=session.device)
        for lanes, back in (part.unbind() for part in every.split(PREFILL_BLOCKS, dim=1)):
            start = session.start[lanes] - back * session.block_size
            session.forwards.head(*session.history.get(lanes, start))
