"""What training a backbone and training a head do alike: samples in, finished directory out."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch

from mrp.data import encode_chat, encode_pool, test_prompts
from mrp.errors import UserError
from mrp.evaluation.provenance import provenance
from mrp.io import atomic_write_json, sha256_file
from mrp.memory import is_out_of_memory
from mrp.training.distributed import World
from mrp.training.loop import Outcome
from mrp.training.packing import PackedRows, Sample, pack
from mrp.training.settings import DataSettings, Optimization
from mrp.training.state import (
    CHECKPOINT,
    PROVENANCE,
    WEIGHTS,
    clear,
    finished,
    other_run,
    set_aside,
)

logger = logging.getLogger(__name__)


def packed_pool(
    settings: Optimization, data: DataSettings, tokenizer: Any, block_size: int, fill_id: int
) -> PackedRows:
    """The training examples as packed rows: generated mini tasks, or chats of a .jsonl file.

    Raises:
        UserError: the file is missing or a line is no chat.
    """
    if settings.source == "mini":
        exclude = test_prompts(data.seed, data.test, data.level)
        encoded = encode_pool(
            settings.pool, settings.seed, data.level, tokenizer, block_size, exclude
        )
        samples: list[Sample] = [(ids, np.arange(len(ids)) >= prompt) for ids, prompt in encoded]
    else:
        samples = [encode_chat(tokenizer, chat) for chat in _read_chats(Path(settings.source))]
    return pack(samples, settings.packed_length, block_size, fill_id)


def prepare(out_dir: Path, who: Mapping[str, Any], world: World, restart: bool) -> bool:
    """Make the directory ready for the run `who`; False if its result is there already.

    What a run of other settings or other code left is kept as *.old, and this one starts over. With
    `restart`, whatever is there is forgotten.

    Raises:
        UserError: what is there is damaged.
    """
    if not restart and finished(out_dir, who):
        return False
    change = None if restart else other_run(out_dir, who)
    world.wait()  # until all have read what the first now moves
    if world.leads:
        out_dir.mkdir(parents=True, exist_ok=True)
        if restart:
            clear(out_dir)
        elif change:
            kept = "the earlier run is kept as *.old"
            logger.warning("%s: starting over: %s; %s", out_dir, change, kept)
            set_aside(out_dir)
    world.wait()
    return True


@contextmanager
def naming_memory(settings: Optimization, world: World) -> Iterator[None]:
    """Turn a lack of memory into one line with what helps.

    Raises:
        UserError: in its place.
    """
    try:
        yield
    except (RuntimeError, MemoryError) as error:
        if not is_out_of_memory(error):
            raise
        raise UserError(
            f"out of memory with batch_size {settings.batch_size}, packed_length "
            f"{settings.packed_length}, accumulate {settings.accumulate} and {world.size} of "
            "gpus_per_training: raise accumulate (train settings) or gpus_per_training "
            "(config/config.yaml), which leave the weights as they are, or lower batch_size"
        ) from error


def finish(
    out_dir: Path,
    identity: Mapping[str, Any],
    outcome: Outcome,
    device: torch.device,
    world: World,
    parameters: int,
) -> None:
    """Write provenance.json, which marks the directory as whole, and drop the resume point."""
    atomic_write_json(
        out_dir / PROVENANCE,
        {
            **provenance(device),
            "identity": dict(identity),
            "parameters": parameters,
            "final": outcome.last,
            "seconds": outcome.seconds,
            "resumed_from": outcome.resumed_from,
            "processes": world.size,
            "sha256": sha256_file(out_dir / WEIGHTS),
        },
    )
    (out_dir / CHECKPOINT).unlink(missing_ok=True)


def _read_chats(path: Path) -> list[list[dict[str, str]]]:
    if not path.exists():
        raise UserError(f"{path}: no such file (key 'source'); name a .jsonl file, or 'mini'")
    chats = []
    with open(path, "rb") as file:
        for number, line in enumerate(file, start=1):
            try:
                messages = json.loads(line)["messages"]
                chats.append([{"role": m["role"], "content": m["content"]} for m in messages])
            except (ValueError, KeyError, TypeError):
                raise UserError(
                    f"{path}: line {number} is no chat; each line must be a JSON object with "
                    "'messages', a list of objects with 'role' and 'content'"
                ) from None
    return chats
