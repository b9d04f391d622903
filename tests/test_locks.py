"""A run's directory belongs to one process at a time; the next one waits, also after a kill."""

from __future__ import annotations

import errno
import fcntl
import logging
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from mrp import locks
from mrp.errors import UserError
from mrp.locks import release, run_lock, try_lock
from mrp.places import check_folders

HOLD = """
import sys, time
from pathlib import Path
from mrp.locks import run_lock
with run_lock(Path(sys.argv[1])):
    print("in", flush=True)
    time.sleep(60)
"""


def test_who_comes_second_waits_and_says_for_whom(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    run = tmp_path / "runs" / "job"
    holder = subprocess.Popen([sys.executable, "-c", HOLD, str(run)], stdout=subprocess.PIPE)
    assert holder.stdout is not None
    assert holder.stdout.readline() == b"in\n"
    polls = iter(range(4))

    def kill_after_a_while(seconds: float) -> None:
        if next(polls, None) is None:
            holder.kill()
            holder.wait()

    monkeypatch.setattr(locks.time, "sleep", kill_after_a_while)
    with caplog.at_level(logging.INFO, "mrp"), run_lock(run):
        assert holder.poll() is not None
        assert try_lock(run / ".lock") is None
    (message,) = caplog.messages
    assert message.startswith(f"waiting: process {holder.pid} on ")
    assert message.endswith(f" works in {run}; it goes on here when that one has ended")
    holder.stdout.close()
    descriptor = try_lock(run / ".lock")
    assert descriptor is not None
    release(descriptor)


def test_without_a_directory_there_is_nothing_to_lock() -> None:
    with run_lock(None):
        pass


def test_a_file_system_without_locks_is_a_warning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def unsupported(*arguments: Any) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(fcntl, "flock", unsupported)
    with run_lock(tmp_path):
        pass
    assert "this file system keeps no locks" in caplog.text


@pytest.mark.parametrize("what", ["file", "dangling link", "file above", "link to a file"])
def test_a_file_where_a_folder_belongs_is_named(what: str, tmp_path: Path) -> None:
    folder = tmp_path / "runs" / "job"
    check_folders([folder, tmp_path])
    bad = tmp_path / "runs" if what == "file above" else folder
    bad.parent.mkdir(exist_ok=True)
    if what.startswith("file"):
        bad.touch()
    else:
        (tmp_path / "elsewhere").touch()
        bad.symlink_to(tmp_path / ("elsewhere" if what == "link to a file" else "nowhere"))
    with pytest.raises(UserError) as caught:
        check_folders([tmp_path, folder])
    assert str(caught.value) == f"{bad}: a folder belongs here: move the file away and run again"


def test_a_link_to_a_folder_is_a_folder(tmp_path: Path) -> None:
    (tmp_path / "big-disk").mkdir()
    (tmp_path / "results").symlink_to(tmp_path / "big-disk")
    check_folders([tmp_path / "results" / "runs"])
