"""Backbone and head as one repository in the layout of the released checkpoints.

    config.json                         model_type sdar, block_size, num_nextn_predict_layers, ...
    model.safetensors.index.json        tensor -> shard
    model-00001-of-00004.safetensors    model.*, lm_head.weight, mrp_modules.0.model.*
    generation_config.json, tokenizer files

There is no `auto_map`: it would name Python files that load only as remote code. None are shipped
here, and with the key but without the files transformers could not even read the config. Who wants
to run the authors' modelling code adds their files and that key. The copies of E and W that some
released heads repeat are left out, too: they are tied on loading.
"""

from __future__ import annotations

import logging
import os
import re
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file

from mrp.errors import UserError
from mrp.io import atomic_write, atomic_write_bytes, atomic_write_json, human_size
from mrp.models.checkpoint import Source, backbone_sources, check_fit, head_sources
from mrp.models.configuration import (
    GENERATION,
    backbone_json,
    head_json,
    read_backbone_config,
    read_config,
    read_head_config,
)
from mrp.models.head import Head, HeadConfig
from mrp.models.hub import local_checkpoint
from mrp.models.transformer import Backbone, BackboneConfig
from mrp.models.weights import CONFIG, HEAD_PREFIX, INDEX, read_tensors

logger = logging.getLogger(__name__)

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}
UNITS = {"": 1, "B": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9}
UNITS |= {"KIB": 2**10, "MIB": 2**20, "GIB": 2**30}
TOKENIZER_FILES = (
    *("tokenizer.json", "tokenizer_config.json", "vocab.json", "merges.txt", "vocab.txt"),
    *("tokenizer.model", "added_tokens.json", "special_tokens_map.json", "chat_template.jinja"),
)
# What a backbone's config.json may say about code or places that are not exported.
NOT_EXPORTED = ("auto_map", "_name_or_path", "dtype", "transformers_version")


@dataclass(frozen=True)
class Entry:
    """A tensor to write: its name, where it comes from, its size in bytes."""

    name: str
    source: Source
    size: int


def export(
    backbone: Path | str, head: Path | str, out: Path, dtype: str, max_shard_size: str
) -> dict[str, int]:
    """Write backbone and head to the new directory `out`; it appears complete or not at all.

    Tensors are read, converted and written shard by shard: memory for one shard is enough.

    Args:
        backbone: a directory or hub id, with its tokenizer.
        head: the head that was trained on it, likewise.
        out: must not exist, or be empty.
        dtype: float32, bfloat16 or float16.
        max_shard_size: such as 5GB; a larger tensor gets a shard of its own.

    Returns:
        The numbers of "tensors", "shards" and "bytes".

    Raises:
        UserError: a bad option, a damaged or ill-fitting checkpoint, `out` is not empty or its disk
            is too small.
    """
    if dtype not in DTYPES:
        raise UserError(f"--dtype {dtype!r} is unknown: choose one of {', '.join(DTYPES)}")
    limit = parse_size(max_shard_size)
    if out.exists() and not (out.is_dir() and not any(out.iterdir())):
        raise UserError(f"--out {out}: something is there already; name a new directory")
    from_backbone, from_head = local_checkpoint(backbone), local_checkpoint(head)
    shape, head_shape = read_backbone_config(from_backbone), read_head_config(from_head)
    check_fit(from_head, head_shape, shape)
    entries = list(_entries(from_backbone, shape, from_head, head_shape, DTYPES[dtype]))
    total = sum(entry.size for entry in entries)
    # A head begins a shard of its own: whoever wants the head alone need not fetch the backbone.
    is_head = [entry.name.startswith(HEAD_PREFIX) for entry in entries]
    cut = is_head.index(True)
    shards = [*_shards(entries[:cut], limit), *_shards(entries[cut:], limit)]
    out.parent.mkdir(parents=True, exist_ok=True)
    free = shutil.disk_usage(out.parent).free
    if total > free:
        raise UserError(
            f"--out {out}: {human_size(total)} to write, {human_size(free)} are free; make room"
        )
    config = {
        **_kept(read_config(from_backbone)[1]),
        **backbone_json(shape),
        **head_json(head_shape),
        "torch_dtype": dtype,
    }
    said = read_config(from_head)[1]
    for key in (
        "mrp_variant",
        "mrp_objective",
    ):  # a released head does not say: no guess is written
        if key not in said:
            del config[key]
    partial = out.with_name(f".{out.name}.partial")
    shutil.rmtree(partial, ignore_errors=True)  # of a run that was killed
    try:
        _write_shards(partial, shards, total, DTYPES[dtype])
        _copy_small_files(from_backbone, partial, shape)
        atomic_write_json(partial / CONFIG, config)
        os.replace(partial, out)
    finally:
        shutil.rmtree(partial, ignore_errors=True)
    return {"tensors": len(entries), "shards": len(shards), "bytes": total}


