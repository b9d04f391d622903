"""Leases: no device twice at a time, and none lost to a process that was killed."""

from __future__ import annotations

import contextlib
import errno
import logging
import os
import select
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from mrp import leases
from mrp.errors import UserError
from mrp.leases import gpu_per_job, lease, lease_many, visible_devices
from mrp.locks import release

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
from mrp.leases import lease_many
with lease_many("cuda", {count}, {share}) as leased:
    print(os.environ["CUDA_VISIBLE_DEVICES"], flush=True)
    {body}
"""


@pytest.fixture
def start() -> Iterator[Start]:
    """Starts processes that take a lease, and ends them."""
    running: list[subprocess.Popen[str]] = []

    def begin(
        body: str = "time.sleep(60)", count: int = 1, share: int = 1
    ) -> subprocess.Popen[str]:
        code = HOLD.format(body=body, count=count, share=share)
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


def test_jobs_that_share_spread_over_the_devices_and_fill_their_places(start: Start) -> None:
    first = [leased(start(share=2)) for _ in range(2)]
    assert sorted(first) == ["0", "1"]
    second = [leased(start(share=2)) for _ in range(2)]
    assert sorted(second) == ["0", "1"]
    waiting = start(share=2)
    assert waiting.stdout is not None
    assert not select.select([waiting.stdout], [], [], 1.0)[0]
    assert leased(start(share=3)) == "0"  # a suite with more places finds one


def test_a_shared_device_is_used_in_turns(tmp_path: Path) -> None:
    folder = tmp_path / f"mrp-leases-{os.getuid()}"
    with lease("cuda"):
        assert not list(folder.glob("room-*"))
    with lease("cuda", share=2):
        assert [path.name for path in folder.glob("room-*")] == ["room-0.lock"]


def test_several_gpus_a_training_do_not_go_with_shared_ones() -> None:
    assert gpu_per_job("auto", 2, 1) == 2
    with pytest.raises(UserError, match=r"gpus_per_training: 2 .* jobs_per_gpu: 3"):
        gpu_per_job("auto", 2, 3)


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


CONTEND = """
import os, random, sys, time
from mrp.leases import lease_many
log, count, seed = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
wait = random.Random(seed).uniform
def note(sign):
    line = f"{sign} {time.monotonic()} {os.getpid()} {os.environ['CUDA_VISIBLE_DEVICES']}\\n"
    with open(log, "a") as file:
        file.write(line)
for turn in range(3):
    with lease_many("cuda", count) as leased:
        note("+")
        time.sleep(60 if seed == 0 else wait(0.02, 0.15))
        note("-")
    time.sleep(wait(0, 0.05))
"""


def test_many_processes_contend_and_one_is_killed(tmp_path: Path, monkeypatch: Any) -> None:
    """Of one to four devices each; nobody holds what another holds, and everyone finishes."""
    monkeypatch.setenv("MRP_FAKE_GPUS", "4")
    log = tmp_path / "log"
    log.touch()
    counts = [2, 1, 1, 2, 3, 4, 1, 2, 3, 4]  # the first holds two and is killed
    running = [
        subprocess.Popen([sys.executable, "-c", CONTEND, str(log), str(count), str(seed)])
        for seed, count in enumerate(counts)
    ]
    victim = running[0]
    deadline = time.monotonic() + 60
    while f" {victim.pid} " not in log.read_text():
        assert time.monotonic() < deadline
        time.sleep(0.01)
    time.sleep(0.5)  # while others contend for the rest
    killed = time.monotonic()
    victim.kill()
    for process in running[1:]:
        assert process.wait(timeout=60) == 0
    assert victim.wait() == -signal.SIGKILL

    spans: dict[str, list[tuple[float, float]]] = {}
    opened: dict[str, tuple[float, list[str]]] = {}
    finished: Counter[str] = Counter()
    for line in log.read_text().splitlines():
        sign, at, pid, names = line.split()
        if sign == "+":
            opened[pid] = float(at), names.split(",")
            continue
        begin, held = opened.pop(pid)
        assert held == names.split(",")
        finished[pid] += 1
        for name in held:
            spans.setdefault(name, []).append((begin, float(at)))
    begin, held = opened.pop(str(victim.pid))
    assert len(held) == 2
    for name in held:
        spans[name].append((begin, killed))
    assert not opened
    assert {finished[str(process.pid)] for process in running[1:]} == {3}
    assert set(spans) == {"0", "1", "2", "3"}
    for times in spans.values():
        times.sort()
        assert all(one[1] <= other[0] for one, other in pairwise(times))


def test_who_waits_for_several_is_not_starved_by_those_who_need_one(
    start: Start, tmp_path: Path
) -> None:
    busy = [start(), start()]
    assert {leased(process) for process in busy} == {"0", "1"}
    wide = start(count=2)
    while not list(tmp_path.glob("mrp-leases-*/waiting.lock")):
        time.sleep(0.02)
    busy[0].kill()
    time.sleep(1.0)  # the one in the waiting place takes the freed device and keeps it
    narrow = start("time.sleep(0.3)")
    time.sleep(1.0)
    assert (wide.poll(), narrow.poll()) == (None, None)
    busy[1].kill()
    assert leased(wide) == "0,1"
    wide.kill()
    assert leased(narrow) in {"0", "1"}


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
    held = [leases._wait_for({name: name for name in names}, 1) for _ in names]
    polls = iter(range(3))

    def end_after_three(seconds: float) -> None:
        if next(polls, None) is None:
            raise KeyboardInterrupt

    monkeypatch.setattr(leases.time, "sleep", end_after_three)
    with caplog.at_level(logging.INFO, "mrp"), pytest.raises(KeyboardInterrupt), lease("cuda"):
        pass
    for locks in held:
        for descriptor in locks.values():
            release(descriptor)
    said = f"waiting for a free GPU (visible: {visible}; leased by other jobs)"
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
        assert device == "cpu"  # pretended devices compute there
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
            assert (device, again) == ("cpu", "cpu")
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
    with lease_many("auto", 2) as leased:
        assert (leased.device, leased.count) == ("cpu", 1)
    with pytest.raises(UserError, match="--device cuda: no GPU is visible"), lease("cuda"):
        pass
    with pytest.raises(UserError, match="'gpu' is not one of auto, cpu, cuda"), lease("gpu"):
        pass


def test_a_workflow_asks_for_gpus_only_where_there_are_some(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert [gpu_per_job(device, 2) for device in ("auto", "cpu", "cuda")] == [2, 0, 2]
    with pytest.raises(UserError, match=r"gpus_per_training: 3, but visible are 2 \(0, 1\)"):
        gpu_per_job("auto", 3)
    monkeypatch.setenv("MRP_FAKE_GPUS", "0")
    # cuda: also from a cluster's login node, which has none itself.
    assert [gpu_per_job(device, 3) for device in ("auto", "cpu", "cuda")] == [0, 0, 3]
    with pytest.raises(UserError, match="device: 'gpu' is not one of"):
        gpu_per_job("gpu")
    for count in (0, -1, 1.5, "2", True, None):
        with pytest.raises(UserError, match=r"gpus_per_training: .* is no whole number of at"):
            gpu_per_job("auto", count)


UUIDS = ["GPU-11aa", "GPU-22bb", "GPU-33cc"]


@pytest.fixture
def listed(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine whose three GPUs are known by UUID."""
    monkeypatch.delenv("MRP_FAKE_GPUS")
    monkeypatch.setattr(leases, "_listed", lambda: UUIDS)


