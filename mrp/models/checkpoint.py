"""Checkpoints as directories: config.json beside safetensors, in the published layouts.

A backbone directory holds `model.*` and `lm_head.weight`; a head's tensors are called
`mrp_modules.0.model.*` (older files say `mtp_modules.`) and may stand in a directory of their own
or together with the backbone, as the released repositories have it.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from dataclasses import fields
from pathlib import Path
from typing import Any, TypeGuard, cast, get_args

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor, nn

from mrp.errors import UserError
from mrp.io import atomic_write, atomic_write_json, read_json, sha256_file
from mrp.models.head import Head, HeadConfig, Objective
from mrp.models.transformer import Backbone, BackboneConfig

CONFIG, WEIGHTS, INDEX = "config.json", "model.safetensors", "model.safetensors.index.json"
HEAD_PREFIX = "mrp_modules.0.model."
HEAD_PREFIXES = (HEAD_PREFIX, "mtp_modules.0.model.")
# Keys of config.json that are whole numbers of at least 1.
COUNTS = (
    *("vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers"),
    *("num_attention_heads", "num_key_value_heads", "head_dim"),
    *("block_size", "max_position_embeddings"),
)
# Copies of frozen tensors that some released files repeat under the head's name.
TIED_COPIES = ("embed_tokens.", "lm_head.")


def save_backbone(model: Backbone, directory: Path, extra: dict[str, Any] | None = None) -> None:
    """Write a backbone to `directory`; `extra` entries are added to config.json."""
    config = {**_backbone_json(model.config), **(extra or {})}
    _save(directory, config, dict(model.state_dict()))


def save_head(head: Head, directory: Path, extra: dict[str, Any] | None = None) -> None:
    """Write a head alone to `directory`, with the shape of the backbone it belongs to."""
    config = {
        **_backbone_json(head.config.backbone),
        "num_nextn_predict_layers": head.config.num_layers,
        "num_mrp_heads": 1,
        "mrp_variant": head.config.variant,
        "mrp_objective": head.config.objective,
        **(extra or {}),
    }
    state = {HEAD_PREFIX + name: tensor for name, tensor in head.state_dict().items()}
    _save(directory, config, state)


def read_backbone_config(directory: Path) -> BackboneConfig:
    """Read a backbone's shape from config.json (transformers 4 and 5 spellings).

    Raises:
        UserError: the directory or the file is missing or damaged, or a key is absent.
    """
    path, raw = _read_config(directory)
    rope = raw.get("rope_parameters")
    rope = rope if isinstance(rope, dict) else {}
    generation = Path(directory) / "generation_config.json"
    eos = _read_object(generation).get("eos_token_id") if generation.exists() else None
    values = {
        **raw,
        "rope_theta": raw.get("rope_theta", rope.get("rope_theta", 1e6)),
        "eos_token_ids": _as_tuple(eos if eos is not None else raw.get("eos_token_id")),
        "pad_token_id": raw.get("pad_token_id", raw.get("bos_token_id")),
    }
    required = [field.name for field in fields(BackboneConfig)]
    missing = [name for name in required[:10] if values.get(name) in (None, ())]
    if missing:
        raise UserError(f"{path}: key {missing[0]!r} is missing; is this a SDAR-style checkpoint?")
    _check_values(path, values)
    return BackboneConfig(**{name: values[name] for name in required if name in values})


def read_head_config(directory: Path, variant: str | None = None) -> HeadConfig:
    """Read a head's shape; `variant` says how it was trained where the file does not.

    Raises:
        UserError: config.json is missing, damaged, without a head, or says another variant.
    """
    path, raw = _read_config(directory)
    depth = raw.get("num_nextn_predict_layers")
    if not _is_count(depth):
        raise UserError(
            f"{path}: 'num_nextn_predict_layers' is {depth!r}, so there is no head in this "
            "checkpoint; name a directory written by `mrp train-head` or a released MRP repository"
        )
    written = raw.get("mrp_variant")
    if variant is not None and written is not None and variant != written:
        raise UserError(
            f"{path}: 'mrp_variant' is {written!r} but the suite says variant: {variant!r}; "
            "correct the suite or the head's path"
        )
    variant = written or variant or "default"
    objective = raw.get("mrp_objective", "direct" if variant == "direct" else "residual")
    for key, value, allowed in (
        ("mrp_variant", variant, ("default", "k2", "direct")),
        ("mrp_objective", objective, get_args(Objective)),
    ):
        if value not in allowed:
            raise UserError(f"{path}: {key!r} is {value!r}: allowed: {', '.join(allowed)}")
    return HeadConfig(
        backbone=read_backbone_config(directory),
        num_layers=depth,
        variant=variant,
        objective=cast(Objective, objective),
    )


def load_backbone(
    directory: Path, device: torch.device | str = "cpu", dtype: torch.dtype = torch.float32
) -> Backbone:
    """Load a backbone in evaluation mode with gradients off.

    Raises:
        UserError: something is missing, damaged or of another shape; names the tensor or key.
    """
    config = read_backbone_config(directory)
    with torch.device("meta"):
        model = Backbone(config)
    state = {
        name: tensor
        for name, tensor in _read_tensors(directory, device).items()
        if not name.startswith(("mrp_modules.", "mtp_modules."))
    }
    return cast(Backbone, _fill(model, state, directory, device, dtype))


def load_head(
    directory: Path,
    backbone: Backbone,
    device: torch.device | str = "cpu",
    dtype: torch.dtype = torch.float32,
    variant: str | None = None,
) -> Head:
    """Load a head in evaluation mode with gradients off and check that it fits `backbone`.

    Raises:
        UserError: as `load_backbone`; also where vocabulary, width or block size differ.
    """
    config = read_head_config(directory, variant)
    for key in ("vocab_size", "hidden_size", "block_size", "head_dim", "mask_token_id"):
        ours, theirs = getattr(config.backbone, key), getattr(backbone.config, key)
        if ours != theirs:
            raise UserError(
                f"{directory}: the head was made for {key}={ours}, the backbone has {key}={theirs};"
                " use the backbone that the head was trained on"
            )
    with torch.device("meta"):
        head = Head(config)
    state = {}
    for name, tensor in _read_tensors(directory, device).items():
        for prefix in HEAD_PREFIXES:
            if name.startswith(prefix) and not name[len(prefix) :].startswith(TIED_COPIES):
                state[name[len(prefix) :]] = tensor
    return cast(Head, _fill(head, state, directory, device, dtype))


def checkpoint_hash(directory: Path) -> str:
    """SHA-256 over config.json and every weight file of a checkpoint: its identity in records.

    Raises:
        UserError: the checkpoint is missing.
    """
    _read_config(directory)
    digest = hashlib.sha256()
    for path in [Path(directory) / CONFIG, *_weight_files(directory)]:
        digest.update(f"{path.name} {sha256_file(path)}\n".encode())
    return digest.hexdigest()


def _backbone_json(config: BackboneConfig) -> dict[str, Any]:
    values = {field.name: getattr(config, field.name) for field in fields(config)}
    eos = values.pop("eos_token_ids")
    return {
        "architectures": ["SDARForCausalLM"],
        "model_type": "sdar",
        **values,
        "eos_token_id": list(eos),
        "attention_bias": False,
        "hidden_act": "silu",
        "tie_word_embeddings": False,
    }


def _save(directory: Path, config: dict[str, Any], state: dict[str, Tensor]) -> None:
    """Write the weights first and the config last: a directory with a config is complete."""
    directory = Path(directory)
    state = {name: tensor.detach().cpu().contiguous() for name, tensor in state.items()}
    atomic_write(directory / WEIGHTS, lambda path: save_file(state, path, {"format": "pt"}))
    atomic_write_json(directory / CONFIG, config)


def _read_config(directory: Path) -> tuple[Path, dict[str, Any]]:
    path = Path(directory) / CONFIG
    if not path.exists():
        raise UserError(
            f"{directory}: no checkpoint here ({CONFIG} is missing); "
            "check the path, or train it with `mrp train-backbone` or `mrp train-head`"
        )
    return path, _read_object(path)


def _read_object(path: Path) -> dict[str, Any]:
    raw = read_json(path)
    if not isinstance(raw, dict):
        raise UserError(
            f"{path}: damaged: a JSON object is expected; fetch or train the checkpoint again"
        )
    return raw


def _check_values(path: Path, values: dict[str, Any]) -> None:
    """Raise UserError where a value of config.json cannot be: it would fail far from its cause."""
    for key in COUNTS:
        if key in values and not _is_count(values[key]):
            raise UserError(f"{path}: {key!r} is {values[key]!r}: a whole number of at least 1")
    for key in ("rms_norm_eps", "rope_theta", "initializer_range"):
        value = values.get(key, 1.0)
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < 1e30:
            raise UserError(f"{path}: {key!r} is {value!r}: a number above 0")
    if values["head_dim"] % 2:
        raise UserError(f"{path}: 'head_dim' is {values['head_dim']}: an even number")
    heads, shared = values["num_attention_heads"], values["num_key_value_heads"]
    if heads % shared:
        raise UserError(f"{path}: 'num_attention_heads' is {heads}: a multiple of {shared}")
    size = values["vocab_size"]
    ids = {"mask_token_id": values["mask_token_id"], "pad_token_id": values["pad_token_id"]}
    for key, value in [*ids.items(), *(("eos_token_id", eos) for eos in values["eos_token_ids"])]:
        if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < size:
            raise UserError(
                f"{path}: {key!r} is {value!r}: a token id, 0 to {size - 1} ('vocab_size' {size})"
            )


def _is_count(value: Any) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 1


def _weight_files(directory: Path) -> list[Path]:
    """The weight files of a checkpoint: one file, or the shards that the index names."""
    directory = Path(directory)
    index = directory / INDEX
    if index.exists():
        shards = _read_object(index).get("weight_map")
        if not isinstance(shards, dict) or not all(isinstance(v, str) for v in shards.values()):
            raise UserError(f"{index}: damaged: no 'weight_map'; fetch the checkpoint again")
        names = sorted(set(shards.values()))
        paths = [directory / name for name in names]
    else:
        paths = [directory / WEIGHTS]
    for path in paths:
        if not path.exists():
            raise UserError(f"{path}: weight file is missing; fetch or train the checkpoint again")
    return paths


def _read_tensors(directory: Path, device: torch.device | str) -> dict[str, Tensor]:
    tensors: dict[str, Tensor] = {}
    for path in _weight_files(directory):
        try:
            with safe_open(path, framework="pt", device=str(device)) as file:
                tensors |= {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        except (SafetensorError, json.JSONDecodeError, OSError, ValueError) as error:
            raise UserError(
                f"{path}: damaged weight file ({error}); fetch or train the checkpoint again"
            ) from None
    return tensors


def _fill(
    model: nn.Module,
    state: dict[str, Tensor],
    directory: Path,
    device: torch.device | str,
    dtype: torch.dtype,
) -> nn.Module:
    """Give a module on the meta device its weights; every tensor must be there and fit."""
    expected = model.state_dict()
    _complain(directory, "is missing", expected.keys() - state.keys())
    _complain(directory, "is not part of this architecture", state.keys() - expected.keys())
    for name, tensor in expected.items():
        if state[name].shape != tensor.shape:
            raise UserError(
                f"{directory}: tensor {name!r} has shape {list(state[name].shape)}, config.json "
                f"asks for {list(tensor.shape)}; config and weights are of different models"
            )
    filled = {name: state[name].to(device=device, dtype=dtype) for name in expected}
    for name, tensor in filled.items():
        if not tensor.isfinite().all():
            raise UserError(
                f"{directory}: tensor {name!r} holds numbers that are not finite in {dtype}; "
                "train or fetch the checkpoint again, or choose another dtype"
            )
    model.load_state_dict(filled, assign=True)
    return model.eval().requires_grad_(False)


def _complain(directory: Path, what: str, names: Iterable[str]) -> None:
    names = sorted(names)
    if names:
        more = f" (and {len(names) - 1} more)" if len(names) > 1 else ""
        raise UserError(
            f"{directory}: tensor {names[0]!r} {what}{more}; config and weights do not match"
        )


def _as_tuple(value: Any) -> tuple[int, ...]:
    if value is None:
        return ()
    return tuple(value) if isinstance(value, list | tuple) else (value,)
