"""The narrow way to the hub: what a repository holds, and one file after another from it."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from mrp.errors import UserError
from mrp.io import sha256_file
from mrp.models.hub import HubId, cache_dir, cached_file

Kind = Literal["model", "dataset"]

STALE = 3600.0  # seconds without a write after which a partial download belongs to no one


@dataclass(frozen=True)
class Listing:
    """A repository at one commit: its files with their sizes in bytes, and its card's metadata.

    `hashes` are the SHA-256 of the large files, as the hub keeps them.
    """

    commit: str
    sizes: Mapping[str, int]
    hashes: Mapping[str, str]
    card: Mapping[str, Any]


@dataclass(frozen=True)
class Download:
    """The files of a repository at one commit that a piece needs."""

    repository: str
    kind: Kind
    asked: str  # the branch, tag or commit that was asked for
    commit: str
    sizes: Mapping[str, int]  # file -> bytes
    hashes: Mapping[str, str]  # file -> SHA-256, where the hub says it

    def path(self, name: str) -> Path | None:
        """Where a file is in the cache; None where it is not there yet."""
        return cached_file(HubId(self.repository, self.commit), name, self.kind)

    @property
    def missing(self) -> list[str]:
        """The files that are still to be downloaded, small ones first."""
        names = [name for name in self.sizes if self.path(name) is None]
        return sorted(names, key=lambda name: (self.sizes[name], name))

    @property
    def missing_bytes(self) -> int:
        """Their size."""
        return sum(self.sizes[name] for name in self.missing)

    @property
    def total_bytes(self) -> int:
        """The size of all files."""
        return sum(self.sizes.values())

    def get(self, name: str, bar: type[Any]) -> Path:
        """Download one file, or find it in the cache; a new one must have the hash that it should.

        Raises:
            UserError: it has another one, and was removed again.
            Exception: whatever the hub's library met.
        """
        known = self.path(name)
        if known is not None:
            return known
        path = get_file(self.repository, name, self.commit, self.kind, bar)
        expected = self.hashes.get(name)
        if expected is not None and sha256_file(path) != expected:
            path.resolve().unlink()
            path.unlink(missing_ok=True)
            raise UserError(f"{name} arrived damaged (its SHA-256 is not the hub's): fetch again")
        return path


def look_up(repository: str, revision: str, kind: Kind) -> Listing:
    """Ask the hub what a repository holds; raises the hub's own exceptions."""
    from huggingface_hub import HfApi

    api = HfApi()
    ask = api.model_info if kind == "model" else api.dataset_info
    info = ask(repository, revision=revision, files_metadata=True)
    card: Any = info.card_data
    files = info.siblings or []
    sizes = {file.rfilename: file.size or 0 for file in files}
    hashes = {file.rfilename: file.lfs.sha256 for file in files if file.lfs is not None}
    return Listing(str(info.sha), sizes, hashes, card.to_dict() if card is not None else {})


def get_file(
    repository: str, name: str, revision: str, kind: Kind, bar: type[Any] | None = None
) -> Path:
    """Download one file to the hub's cache, or find it there; raises the hub's own exceptions.

    A broken connection is taken up again where it broke. A killed process loses the file it was at.
    """
    from huggingface_hub import hf_hub_download

    shown: Any = bar or _NoBar
    return Path(
        hf_hub_download(repository, name, repo_type=kind, revision=revision, tqdm_class=shown)
    )


def remove_stale(repository: str, kind: Kind) -> None:
    """Remove what killed downloads left in the cache: parts of files that nothing goes on with."""
    folder = cache_dir() / f"{kind}s--{repository.replace('/', '--')}" / "blobs"
    for part in folder.glob("*.*.incomplete"):
        try:
            if time.time() - part.stat().st_mtime > STALE:
                part.unlink()
        except OSError:  # of another user, or finished just now
            continue


@dataclass(frozen=True)
class Reason:
    """Why the hub gave nothing, with the fix, in one line.

    `is_silence`: it did not answer at all; to ask for the next piece would only take as long again.
    """

    text: str
    is_silence: bool = False


def reason(error: Exception, revision: str) -> Reason:
    """The reason in an exception that came from a piece or from the hub's library."""
    from huggingface_hub import errors

    if isinstance(error, UserError):
        return Reason(str(error))
    first = next((line for line in str(error).splitlines() if line.strip()), "")
    named = f"{type(error).__name__}: {first}"
    if isinstance(error, errors.GatedRepoError):
        return Reason("its owner wants to be asked: accept the terms on its page, `hf auth login`")
    if isinstance(error, errors.RepositoryNotFoundError):
        return Reason("no such repository, or a private one: correct the id, or `hf auth login`")
    if isinstance(error, errors.RevisionNotFoundError):
        return Reason(f"there is no revision {revision!r}: correct what follows the @")
    if isinstance(error, errors.HfHubHTTPError) and error.response is not None:
        return Reason(f"the hub answers {error.response.status_code} ({first}): try again later")
    if _is_network(error):
        return Reason(f"the hub does not answer ({named}): check network and HF_ENDPOINT", True)
    return Reason(named)


def _is_network(error: BaseException) -> bool:
    """Whether an exception, or what it was raised from, is of the connection.

    By name: which HTTP library is below differs between versions of huggingface_hub.
    """
    seen: BaseException | None = error
    while seen is not None:
        names = {kind.__name__ for kind in type(seen).__mro__}
        network = {"ConnectionError", "ConnectError", "TimeoutException", "NetworkError", "Timeout"}
        if names & (network | {"ProxyError", "LocalEntryNotFoundError", "TransportError"}):
            return True
        seen = seen.__cause__ or seen.__context__
    return False


class _NoBar:
    """Takes the place of a progress bar."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        pass

    def __enter__(self) -> _NoBar:
        return self

    def __exit__(self, *args: object) -> None:
        pass

    def update(self, n: float | None = 1) -> None:
        """Note `n` more bytes."""

    def update_transfer(self, n: float | None = 1) -> None:
        """Note `n` bytes on the wire, which compression makes fewer."""

    def set_postfix_str(self, *args: Any, **kwargs: Any) -> None:
        """Show a rate."""

    set_transfer_postfix_str = set_postfix_str

    def close(self) -> None:
        """End."""


def bar_into(add: Any) -> type[Any]:
    """A stand-in for a progress bar that passes the bytes of each file on to `add`."""

    class Forward(_NoBar):
        def __init__(self, *args: Any, initial: int = 0, **kwargs: Any) -> None:
            if initial:
                add(initial)

        def update(self, n: float | None = 1) -> None:
            add(n or 0)

    return Forward


def top_level(names: Iterable[str]) -> list[str]:
    """The files that do not lie in a folder."""
    return sorted(name for name in names if "/" not in name)
