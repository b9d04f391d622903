"""Turns on a shared GPU: many work at once, few of them hard, a timing is alone, the dead leave."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from mrp.turns import SEATS, alone, give_way, seated, take_turns, working

Start = Callable[[str], subprocess.Popen[str]]

# A worker that gives way all the time and writes down when it is in the room; a timing likewise.
WORK = """
while True:
    say("work")
    time.sleep(0.005)
    give_way()
"""
WORKER = f"with working():\n    {WORK.strip().replace(chr(10), chr(10) + '    ')}"
DECODER = WORKER.replace("with working", "with seated(), working")
TIMING = """
with alone():
    say("alone begins")
    time.sleep(0.3)
    say("alone ends")
time.sleep(60)
"""


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    running: list[subprocess.Popen[str]] = []

    def begin(body: str) -> subprocess.Popen[str]:
        lines = [
            "import os, sys, time",
            "from pathlib import Path",
            "from mrp.turns import alone, give_way, seated, take_turns, working",
            f"log = os.open({str(tmp_path / 'log')!r}, os.O_WRONLY | os.O_CREAT | os.O_APPEND)",
            "def say(what): os.write(log, f'{os.getpid()} {what}\\n'.encode())",
            f"with take_turns(Path({str(tmp_path)!r}), 'one'):",
            *("    " + line for line in body.strip().splitlines()),
        ]
        process = subprocess.Popen([sys.executable, "-c", "\n".join(lines)], text=True)
        running.append(process)
        return process

    yield begin
    for process in running:
        process.kill()
        process.wait()


def seen(tmp_path: Path, what: str, count: int = 1, process: int | None = None) -> None:
    """Wait until the log has `count` such lines."""
    wanted = what if process is None else f"{process} {what}"
    for _ in range(1000):
        log = tmp_path / "log"
        if log.exists() and log.read_text().count(wanted) >= count:
            return
        time.sleep(0.01)
    raise AssertionError(f"{wanted!r} was not seen {count} times")


def test_workers_share_and_a_timing_is_alone(start: Start, tmp_path: Path) -> None:
    workers = [start(WORKER), start(WORKER)]
    for worker in workers:
        seen(tmp_path, "work", process=worker.pid)
    start(TIMING)
    seen(tmp_path, "alone ends")
    after = (tmp_path / "log").read_text().count("work")
    seen(tmp_path, "work", after + 10)  # both go on
    lines = (tmp_path / "log").read_text().splitlines()
    begin, end = (
        next(i for i, line in enumerate(lines) if line.endswith(word))
        for word in ("begins", "ends")
    )
    assert end == begin + 1
    before = {line.split()[0] for line in lines[:begin]}
    assert before == {str(worker.pid) for worker in workers}
    assert {line.split()[0] for line in lines[end + 1 :]} == before


def test_two_timings_come_one_after_the_other(start: Start, tmp_path: Path) -> None:
    start(TIMING)
    start(TIMING)
    seen(tmp_path, "alone ends", 2)
    words = [line.split()[-1] for line in (tmp_path / "log").read_text().splitlines()]
    assert words == ["begins", "ends"] * 2


@pytest.mark.parametrize("body", [DECODER, TIMING.replace("0.3", "60")], ids=["worker", "timing"])
def test_a_killed_process_leaves_its_place(start: Start, tmp_path: Path, body: str) -> None:
    killed = start(body)
    seen(tmp_path, "work" if body is DECODER else "alone begins")
    os.kill(killed.pid, signal.SIGKILL)
    killed.wait()
    start(TIMING)
    seen(tmp_path, "alone ends")


def test_without_others_nothing_is_locked(tmp_path: Path) -> None:
    with seated(), working():
        give_way()
    with alone():
        pass
    with take_turns(tmp_path, "one"):
        with seated(), working():
            give_way()
        with alone():
            pass
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "room-one.lock",
        *(f"seat{number}-one.lock" for number in range(SEATS)),
        "turnstile-one.lock",
    ]


def test_giving_way_outside_the_room_keeps_a_timing_alone(tmp_path: Path, start: Start) -> None:
    """Decoding gives way in every round, also where it is what is timed."""
    rounds = "for _ in range(5): time.sleep(0.1); give_way()"
    timing = start(TIMING.replace("time.sleep(0.3)", rounds))
    seen(tmp_path, "alone begins")
    worker = start(WORKER)
    seen(tmp_path, "alone ends")
    seen(tmp_path, "work", process=worker.pid)
    lines = [line.split(" ", 1) for line in (tmp_path / "log").read_text().splitlines()]
    ends = lines.index([str(timing.pid), "alone ends"])
    assert not [line for line in lines[:ends] if line[0] == str(worker.pid)]


def test_no_more_decode_than_there_are_seats(tmp_path: Path, start: Start) -> None:
    """Whoever comes later starts when one of them ends; what needs no seat waits for nobody."""
    decoders = [start(DECODER) for _ in range(SEATS)]
    for decoder in decoders:
        seen(tmp_path, "work", process=decoder.pid)
    late, other = start(DECODER), start(WORKER)
    seen(tmp_path, "work", process=other.pid)
    start(TIMING)
    seen(tmp_path, "alone ends")
    seen(tmp_path, "work", (tmp_path / "log").read_text().count("work") + 10)
    assert f"{late.pid} work" not in (tmp_path / "log").read_text()
    decoders[0].kill()
    seen(tmp_path, "work", process=late.pid)


def test_a_seat_outlasts_the_work_on_it(tmp_path: Path, start: Start) -> None:
    """Also who has a seat and prepares, or looks at results, keeps no timing waiting."""
    holding = start(
        "with seated():\n    with working(): say('work')\n    say('prepares')\n    time.sleep(60)"
    )
    seen(tmp_path, "prepares", process=holding.pid)
    start(TIMING)
    seen(tmp_path, "alone ends")
    assert holding.poll() is None
