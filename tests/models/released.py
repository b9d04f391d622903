"""Checkpoints as others write them: the released layout by hand, not by our own writer."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from mrp.models import Backbone, Head

CONFIG, INDEX, WEIGHTS = "config.json", "model.safetensors.index.json", "model.safetensors"
# A published config.json: its facts, with sizes filled in by `released_config`.
PUBLISHED: dict[str, Any] = {
    "architectures": ["SDARForCausalLM"],
    "auto_map": {"AutoModelForCausalLM": "modeling_sdar.SDARForCausalLM"},
    "attention_bias": False,
    "attn_implementation": "flex_attention",
    "bos_token_id": 0,
    "eos_token_id": 0,
    "hidden_act": "silu",
    "initializer_range": 0.02,
    "model_type": "sdar",
    "rms_norm_eps": 1e-06,
    "rope_scaling": None,
    "rope_theta": 1000000,
    "sliding_window": None,
    "tie_word_embeddings": False,
    "torch_dtype": "bfloat16",
    "transformers_version": "4.52.4",
    "use_cache": False,
    "use_sliding_window": False,
}


def released_config(backbone: Backbone, head: Head | None, style: int = 4) -> dict[str, Any]:
    """config.json of a released repository, as transformers 4 or 5 would write it."""
    shape = backbone.config
    sizes = (
        *("vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers", "head_dim"),
        *("num_attention_heads", "num_key_value_heads", "mask_token_id", "block_size"),
        "max_position_embeddings",
    )
    config = {**PUBLISHED, **{name: getattr(shape, name) for name in sizes}}
    if head is not None:
        config |= {"num_nextn_predict_layers": head.config.num_layers, "num_mrp_heads": 1}
    if style == 5:
        del config["torch_dtype"], config["rope_scaling"]
        rope = {"rope_type": "default", "rope_theta": config.pop("rope_theta")}
        config |= {"dtype": "bfloat16", "rope_parameters": rope, "pad_token_id": None}
    return config


def write_released(
    directory: Path,
    backbone: Backbone,
    head: Head | None,
    dtype: torch.dtype = torch.float32,
    prefix: str = "mrp_modules.0.",
    style: int = 4,
    copies: bool = True,
    shards: int = 3,
) -> Path:
    """A repository of backbone and head in shards that cut across the layers."""
    directory.mkdir(parents=True)
    state = {name: tensor.to(dtype) for name, tensor in backbone.state_dict().items()}
    parts = {f"model-{n:05d}-of-{shards + 1:05d}.safetensors": {} for n in range(1, shards + 2)}
    names = list(parts)
    for place, (name, tensor) in enumerate(sorted(state.items())):
        parts[names[place % shards]][name] = tensor
    if head is not None:
        last = parts[names[-1]]
        last |= {f"{prefix}model.{n}": t.to(dtype) for n, t in head.state_dict().items()}
        if copies:
            last[f"{prefix}lm_head.weight"] = state["lm_head.weight"].clone()
            embedding = state["model.embed_tokens.weight"].clone()
            last[f"{prefix}model.embed_tokens.weight"] = embedding
    else:
        del parts[names[-1]]
    for name, tensors in parts.items():
        save_file(tensors, directory / name, {"format": "pt"})
    weight_map = {name: file for file, tensors in parts.items() for name in tensors}
    write_json(directory / INDEX, {"metadata": {}, "weight_map": weight_map})
    write_json(directory / CONFIG, released_config(backbone, head, style))
    ends = list(backbone.config.eos_token_ids)
    write_json(directory / "generation_config.json", {"eos_token_id": ends})
    return directory


def write_json(path: Path, value: Any) -> None:
    path.write_text(json.dumps(value))


def change_config(directory: Path, **changes: object) -> None:
    """Change keys of config.json; "gone" removes one."""
    config = json.loads((directory / CONFIG).read_text()) | changes
    write_json(directory / CONFIG, {k: v for k, v in config.items() if v != "gone"})


def change_index(directory: Path, change: Callable[[dict[str, str]], object]) -> None:
    index = json.loads((directory / INDEX).read_text())
    change(index["weight_map"])
    write_json(directory / INDEX, index)


def file_of(directory: Path, tensor: str) -> Path:
    """The shard that holds a tensor."""
    shards = json.loads((directory / INDEX).read_text())["weight_map"]
    return directory / str(shards[tensor])


def change_weights(path: Path, change: Callable[[dict[str, Tensor]], object]) -> None:
    """Rewrite a weight file."""
    weights = load_file(path)
    change(weights)
    save_file({name: tensor.contiguous() for name, tensor in weights.items()}, path)


def cut(path: Path) -> None:
    """Truncate a file."""
    path.write_bytes(path.read_bytes()[:-100])


def one_file(directory: Path) -> None:
    """Put all shards into one model.safetensors."""
    weights: dict[str, Tensor] = {}
    for path in directory.glob("*.safetensors"):
        weights |= load_file(path)
        path.unlink()
    (directory / INDEX).unlink()
    save_file(weights, directory / WEIGHTS)
