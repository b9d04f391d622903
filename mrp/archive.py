"""A suite's results as one file, to be carried to another machine and to go on there.

The archive is a gzipped tar: manifest.json first, then the files of results/<suite>, each with its
SHA-256 in the manifest. Unpacking checks all of them before it touches anything, and keeps the
files' times, by which Snakemake decides what is up to date.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import shutil
import tarfile
import tempfile
import zlib
from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path, PurePosixPath
from typing import Any

import mrp
from mrp.errors import UserError
from mrp.io import atomic_write, sha256_file

FORMAT = 1
MANIFEST = "manifest.json"
WEIGHTS = (".safetensors", ".pt")  # checkpoints and resume points: most of the bytes


def pack(results: Path, suite: str, out: Path, weights: bool = True) -> dict[str, Any]:
    """Write the files of results/<suite> to the archive `out`; returns its manifest.

    Without `weights` checkpoints and resume points stay behind: enough for tables and figures.

    Raises:
        UserError: there is nothing to pack, a file changed meanwhile, or `out` lies among what is
            packed, where the next archive would hold it.
    """
    root = Path(results) / suite
    if Path(out).resolve().is_relative_to(root.resolve()):
        raise UserError(
            f"--out {out}: in {root}, whose files are packed: it would be packed itself the next "
            "time; name a place outside"
        )
    files = [path for path in _files(root) if weights or path.suffix not in WEIGHTS]
    if not files:
        raise UserError(
            f"--results {results}: no results of suite {suite!r} in {root}: "
            f"run `snakemake --config suite={suite}` first"
        )
    manifest = {
        "format": FORMAT,
        "suite": suite,
        "created": datetime.now(UTC).isoformat(timespec="seconds"),
        "mrp": mrp.__version__,
        "files": {
            path.relative_to(root).as_posix(): {
                "size": path.stat().st_size,
                "sha256": sha256_file(path),
            }
            for path in files
        },
    }

    def write(temporary: Path) -> None:
        with tarfile.open(temporary, "w:gz", compresslevel=1) as tar:
            listing = json.dumps(manifest, indent=1).encode()
            header = tarfile.TarInfo(MANIFEST)
            header.size = len(listing)
            tar.addfile(header, io.BytesIO(listing))
            for path in files:
                _add(tar, path, path.relative_to(root).as_posix(), manifest["files"])

    atomic_write(Path(out), write)
    return manifest


def unpack(archive: Path, results: Path, replace: bool = False) -> tuple[dict[str, Any], int]:
    """Put an archive's files into results/<suite>; files that are there and equal stay.

    Args:
        archive: what `pack` wrote.
        results: the folder that holds the suites' results.
        replace: overwrite files that are there and differ.

    Returns:
        The manifest and how many files were written.

    Raises:
        UserError: no archive of ours, a damaged one, or files there that differ; nothing is changed
            then.
    """
    results = Path(results)
    results.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".unpack-", dir=results) as scratch:
        manifest = _extract(Path(archive), Path(scratch))
        root = results / manifest["suite"]
        new = [name for name in manifest["files"] if not _equal(root / name, manifest, name)]
        differing = [name for name in new if os.path.lexists(root / name)]
        if differing and not replace:
            more = f" (and {len(differing) - 1} more)" if len(differing) > 1 else ""
            raise UserError(
                f"{archive}: {root / differing[0]} is there and differs{more}: nothing was "
                "unpacked; give --replace to overwrite, or another --results"
            )
        for name in new:
            for folder in (root / name).parents:
                if folder.is_file():
                    raise UserError(f"{archive}: {folder} is a file, no folder: move it away")
            if (root / name).is_dir():
                raise UserError(f"{archive}: {root / name} is a folder, no file: move it away")
        for name in new:
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            os.replace(Path(scratch) / name, root / name)
    return manifest, len(new)


def _files(root: Path) -> Iterable[Path]:
    """The regular files below `root`, less temporary ones, in the order of their names."""
    return sorted(
        path
        for path in root.rglob("*")
        if path.is_file() and not path.is_symlink() and path.suffix != ".tmp"
    )


def _add(tar: tarfile.TarFile, path: Path, name: str, listed: Any) -> None:
    data = path.read_bytes()
    if hashlib.sha256(data).hexdigest() != listed[name]["sha256"]:
        raise UserError(f"{path}: changed while it was packed: wait until its job has ended")
    header = tarfile.TarInfo(name)
    header.size, header.mtime = len(data), path.stat().st_mtime
    tar.addfile(header, io.BytesIO(data))


def _extract(archive: Path, scratch: Path) -> dict[str, Any]:
    """Extract an archive into `scratch` and check every file; returns the manifest."""
    damaged = f"{archive}: damaged, or no archive of `mrp pack`"
    try:
        with tarfile.open(archive, "r:gz") as tar:
            manifest = _manifest(tar, damaged)
            while (member := tar.next()) is not None:
                if member.name not in manifest["files"] or not member.isreg():
                    raise UserError(f"{damaged}: {member.name!r} is not in its manifest")
                source = tar.extractfile(member)
                assert source is not None
                target = scratch / member.name
                target.parent.mkdir(parents=True, exist_ok=True)
                with open(target, "wb") as file:
                    shutil.copyfileobj(source, file)
                os.utime(target, (member.mtime, member.mtime))
    except FileNotFoundError:
        raise UserError(f"{archive}: no such file") from None
    except (tarfile.TarError, EOFError, OSError, zlib.error) as error:
        raise UserError(f"{damaged}: {error}") from None
    for name in manifest["files"]:
        if not _equal(scratch / name, manifest, name):
            raise UserError(f"{damaged}: {name} is missing or has another SHA-256")
    return manifest


def _manifest(tar: tarfile.TarFile, damaged: str) -> dict[str, Any]:
    """The first member, checked: a plain suite name, and only paths that stay inside it."""
    first = tar.next()
    source = tar.extractfile(first) if first is not None and first.name == MANIFEST else None
    if source is None:
        raise UserError(f"{damaged}: it does not begin with {MANIFEST}")
    try:
        manifest: dict[str, Any] = json.loads(source.read())
        version, suite, files = manifest["format"], manifest["suite"], manifest["files"]
        paths = [PurePosixPath(name) for name in [suite, *files]]
        if not all({"size", "sha256"} <= facts.keys() for facts in files.values()):
            raise ValueError("files without size or sha256")
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise UserError(f"{damaged}: its {MANIFEST} is not readable ({error})") from None
    if version != FORMAT:
        raise UserError(f"{damaged}: format {version!r}, this version reads {FORMAT}")
    if not all(name.isprintable() for name in [suite, *files]):
        raise UserError(f"{damaged}: its {MANIFEST} names files that no file system takes")
    if len(paths[0].parts) != 1 or any(path.is_absolute() or ".." in path.parts for path in paths):
        raise UserError(f"{damaged}: its {MANIFEST} names files outside the suite's folder")
    return manifest


def _equal(path: Path, manifest: dict[str, Any], name: str) -> bool:
    listed = manifest["files"][name]
    return (
        path.is_file()
        and path.stat().st_size == listed["size"]
        and sha256_file(path) == listed["sha256"]
    )
