from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch

from mrp.decoding import Decoded, Trace, make_mode
from mrp.errors import UserError
from mrp.speed import interleave as module
from mrp.speed import paired_speeds
from mrp.speed.interleave import Chunk, cut, interleave
from tests.tiny import tiny_backbone

PROMPTS = [[3] * length for length in (100, 5, 6, 7, 8)]


class Bench:
    """A clock and a decoder that takes known seconds and gives known token counts."""

    def __init__(self, seconds: dict[str, float], tokens: dict[str, int]) -> None:
        self.now = 1000.0
        self.seconds, self.tokens = seconds, tokens
        self.calls: list[tuple[str, int]] = []

    def clock(self) -> float:
        return self.now

    def decode(
        self, backbone: Any, head: Any, prompts: Any, mode: Any, budget: int, batch_size: int
    ) -> Iterator[Decoded]:
        assert mode.name != "static" or head is None
        self.calls.append((mode.name, len(prompts)))
        for index in range(len(prompts)):
            self.now += self.seconds[mode.name]
            counts = {"answer_tokens": self.tokens[mode.name], "generated": 10_000}
            yield Decoded(index, [], True, counts, Trace([], [], [], []))


def measure(bench: Bench, prompts: list[list[int]] = PROMPTS, **changes: Any) -> dict[str, Any]:
    settings = {"max_new_tokens": 16, "batch_size": 2, "repeats": 2, "seed": 0, **changes}
    mode = make_mode("dynamic", tau=0.5)
    speeds = paired_speeds(
        *(tiny_backbone(), None, mode, {"task": prompts}),
        decoder=bench.decode,
        clock=bench.clock,
        **settings,
    )
    return speeds["task"]


@pytest.mark.parametrize(
    ("seconds", "tokens", "ratio"),
    [
        ({"static": 3.0, "dynamic": 2.0}, {"static": 20, "dynamic": 20}, 1.5),
        ({"static": 2.0, "dynamic": 4.0}, {"static": 20, "dynamic": 20}, 0.5),  # never clipped
        ({"static": 2.0, "dynamic": 1.0}, {"static": 20, "dynamic": 10}, 1.0),
    ],
)
def test_the_ratio_is_exact(
    seconds: dict[str, float], tokens: dict[str, int], ratio: float
) -> None:
    result = measure(Bench(seconds, tokens))
    assert result["ratio"] == pytest.approx(ratio)
    assert result["low"] == pytest.approx(ratio)
    assert result["high"] == pytest.approx(ratio)


def test_only_answer_tokens_count() -> None:
    """A prompt of 100 tokens and an answer of 20 in 2 seconds make 10 tokens/s, not 60."""
    bench = Bench({"static": 2.0, "dynamic": 2.0}, {"static": 20, "dynamic": 20})
    result = measure(bench, PROMPTS[:1])
    assert result["static_tokens_per_second"] == pytest.approx(10.0)
    assert result["tokens_per_second"] == pytest.approx(10.0)


def test_warm_up_has_the_timed_shapes_and_the_order_alternates() -> None:
    bench = Bench({"static": 1.0, "dynamic": 1.0}, {"static": 8, "dynamic": 8})
    result = measure(bench)
    both = ["static", "dynamic"]
    warm_up = [(mode, size) for size in (2, 1) for mode in both]
    first = [(mode, size) for size in (2, 2, 1) for mode in both]
    second = [(mode, size) for size in (2, 2, 1) for mode in both[::-1]]
    assert bench.calls == warm_up + first + second
    assert result["warmups"] == 2
    assert result["pairs"] == 6
    assert result["prompts"] == 5


