"""Weight files: which file holds which tensor, and tensors read one by one.

A checkpoint has one `model.safetensors`, or shards that `model.safetensors.index.json` names. A
released repository holds a backbone (`model.*`, `lm_head.weight`) and a head (`mrp_modules.0.*`,
in older ones `mtp_modules.0.*`); only the files and tensors of the part that is asked for are
opened and read. Pickled weights (*.bin, *.pt) can run code when loaded and are never read.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from safetensors import SafetensorError, safe_open

from mrp.errors import UserError
from mrp.io import read_json

if TYPE_CHECKING:
    import torch
    from torch import Tensor

Part = Literal["backbone", "head"]

CONFIG, WEIGHTS, INDEX = "config.json", "model.safetensors", "model.safetensors.index.json"
HEAD_PREFIX = "mrp_modules.0.model."
HEAD_PREFIXES = (HEAD_PREFIX, "mtp_modules.0.model.")
# Everything that belongs to heads, copies of the backbone's tensors under their names included.
HEAD_NAMES = ("mrp_modules.", "mtp_modules.")
PICKLES = ("*.bin", "*.pt", "*.pth")
DTYPES = ("F32", "BF16", "F16", "F64")  # as safetensors calls them
AGAIN = "fetch or train the checkpoint again"


def part_of(name: str) -> Part:
    """Which part of a released repository a tensor belongs to."""
    return "head" if name.startswith(HEAD_NAMES) else "backbone"


def weight_files(directory: Path, part: Part | None = None) -> list[Path]:
    """The weight files of a checkpoint, or those of them that hold tensors of `part`.

    Raises:
        UserError: there are none, one is missing, or the index is damaged.
    """
    if not (directory / WEIGHTS).exists() and not (directory / INDEX).exists():
        raise UserError(f"{directory / WEIGHTS}: {_no_weights(directory)}")
    absent = missing_weight_file(directory, part)
    if absent is not None:
        raise UserError(f"{absent}: weight file is missing, {INDEX} names it; {AGAIN}")
    return _named_files(directory, part)


def missing_weight_file(directory: Path, part: Part | None) -> Path | None:
    """The first weight file that is not there, None where all are.

    Raises:
        UserError: the index is damaged.
    """
    return next((path for path in _named_files(directory, part) if not path.exists()), None)


def files_in_index(index: Path, part: Part | None) -> list[str]:
    """The names of the shards that hold tensors of `part`, from an index file.

    Raises:
        UserError: the index is damaged.
    """
    shards = _read_index(index)
    return sorted({shard for name, shard in shards.items() if part in (None, part_of(name))})


def tensor_files(directory: Path, part: Part) -> dict[str, Path]:
    """The file of every tensor of a part, from the index or a single file's header.

    Raises:
        UserError: a file is missing or damaged.
    """
    files = weight_files(directory, part)
    if (directory / WEIGHTS).exists():
        with open_weights(files[0]) as file:
            names = sorted(name for name in file.keys() if part_of(name) == part)  # noqa: SIM118
        return dict.fromkeys(names, files[0])
    held: dict[Path, list[str]] = {}
    for path in files:
        with open_weights(path) as file:
            held[path] = sorted(name for name in file.keys() if part_of(name) == part)  # noqa: SIM118
    found = {name: path for path, names in held.items() for name in names}
    for name, shard in _read_index(directory / INDEX).items():
        if part_of(name) != part:
            continue
        if name not in held[directory / shard]:
            raise UserError(
                f"{directory / shard}: tensor {name!r} is missing here, {INDEX} says that it is "
                f"in this file; {AGAIN}"
            )
        found[name] = directory / shard
    return found


def check_shapes(
    directory: Path, files: Mapping[str, Path], expected: Mapping[str, Sequence[int]]
) -> None:
    """Check names, shapes and types against the files' headers, before any weights are read.

    Args:
        directory: the checkpoint, for messages.
        files: the file of every tensor of this part, by the tensor's name in the file.
        expected: the shape that config.json asks for, by the same names.

    Raises:
        UserError: a tensor is missing, too many, of another shape or quantised.
    """
    _complain(directory, "is missing", expected.keys() - files.keys(), _stray(directory))
    _complain(directory, "is not part of this architecture", files.keys() - expected.keys(), "")
    for path, names in _by_file(files):
        with open_weights(path) as file:
            for name in names:
                view = file.get_slice(name)
                shape, kind = list(view.get_shape()), view.get_dtype()
                if shape != list(expected[name]):
                    raise UserError(
                        f"{path}: tensor {name!r} has shape {shape}, {CONFIG} asks for "
                        f"{list(expected[name])}; config and weights are of different models: "
                        "put the two that belong together into one directory"
                    )
                if kind not in DTYPES:
                    raise UserError(
                        f"{path}: tensor {name!r} is of type {kind}, not one of "
                        f"{', '.join(DTYPES)}; use the checkpoint that is not quantised"
                    )


def read_tensors(
    files: Mapping[str, Path], device: torch.device | str, dtype: torch.dtype
) -> Iterator[tuple[str, Tensor]]:
    """Read tensors one by one straight to device and dtype: at most one is held twice.

    Raises:
        UserError: a file is damaged, or holds numbers that are not finite.
    """
    for path, names in _by_file(files):
        with open_weights(path, device) as file:
            for name in names:
                tensor = file.get_tensor(name).to(device=device, dtype=dtype)
                if not _is_finite(tensor):
                    raise UserError(
                        f"{path}: tensor {name!r} holds numbers that are not finite in {dtype}; "
                        f"{AGAIN}, or choose another dtype"
                    )
                yield name, tensor


@contextmanager
def open_weights(path: Path, device: torch.device | str = "cpu") -> Iterator[Any]:
    """Open a safetensors file; raises UserError where it is damaged, also while it is read."""
    try:
        with safe_open(path, framework="pt", device=str(device)) as file:
            yield file
    except (SafetensorError, json.JSONDecodeError, OSError, ValueError) as error:
        raise UserError(f"{path}: damaged weight file ({error}); {AGAIN}") from None


def _is_finite(tensor: Tensor) -> bool:
    """Whether all numbers are finite; a sum needs no temporary copies and mostly tells at once.

    A finite sum has finite terms only; the sum of finite terms may overflow, hence the second look.
    """
    return bool(tensor.sum().isfinite()) or bool(tensor.isfinite().all())


def _named_files(directory: Path, part: Part | None) -> list[Path]:
    """The files that should be there; a single file comes before an index, as in transformers."""
    if (directory / WEIGHTS).exists() or not (directory / INDEX).exists():
        return [directory / WEIGHTS]
    return [directory / name for name in files_in_index(directory / INDEX, part)]


def _read_index(index: Path) -> dict[str, str]:
    """Tensor -> shard."""
    raw = read_json(index)
    shards = raw.get("weight_map") if isinstance(raw, dict) else None
    if not isinstance(shards, dict) or not shards:
        raise UserError(f"{index}: damaged: no 'weight_map' of tensors to files; {AGAIN}")
    for name, shard in shards.items():
        # Only files beside the index: a path could lead anywhere.
        if not isinstance(shard, str) or not shard.endswith(".safetensors") or "/" in shard:
            raise UserError(
                f"{index}: tensor {name!r} is said to be in {shard!r}: the name of a .safetensors "
                f"file beside the index; {AGAIN}"
            )
    return shards


def _no_weights(directory: Path) -> str:
    """What to say about a directory without safetensors."""
    pickles = sorted(path.name for pattern in PICKLES for path in directory.glob(pattern))
    if pickles:
        return (
            f"weight file is missing; {pickles[0]} is a pickle, which can run code when it is "
            "loaded and is not read: take a revision with safetensors, or convert it with "
            "save_pretrained of transformers on a machine that may run it"
        )
    return f"weight file is missing (and no {INDEX} is there); {AGAIN}"


def _stray(directory: Path) -> str:
    """A hint where weight files lie in a directory that its index does not name."""
    if (directory / WEIGHTS).exists() or not (directory / INDEX).exists():
        return ""
    named = set(files_in_index(directory / INDEX, None))
    stray = sorted({path.name for path in directory.glob("*.safetensors")} - named)
    return f" ({stray[0]} is there, but {INDEX} does not name it)" if stray else ""


def _by_file(files: Mapping[str, Path]) -> Iterator[tuple[Path, list[str]]]:
    """The tensors' names, file by file."""
    for path in dict.fromkeys(files.values()):
        yield path, [name for name, place in files.items() if place == path]


def _complain(directory: Path, what: str, names: Iterable[str], hint: str) -> None:
    names = sorted(names)
    if names:
        more = f" (and {len(names) - 1} more)" if len(names) > 1 else ""
        raise UserError(
            f"{directory}: tensor {names[0]!r} {what}{more}{hint}; config and weights do not "
            f"match: {AGAIN}"
        )
