"""Rounds of fixed shape and captured graphs give the samples of exact rounds, and all forwards
those of the plain ones."""

from __future__ import annotations

import gc
import threading
import weakref
from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from mrp.decoding import Decoded, Decoder, make_mode
from mrp.decoding.forwards import EagerForwards
from mrp.decoding.graphs import FixedRounds, power_of_two, riders
from mrp.decoding.history import blocks_back
from mrp.decoding.pace import KEEP, PLAIN, Pace
from mrp.decoding.packed import PackedForwards
from mrp.decoding.picks import Picks
from mrp.decoding.rounds import ExactRounds
from mrp.decoding.session import Session
from mrp.models import Backbone, Head
from tests.decoding.near_ties import matched
from tests.decoding.test_lossless import cases
from tests.tiny import tiny_backbone, tiny_head

ALL_MODES: tuple[tuple[str, dict[str, Any]], ...] = (
    ("static", {}),
    ("static", {"steps": 3}),
    ("dynamic", {"tau": 0.3}),
    ("direct", {"k": 1}),
    ("direct", {"k": 3}),
    ("direct", {"k": 3, "shortlist": 4}),
    ("direct", {"k": 2, "prefix": False}),
    ("speculative", {"k": 1}),
    ("speculative", {"k": 3}),
    ("speculative", {"k": 7}),
    ("speculative", {"k": 3, "shortlist": 2}),
    ("speculative", {"k": 3, "scale": 2.0, "prefix": False}),
    ("self_speculative", {"k": 2}),
    ("lattice", {"k": 3, "window": 2, "cap": 0.5}),
    ("lattice", {"k": 3, "window": 3, "ahead": True, "head_passes": 1}),
    ("lattice", {"k": 3, "budget": 6, "cap": 0.5}),
    ("self_lattice", {"k": 2, "window": 1, "ahead": True}),
    ("self_lattice", {"k": 3, "budget": 6, "ahead": True}),
    ("remask", {"tau": 0.2}),
    ("remask", {"tau": 0.2, "passes": "halves"}),
    ("remask", {"tau": 0.2, "passes": "halves", "rule": "residual", "prefix": False}),
    ("remask", {"tau": 0.2, "condition": "masked", "rule": "residual"}),
    ("factor", {"factor": 1.0}),
    ("entropy", {"gamma": 2.0}),
    ("klass", {"tau": 0.2, "kl": 0.5}),
    ("wino", {"tau": 0.15, "back": 0.4}),
    ("freedave", {"k": 2, "tau": 0.3}),
)
Case = tuple[Backbone, Head, list[list[int]], list[int], int, int]


def samples(
    backbone: Backbone,
    head: Head,
    prompts: list[list[int]],
    budgets: list[int],
    batch_size: int,
    mode: tuple[str, dict[str, Any]],
    **how: Any,
) -> list[Decoded]:
    decoder = Decoder(backbone, head, make_mode(mode[0], **mode[1]), batch_size, **how)
    return sorted(decoder.decode(prompts, budgets), key=lambda sample: sample.index)


def modes_of(block: int) -> list[tuple[str, dict[str, Any]]]:
    return [
        (name, options)
        for name, options in ALL_MODES
        if options.get("k", 1) < block and options.get("steps", 1) <= block
    ]


@given(cases(), st.data())
@settings(max_examples=60, deadline=None)
def test_fixed_shapes_and_plain_forwards_equal_exact_and_packed_ones(
    case: Case, data: st.DataObject
) -> None:
    backbone, head, prompts, budgets, batch_size, _ = case
    mode = data.draw(st.sampled_from(modes_of(backbone.config.block_size)))

    def decode(**how: Any) -> list[Decoded]:
        return samples(backbone, head, prompts, budgets, batch_size, mode, **how)

    assert PackedForwards.suits(backbone)
    packed = decode()
    for others in (decode(rounds="fixed"), decode(choose=EagerForwards)):
        matched(packed, others, lambda choose: decode(choose=choose))


@pytest.mark.parametrize(("apart", "tied"), [(1e-6, True), (1e-3, False)])
def test_samples_may_part_at_a_near_tie_alone(apart: float, tied: bool) -> None:
    """Dynamic decoding with thresholds below and above a confidence that occurs."""
    backbone, prompts, budgets = tiny_backbone(3, ends=False), [[5, 6, 7], [8] * 9], [30, 20]
    seen: list[Picks] = []

    class Watched(PackedForwards):
        def pick(self, hidden: torch.Tensor, masked: torch.Tensor) -> Picks:
            seen.append(super().pick(hidden, masked))
            return seen[-1]

    def dynamic(tau: float, choose: Any = None) -> list[Decoded]:
        mode = ("dynamic", {"tau": tau})
        return samples(backbone, tiny_head(backbone), prompts, budgets, 2, mode, choose=choose)

    dynamic(0.9, choose=Watched)
    best, second = seen[0].confidence[1].sort(descending=True).values[:2].tolist()
    assert best > 1.01 * second  # so it is revealed, and the second beside it or not
    below, above = (dynamic(second * (1 + sign * apart)) for sign in (-1, 1))
    assert below[0] == above[0]
    assert below[1] != above[1]
    again = partial(dynamic, second * (1 + apart))
    if tied:
        assert matched(below, above, again) == below
    else:
        with pytest.raises(AssertionError, match=r"no near tie, by number: \{1:"):
            matched(below, above, again)