@pytest.mark.parametrize("adapts", [False, True])
def test_on_a_gpu_every_chunk_is_met_before_it_is_timed(
    adapts: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What adapts gets three passes; what does not has captured all in one, and is warm by few."""
    monkeypatch.setattr(module, "synchronize", lambda device: None)
    chunks = cut(PROMPTS, 2)
    seen: list[tuple[str, int]] = []

    def contender(name: str) -> Any:
        def decode(chunk: Chunk) -> list[Decoded]:
            seen.append((name, len(chunk[0])))
            return [Decoded(0, [], True, {"answer_tokens": 1}, Trace([], [], [], []))]

        return decode

    found = interleave(
        {name: contender(name) for name in ("graphs", "eager")},
        chunks,
        *(1, torch.device("cuda")),
        plain=("eager",),
        adapts=adapts,
    )
    every = [len(chunk[0]) for chunk in chunks]
    later = every * 2 if adapts else [every[0], every[2]]  # two prompts, and one
    both = [(name, length) for length in every for name in found]
    assert seen == both + [("graphs", length) for length in later] + both
    assert len(found["graphs"].cold) == 3 + len(later)
    assert len(found["eager"].cold) == 3


def test_a_cold_start_stays_out_of_the_ratio() -> None:
    bench = Bench({"static": 1.0, "dynamic": 1.0}, {"static": 8, "dynamic": 8})
    slow_start = bench.decode

    def decode(*args: Any) -> Iterator[Decoded]:
        bench.now += 100.0 if len(bench.calls) < 2 else 0.0
        return slow_start(*args)

    bench.decode = decode  # type: ignore[method-assign]
    result = measure(bench, PROMPTS[:4])
    assert result["ratio"] == pytest.approx(1.0)
    assert result["cold_tokens_per_second"] < result["tokens_per_second"]


def test_the_interval_holds_the_ratio_and_is_seeded() -> None:
    class Noisy(Bench):
        def decode(self, *args: Any) -> Iterator[Decoded]:
            self.now += len(self.calls) % 3
            return super().decode(*args)

    def run(seed: int) -> dict[str, Any]:
        bench = Noisy({"static": 3.0, "dynamic": 2.0}, {"static": 8, "dynamic": 8})
        return measure(bench, PROMPTS, repeats=4, seed=seed)

    assert run(0) == run(0)
    assert run(0)["low"] <= run(0)["ratio"] <= run(0)["high"]
    assert run(0)["low"] < run(0)["high"]


def test_a_single_pair_has_no_interval() -> None:
    bench = Bench({"static": 2.0, "dynamic": 1.0}, {"static": 8, "dynamic": 8})
    result = measure(bench, PROMPTS[:2], repeats=1)
    assert (result["ratio"], result["low"], result["high"]) == (pytest.approx(2.0), None, None)


@pytest.mark.parametrize("change", [{"prompts": []}, {"repeats": 0}, {"batch_size": 0}])
def test_nothing_to_measure(change: dict[str, Any]) -> None:
    bench = Bench({"static": 2.0, "dynamic": 1.0}, {"static": 8, "dynamic": 8})
    with pytest.raises(UserError, match="at least 1"):
        measure(bench, **change)


def test_real_decoding() -> None:
    backbone = tiny_backbone()
    mode = make_mode("self_speculative", k=2)
    prompts = {"some": PROMPTS[1:4], "others": PROMPTS[:1]}
    speeds = paired_speeds(backbone, None, mode, prompts, 12, batch_size=2, repeats=1)
    assert [(task, speed["pairs"]) for task, speed in speeds.items()] == [
        ("some", 2),
        ("others", 1),
    ]
    assert all(speed["ratio"] > 0 and speed["device"] == "cpu" for speed in speeds.values())


def test_every_task_has_its_own_calls() -> None:
    """Timed together: a task that the mode is slow on does not touch the other's ratio."""

    class Uneven(Bench):
        def decode(self, *args: Any) -> Iterator[Decoded]:
            self.now += 9.0 * (args[3].name == "dynamic" and args[2][0] == [4])
            return super().decode(*args)

    bench = Uneven({"static": 1.0, "dynamic": 1.0}, {"static": 8, "dynamic": 8})
    speeds = paired_speeds(
        *(tiny_backbone(), None, make_mode("dynamic", tau=0.5)),
        {"quick": [[3], [3], [3]], "slow": [[4], [4]]},
        *(16, 1, 3),
        decoder=bench.decode,
        clock=bench.clock,
    )
    assert speeds["quick"]["ratio"] == pytest.approx(1.0)
    assert speeds["slow"]["ratio"] == pytest.approx(0.1)
    assert (speeds["quick"]["pairs"], speeds["slow"]["pairs"]) == (9, 6)
