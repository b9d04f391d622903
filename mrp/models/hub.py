"""Checkpoint strings: a directory, or a hub id `owner/name` or `owner/name@revision`.

Nothing here touches the network: `mrp fetch` fills the hub's cache, all else reads what is there.
A directory that exists is taken before a hub id of the same spelling. Without a revision an id
means the branch `main` as it was when it was fetched.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path

from mrp.errors import UserError
from mrp.models.weights import CONFIG, Part, missing_weight_file

# The hub's own rules for names, and git's for branches, tags and commits.
_NAME = r"[A-Za-z0-9_](?:[A-Za-z0-9_.-]{0,94}[A-Za-z0-9_])?"
_REVISION = r"[A-Za-z0-9_](?:[A-Za-z0-9_.+/-]*[A-Za-z0-9_+-])?"
_HUB_ID = re.compile(rf"(?P<repository>{_NAME}/{_NAME})(?:@(?P<revision>{_REVISION}))?")
_COMMIT = re.compile(r"[0-9a-f]{40}")


@dataclass(frozen=True)
class HubId:
    """A repository of the hub and the revision of it that was asked for."""

    repository: str
    revision: str = "main"

    def __str__(self) -> str:
        return self.repository if self.revision == "main" else f"{self.repository}@{self.revision}"


def parse_hub_id(text: str | Path) -> HubId | None:
    """The parts of a hub id; None where the text cannot be one, whatever exists on disk."""
    found = _HUB_ID.fullmatch(str(text))
    if found is None or ".." in str(text) or "//" in str(text) or "--" in found["repository"]:
        return None
    if found["repository"].endswith(".git"):
        return None
    return HubId(found["repository"], found["revision"] or "main")


def is_hub_id(text: str | Path) -> bool:
    """Whether a checkpoint string means a repository of the hub: nothing of that name is here."""
    return parse_hub_id(text) is not None and not os.path.lexists(text)


def local_checkpoint(text: str | Path, part: Part | None = None) -> Path:
    """The directory that a checkpoint string stands for: itself, or a snapshot in the hub's cache.

    Args:
        text: a directory or a hub id.
        part: which weights are needed of a hub's repository; with None they are not looked at.

    Raises:
        UserError: the hub id is malformed, or not downloaded, or not all of what is needed is.
    """
    if not is_hub_id(text):
        owner_and_name, at, revision = str(text).partition("@")
        if at and is_hub_id(owner_and_name) and not os.path.lexists(text):
            raise UserError(
                f"{text}: {revision!r} is no revision: a branch, a tag or a commit follows the @, "
                "as in owner/name@main"
            )
        return Path(text)
    snapshot = _snapshot(text)
    if snapshot is None:
        raise UserError(
            f"{text}: no such directory, and the hub's repository of this name is not downloaded "
            f"to {cache_dir()}: run {_fix(text)}"
        )
    absent = missing_weight_file(snapshot, part) if part is not None else None
    if absent is not None:
        raise UserError(
            f"{text}: only partly downloaded ({absent.name} is missing in {snapshot}): "
            f"run {_fix(text)} to go on"
        )
    return snapshot


def resolved_revision(text: str | Path) -> str | None:
    """The commit of a hub id, or of a directory that is a snapshot of the hub's cache.

    None for any other directory, and for what is not downloaded.
    """
    place = _snapshot(text) if is_hub_id(text) else Path(text).resolve()
    if place is None or place.parent.name != "snapshots" or not _COMMIT.fullmatch(place.name):
        return None
    return place.name


def cache_dir() -> Path:
    """The hub's cache (HF_HUB_CACHE, else HF_HOME/hub, else ~/.cache/huggingface/hub)."""
    from huggingface_hub import constants

    return Path(constants.HF_HUB_CACHE).absolute()


def cached_file(hub_id: HubId, name: str, kind: str = "model") -> Path | None:
    """A file of a repository in the hub's cache, None where it is not there; never the network."""
    from huggingface_hub import try_to_load_from_cache

    found = try_to_load_from_cache(
        hub_id.repository, name, revision=hub_id.revision, repo_type=kind
    )
    return Path(found) if isinstance(found, str) else None


def _snapshot(text: str | Path) -> Path | None:
    """The snapshot of a hub id; a repository without a config.json is no checkpoint."""
    hub_id = parse_hub_id(text)
    config = cached_file(hub_id, CONFIG) if hub_id is not None else None
    return config.parent if config is not None else None


def _fix(text: str | Path) -> str:
    hub_id = parse_hub_id(text)
    assert hub_id is not None
    revision = "" if hub_id.revision == "main" else f" --revision {hub_id.revision}"
    return (
        "`mrp fetch --suite NAME` with a suite that names it, or "
        f"`hf download {hub_id.repository}{revision}`, where the hub can be reached"
    )
