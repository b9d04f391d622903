"""Fetch a suite: ask the hub, show the sizes, check the disk, download, list what failed."""

from __future__ import annotations

import logging
import os
import shutil
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tqdm import tqdm

from mrp.closing import Closing
from mrp.config import HeadsFrom, Suite
from mrp.errors import UserError
from mrp.fetch.benchmarks import Benchmark
from mrp.fetch.checkpoints import Checkpoint
from mrp.fetch.hub import Download, bar_into, reason, remove_stale
from mrp.fetch.pieces import pieces
from mrp.grid import missing_pieces
from mrp.io import human_size
from mrp.models.hub import cache_dir

logger = logging.getLogger("mrp.fetch")

Piece = Checkpoint | Benchmark
RESERVE = 1_000_000_000  # bytes that stay free: logs, journals and records need room as well
NOT_ON_THE_HUB = "nothing that is fetched: correct the suite, or put it there"
LOG_INTERVAL = 15.0  # seconds between two lines in a log file


def fetch_suite(suite: Suite, heads: HeadsFrom, dry_run: bool = False) -> None:
    """Download what a suite needs and is not here; print a table of it first.

    Raises:
        UserError: something could not be fetched, or the disk has no room for all; the reasons
            have been printed, one a line.
    """
    wanted = pieces(suite, heads)
    plans, failed = plan_all(wanted)
    if wanted:
        _print_table(suite, plans, len(wanted))
    missing = sum(plan.missing_bytes for plan in plans.values() if plan is not None)
    full = _disk_problem(missing)
    if full is not None:
        failed[str(cache_dir())] = full
    elif not dry_run:
        with Progress(missing) as progress:
            failed |= _download(plans, progress)
    told = [piece for piece in wanted if dry_run or piece.label in failed]
    failed |= dict.fromkeys(_still_missing(suite, heads, told), NOT_ON_THE_HUB)
    if failed:
        _print_failures(failed)
        many = "piece is" if len(failed) == 1 else f"{len(failed)} pieces are"
        raise UserError(
            f"suite {suite.name!r} is not complete: the {many} named above; see to the reasons and "
            "run the same command again: what is here is kept"
        )
    verb = "to be fetched" if dry_run else "fetched"
    here = "everything is here" if wanted else f"suite {suite.name} needs nothing from the hub"
    print(f"{human_size(missing)} {verb}" if missing else here)


def plan_all(wanted: Sequence[Piece]) -> tuple[dict[Piece, Download | None], dict[str, str]]:
    """What is needed of each piece, None for one that is complete; and why some cannot be had.

    A data file that is here is not asked for; a checkpoint is, since only the hub knows all of its
    files. Once the hub does not answer it is not asked again.
    """
    plans: dict[Piece, Download | None] = {}
    failed: dict[str, str] = {}
    silent = _offline()
    for piece in wanted:
        try:
            if isinstance(piece, Benchmark) and piece.is_here():
                plans[piece] = None
            elif silent is None:
                plans[piece] = piece.plan()
        except Exception as error:  # the hub's library raises whatever its network met
            why = reason(error, piece.asked)
            failed[piece.label] = why.text
            silent = why.text if why.is_silence else silent
        if piece in plans:
            continue
        if _is_here(piece):  # then it does not matter what the hub says
            plans[piece] = None
            failed.pop(piece.label, None)
        elif piece.label not in failed:
            failed[piece.label] = str(silent)
    return plans, failed


def _is_here(piece: Piece) -> bool:
    try:
        return piece.is_here()
    except UserError:  # a data file that was changed
        return False


def _download(plans: dict[Piece, Download | None], progress: Progress) -> dict[str, str]:
    """Fetch piece by piece; returns why some could not be had."""
    failed: dict[str, str] = {}
    silent: str | None = None
    for piece, plan in plans.items():
        if plan is None:
            continue
        if silent is not None and plan.missing:
            failed[piece.label] = silent
            continue
        progress.name(piece.label)
        try:
            remove_stale(plan.repository, plan.kind)
            piece.fetch(plan, progress.bar_class)
        except Exception as error:
            why = reason(error, piece.asked)
            failed[piece.label] = why.text
            silent = why.text if why.is_silence else silent
    return failed


