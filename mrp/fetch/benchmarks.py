"""A benchmark's problems as a piece of a suite: a hub data set's split as one jsonl file.

`<task>.jsonl` has the hub's columns, one row a line; `<task>.source.json` beside it says where they
came from. A file without that note is the user's own and is left alone.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from fnmatch import fnmatch
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any

from mrp.errors import UserError
from mrp.fetch.hub import Download, look_up
from mrp.io import atomic_write_bytes, atomic_write_json, read_json, sha256_file

if TYPE_CHECKING:
    from mrp.evaluation.tasks import HubSource

FORMATS = (".parquet", ".jsonl", ".json")  # in the order of preference where one split has several


@dataclass(frozen=True)
class Benchmark:
    """A task, where its problems are on the hub, and the directory they go to."""

    task: str
    source: HubSource
    directory: Path

    @property
    def label(self) -> str:
        """How tables and messages call it."""
        return f"{self.task}: {self.source.id} ({self.source.config}, {self.source.split})"

    @property
    def asked(self) -> str:
        """The revision that is downloaded."""
        return self.source.revision

    @property
    def path(self) -> Path:
        """The file that tasks read."""
        return self.directory / f"{self.task}.jsonl"

    @property
    def note_path(self) -> Path:
        """The file that says where the problems came from."""
        return self.directory / f"{self.task}.source.json"

    def is_here(self) -> bool:
        """Whether the file is there and is this very split, or the user's own.

        Raises:
            UserError: it was changed after it was fetched.
        """
        if not self.path.exists():
            return False
        if not self.note_path.exists():
            return True
        note = read_json(self.note_path)
        if not isinstance(note, dict) or note.get("sha256") != sha256_file(self.path):
            raise UserError(
                f"{self.path} is not what {self.note_path.name} says was fetched: delete both to "
                "fetch again, or that note to keep the file"
            )
        return all(note.get(key) == value for key, value in asdict(self.source).items())

    def plan(self) -> Download:
        """Ask the hub which files hold the split.

        Raises:
            UserError: none does.
            Exception: whatever the hub's library met.
        """
        source = self.source
        listing = look_up(source.id, source.revision, "dataset")
        names = split_files(listing.sizes, listing.card, source.config, source.split)
        if not names:
            raise UserError(
                f"no {', '.join(FORMATS)} file of config {source.config!r}, split {source.split!r} "
                f"in this data set: correct dataset_name and test_split of task {self.task!r}"
            )
        sizes = {name: listing.sizes[name] for name in names}
        return Download(
            source.id, "dataset", source.revision, listing.commit, sizes, listing.hashes
        )

    def fetch(self, download: Download, bar: type) -> None:
        """Download the files and write the jsonl file and the note.

        Raises:
            UserError: a file is damaged or holds no rows.
            Exception: whatever the hub's library met.
        """
        paths = [download.get(name, bar) for name in download.sizes]
        rows = [row for path in paths for row in read_rows(path)]
        if not rows:
            raise UserError(f"the split {self.source.split!r} has no rows: correct test_split")
        data = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows).encode()
        note = {
            **asdict(self.source),
            "commit": download.commit,
            "files": list(download.sizes),
            "rows": len(rows),
            "sha256": hashlib.sha256(data).hexdigest(),
        }
        # The note before the data: killed between, the next run sees no data and starts over.
        self.path.unlink(missing_ok=True)
        atomic_write_json(self.note_path, note)
        atomic_write_bytes(self.path, data)

    def note(self, download: Download) -> str:
        """What the table says about the revision."""
        return f"commit = {download.commit[:12]}"


def split_files(
    names: Iterable[str], card: Mapping[str, Any], config: str, split: str
) -> list[str]:
    """The files of one split of one config, as the data set's card or else its paths say.

    Cards list `configs` with `data_files`, as patterns by split. Without such a list a file counts
    whose name has the split's name in it and, for a config that is not "default", whose path has
    the config's.
    """
    readable = sorted(name for name in names if PurePosixPath(name).suffix in FORMATS)
    configs = [entry for entry in card.get("configs") or [] if isinstance(entry, dict)]
    listed = [entry for entry in configs if entry.get("config_name", "default") == config]
    patterns = [p for entry in listed for p in _patterns(entry.get("data_files"), split)]
    if patterns:
        found = [name for name in readable if any(fnmatch(name, p) for p in patterns)]
    else:
        found = [name for name in readable if _is_of(PurePosixPath(name), config, split)]
    by_format = ([n for n in found if n.endswith(suffix)] for suffix in FORMATS)
    return next((names for names in by_format if names), [])


def read_rows(path: Path) -> list[dict[str, Any]]:
    """The rows of a parquet, jsonl or JSON file.

    Raises:
        UserError: it is damaged.
    """
    try:
        if path.suffix == ".parquet":
            import pyarrow.parquet

            rows: list[dict[str, Any]] = pyarrow.parquet.read_table(path).to_pylist()
            return rows
        text = path.read_text("utf-8")
        if path.suffix == ".json" and text.lstrip().startswith("["):
            return list(json.loads(text))
        # Not splitlines: JSON strings may hold other line separators.
        return [json.loads(line) for line in text.split("\n") if line.strip()]
    except (ValueError, OSError) as error:  # pyarrow's own exceptions are ValueErrors and OSErrors
        first = str(error).splitlines()[0]
        raise UserError(f"{path}: damaged ({first}): delete it and fetch again") from None


def _patterns(data_files: Any, split: str) -> list[str]:
    """The patterns of a split in a card's `data_files`: a list of {split, path}."""
    entries = data_files if isinstance(data_files, list) else []
    paths: list[str] = []
    for entry in entries:
        if isinstance(entry, dict) and entry.get("split") == split:
            path = entry.get("path")
            paths += path if isinstance(path, list) else [str(path)]
    return paths


def _is_of(path: PurePosixPath, config: str, split: str) -> bool:
    words = re.split(r"[^A-Za-z0-9]+", path.stem)
    folders = path.parts[:-1]
    return (split in words or split in folders) and (config == "default" or config in folders)
