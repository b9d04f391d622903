"""config.json: read in the spellings of transformers 4 and 5, checked, and written.

What our transformer does not compute (other activations, biases, scaled or sliding attention) is
refused by name: loading it would give wrong numbers without a word.
"""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path
from typing import Any, TypeGuard, cast, get_args

from mrp.errors import UserError
from mrp.io import read_json
from mrp.models.head import HeadConfig, Objective
from mrp.models.hub import is_hub_id, local_checkpoint, parse_hub_id
from mrp.models.transformer import BackboneConfig
from mrp.models.weights import CONFIG

GENERATION = "generation_config.json"
FETCH = "fetch or train the checkpoint again"
# Keys that are whole numbers of at least 1.
COUNTS = (
    *("vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers"),
    *("num_attention_heads", "num_key_value_heads", "head_dim"),
    *("block_size", "max_position_embeddings"),
)
# What may be left out: transformers' defaults, which are ours as well.
OPTIONAL = ("rms_norm_eps", "initializer_range", "max_position_embeddings")
# Keys with the only values that this architecture has; they may be absent.
ARCHITECTURE: dict[str, tuple[Any, ...]] = {
    "model_type": ("sdar", "qwen3"),
    "hidden_act": ("silu",),
    "attention_bias": (False,),
    "use_sliding_window": (False, None),
    "quantization_config": (None,),
    "tie_word_embeddings": (False, True),
}


def read_config(directory: Path) -> tuple[Path, dict[str, Any]]:
    """The path of a checkpoint's config.json and its content, unchecked.

    Raises:
        UserError: it is missing or damaged.
    """
    path = directory / CONFIG
    if not path.exists():
        hint = ""
        if parse_hub_id(directory) is not None and not is_hub_id(directory):
            hint = " (what is here comes before a hub's repository of this name)"
        raise UserError(
            f"{directory}: no checkpoint here ({CONFIG} is missing){hint}; check the path, or "
            "train it with `mrp train-backbone` or `mrp train-head`; a hub id is owner/name or "
            "owner/name@revision"
        )
    return path, read_object(path)


def read_object(path: Path) -> dict[str, Any]:
    """A JSON object; raises UserError where the file is damaged."""
    raw = read_json(path)
    if not isinstance(raw, dict):
        raise UserError(f"{path}: damaged: a JSON object is expected; {FETCH}")
    return raw


def read_backbone_config(checkpoint: Path | str) -> BackboneConfig:
    """Read a backbone's shape from a directory or hub id.

    Raises:
        UserError: the checkpoint is missing or damaged, or a key is absent or of a value that this
            architecture does not have.
    """
    directory = local_checkpoint(checkpoint)
    path, raw = read_config(directory)
    for key, allowed in ARCHITECTURE.items():
        if key in raw and not any(raw[key] is value or raw[key] == value for value in allowed):
            raise UserError(
                f"{path}: {key!r} is {raw[key]!r}: only {' or '.join(map(repr, allowed))} is "
                "understood; take a SDAR checkpoint, which has that"
            )
    generation = directory / GENERATION
    eos = read_object(generation).get("eos_token_id") if generation.exists() else None
    ends = _as_tuple(eos if eos is not None else raw.get("eos_token_id"))
    pad = raw.get("pad_token_id")
    values = {
        **raw,
        "rope_theta": _rope_theta(path, raw),
        "eos_token_ids": ends,
        # The published configs leave the pad out: it is the token that begins a text as well.
        "pad_token_id": raw.get("bos_token_id") if pad is None else pad,
    }
    names = [field.name for field in fields(BackboneConfig)]
    for name in names:
        if name not in OPTIONAL and values.get(name) in (None, ()):
            key = "eos_token_id" if name == "eos_token_ids" else name
            raise UserError(
                f"{path}: key {key!r} is missing; is this a SDAR checkpoint? {FETCH}, or add the "
                "key as its model card says"
            )
    _check_values(path, values)
    return BackboneConfig(**{name: values[name] for name in names if values.get(name) is not None})


