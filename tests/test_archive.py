"""Packed results come back byte for byte, and a bad archive changes nothing."""

from __future__ import annotations

import gzip
import io
import json
import os
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mrp.archive import MANIFEST, pack, unpack
from mrp.errors import UserError

NAMES = ["runs/a/record.json", "runs/a/journal.jsonl", "heads/S/k2/model.safetensors", "x.pt"]


def contents(root: Path) -> dict[str, bytes]:
    return {
        path.relative_to(root).as_posix(): path.read_bytes()
        for path in root.rglob("*")
        if path.is_file()
    }


@pytest.fixture
def results(tmp_path: Path) -> Path:
    """Results of a suite, each file with a time of its own in the past."""
    for number, name in enumerate(NAMES):
        path = tmp_path / "here" / "mine" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(name.encode() * 50)
        os.utime(path, (10**9 + number, 10**9 + number))
    return tmp_path / "here"


def test_what_was_packed_comes_back_with_its_times(results: Path, tmp_path: Path) -> None:
    (results / "mine" / ".x.1.tmp").write_text("half")
    manifest = pack(results, "mine", tmp_path / "a.tar.gz")
    assert sorted(manifest["files"]) == sorted(NAMES)
    _, written = unpack(tmp_path / "a.tar.gz", tmp_path / "there")
    assert written == len(NAMES)
    (results / "mine" / ".x.1.tmp").unlink()
    assert contents(tmp_path / "there" / "mine") == contents(results / "mine")
    for number, name in enumerate(NAMES):
        assert (tmp_path / "there" / "mine" / name).stat().st_mtime == 10**9 + number
    assert [path.name for path in (tmp_path / "there").iterdir()] == ["mine"]


def test_weights_can_stay_behind(results: Path, tmp_path: Path) -> None:
    manifest = pack(results, "mine", tmp_path / "a.tar.gz", weights=False)
    assert sorted(manifest["files"]) == ["runs/a/journal.jsonl", "runs/a/record.json"]


def test_equal_files_stay_and_other_ones_need_to_be_asked_for(
    results: Path, tmp_path: Path
) -> None:
    pack(results, "mine", tmp_path / "a.tar.gz")
    assert unpack(tmp_path / "a.tar.gz", results)[1] == 0
    (results / "mine" / "x.pt").write_text("mine is newer")
    (results / "mine" / NAMES[0]).unlink()
    with pytest.raises(UserError, match=r"x\.pt is there and differs: nothing was unpacked"):
        unpack(tmp_path / "a.tar.gz", results)
    assert not (results / "mine" / NAMES[0]).exists()
    assert unpack(tmp_path / "a.tar.gz", results, replace=True)[1] == 2
    assert (results / "mine" / "x.pt").read_bytes() == b"x.pt" * 50


def test_nothing_to_pack_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="no results of suite 'mine'"):
        pack(tmp_path, "mine", tmp_path / "a.tar.gz")


@pytest.mark.parametrize(
    "place", ["here/mine/a.tar.gz", "here/mine/new/a.tar.gz", "linked/a.tar.gz"]
)
def test_an_archive_is_not_written_among_what_it_packs(
    results: Path, tmp_path: Path, place: str
) -> None:
    (tmp_path / "linked").symlink_to(results / "mine")
    before = contents(tmp_path)
    with pytest.raises(UserError, match=f"--out .*{place}: in .*: it would be packed itself"):
        pack(results, "mine", tmp_path / place)
    assert contents(tmp_path) == before
    pack(results, "mine", results / "mine.tar.gz")  # beside the suite's folder is fine


def forged(path: Path, manifest: Any, members: dict[str, bytes]) -> None:
    with tarfile.open(path, "w:gz") as tar:
        for name, data in {MANIFEST: json.dumps(manifest).encode(), **members}.items():
            header = tarfile.TarInfo(name)
            header.size = len(data)
            tar.addfile(header, io.BytesIO(data))


def listing(**changes: Any) -> dict[str, Any]:
    return {"format": 1, "suite": "mine", "files": {}, **changes}


def deep(path: Path) -> None:
    text = b"[" * 10**5
    with tarfile.open(path, "w:gz") as tar:
        header = tarfile.TarInfo(MANIFEST)
        header.size = len(text)
        tar.addfile(header, io.BytesIO(text))


