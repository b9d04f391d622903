"""Rounds of fixed shape, and their replay as CUDA graphs.

A shape is the number of lanes, the mode's plan, and how many finished blocks ride along. Lanes and
riders are rounded up, so that there are few shapes; lanes without a sample compute something that
nobody reads, and riders without a block point at the scratch lane. A round that is met for the
first time runs eagerly, which also compiles its kernels, and is captured right after.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from mrp.decoding.forwards import EagerForwards
from mrp.decoding.modes.base import Mode
from mrp.decoding.session import Session


class Shape(NamedTuple):
    """What a round's operations depend on; see `Session.round`."""

    lanes: int
    plan: int
    stores: int
    waiting: int
    flush: bool


class FixedRounds:
    """Runs the rounds of one mode on one session in rounded shapes, without a look at any data."""

    def __init__(self, session: Session, mode: Mode) -> None:
        self.session, self.mode = session, mode
        # Pinned on a GPU: copies from and to it need no wait; the one in `read` covers all.
        pinned = session.device.type == "cuda"
        self.lists = torch.empty((2, session.slots), dtype=torch.long, pin_memory=pinned)
        self.board = torch.empty(session.board.shape, dtype=torch.long, pin_memory=pinned)

    def run(self, plan: int, stores: list[int], waiting: list[int], flush: bool) -> frozenset[str]:
        """One round; see `Session.run`."""
        session = self.session
        targets = (session.store_lanes, session.waiting_lanes)
        counts = []
        for row, listed, target in zip(self.lists, (stores, waiting), targets, strict=True):
            count = riders(len(listed), session.slots)
            if count:
                row[:count] = torch.tensor(listed + [session.scratch] * (count - len(listed)))
                target[:count].copy_(row[:count], non_blocking=True)
            counts.append(count)
        return self.play(self.shape(plan, counts[0], counts[1], flush))

    def shape(self, plan: int, stores: int, waiting: int, flush: bool) -> Shape:
        """The shape of a round with so many blocks to store and to be read by the head."""
        slots = self.session.slots
        lanes = power_of_two(self.session.n, slots)
        return Shape(lanes, plan, riders(stores, slots), riders(waiting, slots), flush)

    def ready(self, shape: Shape) -> bool:
        """Whether a round of this shape takes no preparation."""
        return True

    def play(self, shape: Shape) -> frozenset[str]:
        """A round of this shape."""
        session = self.session
        used, session.n, session.exact = session.n, shape.lanes, False
        try:
            return frozenset(session.round(self.mode, *shape[1:]))
        finally:
            session.n, session.exact = used, True

    def read(self) -> Tensor:
        """The board of the lanes in use, [n, 3, B], on the host."""
        n = self.session.n
        self.board[:n].copy_(self.session.board[:n], non_blocking=True)
        if self.session.device.type == "cuda":
            torch.cuda.current_stream().synchronize()
        return self.board[:n]


class GraphRounds(FixedRounds):
    """Captures every shape of round once and replays it."""

    def __init__(self, session: Session, mode: Mode) -> None:
        super().__init__(session, mode)
        self.pool = torch.cuda.graph_pool_handle()
        self.captured: dict[Shape, tuple[torch.cuda.CUDAGraph, frozenset[str]]] = {}

    def ready(self, shape: Shape) -> bool:
        """Whether it has been captured."""
        return shape in self.captured

    def play(self, shape: Shape) -> frozenset[str]:
        """A round of this shape; the first one is run, and captured for the next time."""
        if shape in self.captured:
            graph, unread = self.captured[shape]
            graph.replay()
            return unread
        forwards = self.session.forwards
        if isinstance(forwards, EagerForwards):
            forwards.length = self.session.cache.length
        try:
            unread = super().play(shape)
            torch.cuda.current_stream().synchronize()
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph, pool=self.pool):
                super().play(shape)
        finally:
            if isinstance(forwards, EagerForwards):
                forwards.length = None
        self.captured[shape] = graph, unread
        return unread


def power_of_two(count: int, most: int) -> int:
    """`count` rounded up to a power of two, at most `most`."""
    return min(most, 1 << (count - 1).bit_length())


def riders(count: int, most: int) -> int:
    """`count` rounded up to 0, 1, 4, 16, ..., at most `most`."""
    size = 1
    while size < count:
        size *= 4
    return min(size, most) if count else 0
