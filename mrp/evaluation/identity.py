"""What decides a model's answers, as one JSON value: the key to everything kept from a run."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch

from mrp import __version__
from mrp.decoding import Mode
from mrp.evaluation.provenance import device_name
from mrp.evaluation.tokenizer import tokenizer_hash
from mrp.models import checkpoint_hash
from mrp.source import code_version, mode_code

# The source that turns a prompt's tokens into an answer, with the mode's; scoring is no part of it.
ANSWER_CODE = (
    "models/*.py",
    "evaluation/adapter.py",
    "evaluation/requests.py",
    "evaluation/tokenizer.py",
)


def answer_identity(
    mode_name: str,
    mode: Mode,
    backbone: Path,
    head: Path | None,
    head_variant: str | None,
    dtype: str,
    device: torch.device,
    invariant: bool = False,
) -> dict[str, Any]:
    """Everything but the request that decides an answer; needs no loaded model.

    The batch size is no part of it: answers do not depend on what else is in a batch.

    Args:
        mode_name: name in `mrp.decoding.MODES`.
        mode: the mode with its knobs.
        backbone: checkpoint, with the tokenizer.
        head: checkpoint; None without one.
        head_variant: how the head was trained, where the job says so.
        dtype: name of the weights' type.
        device: where it runs: another kind of GPU rounds otherwise.
        invariant: see `mrp.decoding.Decoder`.

    Raises:
        UserError: a checkpoint is missing.
    """
    return {
        "mrp": __version__,
        "torch": torch.__version__,
        "code": code_version(*ANSWER_CODE, *mode_code(mode_name)),
        "mode": mode_name,
        **asdict(mode),  # type: ignore[call-overload, unused-ignore]
        "backbone_hash": checkpoint_hash(backbone, "backbone"),
        "head_hash": checkpoint_hash(head, "head") if head is not None else None,
        "head_variant": head_variant,
        "tokenizer_hash": tokenizer_hash(backbone),
        "dtype": dtype,
        "device": device_name(device),
        "invariant": invariant,
    }