BAD: dict[str, tuple[Callable[[Path], None], str]] = {
    "missing": (lambda path: None, "no such file"),
    "a text": (lambda path: path.write_text("hello") and None, "no archive of `mrp pack`"),
    "not a tar": (lambda path: path.write_bytes(gzip.compress(b"x" * 2000)), "no archive"),
    "empty tar": (lambda path: tarfile.open(path, "w:gz").close(), "does not begin with"),
    "files are a list": (lambda path: forged(path, listing(files=["x"]), {}), "not readable"),
    "files without facts": (
        lambda path: forged(path, listing(files={"x": {}}), {"x": b"1"}),
        "files without size or sha256",
    ),
    "files with nothing": (lambda path: forged(path, listing(files={"x": None}), {}), "readable"),
    "nested without end": (lambda path: deep(path), "not readable"),
    "no name for a folder": (
        lambda path: forged(path, listing(suite="a\0b"), {}),
        "no file system",
    ),
    "half a letter": (lambda path: forged(path, listing(suite="\ud800"), {}), "no file system"),
    "manifest is a list": (lambda path: forged(path, [], {}), "not readable"),
    "later format": (lambda path: forged(path, listing(format=2), {}), "format 2"),
    "suite is a path": (lambda path: forged(path, listing(suite="../x"), {}), "outside"),
    "climbs out": (
        lambda path: forged(path, listing(files={"../../x": {"size": 1, "sha256": ""}}), {}),
        "outside",
    ),
    "not listed": (lambda path: forged(path, listing(), {"x": b"1"}), "'x' is not in its manifest"),
    "file lacks": (
        lambda path: forged(path, listing(files={"x": {"size": 1, "sha256": "0"}}), {}),
        "x is missing or has another SHA-256",
    ),
    "other bytes": (
        lambda path: forged(path, listing(files={"x": {"size": 1, "sha256": "0"}}), {"x": b"1"}),
        "x is missing or has another SHA-256",
    ),
}


@pytest.mark.parametrize("kind", BAD)
def test_a_bad_archive_is_one_line_and_changes_nothing(tmp_path: Path, kind: str) -> None:
    make, words = BAD[kind]
    make(tmp_path / "a.tar.gz")
    with pytest.raises(UserError, match=words) as caught:
        unpack(tmp_path / "a.tar.gz", tmp_path / "there")
    assert str(caught.value).startswith(str(tmp_path / "a.tar.gz"))
    assert list((tmp_path / "there").iterdir()) == []


def test_a_symbolic_link_in_an_archive_is_refused(tmp_path: Path) -> None:
    with tarfile.open(tmp_path / "a.tar.gz", "w:gz") as tar:
        data = json.dumps(listing(files={"x": {"size": 0, "sha256": ""}})).encode()
        header = tarfile.TarInfo(MANIFEST)
        header.size = len(data)
        tar.addfile(header, io.BytesIO(data))
        link = tarfile.TarInfo("x")
        link.type, link.linkname = tarfile.SYMTYPE, "/etc/passwd"
        tar.addfile(link)
    with pytest.raises(UserError, match="'x' is not in its manifest"):
        unpack(tmp_path / "a.tar.gz", tmp_path / "there")


def test_a_folder_in_a_files_place_is_named_before_anything_changes(
    results: Path, tmp_path: Path
) -> None:
    pack(results, "mine", tmp_path / "a.tar.gz")
    (tmp_path / "there" / "mine" / "x.pt").mkdir(parents=True)
    with pytest.raises(UserError, match=r"x\.pt is a folder"):
        unpack(tmp_path / "a.tar.gz", tmp_path / "there", replace=True)
    assert contents(tmp_path / "there") == {}


@settings(max_examples=25, deadline=None)
@given(cut=st.floats(0, 1, exclude_max=True))
def test_an_archive_cut_anywhere_changes_nothing_or_is_whole(
    tmp_path_factory: pytest.TempPathFactory, cut: float
) -> None:
    folder = tmp_path_factory.mktemp("cut")
    (folder / "here" / "mine").mkdir(parents=True)
    (folder / "here" / "mine" / "a").write_bytes(os.urandom(5000))
    pack(folder / "here", "mine", folder / "a.tar.gz")
    data = (folder / "a.tar.gz").read_bytes()
    (folder / "a.tar.gz").write_bytes(data[: int(cut * len(data))])
    try:
        unpack(folder / "a.tar.gz", folder / "there")
    except UserError:
        assert contents(folder / "there") == {}
    else:  # only tar's padding at the end was cut off
        assert cut > 0.95
        assert contents(folder / "there") == contents(folder / "here")
