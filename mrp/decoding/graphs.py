"""Rounds of fixed shape, and their replay as CUDA graphs.

A shape is the number of lanes, the mode's plan, and how many finished blocks ride along. Lanes and
riders are rounded up, so that there are few shapes; lanes without a sample compute something that
nobody reads, and riders without a block point at the scratch lane. A round that is met for the
first time runs eagerly, which also compiles its kernels, and is captured right after.

A prompt's prefill likewise, its number of blocks rounded up. Long prefills, and rounds of many
lanes, run as they are: launching is no longer what they take, and exact ones compute less.
"""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from typing import Any, NamedTuple, TypeVar

import torch
from torch import Tensor

from mrp.decoding.blocks import Blocks, join, plain
from mrp.decoding.forwards import EagerForwards
from mrp.decoding.modes.base import Mode
from mrp.decoding.rounds import ExactRounds
from mrp.decoding.session import Session

MOST_PREFILL = 32  # blocks of a prefill of rounded length
MOST_LANES = 256  # of a captured round
T = TypeVar("T")


class Shape(NamedTuple):
    """What a round's operations depend on; see `Session.round`."""

    lanes: int
    plan: int
    stores: int
    waiting: int


class FixedRounds(ExactRounds):
    """Runs the rounds of one mode on one session in rounded shapes, without a look at any data."""

    def __init__(self, session: Session, mode: Mode) -> None:
        super().__init__(session, mode)
        # Pinned on a GPU: copies from and to it need no wait; the one in `read` covers all.
        pinned = session.device.type == "cuda"
        self.lists = torch.empty((2, 3, session.slots), dtype=torch.long, pin_memory=pinned)
        self.turn = 0  # which of the two is written next
        self.board = torch.empty(session.board.shape, dtype=torch.long, pin_memory=pinned)
        self.tally = torch.empty(session.tally.shape, dtype=torch.long, pin_memory=pinned)
        self.fetched = False  # whether the last round did that, as a part of it

    def admit(self, lanes: Sequence[int], prompts: Sequence[list[int]]) -> None:
        """See `ExactRounds`."""
        self.session.admit(lanes, prompts, self.prefill)

    def ready(self, plan: int, stores: list[int], waiting: list[int]) -> bool:
        """See `ExactRounds`."""
        read = len(waiting) if plan > 0 and len(waiting) <= self.session.slots else 0
        return self.has(self.shape(plan, len(stores), read))

    def _run(
        self, plan: int, stores: list[int], waiting: list[int], back: list[int]
    ) -> frozenset[str]:
        """See `ExactRounds`."""
        session, slots = self.session, self.session.slots

        def padded(numbers: list[int], padding: int) -> list[int]:
            return numbers + [padding] * (riders(len(numbers), slots) - len(numbers))

        if stores or waiting:
            self._list(
                (padded(stores, session.scratch), session.store_lanes),
                (padded(waiting, session.scratch), session.waiting_lanes),
                (padded(back, 1), session.waiting_back),
            )
        self.fetched = self._looked_at(plan)
        return self.play(self.shape(plan, len(stores), len(waiting)))

    def _list(self, *lists: tuple[list[int], Tensor]) -> None:
        """See `ExactRounds`.

        None is written again before it was read, which only a look makes sure of. Lanes store after
        a look alone; the first head pass then reads what waited, the next one those blocks: at most
        two rounds list anything between two looks, and they take turns.
        """
        self.turn = 1 - self.turn
        for row, (numbers, buffer) in zip(self.lists[self.turn], lists, strict=True):
            count = len(numbers)
            if count:
                row[:count] = torch.tensor(numbers)
                buffer[:count].copy_(row[:count], non_blocking=True)

    def shape(self, plan: int, stores: int, waiting: int) -> Shape:
        """The shape of a round with so many blocks to store and to be read by the head."""
        slots = self.session.slots
        lanes = power_of_two(self.session.n, slots)
        return Shape(lanes, plan, riders(stores, slots), riders(waiting, slots))

    def has(self, shape: Shape) -> bool:
        """Whether a round of this shape takes no preparation."""
        return True

    def play(self, shape: Shape) -> frozenset[str]:
        """A round of this shape."""
        session = self.session
        used, session.n, session.exact = session.n, shape.lanes, False
        try:
            unread = frozenset(session.round(self.mode, *shape[1:]))
            if self._looked_at(shape.plan):
                self._fetch(shape.lanes)
            return unread
        finally:
            session.n, session.exact = used, True

    def prefill(self, blocks: Blocks) -> None:
        """Prefill blocks of prompts; see `Session.prefill`."""
        count = len(blocks.ids)
        if count > MOST_PREFILL:
            self.session.prefill(blocks)
            return
        spare = power_of_two(count, MOST_PREFILL) - count
        row = blocks.row.new_full((spare,), self.session.scratch)
        nothing = plain(blocks.ids.new_zeros(spare, blocks.ids.shape[1]), row, 0 * row)
        self.fill(join((blocks, nothing)))

    def fill(self, blocks: Blocks) -> None:
        """A prefill of this shape."""
        self.session.prefill(blocks)

    def read(self) -> tuple[Tensor, Tensor]:
        """See `ExactRounds`."""
        n = self.session.n
        if not self.fetched:
            self._fetch(n)
        if self.session.device.type == "cuda":
            torch.cuda.current_stream().synchronize()
        return self.board[:n], self.tally[:n]

    def _looked_at(self, plan: int) -> bool:
        """Whether the host may look after such a round, which then copies what is looked at."""
        bounds = self.mode.reveals(plan)
        return bounds is None or bounds[0] != bounds[1]

    def _fetch(self, n: int) -> None:
        """Have board and tally of the first `n` lanes copied to the host."""
        self.board[:n].copy_(self.session.board[:n], non_blocking=True)
        self.tally[:n].copy_(self.session.tally[:n], non_blocking=True)


