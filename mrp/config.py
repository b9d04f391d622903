"""The suite file: its shape, its checks, and one clear line for each mistake in it.

pydantic checks names and types; the functions below check what depends on more than one key.
"""

from __future__ import annotations

import difflib
import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeVar

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError
from pydantic_core import ErrorDetails

from mrp.errors import UserError
from mrp.strict_yaml import read_yaml

if TYPE_CHECKING:
    from mrp.training.settings import BackboneTraining, HeadTraining

TASKS = Path(__file__).parent / "evaluation" / "tasks"  # one YAML file a task
SUITES = Path("config/suites")


@dataclass(frozen=True)
class ModeShape:
    """What a grid entry of one mode must and may say (the same as its class in mrp.decoding)."""

    needs_head: bool
    required: tuple[str, ...] = ()
    optional: tuple[str, ...] = ()


MODES = {
    "static": ModeShape(False, optional=("steps",)),
    "dynamic": ModeShape(False, required=("tau",)),
    "direct": ModeShape(True, required=("k",), optional=("scale",)),
    "speculative": ModeShape(True, required=("k",)),
    "self_speculative": ModeShape(False, required=("k",)),
    "remask": ModeShape(True, required=("tau",), optional=("condition", "rule", "delta")),
}
# All options in the order in which a job's id names them, each with what a mode does without it.
OPTIONS: dict[str, Any] = {
    "k": None,
    "steps": None,
    "tau": None,
    "scale": 1.0,
    "condition": "revealed",
    "rule": "confidence",
    "delta": 1.0,
}

T = TypeVar("T")
# A single value stands for a list of one.
Listed = Annotated[
    list[T], BeforeValidator(lambda v: v if isinstance(v, list) else [v]), Field(min_length=1)
]
# Names become parts of job ids and of folder names.
Name = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$")]
Count = Annotated[int, Field(ge=1)]
MOST_PROBLEMS = 10_000  # of a generated test set: seconds to draw, and more tell nothing new