@pytest.mark.usefixtures("listed")
def test_an_index_and_a_uuid_of_one_device_exclude_each_other(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "GPU-22bb,GPU-33")  # the second shortened
    with lease() as device:
        assert device == "cuda"
        assert os.environ["CUDA_VISIBLE_DEVICES"] == "GPU-22bb"
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1,2")
        with lease():
            assert os.environ["CUDA_VISIBLE_DEVICES"] == "2"
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "MIG-7/1/0, GPU-22bb")
        with lease():
            assert os.environ["CUDA_VISIBLE_DEVICES"] == "MIG-7/1/0"
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "GPU-22bb")  # what the first one set
    # Two spellings of one device, or one twice, are one.
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "2,GPU-33cc,2,0")
    with lease_many("cuda", 2):
        assert os.environ["CUDA_VISIBLE_DEVICES"] == "2,0"
    with pytest.raises(UserError, match=r"--gpus 3 \(gpus_per_training\): visible are 2 \(2, 0\)"):
        lease_many("cuda", 3).__enter__()


@pytest.mark.usefixtures("listed")
def test_others_avoid_a_device_that_was_assigned_or_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0")
    with lease(), pytest.MonkeyPatch.context() as other:
        other.delenv("CUDA_VISIBLE_DEVICES")
        with lease():
            assert os.environ["CUDA_VISIBLE_DEVICES"] == "1"
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "2,1,0")
    with lease("cuda:0"), lease():
        assert os.environ["CUDA_VISIBLE_DEVICES"] == "1"


def test_several_by_name_is_a_contradiction() -> None:
    with pytest.raises(UserError, match="--device cuda:1 is one GPU, --gpus is 2"):
        lease_many("cuda:1", 2).__enter__()


@pytest.mark.parametrize("what", ["folder", "file", "none"])
def test_a_lock_that_cannot_be_taken_is_one_line(
    what: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def refuse(*arguments: object, **named: object) -> None:
        raise PermissionError(errno.EACCES, "Permission denied", str(arguments[0]))

    if what == "folder":
        monkeypatch.setattr(Path, "mkdir", refuse)
    elif what == "file":
        monkeypatch.setattr(os, "open", refuse)
    else:
        monkeypatch.setattr(tempfile, "gettempdir", lambda: refuse("no temporary folder"))
    with pytest.raises(UserError, match="permission denied, so no GPU can be leased: set TMPDIR"):
        lease("cuda").__enter__()
    with lease("cuda:0") as device:  # the way out that the message names
        assert device == "cuda:0"


def test_a_folder_of_another_user_is_one_line(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    with lease("cuda"):
        pass
    (folder,) = tmp_path.glob("mrp-leases-*")
    uid = os.getuid()
    folder.rename(tmp_path / f"mrp-leases-{uid + 1}")
    monkeypatch.setattr(os, "getuid", lambda: uid + 1)
    with pytest.raises(UserError, match=rf"belongs to another user \(id {uid}\)"):
        lease("cuda").__enter__()


@pytest.mark.skipif(os.getuid() != 0, reason="only root can be another user")
def test_a_temporary_folder_that_is_not_ones_own_is_one_line(tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    code = (
        "import os, tempfile; from mrp.leases import lease; "
        f"os.setuid(65534); tempfile.tempdir = {str(tmp_path)!r}; lease('cuda').__enter__()"
    )
    done = subprocess.run([sys.executable, "-c", code], stderr=subprocess.PIPE, text=True)
    assert "UserError" in done.stderr
    assert "permission denied, so no GPU can be leased: set TMPDIR" in done.stderr
