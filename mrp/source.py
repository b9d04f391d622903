"""Which source decides a result, and its version: a hash that comments and layout leave alone.

Only the standard library is needed, so that training can ask, also where no suite can be read.
"""

from __future__ import annotations

import ast
import hashlib
import json
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

import mrp
from mrp.errors import UserError

T = TypeVar("T")

# As file patterns inside mrp. What decodes depends on the mode: see `mode_code`.
DECODE_CODE = (
    "models/*.py",
    "data/*.py",
    "evaluation/*.py",
    "speed/*.py",
    "commands/decode.py",
)
GUEST_CODE = ("evaluation/guest/*.py",)  # of the tasks that run programs
TRAIN_CODE = ("models/*.py", "training/*.py", "data/*.py", "commands/train*.py")
DATA_CODE = ("data/*.py", "commands/data.py")
REPORT_CODE = ("report/**/*.*", "commands/report.py")
_DOCUMENTED = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)


@cache
def code_version(*patterns: str) -> str:
    """A hash of source files of mrp (patterns inside it), deaf to comments, docstrings and layout.

    Workflow rules carry it as a parameter: a changed algorithm runs again, an edited comment does
    not. Training keeps it with its resume points, which other code does not continue.
    """
    root = Path(mrp.__file__).parent
    files = {file for pattern in patterns for file in root.glob(pattern) if file.is_file()}
    versions = {}
    for file in files:
        if file.suffix == ".py":
            versions[str(file.relative_to(root))] = _of_program(file, _program_version)
        elif file.suffix != ".pyc":
            versions[str(file.relative_to(root))] = hashlib.sha256(file.read_bytes()).hexdigest()
    return short_digest(versions)


def _of_program(path: Path, read: Callable[[bytes], T]) -> T:
    """What `read` makes of a Python file.

    Raises:
        UserError: it is none, as a mode or a task of the user's own may be; names the line.
    """
    try:
        return read(path.read_bytes())
    except (SyntaxError, ValueError) as error:
        raise UserError(no_python(path, error)) from None


def no_python(path: Path | str, error: SyntaxError | ValueError) -> str:
    """What to say of a file that is no Python program."""
    line, what = getattr(error, "lineno", None), getattr(error, "msg", error)
    return f"{path}: no valid Python{f' at line {line}' if line else ''}: {what}: correct it"


@cache
def _program_version(source: bytes) -> str:
    """The hash of one Python file's meaning; many patterns share a file, which is parsed once."""
    return _short_hash(_meaning(ast.parse(source)))


@cache
def reached_files(*files: str) -> frozenset[str]:
    """Files of mrp (paths inside it) with all that they import from it, directly or not."""
    root = Path(mrp.__file__).parent
    found: set[str] = set()
    open_files = [file for file in files if (root / file).is_file()]
    while open_files:
        file = open_files.pop()
        if file in found:
            continue
        found.add(file)
        names = _of_program(root / file, _imported)
        open_files += [f"{name}.py" for name in names if (root / f"{name}.py").is_file()]
    return frozenset(found)


@cache
def _imported(source: bytes) -> tuple[str, ...]:
    """What a Python file may import from mrp, as paths inside it; modes and tasks share most.

    What is imported for type checkers alone decides no result.
    """
    names: list[str] = []
    for node in _running(ast.parse(source)):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("mrp."):
            module = (node.module or "").removeprefix("mrp.").replace(".", "/")
            names += [module, *(f"{module}/{alias.name}" for alias in node.names)]
    return tuple(names)


def _running(node: ast.AST) -> Iterator[ast.AST]:
    """A node and the statements below it, without the blocks under `if TYPE_CHECKING`.

    No expression is looked into: none holds an import, and they are most of a file.
    """
    yield node
    below: Iterable[ast.AST] = ast.iter_child_nodes(node)
    if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
        below = node.orelse
    for child in below:
        if not isinstance(child, ast.expr):
            yield from _running(child)


@cache
def mode_code(mode: str) -> tuple[str, ...]:
    """Patterns of the source that decodes by a mode: what all modes share, and its own files.

    Its own are the file with its name in it, as `name: ClassVar[str] = "..."`, and what that
    imports; the baseline's is everybody's. So a mode that is added or edited runs no other's jobs.
    Rules that have kernels are the exception: `decoding/fast` is everybody's, too.
    """
    folder = Path(mrp.__file__).parent / "decoding" / "modes"
    named = f'name: ClassVar[str] = "{mode}"'
    own = [path.name for path in folder.glob("*.py") if named in path.read_text("utf-8", "replace")]
    starts = [f"decoding/modes/{name}" for name in ("base.py", "static.py", *own)]
    files = sorted(file for file in reached_files(*starts) if file.startswith("decoding/modes/"))
    return ("decoding/*.py", "decoding/fast/*.py", *files)


def _meaning(node: Any) -> str:
    """A syntax tree as JSON, without docstrings and places; alike in all Python versions.

    Written as text at once, with sorted keys: every job and every start of the workflow reads some
    hundred files.
    """
    if isinstance(node, list):
        return f"[{','.join(map(_meaning, node))}]"
    if not isinstance(node, ast.AST):
        return json.dumps(repr(node))
    children = []
    for name in sorted(node._fields):
        value = getattr(node, name, None)
        if name == "body" and isinstance(node, _DOCUMENTED):
            value = node.body[1:] if ast.get_docstring(node, clean=False) else node.body
        elif value in (None, []):
            continue
        children.append(f'"{name}":{_meaning(value)}')
    return f'["{type(node).__name__}",{{{",".join(children)}}}]'


def short_digest(value: Any) -> str:
    """A hash of JSON values as 16 hex digits, independent of their order."""
    return _short_hash(json.dumps(value, sort_keys=True, separators=(",", ":")))


def _short_hash(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]
