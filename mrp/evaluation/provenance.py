"""Where a number came from: versions, git revision, device, command line."""

from __future__ import annotations

import importlib.metadata
import platform
import shlex
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import torch

from mrp import __version__

PACKAGES = ("torch", "transformers", "tokenizers", "safetensors", "numpy", "lm-eval", "datasets")


def provenance(device: torch.device) -> dict[str, Any]:
    """What every record says about the process that made it."""
    return {
        "created": datetime.now(UTC).isoformat(timespec="seconds"),
        "mrp": __version__,
        "git": git_revision(),
        "device": device_name(device),
        "packages": package_versions(),
        "python": platform.python_version(),
        "command": shlex.join([Path(sys.argv[0]).name, *sys.argv[1:]]),
    }


def scoring_provenance(code: str) -> dict[str, Any]:
    """What a record says about the process that scored it; `code` is the scoring source's hash."""
    return {
        "created": datetime.now(UTC).isoformat(timespec="seconds"),
        "mrp": __version__,
        "git": git_revision(),
        "code": code,
        "math_verify": importlib.metadata.version("math-verify"),
        "python": platform.python_version(),
        "command": shlex.join([Path(sys.argv[0]).name, *sys.argv[1:]]),
    }


def device_name(device: torch.device) -> str:
    """A GPU's product name, or "cpu"."""
    return torch.cuda.get_device_name(device) if device.type == "cuda" else device.type


def package_versions() -> dict[str, str]:
    """Installed versions of the packages that decide results."""
    found = {}
    for name in PACKAGES:
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found


def git_revision() -> str | None:
    """The commit of the source tree this package runs from, "+changes" where it was edited.

    None for an installed copy, or without git.
    """
    root = Path(__file__).resolve().parents[2]
    if not (root / ".git").exists():
        return None
    try:
        head = _git(root, "rev-parse", "HEAD")
        changed = _git(root, "status", "--porcelain", "--untracked-files=no")
    except (OSError, subprocess.SubprocessError):
        return None
    return head + ("+changes" if changed else "")


def _git(root: Path, *arguments: str) -> str:
    done = subprocess.run(
        ["git", "-C", str(root), *arguments], capture_output=True, text=True, check=True, timeout=10
    )
    return done.stdout.strip()
