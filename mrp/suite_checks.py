"""What can be wrong with a suite, each mistake as "key path: value: what is allowed".

`describe` words pydantic's findings about names and types; `problems` finds what depends on more
than one key.
"""

from __future__ import annotations

import difflib
import json
from collections.abc import Iterable, Iterator
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel
from pydantic_core import ErrorDetails

from mrp.errors import UserError
from mrp.models.hub import local_checkpoint
from mrp.models.weights import CONFIG
from mrp.schema import (
    AUTO_K,
    GENERATED,
    LEAST_CAP,
    MODES,
    MOST_AUTO,
    MOST_DRAFTS,
    MOST_SEED,
    MOST_WINDOW,
    OPTIONS,
    TASKS,
    BackboneSpec,
    DataSpec,
    DecodingSpec,
    GridEntry,
    HeadSpec,
    SpeedSpec,
    Suite,
)

if TYPE_CHECKING:
    from mrp.training.settings import BackboneTraining, HeadTraining


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
    for key, value in spec.train.items():
        if isinstance(value, int) and abs(value) > MOST_SEED:
            raise UserError(f"{where}.{key}: {_short(value)} is not allowed: at most {MOST_SEED}")
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

    None where it cannot be read (not downloaded, missing, damaged): loading it tells more.
    """
    if path is not None:
        try:
            text = (local_checkpoint(path) / CONFIG).read_text("utf-8")
            size = json.loads(text)["block_size"]
        except (UserError, OSError, ValueError, TypeError, KeyError):
            return None
        return size if isinstance(size, int) else None
    recipe = training(spec) if spec is not None else None
    return getattr(recipe, "block_size", None)


# ---- mistakes in shape, in pydantic's terms ------------------------------------------------------


def describe(error: ErrorDetails, raw: Any) -> str:
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


def problems(suite: Suite, stem: str) -> Iterator[str]:
    """What is wrong with a well-shaped suite, as "key path: value: what is allowed"."""
    if suite.name != stem:
        yield f"name: {suite.name!r} must be the file's name, {stem!r}: results are kept by name"
    for name, backbone in suite.backbones.items():
        yield from _source_problems(f"backbones.{name}", backbone, "backbone")
    for name, head in suite.heads.items():
        yield from _source_problems(f"heads.{name}", head, "head")
        yield from _fit_problems(suite, name, head)
        yield from _repetition_problems(suite, name, head)
    known = known_tasks()
    for index, group in enumerate(suite.tasks):
        if group in suite.tasks[:index]:
            yield f"tasks[{index}]: {group} is there already: remove one of the two"
        for task in group:
            if task not in known:
                yield f"tasks[{index}]: unknown task {task!r}: {one_of(known, task)}"
            if group.count(task) > 1:
                yield f"tasks[{index}]: task {task!r} is given twice"
        generated = [task for task in group if task in GENERATED]
        if generated and len(generated) < len(group):
            yield (
                f"tasks[{index}]: {group} joins generated tasks ({', '.join(generated)}) and "
                "benchmarks, whose data stands elsewhere: give each kind a group of its own"
            )
    sizes = {
        name: size
        for name, spec in suite.backbones.items()
        if (size := block_size(spec.path, spec)) is not None
    }
    wanted = suite.decoding.block_size
    for name, size in sizes.items():
        if wanted not in (None, size):
            yield (
                f"backbones.{name}: has blocks of {size} tokens, decoding.block_size says "
                f"{wanted}: take the backbone that was trained with that length, or correct it"
            )
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


def _repetition_problems(suite: Suite, name: str, head: HeadSpec) -> Iterator[str]:
    """What `seed_of` names must be a head of the same kind, and itself no repetition."""
    if head.seed_of is None:
        return
    where, original = f"heads.{name}.seed_of", suite.heads.get(head.seed_of)
    others = [other for other, spec in suite.heads.items() if spec.seed_of is None]
    if original is None or original.seed_of is not None:
        yield f"{where}: {head.seed_of!r} is no head to repeat: {one_of(others, head.seed_of)}"
    elif original.variant != head.variant:
        yield (
            f"{where}: {head.seed_of!r} has variant {original.variant!r}, this head "
            f"{head.variant!r}: a repetition differs by its seed alone"
        )
    elif head.path is not None and head.path == original.path:
        yield f"{where}: {head.seed_of!r} has the same path, {head.path}: give each head its own"
    elif head.train is not None and original.train is not None:
        yield from _recipe_problems(where, head, head.seed_of, original)


def _recipe_problems(where: str, head: HeadSpec, name: str, original: HeadSpec) -> Iterator[str]:
    """Two recipes, of which one repeats the other, must differ by their seeds alone."""
    from mrp.training.settings import WITHOUT_EFFECT

    try:
        ours, theirs = training(head), training(original)
    except UserError:
        return  # named where the recipes themselves are checked
    assert ours is not None
    assert theirs is not None
    mine, others = asdict(ours), asdict(theirs)
    differ = [key for key in mine if mine[key] != others[key] and key not in WITHOUT_EFFECT]
    if "seed" not in differ:
        yield f"{where}: {name!r} has the same train.seed, {mine['seed']}: give each its own"
    elif len(differ) > 1:
        differ.remove("seed")
        yield (
            f"{where}: {name!r} has another train.{differ[0]}, {others[differ[0]]!r} and not "
            f"{mine[differ[0]]!r}: a repetition differs by its seed alone"
        )


def _entry_problems(
    where: str, entry: GridEntry, suite: Suite, sizes: dict[str, int]
) -> Iterator[str]:
    """Check one grid entry; `sizes` holds the known block sizes by backbone."""
    shape = MODES[entry.mode]
    for backbone in entry.backbone or []:
        if backbone not in suite.backbones:
            known = one_of(suite.backbones, backbone)
            yield f"{where}.backbone: there is no backbone {backbone!r}: {known}"
        elif (entry.backbone or []).count(backbone) > 1:
            yield f"{where}.backbone: {backbone!r} is given twice"
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
    for option in ("scale", "delta", "factor", "gamma", "kl"):
        for value in getattr(entry, option) or []:
            if not 0 < value < float("inf"):
                yield f"{where}.{option}: {value} is not allowed: above 0 and finite"
    for option in ("back", "floor"):
        for value in getattr(entry, option) or []:
            if not 0 <= value < 1:
                yield f"{where}.{option}: {value} is not allowed: at least 0 and below 1"
    for history in entry.history or []:
        if history < 1:
            yield f"{where}.history: {history} is not allowed: at least 1"
    if entry.delta is not None and "residual" not in (entry.rule or []):
        yield f"{where}.delta: only rule: residual uses it; give rule: residual or leave delta out"
    if entry.floor is not None and "confidence" not in (entry.rule or ["confidence"]):
        yield f"{where}.floor: only rule: confidence uses it; leave one of the two out"
    if "halves" in (entry.passes or []) and "masked" in (entry.condition or []):
        yield (
            f"{where}.condition: masked is for one pass; with passes: halves the head reads half "
            "of the fresh tokens: give the two an entry each"
        )
    mine = {name: size for name, size in sizes.items() if name in (entry.backbone or sizes)}
    name, block = min(mine.items(), key=lambda item: item[1], default=(None, None))
    blocks = f" (blocks of {name!r} have {block} tokens)" if block else ""
    for k in entry.k or []:
        if k == "auto":
            if entry.mode not in AUTO_K:
                takers = ", ".join(AUTO_K)
                yield f"{where}.k: 'auto' is for modes that check their drafts ({takers})"
        elif k < 1 or (block and k >= block):
            most = f" and below the block length{blocks}"
            yield f"{where}.k: {k} is not allowed: at least 1{most}"
    for shortlist in entry.shortlist or []:
        if shortlist < 0:
            yield f"{where}.shortlist: {shortlist} is not allowed: tokens, or 0 for all of them"
    for window in entry.window or []:
        if not 1 <= window <= MOST_WINDOW:
            yield f"{where}.window: {window} is not allowed: 1 (the chain alone) to {MOST_WINDOW}"
    for name in ("ahead", "budget"):
        if any(getattr(entry, name) or []) and any(entry.shortlist or []):
            yield f"{where}.{name}: does not go with a shortlist: leave one of the two out"
    for budget in entry.budget or []:
        if budget < 0 or budget == 1:
            yield (
                f"{where}.budget: {budget} is not allowed: 2 states or more, or 0 for those of the "
                "window"
            )
    if any(entry.budget or []) and {*(entry.window or [])} - {OPTIONS["window"]}:
        yield f"{where}.budget: does not go with window: leave one of the two out"
    for cap in entry.cap or []:
        if not LEAST_CAP <= cap <= 1:
            yield f"{where}.cap: {cap} is not allowed: {LEAST_CAP} to 1, which is no cap"
    for passes in entry.head_passes or []:
        if passes < 0:
            yield f"{where}.head_passes: {passes} is not allowed: passes, or 0 for one a draft"
    yield from _draft_problems(where, entry)
    for steps in entry.steps or []:
        if steps < 1 or (block and steps > block):
            yield f"{where}.steps: {steps} is not allowed: 1 to the block length{blocks}"


def _draft_problems(where: str, entry: GridEntry) -> Iterator[str]:
    """Values that do no more than a smaller one: there are only so many drafts a round.

    The lists of an entry multiply, so every value has to go with every k; the default window does.
    """
    for k in entry.k or []:
        most, auto = (MOST_AUTO, f" ({MOST_AUTO} drafts at most)") if k == "auto" else (k, "")
        for passes in entry.head_passes or []:
            if 0 < most <= passes:
                yield (
                    f"{where}.head_passes: {passes} is too large for k={k}{auto}: less than that, "
                    "or 0 for one a draft"
                )
        if any(entry.budget or []) and most > MOST_DRAFTS:
            yield f"{where}.k: {k} is too large with a budget of states: at most {MOST_DRAFTS}"
        for window in entry.window or []:
            if 0 < most < window and OPTIONS["window"] < window <= MOST_WINDOW:
                yield f"{where}.window: {window} is too large for k={k}: at most that"