class GraphRounds(FixedRounds):
    """Captures every shape of round once and replays it."""

    def __init__(self, session: Session, mode: Mode) -> None:
        super().__init__(session, mode)
        self.pool = torch.cuda.graph_pool_handle()
        self.captured: dict[Shape, tuple[torch.cuda.CUDAGraph, frozenset[str]]] = {}
        self.prefills: dict[int, tuple[torch.cuda.CUDAGraph, Blocks]] = {}  # by number of blocks

    def ready(self, plan: int, stores: list[int], waiting: list[int]) -> bool:
        """See `ExactRounds`."""
        return self.session.n > MOST_LANES or super().ready(plan, stores, waiting)

    def _run(
        self, plan: int, stores: list[int], waiting: list[int], back: list[int]
    ) -> frozenset[str]:
        """See `ExactRounds`."""
        if self.session.n > MOST_LANES:
            self.fetched = False
            return frozenset(ExactRounds._run(self, plan, stores, waiting, back))
        return super()._run(plan, stores, waiting, back)

    def has(self, shape: Shape) -> bool:
        """Whether it has been captured."""
        return shape in self.captured

    def play(self, shape: Shape) -> frozenset[str]:
        """A round of this shape; the first one is run, and captured for the next time."""
        if shape in self.captured:
            graph, unread = self.captured[shape]
            graph.replay()
            return unread
        play = super().play
        self.captured[shape] = self.capture(lambda: play(shape))
        return self.captured[shape][1]

    def fill(self, blocks: Blocks) -> None:
        """A prefill of this shape, likewise."""
        count = len(blocks.ids)
        if count in self.prefills:
            graph, inputs = self.prefills[count]
            for old, new in zip(inputs[:5], blocks[:5], strict=True):
                old.copy_(new)
            graph.replay()
        else:
            inputs = blocks.each(torch.clone)
            graph, _ = self.capture(lambda: self.session.prefill(inputs))
            self.prefills[count] = graph, inputs

    def capture(self, work: Callable[[], T]) -> tuple[torch.cuda.CUDAGraph, T]:
        """Do some work, and capture it for the next time."""
        forwards = self.session.forwards
        if isinstance(forwards, EagerForwards):
            forwards.length = self.session.cache.length
        try:
            result = work()
            torch.cuda.current_stream().synchronize()
            graph = torch.cuda.CUDAGraph()
            with capturing(graph, self.session.device, self.pool):
                work()
        finally:
            if isinstance(forwards, EagerForwards):
                forwards.length = None
        return graph, result


@contextlib.contextmanager
def capturing(
    graph: torch.cuda.CUDAGraph, device: torch.device, pool: Any = None
) -> Iterator[None]:
    """Capture what is done in here, undisturbed by what else goes on in the process.

    Other threads may use the device meanwhile, as long as it is not this work's memory; they would
    spoil a capture in torch's default mode. `pool`: memory shared with other graphs.
    """
    mode, stream = "thread_local", capture_stream(device)
    with (
        no_collection(),
        torch.cuda.graph(graph, pool=pool, stream=stream, capture_error_mode=mode),
    ):
        yield


@cache
def capture_stream(device: torch.device) -> torch.cuda.Stream:
    """The stream that captures: one for a device, since the library keeps memory for each."""
    return torch.cuda.Stream(device)


@contextlib.contextmanager
def no_collection() -> Iterator[None]:
    """Keep the garbage collector out: an old graph that is destroyed in here spoils a capture."""
    collecting = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collecting:
            gc.enable()


def power_of_two(count: int, most: int) -> int:
    """`count` rounded up to a power of two, at most `most`."""
    return min(most, 1 << (count - 1).bit_length())


def riders(count: int, most: int) -> int:
    """`count` rounded up to 0, 1, 4, 16, ..., at most `most`."""
    size = 1
    while size < count:
        size *= 4
    return min(size, most) if count else 0
