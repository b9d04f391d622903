"""Files are whole or absent, and a write that fails names the file it was for."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest
import torch
from safetensors import SafetensorError
from safetensors.torch import save_file

from mrp.io import UMASK, atomic_write, atomic_write_text, human_size


@pytest.mark.parametrize(
    "error",
    [
        OSError(errno.ENOSPC, "No space left on device"),
        RuntimeError("[enforce fail at inline_container.cc:664] . unexpected pos 64 vs 0"),
        SafetensorError("Error while serializing: I/O error: No space left on device"),
    ],
)
def test_a_failed_write_leaves_the_old_file(tmp_path: Path, error: Exception) -> None:
    def write(path: Path) -> None:
        path.write_text("half")
        raise error

    atomic_write_text(tmp_path / "a", "old")
    with pytest.raises(OSError, match=r"(?i)space|unexpected pos") as caught:
        atomic_write(tmp_path / "a", write)
    assert caught.value.filename == str(tmp_path / "a")
    assert [file.name for file in tmp_path.iterdir()] == ["a"]
    assert (tmp_path / "a").read_text() == "old"


def test_a_folder_in_the_way_is_named(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    with pytest.raises(IsADirectoryError) as caught:
        atomic_write_text(tmp_path / "a", "new")
    assert caught.value.filename == str(tmp_path / "a")


def test_a_file_has_the_users_usual_rights_whoever_wrote_it(tmp_path: Path) -> None:
    (tmp_path / "plain").write_text("x")
    usual = (tmp_path / "plain").stat().st_mode
    weights = {"x": torch.zeros(2)}
    atomic_write(tmp_path / "weights", lambda path: save_file(weights, path))
    assert (tmp_path / "weights").stat().st_mode == usual
    assert usual & 0o777 == 0o666 & ~UMASK


@pytest.mark.parametrize(
    ("count", "text"),
    [(0, "0 B"), (999, "999 B"), (1234, "1.23 kB"), (999_999, "1 MB"), (16.4e9, "16.4 GB")],
)
def test_sizes_for_people(count: float, text: str) -> None:
    assert human_size(count) == text
