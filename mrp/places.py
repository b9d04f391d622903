"""Folders that must be folders: asked before a workflow starts."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

from mrp.errors import UserError


def check_folders(folders: Iterable[Path]) -> None:
    """Check that nothing but a folder stands where a folder is to be, or on the way to it.

    Raises:
        UserError: a file does; Snakemake would end in a traceback.
    """
    for folder in folders:
        for place in (folder, *folder.parents):
            if os.path.lexists(place):
                if not place.is_dir():
                    raise UserError(
                        f"{place}: a folder belongs here: move the file away and run again"
                    )
                break