class Strict(BaseModel):
    """No unknown keys, no conversions ("3" is no number), no changes after loading."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


class BackboneSpec(Strict):
    """Where a backbone comes from: `path` is used where it is given; `train` is its recipe."""

    path: str | None = None
    train: dict[str, Any] | None = None


class HeadSpec(Strict):
    """A head, likewise; its `path` may hold {backbone}."""

    variant: Literal["default", "k2", "direct"]
    path: str | None = None
    train: dict[str, Any] | None = None

    @property
    def source(self) -> str:
        """How a record calls it: "released" (found at `path`) or "trained" (by the workflow)."""
        return "trained" if self.path is None else "released"


class DataSpec(Strict):
    """The generated tasks: difficulty, and problems in each test set."""

    level: Literal["embedded", "hard"] = "embedded"
    test: Annotated[int, Field(ge=1, le=MOST_PROBLEMS)] = 128


class SpeedSpec(Strict):
    """The paired time measurement of each job."""

    prompts: Count = 16
    batch_size: Count = 16
    repeats: Count = 3


class DecodingSpec(Strict):
    """What all decode jobs share; without `speed` no times are measured."""

    batch_size: Count = 32
    max_new_tokens: Count = 112
    dtype: Literal["float32", "bfloat16", "float16"] = "float32"
    speed: SpeedSpec | None = None


class GridEntry(Strict):
    """Cells of the grid: the lists multiply."""

    mode: Literal["static", "dynamic", "direct", "speculative", "self_speculative", "remask"]
    head: Listed[str] | None = None
    k: Listed[int] | None = None
    steps: Listed[int] | None = None
    tau: Listed[float] | None = None
    scale: Listed[float] | None = None
    condition: Listed[Literal["revealed", "masked"]] | None = None
    rule: Listed[Literal["confidence", "residual"]] | None = None
    delta: Listed[float] | None = None


class Suite(Strict):
    """A whole experiment: what is decoded, by which models, in which ways."""

    name: Name
    seed: Annotated[int, Field(ge=0)] = 0
    backbones: Annotated[dict[Name, BackboneSpec], Field(min_length=1)]
    heads: dict[Name, HeadSpec] = {}
    tasks: Annotated[list[Listed[Name]], Field(min_length=1)]
    data: DataSpec = DataSpec()
    decoding: DecodingSpec = DecodingSpec()
    grid: Annotated[list[GridEntry], Field(min_length=1)]


def load_suite(suite: str | Path) -> Suite:
    """Read and check a suite: a YAML file, or the name of one in config/suites.

    Raises:
        UserError: there is no such file, or it has a mistake; names the file, key and value.
    """
    path = suite_file(suite)
    raw = read_yaml(path)
    try:
        loaded = Suite.model_validate(raw)
    except ValidationError as error:
        raise UserError(f"{path}: {_describe(error.errors()[0], raw)}") from None
    problem = next(_problems(loaded, path.stem), None)
    if problem is not None:
        raise UserError(f"{path}: {problem}")
    return loaded


def suite_file(suite: str | Path) -> Path:
    """The file of a suite, from its path or its name.

    Raises:
        UserError: there is none.
    """
    path = Path(suite)
    if path.suffix not in (".yaml", ".yml"):
        path = SUITES / f"{suite}.yaml"
    if path.is_file():
        return path
    known = sorted(file.stem for file in SUITES.glob("*.yaml"))
    raise UserError(f"suite {str(suite)!r}: no file {path}; {one_of(known, suite)}")


def known_tasks() -> list[str]:
    """The names of the tasks that a suite may list."""
    return sorted(file.stem for file in TASKS.glob("*.yaml"))


def one_of(names: Iterable[str], wrong: object = "") -> str:
    """The allowed values for a message, with the likely one where `wrong` resembles it."""
    allowed = list(names)
    close = difflib.get_close_matches(str(wrong), allowed, n=1)
    hint = f"did you mean {close[0]}? " if close else ""
    return f"{hint}allowed: {', '.join(allowed) or 'none'}"


def training(
    spec: BackboneSpec | HeadSpec, where: str = "train"
) -> BackboneTraining | HeadTraining | None:
    """The settings of a recipe, None without one; `where` names it in messages.

    Raises:
        UserError: an unknown key or a value that is not allowed.
    """
    if spec.train is None:
        return None
    # Imported here: a suite that trains nothing is then read without loading torch.
    from mrp.training.settings import BackboneTraining, HeadTraining, parse_settings

    if isinstance(spec, BackboneSpec):
        return parse_settings(BackboneTraining, spec.train, where)
    variant = spec.train.get("variant", spec.variant)
    if variant != spec.variant:
        raise UserError(
            f"{where}.variant: {variant!r} differs from the head's variant {spec.variant!r}; "
            "say it once, outside train"
        )
    return parse_settings(HeadTraining, {**spec.train, "variant": variant}, where)


def block_size(path: str | None, spec: BackboneSpec | None = None) -> int | None:
    """The block size in a checkpoint's config.json, or without a path in the backbone's recipe.

    None where it cannot be read (on the hub, missing, damaged): loading it tells more.
    """
    if path is not None:
        try:
            size = json.loads((Path(path) / "config.json").read_text("utf-8"))["block_size"]
        except (OSError, ValueError, TypeError, KeyError):
            return None
        return size if isinstance(size, int) else None
    recipe = training(spec) if spec is not None else None
    return getattr(recipe, "block_size", None)


# ---- mistakes in shape, in pydantic's terms ------------------------------------------------------


def _describe(error: ErrorDetails, raw: Any) -> str:
    """One of pydantic's errors as "key path: value: what is allowed"."""
    loc, kind, value = list(error["loc"]), error["type"], _short(error.get("input"))
    if kind == "extra_forbidden":
        key = loc.pop()
        return f"{_where(loc)}unknown key {key!r}: {one_of(_model_at(loc).model_fields, key)}"
    if kind == "missing":
        key = loc.pop()
        return f"{_where(loc)}key {key!r} is missing"
    if loc and loc[-1] == "[key]":
        loc.pop()
    if loc and loc[-1] == 0 and not isinstance(_at(raw, loc[:-1]), list):
        loc.pop()  # a single value that stands for a list of one
    where = _where(loc)
    if kind == "literal_error":
        allowed = error["ctx"]["expected"].replace(" or ", ", ").replace("'", "").split(", ")
        return f"{where}{value} is not allowed: {one_of(allowed, error.get('input'))}"
    if kind == "string_pattern_mismatch":
        return f"{where}{value} is no name: use letters, digits, '.', '_' and '-'"
    if kind == "too_short":
        return f"{where}{value} is empty: give at least one"
    if kind in ("model_type", "dict_type"):
        return f"{where}{value} is not allowed: must be a mapping of keys to values"
    return f"{where}{value} is not allowed: {error['msg'].replace('Input should', 'must')}"


def _model_at(loc: list[int | str]) -> type[BaseModel]:
    """The model whose keys stand at this place of a suite."""
    if loc[-2:] == ["decoding", "speed"]:
        return SpeedSpec
    sections: dict[Any, type[BaseModel]] = {
        "backbones": BackboneSpec,
        "heads": HeadSpec,
        "data": DataSpec,
        "decoding": DecodingSpec,
        "grid": GridEntry,
    }
    return sections[loc[0]] if loc else Suite


def _where(loc: Iterable[int | str]) -> str:
    """["grid", 3, "k"] -> "grid[3].k: "."""
    text = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in loc)
    return f"{text.lstrip('.')}: " if text else ""


def _at(raw: Any, loc: list[int | str]) -> Any:
    for part in loc:
        try:
            raw = raw[part]
        except (KeyError, IndexError, TypeError):
            return None
    return raw


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


