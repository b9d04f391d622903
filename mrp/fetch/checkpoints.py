"""A checkpoint as a piece of a suite: which of a repository's files are needed, and are here.

Only safetensors, JSON and the tokenizer's files: never code, never pickles. Of a released
repository that a suite uses as a head alone, the shards that hold nothing but backbone stay there.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from fnmatch import fnmatch

from mrp.errors import UserError
from mrp.fetch.hub import Download, get_file, look_up, top_level
from mrp.models.hub import local_checkpoint, parse_hub_id, resolved_revision
from mrp.models.weights import CONFIG, INDEX, PICKLES, WEIGHTS, Part, files_in_index

# Beside the weights; a tokenizer is of use to a backbone only.
CONFIGS = (CONFIG, "generation_config.json")
TOKENIZER = ("*.json", "*.jinja", "merges.txt", "vocab.txt", "*.model")
TOKENIZERS = ("tokenizer.json", "vocab.json")


@dataclass(frozen=True)
class Checkpoint:
    """A hub id and the parts of its repository that are used."""

    text: str
    parts: tuple[Part, ...]

    @property
    def label(self) -> str:
        """How tables and messages call it."""
        return f"{self.text} ({' and '.join(self.parts)})"

    @property
    def asked(self) -> str:
        """The revision that is downloaded: where a branch is here already, the commit it meant.

        So a second run completes what the first began, and no result changes under the user.
        """
        hub_id = parse_hub_id(self.text)
        assert hub_id is not None
        return resolved_revision(self.text) or hub_id.revision

    def is_here(self) -> bool:
        """Whether all that decoding needs is in the cache, as far as one can tell offline."""
        try:
            places = [local_checkpoint(self.text, part) for part in self.parts]
        except UserError:
            return False
        wants_tokenizer = "backbone" in self.parts
        return not wants_tokenizer or any((places[0] / name).exists() for name in TOKENIZERS)

    def plan(self) -> Download:
        """Ask the hub which files are needed.

        The index is downloaded for that: it says which shards hold which tensors.

        Raises:
            UserError: the repository is no checkpoint that can be read here.
            Exception: whatever the hub's library met.
        """
        from huggingface_hub.errors import RevisionNotFoundError

        hub_id = parse_hub_id(self.text)
        assert hub_id is not None
        asked = self.asked
        try:
            listing = look_up(hub_id.repository, asked, "model")
        except RevisionNotFoundError:
            if asked == hub_id.revision or self.is_here():
                raise
            asked = hub_id.revision  # what the branch meant is gone: nothing could complete it
            listing = look_up(hub_id.repository, asked, "model")
        sizes = listing.sizes
        if CONFIG not in sizes:
            raise UserError(f"no {CONFIG} in this repository: it is no checkpoint; correct the id")
        if WEIGHTS in sizes:
            shards = [WEIGHTS]
        elif INDEX in sizes:
            index = get_file(hub_id.repository, INDEX, listing.commit, "model")
            shards = sorted({name for part in self.parts for name in files_in_index(index, part)})
            if not shards:
                raise UserError(f"{INDEX} names no tensor of a {self.parts[0]}; correct the id")
        else:
            raise UserError(_no_safetensors(sizes))
        absent = [name for name in shards if name not in sizes]
        if absent:
            raise UserError(
                f"{INDEX} names {absent[0]}, which the repository lacks; correct the id"
            )
        wanted = [*shards, *(name for name in top_level(sizes) if self._is_wanted(name))]
        return Download(
            hub_id.repository,
            "model",
            asked,
            listing.commit,
            {name: sizes[name] for name in dict.fromkeys(wanted)},
            listing.hashes,
        )

    def fetch(self, download: Download, bar: type) -> None:
        """Download what is missing.

        Raises:
            UserError: something is still missing afterwards.
            Exception: whatever the hub's library met.
        """
        # config.json first and by the name that was asked for: that notes what a branch meant.
        get_file(download.repository, CONFIG, download.asked, "model", bar)
        for name in download.missing:
            download.get(name, bar)
        for part in self.parts:
            local_checkpoint(self.text, part)

    def note(self, download: Download) -> str:
        """What the table says about the revision."""
        hub_id = parse_hub_id(self.text)
        named = "" if hub_id is None or download.commit == hub_id.revision else hub_id.revision
        return f"{named or 'commit'} = {download.commit[:12]}"

    def _is_wanted(self, name: str) -> bool:
        if name in CONFIGS or name == INDEX:
            return True
        if "backbone" not in self.parts or name.endswith(".index.json"):
            return False
        return any(fnmatch(name, pattern) for pattern in TOKENIZER)


def _no_safetensors(names: Iterable[str]) -> str:
    pickles = [n for n in top_level(names) if any(fnmatch(n, pattern) for pattern in PICKLES)]
    if pickles:
        return (
            f"only pickled weights ({pickles[0]}), which can run code when they are loaded and are "
            "not read: name a revision or a repository with safetensors"
        )
    return f"no {WEIGHTS} and no {INDEX} in this repository: it is no checkpoint; correct the id"
