"""Checkpoint strings: directories and hub ids, resolved in the hub's cache without a network."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from huggingface_hub import constants
from hypothesis import given
from hypothesis import strategies as st

from mrp.errors import UserError
from mrp.models import (
    checkpoint_hash,
    is_hub_id,
    load_backbone,
    load_head,
    local_checkpoint,
    read_head_config,
    resolved_revision,
)
from mrp.models.hub import HubId, parse_hub_id
from tests.models.released import file_of, write_released
from tests.tiny import tiny_backbone, tiny_head

COMMIT, OTHER = "0123456789abcdef" * 2 + "01234567", "f" * 40


def put(cache: Path, source: Path, commit: str, branch: str, repository: str = "lab/tiny") -> Path:
    """Lay a directory out as huggingface_hub's cache has it: blobs, links to them, refs."""
    root = cache / f"models--{repository.replace('/', '--')}"
    snapshot = root / "snapshots" / commit
    snapshot.mkdir(parents=True)
    (root / "blobs").mkdir(exist_ok=True)
    for path in source.iterdir():
        shutil.copy(path, root / "blobs" / f"{commit[:4]}-{path.name}")
        (snapshot / path.name).symlink_to(f"../../blobs/{commit[:4]}-{path.name}")
    ref = root / "refs" / branch
    ref.parent.mkdir(parents=True, exist_ok=True)
    ref.write_text(commit)
    return snapshot


@pytest.fixture
def source(tmp_path: Path) -> Path:
    backbone = tiny_backbone()
    return write_released(tmp_path / "source", backbone, tiny_head(backbone, layers=2))


@pytest.fixture
def snapshot(tmp_path: Path, source: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """`lab/tiny` in a cache, no network, in an empty working directory."""

    def refuse(*args: object) -> None:
        raise AssertionError("the network was asked")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")
    return put(tmp_path / "cache", source, COMMIT, "main")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("heavyball/sdar-1.7b-mrp-3lyr", HubId("heavyball/sdar-1.7b-mrp-3lyr")),
        ("JetLM/SDAR-4B-Chat@main", HubId("JetLM/SDAR-4B-Chat")),
        (f"a/b@{COMMIT}", HubId("a/b", COMMIT)),
        ("a_b/c.d-e@v1.0+x", HubId("a_b/c.d-e", "v1.0+x")),
        ("a/b@refs/pr/1", HubId("a/b", "refs/pr/1")),
        (Path("a/b"), HubId("a/b")),
        *((text, None) for text in (
            "", "a", "a/b/c", "/a/b", "./a", "../a", "a/..", "~/a", "a/", "/a", "a/b@", "a/b@@c",
            "a/b@../../c", "a/b@/c", "a/b@c//d", "a/b@c ", "a/b@c:d", "a b/c", "a/b\n", "a--b/c",
            "a/b.git", "-a/b", "a/b.", "a@b/c", "a\\b/c", "ä/b", "a/b@ä", "x" * 97 + "/b", "a/b\0",
        )),
    ],
)  # fmt: skip
def test_what_is_a_hub_id(text: str | Path, expected: HubId | None) -> None:
    assert parse_hub_id(text) == expected


@given(st.text(alphabet="ab0/.@-_ ~\n", max_size=12))
def test_no_text_leads_out_of_the_cache(text: str) -> None:
    found = parse_hub_id(text)
    if found is not None:
        assert found.repository.count("/") == 1
        for part in (*found.repository.split("/"), *found.revision.split("/")):
            assert part
            assert part not in (".", "..")
        assert parse_hub_id(str(found)) == found


def test_an_id_stands_for_its_snapshot_everywhere(snapshot: Path, source: Path) -> None:
    for text in ("lab/tiny", "lab/tiny@main", f"lab/tiny@{COMMIT}", Path("lab/tiny")):
        assert is_hub_id(text)
        assert local_checkpoint(text) == local_checkpoint(text, "head") == snapshot
        assert resolved_revision(text) == COMMIT
    backbone = load_backbone("lab/tiny")
    assert load_head(Path("lab/tiny"), backbone).config == read_head_config("lab/tiny")
    assert checkpoint_hash("lab/tiny") == checkpoint_hash(source)


def test_revisions_are_kept_apart(snapshot: Path, source: Path, tmp_path: Path) -> None:
    other = put(tmp_path / "cache", source, OTHER, "refs/pr/1")
    assert local_checkpoint("lab/tiny@refs/pr/1") == local_checkpoint(f"lab/tiny@{OTHER}") == other
    assert local_checkpoint("lab/tiny") == snapshot
    assert resolved_revision("lab/tiny@refs/pr/1") == OTHER


