"""The host's side of decoding: lanes that close up, looks at the device, and when results come."""

from __future__ import annotations

from collections import Counter, deque
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from mrp.decoding import Decoder, make_mode
from mrp.decoding.batch import Batch
from mrp.decoding.pace import Pace
from mrp.decoding.rounds import ExactRounds
from mrp.decoding.sample import Sample
from tests.decoding.test_rounds import ALL_MODES
from tests.tiny import tiny_backbone, tiny_head

N = 9


@given(st.sets(st.integers(0, N - 1)), st.lists(st.integers(0, N - 1)))
def test_gaps_are_closed_by_one_move(vacant: set[int], waiting: list[int]) -> None:
    """Whatever lanes are left, each sample keeps all that is known of it."""
    device = list(range(N))  # which sample each lane of the session holds
    moves = []

    def move(sources: list[int], targets: list[int]) -> None:
        moves.append((sources, targets))
        assert not set(sources) & set(targets)
        for source, target in zip(sources, targets, strict=True):
            device[target] = device[source]

    config = SimpleNamespace(eos_token_ids=())
    session = SimpleNamespace(move=move, model=SimpleNamespace(config=config), slots=N, n=N)
    batch = Batch(SimpleNamespace(session=session, mode=None), Pace())  # type: ignore[arg-type]
    batch.samples = [Sample(index, [5], 4, 8) for index in range(N)]
    batch.open, batch.sure = list(range(N)), list(range(N))
    batch.before, batch.fresh = list(range(N)), [True] * N
    batch.vacant = list(vacant)
    left = set(range(N)) - vacant
    batch.stores, batch.waiting = list(left), [lane for lane in waiting if lane in left]
    assert batch.fill(deque(), []) == bool(left)
    indices = [sample.index for sample in batch.samples]
    assert set(indices) == left
    assert indices == batch.open == batch.sure == batch.before == device[: session.n]
    assert [indices[lane] for lane in batch.stores] == list(left)
    assert [indices[lane] for lane in batch.waiting] == [w for w in waiting if w in left]
    assert len(moves) <= 1
    assert sum(len(targets) for _, targets in moves) == len(vacant & set(range(len(left))))


def test_a_round_has_as_many_looks_for_many_samples_as_for_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each is a wait for the device: what a sample ends with is read with all others'."""
    looks: Counter[str] = Counter()

    def counted(name: str) -> Any:
        plain = getattr(torch.Tensor, name)

        def look(self: torch.Tensor, *args: Any, **how: Any) -> Any:
            looks[name] += 1
            return plain(self, *args, **how)

        return look

    backbone = tiny_backbone(3, ends=False)
    for name in ("tolist", "item", "cpu", "__bool__"):  # forwards on a CPU take an `int()`
        monkeypatch.setattr(torch.Tensor, name, counted(name))
    counts = []
    for lanes in (1, 12):
        looks.clear()
        decoder = Decoder(backbone, None, make_mode("static"), lanes, rounds="fixed")
        assert len(list(decoder.decode([[5, 6, 7]] * lanes, 20))) == lanes
        counts.append(dict(looks))
    assert counts[0] == counts[1]


def test_results_come_while_the_next_round_is_under_way(monkeypatch: pytest.MonkeyPatch) -> None:
    happened = []
    run, read = ExactRounds.run, ExactRounds.read

    def noted(self: ExactRounds, *args: Any) -> Any:
        happened.append("round")
        return run(self, *args)

    def seen(self: ExactRounds) -> Any:
        happened.append("look")
        return read(self)

    monkeypatch.setattr(ExactRounds, "run", noted)
    monkeypatch.setattr(ExactRounds, "read", seen)
    decoder = Decoder(tiny_backbone(3, ends=False), None, make_mode("static"), 2)
    for sample in decoder.decode([[5, 6], [7], [8]], [6, 30, 6]):
        happened.append(f"sample {sample.index}")
    places = [happened.index(f"sample {index}") for index in (0, 2)]
    assert [happened[place - 2 : place] for place in places] == [["look", "round"]] * 2
    assert happened[-2:] == ["look", "sample 1"]


@pytest.mark.parametrize("mode", ALL_MODES, ids=str)
def test_a_round_reveals_as_many_tokens_as_its_mode_says(
    mode: tuple[str, dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The host trusts that, and looks at the device only when a block may be finished."""
    backbone = tiny_backbone(3, ends=False, block_size=8)
    head = tiny_head(backbone)
    decoder = Decoder(backbone, head, make_mode(mode[0], **mode[1]), 3)
    rounds = looks = 0
    run, read = ExactRounds.run, ExactRounds.read

    def checked(self: ExactRounds, plan: int, stores: list[int], *rest: Any) -> Any:
        nonlocal rounds
        rounds += 1
        session = self.session
        before = session.masked().sum(dim=1)
        before[[lane for lane in stores if lane < session.n]] = session.block_size
        result = run(self, plan, stores, *rest)
        bounds, gained = decoder.mode.reveals(plan), before - session.masked().sum(dim=1)
        if bounds is not None:
            assert (gained >= before.clamp(max=bounds[0])).all()
            assert (gained <= bounds[1]).all()
        return result

    def counted(self: ExactRounds) -> Any:
        nonlocal looks
        looks += 1
        return read(self)

    monkeypatch.setattr(ExactRounds, "run", checked)
    monkeypatch.setattr(ExactRounds, "read", counted)
    assert len(list(decoder.decode([[5, 6], [7] * 9, [8], [9] * 8], [30, 20, 6, 40]))) == 4
    assert looks < rounds if decoder.mode.reveals(0) else looks == rounds