def parse_size(text: str) -> int:
    """Bytes from a text such as 5GB, 500MB or 1GiB.

    Raises:
        UserError: it is none.
    """
    found = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([A-Za-z]*)\s*", text)
    size = float(found[1]) * UNITS.get(found[2].upper(), 0) if found is not None else 0
    if size < 1:
        raise UserError(f"--max-shard-size {text!r} is no size: such as 5GB, 500MB or 1GiB")
    return int(size)


def _entries(
    from_backbone: Path,
    shape: BackboneConfig,
    from_head: Path,
    head_shape: HeadConfig,
    dtype: torch.dtype,
) -> Iterator[Entry]:
    """All tensors of both, checked against their configs, in the order of the modules."""
    with torch.device("meta"):
        model, head = Backbone(shape), Head(head_shape)
    parts: tuple[tuple[str, Any, dict[str, Source]], ...] = (
        ("", model, backbone_sources(from_backbone, model)),
        (HEAD_PREFIX, head, head_sources(from_head, head)),
    )
    for prefix, module, sources in parts:
        for name, tensor in module.state_dict().items():
            yield Entry(prefix + name, sources[name], prod(tensor.shape) * dtype.itemsize)


def _shards(entries: list[Entry], limit: int) -> Iterator[list[Entry]]:
    """Cut the tensors into shards of at most `limit` bytes, but at least one tensor."""
    shard: list[Entry] = []
    for entry in entries:
        if shard and sum(e.size for e in shard) + entry.size > limit:
            yield shard
            shard = []
        shard.append(entry)
    yield shard


def _write_shards(
    directory: Path, shards: list[list[Entry]], total: int, dtype: torch.dtype
) -> None:
    places: dict[str, str] = {}
    for number, shard in enumerate(shards, start=1):
        name = f"model-{number:05d}-of-{len(shards):05d}.safetensors"
        tensors = {entry.name: _read(entry.source, dtype) for entry in shard}
        _save_shard(directory / name, tensors)
        places |= dict.fromkeys(tensors, name)
    index = {"metadata": {"total_size": total}, "weight_map": dict(sorted(places.items()))}
    atomic_write_json(directory / INDEX, index)


def _read(source: Source, dtype: torch.dtype) -> torch.Tensor:
    return next(read_tensors({source.name: source.path}, "cpu", dtype))[1]


def _save_shard(path: Path, tensors: dict[str, torch.Tensor]) -> None:
    atomic_write(path, lambda temporary: save_file(tensors, temporary, {"format": "pt"}))


def _copy_small_files(source: Path, directory: Path, shape: BackboneConfig) -> None:
    """The tokenizer and the generation config, which names the end tokens."""
    names = [name for name in (*TOKENIZER_FILES, GENERATION) if (source / name).exists()]
    for name in names:
        atomic_write_bytes(directory / name, (source / name).read_bytes())
    if GENERATION not in names:
        values = {"eos_token_id": list(shape.eos_token_ids), "pad_token_id": shape.pad_token_id}
        atomic_write_json(directory / GENERATION, values)
    if not {"tokenizer.json", "vocab.json"} & set(names):
        logger.warning("%s has no tokenizer, so the export has none: add its files", source)


def _kept(raw: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in raw.items() if key not in NOT_EXPORTED}
