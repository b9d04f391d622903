"""A device that decodes nothing but takes time as a real one does, for `k: auto` and static.

The real loop (`Batch`) runs on it, with a clock that only moves when something is done: rounds that
were launched queue up behind each other, a look waits for all of them and then costs the host
something, a round of a new shape is compiled and captured, and so on.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Sequence, Set
from dataclasses import dataclass
from types import SimpleNamespace
from unittest import mock

import torch

from mrp.decoding.batch import Batch
from mrp.decoding.graphs import power_of_two, riders
from mrp.decoding.lanes import TALLY
from mrp.decoding.modes import Mode, make_mode
from mrp.decoding.pace import Pace, lanes_size
from mrp.decoding.sample import Sample

BLOCK, MASK, TOKEN = 16, 9, 5


@dataclass(frozen=True)
class Costs:
    """What a machine takes, in milliseconds.

    rounds: of a plain step, of one that keeps, of one with 1, 2, ... drafts, on the device; `more`:
    of each further lane, as a share. launch: of a round, on the host. look: at the device. capture:
    of a new shape, whose first replay takes `replay` longer. compiling: for a number of rows met
    first, a third of it for a plan. catch_up: the head's reading of what waits for it. noise: how
    far a round may take longer, as a share; hiccup: by how much one in 50 does.
    """

    rounds: Sequence[float]
    more: Sequence[float]
    launch: float = 0.03
    look: float = 0.06
    capture: float = 0.0
    compiling: float = 0.0
    replay: float = 0.0
    catch_up: float = 0.0
    noise: float = 0.02
    hiccup: float = 0.0

    def of(self, plan: int, lanes: int) -> float:
        """A round of so many lanes."""
        return self.rounds[plan + 1] * (1 + self.more[plan + 1] * (lanes - 1))


MACHINES = {  # as measured on an H200, but for preparations, and on a CPU
    "8b": Costs(
        rounds=(4.42, 4.44, 4.95, 5.4, 5.9, 6.5),
        more=(0.05, 0.05, 0.11, 0.18, 0.25, 0.33),
        look=0.12,
        capture=200,
        compiling=1500,
        replay=1.5,
        catch_up=2.0,
        hiccup=1.0,
        noise=0.005,
    ),
    "1.7b": Costs(
        rounds=(1.36, 1.38, 1.75, 1.95, 2.2, 2.45),
        more=(0.05, 0.05, 0.1, 0.15, 0.2, 0.25),
        look=0.1,
        capture=120,
        compiling=700,
        replay=1.0,
        catch_up=1.5,
        hiccup=1.0,
    ),
    "tiny": Costs(
        rounds=(0.062, 0.065, 0.18, 0.23, 0.28, 0.33),
        more=(0.04, 0.04, 0.04, 0.04, 0.05, 0.05),
        launch=0.06,
        look=0.1,
        capture=8,
        compiling=300,
        replay=0.6,
        catch_up=0.8,
        noise=0.05,
        hiccup=0.05,
    ),
    "cpu": Costs(
        rounds=(1.9, 2.0, 4.4, 6.4, 8.4, 10.4),
        more=(0.35, 0.35, 0.45, 0.5, 0.5, 0.5),
        launch=0.0,
        look=0.02,
        catch_up=8.0,
        noise=0.1,
    ),
}


class Device:
    """Stands for a session and the rounds run on it; `seconds` is the clock.

    It is one mode's, and keeps what was captured and learnt of the pace between calls, as
    `mrp.speed.paired.kept` has it.
    """

    def __init__(self, mode: Mode, costs: Costs, slots: int, acceptance: float, seed: int) -> None:
        self.mode, self.pace = mode, Pace()
        self.costs, self.slots, self.acceptance = costs, slots, acceptance
        self.rng = random.Random(seed)
        self.seconds, self.busy_until = 0.0, 0.0
        self.met: set[object] = set()
        # What `Batch` asks a session for.
        self.session, self.n, self.head, self.mask_id = self, 0, None, MASK
        self.model = SimpleNamespace(config=SimpleNamespace(eos_token_ids=()))
        self.board = torch.full((slots, 3, BLOCK), MASK)
        self.open, self.kept = [0] * slots, [False] * slots

    def decode(self, chunk: Sequence[list[int]], budgets: Sequence[int]) -> float:
        """Decode, and return the seconds it took."""
        queue = deque(
            Sample(i, prompt, budget, BLOCK)
            for i, (prompt, budget) in enumerate(zip(chunk, budgets, strict=True))
        )
        begin = self.seconds = max(self.seconds, self.busy_until)
        with mock.patch("mrp.decoding.batch.time.perf_counter", self.clock):
            batch = Batch(self, self.pace)  # type: ignore[arg-type]
            while batch.fill(queue, chunk):
                batch.round()
                batch.settle(None)
        return max(self.seconds, self.busy_until) - begin

    def clock(self) -> float:
        return self.seconds

    def move(self, sources: Sequence[int], targets: Sequence[int]) -> None:
        for source, target in zip(sources, targets, strict=True):
            self.board[target] = self.board[source]
            self.open[target], self.kept[target] = self.open[source], self.kept[source]

    # What `Batch` asks its rounds for.

    def admit(self, lanes: Sequence[int], prompts: Sequence[list[int]]) -> None:
        for lane, prompt in zip(lanes, prompts, strict=True):
            self._open(lane, BLOCK - len(prompt) % BLOCK)
        self.seconds = max(self.seconds, self.busy_until) + 0.3e-3

    def _open(self, lane: int, count: int) -> None:
        self.board[lane, 0] = TOKEN
        self.board[lane, 0, :count] = MASK
        self.open[lane], self.kept[lane] = count, False

    def shape(self, plan: int, stores: Sequence[int], waiting: Sequence[int]) -> tuple[int, ...]:
        read = len(waiting) if plan > 0 and len(waiting) <= self.slots else 0
        size = power_of_two(self.n, self.slots)
        return size, plan, riders(len(stores), self.slots), riders(read, self.slots)

    def ready(self, plan: int, stores: Sequence[int], waiting: Sequence[int]) -> bool:
        return not self.costs.capture or self.shape(plan, stores, waiting) in self.met

    def run(self, plan: int, stores: Sequence[int], waiting: Sequence[int]) -> Set[str]:
        costs = self.costs
        shape = self.shape(plan, stores, waiting)
        took = costs.of(-1 if self.mode.name == "static" else plan, self.n) * (
            1 + costs.noise * 2 * self.rng.random() ** 2
        )
        if self.rng.random() < 0.02:
            took += costs.hiccup
        if shape not in self.met and costs.capture:
            self.seconds = max(self.seconds, self.busy_until)
            self.seconds += self._first(shape, costs.capture)
            rows = "rows", lanes_size(shape[0] * (1 + max(0, plan)))
            self.seconds += self._first(rows, costs.compiling)
            self.seconds += self._first(plan, costs.compiling / 3)
        elif costs.capture:
            took += 1e3 * self._first(("replay", *shape), costs.replay)
        self.seconds += 1e-3 * costs.launch
        self.busy_until = max(self.busy_until, self.seconds) + 1e-3 * took
        for lane in stores:
            self._open(lane, BLOCK)
        for lane in range(self.n):
            gained, most = 1, min(plan, self.open[lane] - 1) if self.kept[lane] else 0
            while gained <= most and self.rng.random() < self.acceptance:
                gained += 1
            left = self.open[lane] - gained
            self.board[lane, 0, left : left + gained] = TOKEN
            self.open[lane], self.kept[lane] = left, plan >= 0
        return {"waiting", "stores"} if plan <= 0 and self.mode.needs_head else set()

    def catch_up(self, waiting: Sequence[int]) -> None:
        rows = "rows of the head", lanes_size(len(waiting))
        self.seconds += 1e-3 * self.costs.catch_up + self._first(rows, self.costs.compiling / 3)

    def read(self) -> tuple[torch.Tensor, torch.Tensor]:
        self.seconds = max(self.seconds, self.busy_until) + 1e-3 * self.costs.look
        return self.board[: self.n].clone(), torch.zeros(self.n, len(TALLY), dtype=torch.long)

    def _first(self, what: object, took: float) -> float:
        """Seconds of what is only done once."""
        new = what not in self.met
        self.met.add(what)
        return new * took * 1e-3


def bench(
    costs: Costs,
    lanes: int,
    acceptance: float,
    *,
    ragged: bool = False,
    k: int | str = "auto",
) -> float:
    """As `mrp bench`: tokens/s over static's, after three warm-ups over all chunks.

    One chunk of prompts and answers of one length, so that lanes are in step, or where `ragged` two
    of any length.
    """
    rng = random.Random(0)
    work = []
    for _ in range(2 if ragged else 1):
        lengths = [rng.randrange(16, 32) if ragged else 32 for _ in range(lanes)]
        answers = [rng.randint(24, 96) if ragged else 128 for _ in lengths]
        work.append(([[1] * length for length in lengths], answers))
    seconds = []
    for seed, mode in enumerate((make_mode("static"), make_mode("speculative", k=k))):
        device = Device(mode, costs, lanes, acceptance, seed)
        for chunk in 3 * work:
            device.decode(*chunk)
        seconds.append(sum(device.decode(*chunk) for chunk in 4 * work))
    return seconds[0] / seconds[1]
