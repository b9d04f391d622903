"""Leases: no device twice at a time, and none lost to a process that was killed."""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from mrp import leases
from mrp.errors import UserError
from mrp.leases import gpu_per_job, lease, visible_devices

Start = Callable[..., subprocess.Popen[str]]


@pytest.fixture(autouse=True)
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two pretended GPUs, and a lock folder of this test's own."""
    monkeypatch.setenv("MRP_FAKE_GPUS", "2")
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    for name in ("CUDA_VISIBLE_DEVICES", "LOCAL_RANK"):
        monkeypatch.delenv(name, raising=False)


HOLD = """
import os, sys, time
from mrp.leases import lease
with lease("cuda") as device:
    print(os.environ["CUDA_VISIBLE_DEVICES"], flush=True)
    {body}
"""


@pytest.fixture
def start() -> Iterator[Start]:
    """Starts processes that take a lease, and ends them."""
    running: list[subprocess.Popen[str]] = []

    def begin(body: str = "time.sleep(60)") -> subprocess.Popen[str]:
        code = HOLD.format(body=body)
        process = subprocess.Popen(
            [sys.executable, "-c", code], stdout=subprocess.PIPE, text=True, start_new_session=True
        )
        running.append(process)
        return process

    yield begin
    for process in running:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        assert process.stdout is not None
        process.stdout.close()


def leased(process: subprocess.Popen[str]) -> str:
    """The device that a process got; waits for it."""
    assert process.stdout is not None
    return process.stdout.readline().strip()


def test_four_jobs_on_two_devices_never_share_one(start: Start, tmp_path: Path) -> None:
    log = tmp_path / "log"
    body = (
        f"name = os.environ['CUDA_VISIBLE_DEVICES']; file = open({str(log)!r}, 'a', buffering=1)\n"
        "    file.write(f'+{name}\\n'); time.sleep(0.4); file.write(f'-{name}\\n')"
    )
    for process in [start(body) for _ in range(4)]:
        assert process.wait(timeout=30) == 0
    held: set[str] = set()
    for sign, name in log.read_text().split():
        assert (name in held) == (sign == "-")
        held ^= {name}
    assert log.read_text().count("+") == 4
    assert "+1" in log.read_text()


def test_a_killed_process_gives_its_device_back(start: Start) -> None:
    first, second, third = start(), start(), None
    names = {leased(first), leased(second)}
    assert names == {"0", "1"}
    third = start()
    time.sleep(1.0)
    assert third.poll() is None  # it waits
    first.kill()
    assert leased(third) in names


@pytest.mark.parametrize("visible", ["0", "2, 5"])
def test_waiting_names_the_visible_devices(
    visible: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    names = visible.split(", ")
    monkeypatch.setattr(leases, "visible_devices", lambda: names)
    held = [leases._lock_one(names) for _ in names]
    polls = iter(range(3))

    def end_after_three(seconds: float) -> None:
        if next(polls, None) is None:
            raise KeyboardInterrupt

    monkeypatch.setattr(leases.time, "sleep", end_after_three)
    with caplog.at_level(logging.INFO, "mrp"), pytest.raises(KeyboardInterrupt), lease("cuda"):
        pass
    for _, descriptor in held:
        leases._held.discard(descriptor)
        os.close(descriptor)
    said = f"waiting for a free GPU (visible: {visible}; all leased by other jobs)"
    assert caplog.messages == [said]  # once


@pytest.mark.parametrize(
    "survivor",
    [
        "subprocess.Popen(['sleep', '60'])",
        "os.fork() == 0 and time.sleep(60)",
        "multiprocessing.get_context('fork').Process(target=time.sleep, args=(60,)).start()",
    ],
)
def test_children_that_outlive_their_parent_hold_nothing(start: Start, survivor: str) -> None:
    body = (
        f"import subprocess, multiprocessing; {survivor}; print('up', flush=True); time.sleep(60)"
    )
    parent = start(body)
    name = leased(parent)
    assert leased(parent) == "up"
    os.kill(parent.pid, signal.SIGKILL)
    parent.wait()
    other, another = start(), start()
    assert name in {leased(other), leased(another)}


def test_the_environment_is_as_before_afterwards(monkeypatch: pytest.MonkeyPatch) -> None:
    with lease() as device:
        assert device == "cuda"
        assert os.environ["CUDA_VISIBLE_DEVICES"] == "0"
    assert "CUDA_VISIBLE_DEVICES" not in os.environ
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "5,7")
    with lease():
        assert os.environ["CUDA_VISIBLE_DEVICES"] == "5"
    assert os.environ["CUDA_VISIBLE_DEVICES"] == "5,7"


def test_what_others_assigned_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    with lease("cuda:1") as device:
        assert device == "cuda:1"
        assert "CUDA_VISIBLE_DEVICES" not in os.environ
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3")
    for _ in range(2):  # a scheduler's single device, the same for two jobs of two nodes
        with lease() as device, lease() as again:
            assert (device, again) == ("cuda", "cuda")
            assert os.environ["CUDA_VISIBLE_DEVICES"] == "3"
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,1")
    monkeypatch.setenv("LOCAL_RANK", "1")  # a worker of torchrun
    with lease():
        assert os.environ["CUDA_VISIBLE_DEVICES"] == "0,1"


@pytest.mark.parametrize(
    ("variable", "names"),
    [
        ("", []),
        ("-1", []),
        ("NoDevFiles", []),
        ("2, 3", ["2", "3"]),
        ("0,-1,1", ["0"]),
        ("GPU-8f3a,MIG-77", ["GPU-8f3a", "MIG-77"]),
    ],
)
def test_visible_devices_as_cuda_reads_them(
    monkeypatch: pytest.MonkeyPatch, variable: str, names: list[str]
) -> None:
    assert visible_devices() == ["0", "1"]
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", variable)
    assert visible_devices() == names


def test_without_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MRP_FAKE_GPUS", "0")
    with lease("auto") as device:
        assert device == "cpu"
    with pytest.raises(UserError, match="--device cuda: no GPU is visible"), lease("cuda"):
        pass
    with pytest.raises(UserError, match="'gpu' is not one of auto, cpu, cuda"), lease("gpu"):
        pass


def test_a_workflow_asks_for_a_gpu_only_where_there_is_one(monkeypatch: pytest.MonkeyPatch) -> None:
    assert [gpu_per_job(device) for device in ("auto", "cpu", "cuda")] == [1, 0, 1]
    monkeypatch.setenv("MRP_FAKE_GPUS", "0")
    # cuda: also from a cluster's login node, which has none itself.
    assert [gpu_per_job(device) for device in ("auto", "cpu", "cuda")] == [0, 0, 1]
    with pytest.raises(UserError, match="device: 'gpu' is not one of"):
        gpu_per_job("gpu")