def test_a_decoder_can_be_used_again_and_grows() -> None:
    backbone = tiny_backbone(4, ends=False)
    head = tiny_head(backbone)
    decoder = Decoder(backbone, head, make_mode("speculative", k=3), batch_size=3)
    for prompts, budget in (([[5, 6]], 9), ([[7] * 30, [8], [9], [3, 4]], 40), ([[5, 6]], 9)):
        fresh = Decoder(backbone, head, make_mode("speculative", k=3), batch_size=3)
        key = [sorted(d.decode(prompts, budget), key=lambda s: s.index) for d in (decoder, fresh)]
        assert key[0] == key[1]
    half = decoder.decode([[5], [6], [7], [8]], [3, 60, 60, 60])
    next(half)
    del half  # dropped in the middle
    assert next(iter(decoder.decode([[5, 6]], 9))) == key[0][0]


@pytest.mark.parametrize("rounds", ["exact", "fixed"])
@pytest.mark.parametrize("mode", ["direct", "speculative"])
def test_what_is_outgrown_or_dropped_is_freed_without_the_garbage_collector(
    mode: str, rounds: Any, no_garbage_collection: None
) -> None:
    """Its caches would stand beside the new ones, its graphs be destroyed at any time."""
    backbone = tiny_backbone(4, ends=False)
    k: Any = 2 if mode == "direct" else "auto"
    decoder = Decoder(backbone, tiny_head(backbone), make_mode(mode, k=k), 2, rounds=rounds)
    sessions = []
    for length in (9, 40):
        list(decoder.decode([[5, 6], [7]], length))
        sessions.append(weakref.ref(decoder.reserve([[5, 6], [7]], length).session))
    assert [session() is None for session in sessions] == [True, False]
    del decoder
    assert sessions[1]() is None


@pytest.fixture
def no_garbage_collection() -> Iterator[None]:
    gc.disable()
    yield
    gc.enable()


def test_a_prompt_longer_than_one_prefill() -> None:
    backbone = tiny_backbone(1, block_size=2, ends=False)
    prompt = torch.randint(3, 24, (1100,), generator=torch.Generator().manual_seed(0)).tolist()
    runs = [
        samples(
            backbone, tiny_head(backbone), [prompt, [5]], [6, 6], 2, ("direct", {"k": 1}), **how
        )
        for how in ({}, {"rounds": "fixed"}, {"choose": EagerForwards})
    ]
    assert runs[0] == runs[1] == runs[2]


@torch.inference_mode()
def test_a_prefill_of_rounded_length_stores_what_one_of_its_own_does() -> None:
    """Prompts of 1, 3, 5 and 33 blocks, lanes taken over from others before them."""
    backbone = tiny_backbone(1, block_size=2, ends=False)
    draw = torch.Generator().manual_seed(0)
    prompts = [torch.randint(3, 24, (2 * n + 1,), generator=draw).tolist() for n in (1, 3, 5, 33)]
    sessions = []
    for rounds in ("exact", "fixed"):
        mode = make_mode("speculative", k=1)
        decoder = Decoder(backbone, tiny_head(backbone), mode, 2, rounds=rounds)
        ready = decoder.reserve([[5] * 70, [5]], 4)
        for prompt in prompts:
            ready.admit([1, 0], [prompt, prompts[0]])
        sessions.append(ready.session)
    for exact, fixed in zip(*sessions_caches(sessions), strict=True):
        torch.testing.assert_close(exact[:2], fixed[:2], rtol=0.0, atol=1e-5)