def read_head_config(checkpoint: Path | str, variant: str | None = None) -> HeadConfig:
    """Read a head's shape; `variant` says how it was trained where the file does not.

    Raises:
        UserError: config.json is missing, damaged, without a head, or says another variant.
    """
    directory = local_checkpoint(checkpoint)
    path, raw = read_config(directory)
    depth, modules = raw.get("num_nextn_predict_layers"), raw.get("num_mrp_heads", 1)
    if not is_count(depth):
        raise UserError(
            f"{path}: 'num_nextn_predict_layers' is {depth!r}, so there is no head in this "
            "checkpoint; name a directory written by `mrp train-head` or a released MRP repository"
        )
    if modules != 1:
        raise UserError(
            f"{path}: 'num_mrp_heads' is {modules!r}: only 1 is understood; take a checkpoint with "
            "one head, used again at every step"
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


def backbone_json(config: BackboneConfig) -> dict[str, Any]:
    """config.json of a backbone."""
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


def head_json(config: HeadConfig) -> dict[str, Any]:
    """What a head adds to its backbone's config.json; `mrp_*` are our own keys."""
    return {
        "num_nextn_predict_layers": config.num_layers,
        "num_mrp_heads": 1,
        "mrp_variant": config.variant,
        "mrp_objective": config.objective,
    }


def is_count(value: Any) -> TypeGuard[int]:
    """Whether a JSON value is a whole number of at least 1."""
    return isinstance(value, int) and not isinstance(value, bool) and value >= 1


def _rope_theta(path: Path, raw: dict[str, Any]) -> Any:
    """The base of the rotary angles: `rope_theta` (transformers 4) or `rope_parameters` (5)."""
    for key in ("rope_scaling", "rope_parameters"):
        rope = raw.get(key)
        if rope is None:
            continue
        kind = rope.get("rope_type", rope.get("type", "default")) if isinstance(rope, dict) else ""
        if kind != "default":
            raise UserError(
                f"{path}: {key!r} is {rope!r}: null or an object of rope_type 'default'; positions "
                "are not scaled here: take a checkpoint without"
            )
    values = [raw.get("rope_theta"), (raw.get("rope_parameters") or {}).get("rope_theta")]
    given = [value for value in values if value is not None]
    if len(given) == 2 and given[0] != given[1]:
        raise UserError(
            f"{path}: 'rope_theta' is {given[0]!r}, in 'rope_parameters' it is {given[1]!r}; "
            "remove the wrong one"
        )
    return given[0] if given else None


def _check_values(path: Path, values: dict[str, Any]) -> None:
    """Raise UserError where a value of config.json cannot be: it would fail far from its cause."""
    for key in COUNTS:
        if values.get(key) is not None and not is_count(values[key]):
            raise UserError(
                f"{path}: {key!r} is {values[key]!r}: a whole number of at least 1; {FETCH}"
            )
    for key in ("rms_norm_eps", "rope_theta", "initializer_range"):
        value = 1.0 if values.get(key) is None else values[key]
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < 1e30:
            raise UserError(f"{path}: {key!r} is {value!r}: a number above 0; {FETCH}")
    if values["head_dim"] % 2:
        raise UserError(f"{path}: 'head_dim' is {values['head_dim']}: an even number; {FETCH}")
    heads, shared = values["num_attention_heads"], values["num_key_value_heads"]
    if heads % shared:
        raise UserError(
            f"{path}: 'num_attention_heads' is {heads}: a multiple of {shared} "
            f"('num_key_value_heads'); {FETCH}"
        )
    size = values["vocab_size"]
    ids = {"mask_token_id": values["mask_token_id"], "pad_token_id": values["pad_token_id"]}
    for key, value in [*ids.items(), *(("eos_token_id", eos) for eos in values["eos_token_ids"])]:
        if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < size:
            raise UserError(
                f"{path}: {key!r} is {value!r}: a token id, 0 to {size - 1} ('vocab_size' {size}); "
                f"{FETCH}"
            )


def _as_tuple(value: Any) -> tuple[Any, ...]:
    if value is None:
        return ()
    return tuple(value) if isinstance(value, list | tuple) else (value,)