def _still_missing(suite: Suite, heads: HeadsFrom, told: Sequence[Piece]) -> list[str]:
    """What the suite lacks all the same, such as directories, without what is `told` already."""
    names = [piece.text if isinstance(piece, Checkpoint) else str(piece.path) for piece in told]
    lines = missing_pieces(suite, heads)
    return [line for line in lines if not any(name in line for name in names)]


def _offline() -> str | None:
    """Why the hub must not be asked, if the environment says so."""
    from huggingface_hub import constants

    if not constants.HF_HUB_OFFLINE:
        return None
    return "HF_HUB_OFFLINE or TRANSFORMERS_OFFLINE is set: run with HF_HUB_OFFLINE=0 to fetch it"


def _print_table(suite: Suite, plans: dict[Piece, Download | None], count: int) -> None:
    print(f"suite {suite.name}: {count} pieces from the hub; its cache is {cache_dir()}")
    for piece, plan in plans.items():
        if plan is None:
            print(f"  {piece.label}: here")
            continue
        left = plan.missing_bytes
        state = f"{human_size(left)} to fetch" if left or plan.missing else "here"
        print(f"  {piece.label}: {human_size(plan.total_bytes)}, {state}; {piece.note(plan)}")
    known = [plan for plan in plans.values() if plan is not None]
    if not known:
        return
    total, left = sum(p.total_bytes for p in known), sum(p.missing_bytes for p in known)
    free = human_size(_free(cache_dir()))
    print(f"  total: {human_size(total)}, {human_size(left)} to fetch, {free} free")


def _print_failures(failed: dict[str, str]) -> None:
    """One line for each reason, with the pieces that it is true of."""
    for why in dict.fromkeys(failed.values()):
        labels = [label for label, reason in failed.items() if reason == why]
        print(f"mrp: failed: {', '.join(labels)}: {why}", file=sys.stderr)


def _disk_problem(missing: int) -> str | None:
    """Why the hub's cache cannot take `missing` bytes; None where it can."""
    place, free = cache_dir(), _free(cache_dir())
    if missing and missing + RESERVE > free:
        return (
            f"{human_size(missing)} are to be fetched and {human_size(RESERVE)} to stay free, but "
            f"there are {human_size(free)}: make room, or set HF_HOME to a directory on a larger "
            "disk"
        )
    if missing and not os.access(_existing(place), os.W_OK):
        return "no right to write here: set HF_HOME to a directory of your own"
    return None


def _free(path: Path) -> int:
    return shutil.disk_usage(_existing(path)).free


def _existing(path: Path) -> Path:
    """The path, or the nearest directory above it that exists."""
    return next(place for place in (path, *path.parents) if place.exists())


class Progress(Closing):
    """Bytes over all pieces: a bar on a terminal, a line now and then in a log file."""

    def __init__(self, total: int) -> None:
        """Start at 0 of `total` bytes."""
        self.total, self.done = total, 0.0
        self.logged = time.monotonic()
        self.label = ""
        self.bar_class = bar_into(self.add)
        self.bar: tqdm[Any] | None = None
        if total and sys.stderr.isatty():
            self.bar = tqdm(total=total, unit="B", unit_scale=True, dynamic_ncols=True)

    def name(self, label: str) -> None:
        """Say which piece comes next."""
        self.label = label
        if self.bar is not None:
            self.bar.set_description_str(label.split(" ")[0])

    def add(self, count: float) -> None:
        """Note `count` more bytes; fewer, where a broken download starts over."""
        self.done += count
        if self.bar is not None:
            self.bar.update(count)
        elif time.monotonic() - self.logged >= LOG_INTERVAL:
            self.logged = time.monotonic()
            logger.info(
                "%s of %s, at %s", human_size(self.done), human_size(self.total), self.label
            )

    def close(self) -> None:
        """Leave the bar as it stands."""
        if self.bar is not None:
            self.bar.close()