@pytest.mark.parametrize(
    "rounds",
    [
        "exact",
        "fixed",
        pytest.param(
            "graphs",
            marks=[
                pytest.mark.gpu,
                pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
            ],
        ),
    ],
)
@pytest.mark.parametrize("alone", [False, True])
def test_the_head_catches_up_on_blocks_it_was_not_given(
    rounds: Any, alone: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Plain steps over several blocks, then drafts: its prefix is that of drafts all the time.

    Also where no round may be captured that its reading could ride along in.
    """
    backbone = tiny_backbone(5, ends=False)
    head = tiny_head(backbone)
    if rounds == "graphs":
        backbone, head = backbone.cuda(), head.cuda()
    prompts, budgets = [[5] * 9, [6, 7], [8] * 17], [60, 60, 50]
    if alone:
        monkeypatch.setattr(FixedRounds, "has", lambda self, shape: not shape.waiting)
        monkeypatch.setattr(ExactRounds, "ready", lambda self, plan, stores, waiting: not waiting)
        monkeypatch.setattr(Pace, "affords", lambda self, kind: False)
    sessions, texts = [], []
    for k in (2, "auto"):
        decoder = Decoder(backbone, head, make_mode("speculative", k=k), 3, rounds=rounds)
        number = iter(range(1000))

        def choose(pace: Pace, open_: list[int], fresh: list[bool], number: Any = number) -> int:
            at = next(number)
            if at % 40 < 30:
                return PLAIN
            return KEEP if any(fresh) else min(2, max(open_) - 1)

        monkeypatch.setattr(Pace, "choose", choose)
        sessions.append(decoder.reserve(prompts, 60).session)
        found = sorted(decoder.decode(prompts, budgets), key=lambda sample: sample.index)
        texts.append([sample.ids for sample in found])
        assert sum(sample.counts["proposed"] for sample in found) > 0
    assert texts[0] == texts[1]
    for caches in zip(*sessions_caches(sessions), strict=True):
        for lane, read in enumerate((32, 16, 32)):
            torch.testing.assert_close(*(c[lane, :read] for c in caches), rtol=0.0, atol=1e-4)


@pytest.mark.parametrize("k", [1, 2, "auto"])
def test_no_list_is_written_again_before_its_copy_was_surely_made(
    k: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a GPU the copies of rounds that queue up may all be made as late as the next look."""
    backbone = tiny_backbone(5, ends=False)
    queued: list[tuple[torch.Tensor, torch.Tensor]] = []  # what a copy reads, and is to find there
    put, read, rounds = FixedRounds._list, FixedRounds.read, [0]

    class Buffer:
        def __init__(self, buffer: torch.Tensor) -> None:
            self.buffer = buffer

        def __getitem__(self, where: slice) -> Buffer:
            return Buffer(self.buffer[where])

        def copy_(self, source: torch.Tensor, non_blocking: bool) -> None:
            queued.append((source, source.clone()))
            self.buffer.copy_(source)

    def listed(self: FixedRounds, *lists: Any) -> None:
        put(self, *((numbers, Buffer(buffer)) for numbers, buffer in lists))
        rounds[0] += 1
        assert all(torch.equal(source, value) for source, value in queued)

    def looked(self: FixedRounds) -> Any:
        queued.clear()
        return read(self)

    monkeypatch.setattr(FixedRounds, "_list", listed)
    monkeypatch.setattr(FixedRounds, "read", looked)
    if k == "auto":
        plans = iter([PLAIN, KEEP, 2, 2, 1] * 1000)
        monkeypatch.setattr(Pace, "choose", lambda pace, open_, fresh: next(plans))
    decoder = Decoder(
        backbone, tiny_head(backbone), make_mode("speculative", k=k), 3, rounds="fixed"
    )
    prompts = [[5] * 9, [6, 7], [8] * 17, [9] * 4, [5, 6, 7]]
    assert len(list(decoder.decode(prompts, [60, 60, 50, 20, 40]))) == len(prompts)
    assert rounds[0] > 5


@given(st.lists(st.integers(0, 3)), st.sets(st.integers(0, 3)))
def test_blocks_that_wait_are_counted_back_from_the_current_one(
    waiting: list[int], stores: set[int]
) -> None:
    back = blocks_back(waiting, sorted(stores))
    for lane in range(4):
        of_lane = [b for b, each in zip(back, waiting, strict=True) if each == lane]
        newest = 1 + (lane in stores)
        assert of_lane == list(range(newest, newest + len(of_lane)))[::-1]


def sessions_caches(sessions: list[Session]) -> list[list[torch.Tensor]]:
    """Keys and values of every session, the head's last."""
    found = []
    for session in sessions:
        assert session.head_cache is not None
        caches = (session.cache, session.head_cache)
        found.append([stored for cache in caches for stored in (*cache.keys, *cache.values)])
    return found


def test_all_logits_equal() -> None:
    """Ties everywhere: lowest token, lowest position, in every mode and kind of round."""
    backbone = tiny_backbone(ends=False)
    with torch.no_grad():
        backbone.model.norm.weight.fill_(0.0)
    head = tiny_head(backbone)
    with torch.no_grad():
        head.norm.weight.fill_(0.0)
    for mode in ALL_MODES:
        if mode == ("direct", {"k": 3, "shortlist": 4}):
            continue  # which of equally likely tokens are listed is open
        for how in ({}, {"rounds": "fixed"}):
            (sample,) = samples(backbone, head, [[5, 6, 7]], [20], 1, mode, **how)
            assert sample.trace.ids == [0] * 21
            if mode[0] in ("static", "speculative", "self_speculative", "direct") and not (
                mode[1].get("steps")
            ):
                assert sample.trace.step[:5] == sorted(sample.trace.step[:5])


def test_shapes_are_rounded_up() -> None:
    assert [power_of_two(n, 12) for n in (1, 2, 3, 5, 8, 9, 12)] == [1, 2, 4, 8, 8, 12, 12]
    assert [riders(n, 12) for n in (0, 1, 2, 4, 5, 12)] == [0, 1, 4, 4, 12, 12]


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize(
    "mode", ALL_MODES, ids=lambda mode: "-".join(map(str, (mode[0], *mode[1].values())))
)
def test_graphs_equal_eager_on_a_gpu_and_both_equal_the_cpu(
    mode: tuple[str, dict[str, Any]],
) -> None:
    generator = torch.Generator().manual_seed(7)
    prompts = [
        torch.randint(3, 24, (int(length),), generator=generator).tolist()
        for length in torch.randint(1, 40, (9,), generator=generator)
    ]
    budgets = [5, 30, 17, 1, 64, 8, 33, 20, 12]
    backbone = tiny_backbone(3, ends=False)
    head = tiny_head(backbone)
    on_cpu = samples(backbone, head, prompts, budgets, 4, mode)
    there = backbone.cuda(), head.cuda()
    eager = samples(*there, prompts, budgets, 4, mode, rounds="exact", choose=EagerForwards)
    assert on_cpu == eager
    for how in ({}, {"choose": EagerForwards}, {"rounds": "exact"}):
        assert samples(*there, prompts, budgets, 4, mode, **how) == eager


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_old_graphs_that_become_garbage_do_not_spoil_a_capture(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Every round and prefill, captured ones too, leaves a dead cycle with a graph in it.

    The collector is as eager as can be, so that it would come in the middle of each capture.
    """
    backbone = tiny_backbone(3, ends=False).cuda()
    head = tiny_head(backbone).cuda()
    prompts, budgets = [[5] * 9, [6, 7], [8] * 17], [30, 12, 20]
    mode = ("speculative", {"k": 3})
    expected = samples(backbone, head, prompts, budgets, 2, mode, rounds="exact")
    value, graphs = torch.zeros(1, device="cuda"), []
    for _ in range(200):
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            value += 1
        graphs.append(graph)
    del graph

    def leave_garbage() -> None:
        if graphs:
            cycle: list[Any] = [graphs.pop()]
            cycle.append(cycle)

    in_captures = []
    for name in ("round", "prefill"):
        work = getattr(Session, name)

        def littered(session: Session, *args: Any, work: Any = work) -> Any:
            leave_garbage()
            in_captures.append(torch.cuda.is_current_stream_capturing())
            try:
                return work(session, *args)
            finally:
                leave_garbage()

        monkeypatch.setattr(Session, name, littered)
    threshold = gc.get_threshold()
    gc.set_threshold(1, 1, 1)
    try:
        for _ in range(2):  # a decoder of its own each time: the first one becomes garbage, too
            assert samples(backbone, head, prompts, budgets, 2, mode, rounds="graphs") == expected
    finally:
        gc.set_threshold(*threshold)
    assert sum(in_captures) > 4
    assert gc.isenabled()


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_another_thread_may_use_the_device_during_a_capture() -> None:
    backbone = tiny_backbone(3, ends=False).cuda()
    head = tiny_head(backbone).cuda()
    mode = ("speculative", {"k": 2})
    case = (backbone, head, [[5] * 9, [6, 7]], [20, 12], 2, mode)
    expected = samples(*case, rounds="exact")
    done, faults = threading.Event(), []

    def disturb() -> None:
        stream = torch.cuda.Stream()
        try:
            while not done.is_set():
                event = torch.cuda.Event()
                event.record(stream)
                event.query()
        except RuntimeError as error:
            faults.append(error)

    thread = threading.Thread(target=disturb)
    thread.start()
    try:
        assert samples(*case, rounds="graphs") == expected
    finally:
        done.set()
        thread.join()
    assert not faults


@pytest.mark.gpu
@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two CUDA devices")
def test_decoding_takes_place_where_the_models_are() -> None:
    """On a GPU that is not the current one, after one that is."""
    case = ([[5] * 9, [6, 7], [8] * 17], [30, 12, 20], 2, ("speculative", {"k": 3}))
    found = []
    for device in ("cuda:0", "cuda:1"):
        backbone = tiny_backbone(3, ends=False)
        head = tiny_head(backbone)
        backbone, head = backbone.to(device), head.to(device)
        found.append(samples(backbone, head, *case))
        assert torch.cuda.current_device() == 0
    assert found[0] == found[1]