def test_a_directory_comes_first_and_a_revision_means_the_hub(snapshot: Path) -> None:
    directory = Path("lab/tiny")
    directory.mkdir(parents=True)
    assert not is_hub_id("lab/tiny")
    assert local_checkpoint("lab/tiny") == directory
    assert resolved_revision("lab/tiny") is None
    with pytest.raises(UserError, match=r"lab/tiny: no checkpoint here .* before a hub's"):
        load_backbone("lab/tiny")
    assert local_checkpoint("lab/tiny@main") == snapshot
    directory.rmdir()
    directory.symlink_to(snapshot)  # a link to a snapshot is that snapshot
    assert resolved_revision("lab/tiny") == resolved_revision(snapshot) == COMMIT
    assert load_backbone("lab/tiny").config == load_backbone(snapshot).config
    directory.unlink()
    directory.symlink_to("nowhere")
    with pytest.raises(UserError, match="no checkpoint here"):
        load_backbone("lab/tiny")


@pytest.mark.parametrize("text", ["lab/tiny@v2", f"lab/tiny@{OTHER}", "lab/other", "no/such@x/y"])
def test_what_is_not_downloaded_is_said_with_both_fixes(snapshot: Path, text: str) -> None:
    assert resolved_revision(text) is None
    for use in (local_checkpoint, load_backbone, read_head_config, checkpoint_hash):
        with pytest.raises(UserError) as caught:
            use(text)
        said = str(caught.value)
        assert said.startswith(f"{text}: no such directory")
        assert "`mrp fetch --suite NAME`" in said
        repository, _, revision = text.partition("@")
        flag = f" --revision {revision}" if revision else ""
        assert f"`hf download {repository}{flag}`" in said


@pytest.mark.parametrize("revision", ["", "../../..", "a b", "-x", "a//b"])
def test_a_revision_that_cannot_be(snapshot: Path, revision: str) -> None:
    with pytest.raises(UserError, match=r"is no revision: a branch, a tag or a commit"):
        local_checkpoint(f"lab/tiny@{revision}")


def test_a_partial_download_is_enough_for_the_part_that_is_there(snapshot: Path) -> None:
    file_of(snapshot, "lm_head.weight").unlink()
    assert local_checkpoint("lab/tiny") == local_checkpoint("lab/tiny", "head") == snapshot
    with pytest.raises(UserError, match=r"only partly downloaded \(model-0000\d-of-00004"):
        local_checkpoint("lab/tiny", "backbone")
    load_head("lab/tiny", tiny_backbone())
    (snapshot.parents[1] / "blobs" / "0123-config.json").unlink()  # a link to nothing
    with pytest.raises(UserError, match="not downloaded"):
        local_checkpoint("lab/tiny")


def test_a_cache_is_only_read(snapshot: Path, tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    before = {path: path.lstat().st_mtime_ns for path in cache.rglob("*")}
    load_head("lab/tiny", load_backbone("lab/tiny"))
    checkpoint_hash("lab/tiny")
    with pytest.raises(UserError):
        load_backbone("lab/other")
    assert {path: path.lstat().st_mtime_ns for path in cache.rglob("*")} == before


@pytest.mark.parametrize("damage", ["", "nonsense", f"{COMMIT}\n", "../../.."])
def test_a_damaged_ref_is_not_downloaded(snapshot: Path, damage: str) -> None:
    (snapshot.parents[1] / "refs" / "main").write_text(damage)
    with pytest.raises(UserError, match="not downloaded"):
        local_checkpoint("lab/tiny")


ASK = """
import sys
from mrp.models.hub import cache_dir, is_hub_id, local_checkpoint
from mrp.models import resolved_revision
assert is_hub_id("lab/tiny") and resolved_revision("lab/tiny") == local_checkpoint("lab/tiny").name
assert "torch" not in sys.modules  # the workflow asks, and must not wait
print(cache_dir())
"""


@pytest.mark.parametrize(
    "variables",
    [
        {},  # ~/.cache/huggingface
        {"HF_HOME": "~/.cache/huggingface"},
        {"HF_HOME": "$HOME/.cache/huggingface"},
        {"HF_HOME": ".cache/huggingface"},  # relative
        {"HF_HUB_CACHE": ".cache/huggingface/hub", "HF_HOME": "/nowhere"},
        {"XDG_CACHE_HOME": "{home}/.cache"},
    ],
)
def test_the_cache_is_where_the_hubs_own_variables_say(
    tmp_path: Path, source: Path, variables: dict[str, str]
) -> None:
    cache = tmp_path / ".cache" / "huggingface" / "hub"
    put(cache, source, COMMIT, "main")
    plain = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("HF_", "HUGGINGFACE_", "XDG_"))
    }
    given = {name: value.format(home=tmp_path) for name, value in variables.items()}
    done = subprocess.run(
        [sys.executable, "-c", ASK],
        env={**plain, "HOME": str(tmp_path), **given},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stderr == ""
    assert Path(done.stdout.strip()) == cache
