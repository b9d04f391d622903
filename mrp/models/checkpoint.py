"""Checkpoints: config.json beside safetensors, in the published layouts, from disk or hub cache.

A backbone has `model.*` and `lm_head.weight`; a head's tensors are called `mrp_modules.0.model.*`
(older files say `mtp_modules.`) and may stand in a directory of their own or together with the
backbone, as the released repositories have it. Every `checkpoint` below is a directory or a hub id
(see `mrp.models.hub`).
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import torch
from safetensors.torch import save_file
from torch import Tensor, nn

from mrp.errors import UserError
from mrp.io import atomic_write, atomic_write_json, sha256_file
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
from mrp.models.weights import (
    CONFIG,
    HEAD_PREFIX,
    HEAD_PREFIXES,
    WEIGHTS,
    Part,
    check_shapes,
    read_tensors,
    tensor_files,
    weight_files,
)

# Copies of frozen tensors that some released files repeat under the head's name.
TIED_COPIES = ("model.embed_tokens.", "lm_head.", "model.lm_head.")
EMBEDDING, OUTPUT = "model.embed_tokens.weight", "lm_head.weight"
# What a head and its backbone must agree in; a head of another kind would run and be wrong.
SHARED = (
    *("vocab_size", "hidden_size", "block_size", "head_dim", "num_attention_heads"),
    *("num_key_value_heads", "mask_token_id", "rope_theta"),
)


class Source(NamedTuple):
    """Where a tensor is: the weight file and its name there."""

    path: Path
    name: str


def save_backbone(model: Backbone, directory: Path, extra: dict[str, Any] | None = None) -> None:
    """Write a backbone to `directory`; `extra` entries are added to config.json."""
    config = {**backbone_json(model.config), **(extra or {})}
    _save(directory, config, dict(model.state_dict()))


def save_head(head: Head, directory: Path, extra: dict[str, Any] | None = None) -> None:
    """Write a head alone to `directory`, with the shape of the backbone it belongs to."""
    config = {**backbone_json(head.config.backbone), **head_json(head.config), **(extra or {})}
    state = {HEAD_PREFIX + name: tensor for name, tensor in head.state_dict().items()}
    _save(directory, config, state)


def load_backbone(
    checkpoint: Path | str,
    device: torch.device | str = "cpu",
    dtype: torch.dtype = torch.float32,
) -> Backbone:
    """Load a backbone in evaluation mode with gradients off; a head beside it is not read.

    Raises:
        UserError: something is missing, damaged or of another shape; names the tensor or key.
    """
    directory = local_checkpoint(checkpoint)
    with torch.device("meta"):
        model = Backbone(read_backbone_config(directory))
    sources = backbone_sources(directory, model)
    _fill(model, sources, device, dtype)
    if _is_tied(directory) and not torch.equal(
        model.lm_head.weight, model.model.embed_tokens.weight
    ):
        raise UserError(
            f"{directory / CONFIG}: 'tie_word_embeddings' is True, yet {OUTPUT!r} and "
            f"{EMBEDDING!r} differ; set it to false if the model was trained so"
        )
    return model


def load_head(
    checkpoint: Path | str,
    backbone: Backbone,
    device: torch.device | str = "cpu",
    dtype: torch.dtype = torch.float32,
    variant: str | None = None,
) -> Head:
    """Load a head in evaluation mode with gradients off and check that it fits `backbone`.

    A backbone beside it is not read.

    Raises:
        UserError: as `load_backbone`; also where it was made for a backbone of another shape.
    """
    directory = local_checkpoint(checkpoint)
    config = read_head_config(directory, variant)
    check_fit(directory, config, backbone.config)
    with torch.device("meta"):
        head = Head(config)
    _fill(head, head_sources(directory, head), device, dtype)
    return head


def check_fit(directory: Path, head: HeadConfig, backbone: BackboneConfig) -> None:
    """Check that the head in `directory` was made for a backbone of this shape.

    Raises:
        UserError: it was not; names the key and both values.
    """
    for key in SHARED:
        ours, theirs = getattr(head.backbone, key), getattr(backbone, key)
        if ours != theirs:
            raise UserError(
                f"{directory}: the head was made for {key}={ours}, the backbone has {key}={theirs};"
                " use the backbone that the head was trained on (a released head's stands in its "
                "own repository)"
            )


def backbone_sources(directory: Path, model: Backbone) -> dict[str, Source]:
    """Where each tensor of a backbone comes from, by its name; names and shapes are checked.

    Args:
        directory: the checkpoint.
        model: a backbone of the shape that its config.json asks for, without weights.

    Raises:
        UserError: a tensor is missing, too many or of another shape.
    """
    files = tensor_files(directory, "backbone")
    shapes = {name: tensor.shape for name, tensor in model.state_dict().items()}
    if not files:
        raise UserError(
            f"{directory}: no tensor of a backbone here ({EMBEDDING!r} is missing): this is a head "
            "alone; give the backbone that it was trained on"
        )
    sources = {name: name for name in shapes}
    if OUTPUT not in files and _is_tied(directory):
        sources[OUTPUT] = EMBEDDING
        shapes.pop(OUTPUT)
    check_shapes(directory, files, shapes)
    return {name: Source(files[source], source) for name, source in sources.items()}


def head_sources(directory: Path, head: Head) -> dict[str, Source]:
    """Where each tensor of a head comes from, by its name; names, shapes and depth are checked.

    Args:
        directory: the checkpoint.
        head: a head of the shape that its config.json asks for, without weights.

    Raises:
        UserError: a tensor is missing, too many or of another shape; the depth differs.
    """
    files = {
        name: path
        for name, path in tensor_files(directory, "head").items()
        if not name.split(".", 2)[-1].startswith(TIED_COPIES)
    }
    prefixes = [p for p in HEAD_PREFIXES if any(name.startswith(p) for name in files)]
    if not prefixes:
        raise UserError(
            f"{directory}: no tensor of a head here ({HEAD_PREFIX}*), although {CONFIG} has "
            "'num_nextn_predict_layers'; name a directory written by `mrp train-head` or a "
            "released MRP repository"
        )
    if len(prefixes) > 1:
        raise UserError(
            f"{directory}: tensors of two heads, {' and '.join(f'{p}*' for p in prefixes)}; remove "
            "the one that is not wanted"
        )
    layers = f"{prefixes[0]}layers."
    depth = len({name[len(layers) :].split(".")[0] for name in files if name.startswith(layers)})
    if depth != head.config.num_layers:
        raise UserError(
            f"{directory / CONFIG}: 'num_nextn_predict_layers' is {head.config.num_layers}, the "
            f"weights have {depth} layers ({layers}*); take the config.json of these weights"
        )
    shapes = {prefixes[0] + name: tensor.shape for name, tensor in head.state_dict().items()}
    check_shapes(directory, files, shapes)
    return {name[len(prefixes[0]) :]: Source(files[name], name) for name in shapes}


def checkpoint_hash(checkpoint: Path | str, part: Part | None = None) -> str:
    """SHA-256 over a checkpoint's config files and weight files: its identity in records.

    With `part` the files of a released repository that hold nothing of it are left out: a head's
    identity does not need its backbone on disk.

    Raises:
        UserError: the checkpoint is missing.
    """
    directory = local_checkpoint(checkpoint)
    config, _ = read_config(directory)
    digest = hashlib.sha256()
    generation = directory / GENERATION  # it names the end tokens
    configs = [config, generation] if generation.exists() else [config]
    for path in [*configs, *weight_files(directory, part)]:
        digest.update(f"{path.name} {sha256_file(path)}\n".encode())
    return digest.hexdigest()


def _is_tied(directory: Path) -> bool:
    return bool(read_config(directory)[1].get("tie_word_embeddings"))


def _save(directory: Path, config: dict[str, Any], state: dict[str, Tensor]) -> None:
    """Write the weights first and the config last: a directory with a config is complete."""
    directory = Path(directory)
    state = {name: tensor.detach().cpu().contiguous() for name, tensor in state.items()}
    atomic_write(directory / WEIGHTS, lambda path: save_file(state, path, {"format": "pt"}))
    atomic_write_json(directory / CONFIG, config)


def _fill(
    model: nn.Module,
    sources: Mapping[str, Source],
    device: torch.device | str,
    dtype: torch.dtype,
) -> None:
    """Give a module on the meta device its weights, read one by one; ready for inference."""
    filled: dict[str, Tensor] = {}
    used = {source.name: source.path for source in sources.values()}
    read = dict(read_tensors(used, device, dtype))
    for name, source in sources.items():
        # A tied tensor is copied: parameters that share memory could not be saved again.
        filled[name] = read[source.name].clone() if source.name in filled else read[source.name]
    model.load_state_dict(filled, assign=True)
    model.eval().requires_grad_(False)
