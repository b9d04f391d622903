"""What a training run is made of: the settings that a suite's `train:` entry may hold."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields, replace
from typing import Any, Literal, TypeVar, get_args, get_origin, get_type_hints

from mrp.errors import UserError
from mrp.source import TRAIN_CODE, code_version

# Settings that cannot change the trained weights: a run may go on under other ones.
WITHOUT_EFFECT = ("compile", "log_every", "checkpoint_seconds", "accumulate")
MOST = 1e9  # of a number with a fraction: beyond, float32 overflows somewhere in a step


@dataclass(frozen=True)
class DataSettings:
    """Which mini tasks to train on; `test` and `seed` name the test prompts that are left out."""

    level: str = "embedded"
    seed: int = 0
    test: int = 128


@dataclass(frozen=True)
class Optimization:
    """What backbone and head training share.

    `epochs`, where given, takes the place of `steps`: passes over the packed rows, the last batch
    filled up from a further pass. `source` is "mini" (the generated tasks; `pool` examples) or a
    .jsonl file of chats, each line an object with "messages". `batch_size` counts rows of
    `packed_length` clean tokens over all processes; each process computes its part of them in
    `accumulate` goes, which takes less memory and changes the weights by rounding only. The
    learning rate rises over `warmup` steps and falls along a cosine to `min_lr`. `saved_dtype` is
    the precision of the written weights.
    """

    steps: int = 1000
    epochs: int = 0
    batch_size: int = 64
    accumulate: int = 1
    lr: float = 1e-3
    min_lr: float = 1e-5
    warmup: int = 100
    weight_decay: float = 0.01
    clip: float = 1.0
    beta1: float = 0.9
    beta2: float = 0.98
    packed_length: int = 160
    source: str = "mini"
    pool: int = 20_000
    seed: int = 0
    noise_per: Literal["sample", "block"] = "sample"
    noise_low: float = 0.0
    saved_dtype: Literal["float32", "bfloat16"] = "float32"
    compile: bool = True
    log_every: int = 50
    checkpoint_seconds: float = 60.0


@dataclass(frozen=True)
class BackboneTraining(Optimization):
    """A small block-diffusion backbone from scratch; the defaults are size S (0.87 M)."""

    hidden_size: int = 128
    intermediate_size: int = 384
    num_hidden_layers: int = 4
    num_attention_heads: int = 4
    num_key_value_heads: int = 4
    head_dim: int = 32
    block_size: int = 16
    steps: int = 8000
    batch_size: int = 128
    lr: float = 1.5e-3
    pool: int = 200_000
    noise_per: Literal["sample", "block"] = "block"
    noise_low: float = 1 / 16


@dataclass(frozen=True)
class HeadTraining(Optimization):
    """A head on a frozen backbone; objective and start weights default to the paper's recipe.

    `start` is the directory of a trained head of the same shape to go on from, in place of `init`.
    """

    variant: Literal["default", "k2", "direct"] = "default"
    num_layers: int = 3
    init: Literal["normal-0.2", "normal-0.02", "zero"] = "normal-0.2"
    start: str = ""
    reveal: Literal["gt-1", "gt-1-4"] = "gt-1"
    temperature: float = 1.0
    backbone_dtype: Literal["float32", "bfloat16"] = "float32"


S = TypeVar("S", bound=Optimization)


def parse_settings(kind: type[S], values: Mapping[str, Any], where: str) -> S:
    """Build settings from a suite's `train:` mapping; `where` names it in messages.

    Raises:
        UserError: a key is unknown, or a value has another type or is out of range.
    """
    hints = get_type_hints(kind)
    for key, value in values.items():
        if key not in hints:
            raise UserError(
                f"{where}: unknown key {key!r}; known keys are {', '.join(sorted(hints))}"
            )
        _check_type(where, key, value, hints[key])
    if values.get("epochs") and "steps" in values:
        raise UserError(f"{where}: steps and epochs are both given; leave one of them out")
    numbers = {key: float(value) for key, value in values.items() if hints[key] is float}
    settings = kind(**{**values, **numbers})
    _check_range(where, settings)
    return settings


def with_steps(settings: S, rows: int) -> S:
    """The settings with the number of steps that their epochs over `rows` packed rows take."""
    if not settings.epochs:
        return settings
    return replace(settings, steps=math.ceil(settings.epochs * rows / settings.batch_size))


def identity(settings: Optimization, **more: Any) -> dict[str, Any]:
    """Everything that decides the trained weights, as JSON values; the source counts, too."""
    kept = {key: value for key, value in asdict(settings).items() if key not in WITHOUT_EFFECT}
    return {**kept, **more, "code": code_version(*TRAIN_CODE)}


def _check_type(where: str, key: str, value: Any, hint: Any) -> None:
    if get_origin(hint) is Literal:
        if value not in get_args(hint):
            choices = ", ".join(map(str, get_args(hint)))
            raise UserError(f"{where}: {key} is {value!r}; choose one of {choices}")
        return
    fits = isinstance(value, int | float) if hint is float else isinstance(value, hint)
    if not fits or (isinstance(value, bool) and hint is not bool):
        raise UserError(f"{where}: {key} is {value!r}, expected a value of type {hint.__name__}")


def _check_range(where: str, settings: Optimization) -> None:
    may_be_zero = {
        "epochs", "min_lr", "warmup", "weight_decay", "beta1", "beta2", "seed", "noise_low",
        "checkpoint_seconds",
    }  # fmt: skip
    for field in fields(settings):
        value = getattr(settings, field.name)
        if isinstance(value, str | bool):
            continue
        zero_is_fine = field.name in may_be_zero
        if not math.isfinite(value) or value < 0 or (value == 0 and not zero_is_fine):
            least = "at least 0" if zero_is_fine else "greater than 0"
            raise UserError(f"{where}: {field.name} is {value}; it must be {least}")
        if isinstance(value, float) and value > MOST:
            raise UserError(f"{where}: {field.name} is {value}; it must be at most {MOST:g}")
    if getattr(settings, "head_dim", 2) % 2:
        raise UserError(f"{where}: head_dim is {settings.head_dim}; it must be even")  # type: ignore[attr-defined]
    for name in ("noise_low", "beta1", "beta2"):
        if getattr(settings, name) >= 1:
            raise UserError(f"{where}: {name} is {getattr(settings, name)}; it must be below 1")
    if settings.min_lr > settings.lr:
        raise UserError(f"{where}: min_lr {settings.min_lr} is above lr {settings.lr}; lower it")