# ---- mistakes in meaning -------------------------------------------------------------------------


def _problems(suite: Suite, stem: str) -> Iterator[str]:
    """What is wrong with a well-shaped suite, as "key path: value: what is allowed"."""
    if suite.name != stem:
        yield f"name: {suite.name!r} must be the file's name, {stem!r}: results are kept by name"
    for name, backbone in suite.backbones.items():
        yield from _source_problems(f"backbones.{name}", backbone, "backbone")
    for name, head in suite.heads.items():
        yield from _source_problems(f"heads.{name}", head, "head")
        yield from _fit_problems(suite, name, head)
    known = known_tasks()
    for index, group in enumerate(suite.tasks):
        if group in suite.tasks[:index]:
            yield f"tasks[{index}]: {group} is there already: remove one of the two"
        for task in group:
            if task not in known:
                yield f"tasks[{index}]: unknown task {task!r}: {one_of(known, task)}"
            if group.count(task) > 1:
                yield f"tasks[{index}]: task {task!r} is given twice"
    sizes = {
        name: size
        for name, spec in suite.backbones.items()
        if (size := block_size(spec.path, spec)) is not None
    }
    for index, entry in enumerate(suite.grid):
        yield from _entry_problems(f"grid[{index}]", entry, suite, sizes)


def _source_problems(where: str, spec: BackboneSpec | HeadSpec, kind: str) -> Iterator[str]:
    if spec.path is None and spec.train is None:
        yield f"{where}: needs path (a directory or a hub id) or train (settings), or both"
    if spec.path == "":
        yield f"{where}.path: '' is empty: give a directory or a hub id, or leave path out"
    if spec.path is not None:
        known = "{backbone}" if kind == "head" else ""
        if set(spec.path.replace(known, "")) & set("{}"):
            rule = f"the only placeholder is {known}" if known else "there are no placeholders here"
            yield f"{where}.path: {spec.path!r} is not allowed: {rule}"
    try:
        training(spec, f"{where}.train")
    except UserError as error:
        yield str(error)


def _fit_problems(suite: Suite, name: str, head: HeadSpec) -> Iterator[str]:
    """A released head and its backbone must have one block size, where both can be read."""
    for backbone, spec in suite.backbones.items():
        if head.path is None:
            continue
        path = head.path.replace("{backbone}", backbone)
        ours, theirs = block_size(path), block_size(spec.path, spec)
        if ours is not None and theirs is not None and ours != theirs:
            yield (
                f"heads.{name}.path: {path} has block_size {ours}, backbone {backbone!r} has "
                f"{theirs}: use the backbone that the head was trained on"
            )


def _entry_problems(
    where: str, entry: GridEntry, suite: Suite, sizes: dict[str, int]
) -> Iterator[str]:
    """Check one grid entry; `sizes` holds the known block sizes by backbone."""
    shape = MODES[entry.mode]
    for option in OPTIONS:
        given = getattr(entry, option) is not None
        if given and option not in shape.required + shape.optional:
            taken = one_of(shape.required + shape.optional)
            yield f"{where}.{option}: mode {entry.mode!r} takes no {option}: {taken}"
        if not given and option in shape.required:
            yield f"{where}: mode {entry.mode!r} needs {option}"
    if entry.head is not None and not shape.needs_head:
        takers = ", ".join(name for name, mode in MODES.items() if mode.needs_head)
        yield f"{where}.head: mode {entry.mode!r} takes no head; the modes with one: {takers}"
    if entry.head is None and shape.needs_head:
        yield f"{where}: mode {entry.mode!r} needs head: {one_of(suite.heads)}"
    for head in entry.head or []:
        if head not in suite.heads:
            yield f"{where}.head: there is no head {head!r}: {one_of(suite.heads, head)}"
    for tau in entry.tau or []:
        if not 0 < tau < 1:
            yield f"{where}.tau: {tau} is not allowed: above 0 and below 1"
    for option in ("scale", "delta"):
        for value in getattr(entry, option) or []:
            if not 0 < value < float("inf"):
                yield f"{where}.{option}: {value} is not allowed: above 0"
    if entry.delta is not None and "residual" not in (entry.rule or []):
        yield f"{where}.delta: only rule: residual uses it; give rule: residual or leave delta out"
    name, block = min(sizes.items(), key=lambda item: item[1], default=(None, None))
    blocks = f" (blocks of {name!r} have {block} tokens)" if block else ""
    for k in entry.k or []:
        if k < 1 or (block and k >= block):
            most = f" and below the block length{blocks}"
            yield f"{where}.k: {k} is not allowed: at least 1{most}"
    for steps in entry.steps or []:
        if steps < 1 or (block and steps > block):
            yield f"{where}.steps: {steps} is not allowed: 1 to the block length{blocks}"
