"""Too little memory: the batch is halved, the answers stay the same, and the record says so."""

from __future__ import annotations

import gc
import json
import logging
import weakref
from collections.abc import Iterator
from copy import copy
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

import mrp.evaluation.adapter as adapter
from mrp.decoding import Decoded, decode, make_mode
from mrp.errors import UserError
from mrp.evaluation import run
from mrp.evaluation.adapter import MRPModel
from mrp.evaluation.run import Cell, Speed, run_job
from mrp.memory import is_out_of_memory, with_halved_batch
from tests.evaluation.conftest import MODES
from tests.evaluation.test_adapter import GREEDY, instances

PROMPTS = ["(1+2)?", "x", "a longer prompt, over several blocks", "7*8", "9-(8-1)?", "hm", "1+1"]
SHORT = [
    torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 1.00 GiB."),
    RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`"),
    RuntimeError("[enforce fail at alloc_cpu.cpp] DefaultCPUAllocator: can't allocate memory"),
    MemoryError(),
]


class Session:
    """Stands for the tensors of a decoding session."""


class Small:
    """A device for `fits` samples: with more, memory ends after `finished` of them."""

    def __init__(self, fits: int, finished: int, error: BaseException) -> None:
        self.fits, self.finished, self.error = fits, finished, error
        self.sizes: list[int] = []
        self.sessions: list[weakref.ref[Session]] = []

    def decode(self, *arguments: Any, batch_size: int, **named: Any) -> Iterator[Decoded]:
        """In place of `mrp.decoding.decode`."""
        assert not any(session() for session in self.sessions), "the failed session is still there"
        session = Session()
        self.sessions.append(weakref.ref(session))
        self.sizes.append(batch_size)
        results = decode(*arguments, batch_size=batch_size, **named)
        for number, decoded in enumerate(results):
            if batch_size > self.fits and number == self.finished:
                raise copy(self.error)  # one that nobody else holds, with its traceback
            yield decoded


def answers(model: MRPModel) -> dict[Any, Any]:
    """All that was decoded, but for the places in the queue."""
    return {
        key: (outcome.text, replace(outcome.decoded, index=0))
        for key, outcome in model.outcomes.items()
    }


@pytest.fixture(autouse=True)
def no_collector(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """What is freed is freed by reference counts: no cycle holds a session."""
    gc.disable()
    monkeypatch.setattr(gc, "collect", lambda: 0)
    yield
    gc.enable()


@pytest.mark.parametrize(("mode", "options"), MODES)
@pytest.mark.parametrize("finished", [0, 2])
def test_answers_are_those_of_an_undisturbed_run(
    mode: str,
    options: dict[str, Any],
    finished: int,
    backbone_dir: Path,
    head_dir: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    head = head_dir if make_mode(mode, **options).needs_head else None
    settings = {**GREEDY, "max_gen_toks": 16}

    def answered() -> MRPModel:
        model = MRPModel(backbone_dir, head, mode, batch_size=6, device="cpu", **options)
        model.generate_until(instances(PROMPTS, settings))
        return model

    whole = answered()
    assert whole.batch_size_used == 6
    small = Small(1, finished, SHORT[0])
    monkeypatch.setattr(adapter, "decode", small.decode)
    with caplog.at_level(logging.WARNING, "mrp"):
        halved = answered()
    # Of 7; then of the 5 that are left, if two were finished; then of the last 3.
    sizes = [6, 3, 1]
    assert small.sizes == sizes
    assert halved.batch_size_used == 1
    assert caplog.messages == [
        "decoding: out of memory at batch size 6; going on with 3",
        "decoding: out of memory at batch size 3; going on with 1",
    ]
    assert answers(halved) == answers(whole)


@pytest.mark.parametrize("error", SHORT)
def test_every_way_to_say_it_is_understood(
    error: Exception, model: MRPModel, monkeypatch: Any
) -> None:
    small = Small(2, 1, error)
    monkeypatch.setattr(adapter, "decode", small.decode)
    model.generate_until(instances(PROMPTS, GREEDY))
    assert small.sizes == [3, 1]


def test_other_errors_are_not_taken_for_it(model: MRPModel, monkeypatch: Any) -> None:
    assert not is_out_of_memory(ValueError("out of memory"))
    monkeypatch.setattr(adapter, "decode", Small(2, 1, RuntimeError("a bug")).decode)
    with pytest.raises(RuntimeError, match="a bug"):
        model.generate_until(instances(PROMPTS, GREEDY))


def test_at_batch_size_one_it_is_one_line_with_the_fix(model: MRPModel, monkeypatch: Any) -> None:
    small = Small(0, 0, SHORT[0])
    monkeypatch.setattr(adapter, "decode", small.decode)
    with pytest.raises(UserError) as caught:
        model.generate_until(instances(PROMPTS, GREEDY))
    assert small.sizes == [3, 1]
    message = str(caught.value)
    assert message.startswith("decoding: out of memory even at batch size 1: lower max_new_tokens")
    assert "\n" not in message


def test_a_resumed_run_remembers_it(backbone_dir: Path, tmp_path: Path, monkeypatch: Any) -> None:
    path = tmp_path / "journal.jsonl"
    for size in (4, 4):
        model = MRPModel(backbone_dir, batch_size=size, device="cpu", journal=path)
        monkeypatch.setattr(adapter, "decode", Small(2, 1, SHORT[0]).decode)
        model.generate_until(instances(PROMPTS, {**GREEDY, "max_gen_toks": 8}))
        assert model.batch_size_used == 2
        assert model.journal is not None
        model.journal.close()
    assert model.resumed_from == len(PROMPTS)


def test_the_record_says_which_batch_sizes_were_used(
    backbone_dir: Path, tmp_path: Path, monkeypatch: Any
) -> None:
    cell = Cell(
        id="j",
        suite="s",
        backbone="S",
        tasks=("mini_math",),
        mode="dynamic",
        options={"tau": 0.5},
        batch_size=4,
        max_new_tokens=8,
        limit=4,
        speed=Speed(prompts=4, batch_size=4, repeats=1),
    )
    measure, asked = run.paired_speeds, []

    def short(*arguments: Any, **named: Any) -> dict[str, Any]:
        asked.append(arguments[5])
        if arguments[5] > 1:
            raise SHORT[0]
        return measure(*arguments, **named)

    whole = run_job(cell, backbone_dir, None, None, tmp_path / "whole", "cpu")
    monkeypatch.setattr(adapter, "decode", Small(2, 1, SHORT[0]).decode)
    monkeypatch.setattr(run, "paired_speeds", short)
    record = run_job(cell, backbone_dir, None, None, tmp_path / "halved", "cpu")
    assert asked == [4, 2, 1]
    assert record["tasks"]["mini_math"]["speed"]["batch_size"] == 1
    sizes = [
        (r["provenance"]["batch_size"], r["provenance"]["batch_size_used"]) for r in (whole, record)
    ]
    assert sizes == [(4, 4), (4, 2)]
    samples = [(tmp_path / name / "samples.jsonl").read_text() for name in ("whole", "halved")]
    assert samples[0] == samples[1]
    assert json.loads((tmp_path / "halved" / "record.json").read_text())["provenance"]


def test_the_speed_of_a_mode_that_never_fits_is_one_line() -> None:
    def fail(size: int) -> None:
        raise SHORT[0]

    with pytest.raises(UserError, match="speed of x: out of memory even at batch size 1"):
        with_halved_batch(fail, 8, "speed of x")
