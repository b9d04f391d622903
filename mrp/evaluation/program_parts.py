"""A program that a reply spreads over several blocks: which statements of each belong to it.

    blocks = without_stubs(blocks)
    program = joined(blocks, index)     # the block at index, with what it needs of the others

Blocks are read as syntax trees; nothing here runs code.
"""

from __future__ import annotations

import ast
import builtins
from collections.abc import Collection, Iterator, Sequence
from itertools import takewhile
from typing import NamedTuple

# Calls that make a constant, unlike the example runs of a reply; with a dot, of a module.
_MAKERS = {"float", "int", "str", "set", "frozenset", "dict", "list", "tuple", "range", "ord"}
_MAKERS |= {"chr", "bool", "bytes", "complex", "len", "sorted", "zip", "enumerate", "reversed"}
_MAKERS |= {"object", "defaultdict", "deque", "Counter", "OrderedDict", "TypeVar", ".compile"}
_MAKERS |= {".defaultdict", ".deque", ".Counter", ".OrderedDict", ".TypeVar"}


class _Part(NamedTuple):
    """A statement at the margin: its text, the names it gives and those it may read."""

    text: str
    names: set[str]
    reads: set[str]


def joined(blocks: Sequence[str], index: int) -> str:
    """The block at `index` with what it needs of the others."""
    chosen, known = blocks[index], set[str]()
    earlier = [part for block in blocks[:index] for part in _definitions(block, known)]
    tree = parse(chosen)
    if tree is None:
        return "\n\n".join([*(part.text for part in earlier), chosen])
    # After the imports, which annotations need, and before what may run.
    lead = list(takewhile(lambda node: isinstance(node, ast.Import | ast.ImportFrom), tree.body))
    known.update(*map(_names, lead))
    later = [part for block in blocks[index + 1 :] for part in _definitions(block, known)]
    bound = _names(tree).union(*(part.names for part in earlier), vars(builtins))
    lacking = _reads(tree).union(*(part.reads for part in earlier)) - bound
    kept: set[int] = set()
    while new := {i for i, part in enumerate(later) if i not in kept and part.names & lacking}:
        kept |= new
        lacking |= set[str]().union(*(later[i].reads for i in new)) - bound
    used = [later[i].text for i in sorted(kept)]
    if not used:
        return "\n\n".join([*(part.text for part in earlier), chosen])
    lines = chosen.split("\n")
    cut = (lead[-1].end_lineno or 0) if lead else 0
    top = ["\n".join(lines[:cut])] if cut else []
    return "\n\n".join([*(part.text for part in earlier), *top, *used, "\n".join(lines[cut:])])


def without_stubs(blocks: Sequence[str]) -> list[str]:
    """The blocks without the stubs of functions that one of them defines."""
    trees = [parse(block) for block in blocks]
    nodes = [node for tree in trees if tree is not None for node in tree.body]
    stubs = {id(node): node for node in nodes if _is_stub(node)}
    if not stubs:
        return list(blocks)
    real = set[str]().union(*(_given(node) for node in nodes if id(node) not in stubs))
    kept: list[str] = []
    for block, tree in zip(blocks, trees, strict=True):
        lines: list[str | None] = [*block.split("\n")]
        for node in tree.body if tree is not None else []:
            if id(node) in stubs and _given(node) <= real:
                first, last = _span(node)
                lines[first:last] = [None] * (last - first)
        kept.append("\n".join(line for line in lines if line is not None))
    return kept


def _is_stub(node: ast.stmt) -> bool:
    """Whether a function only has a docstring, `...`, `pass` or a NotImplementedError."""
    if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
        return False
    return all(
        isinstance(part, ast.Pass)
        or (isinstance(part, ast.Expr) and isinstance(part.value, ast.Constant))
        or (isinstance(part, ast.Raise) and "NotImplementedError" in _reads(part))
        for part in node.body
    )


def _definitions(code: str, known: set[str]) -> Iterator[_Part]:
    """The imports, functions, classes and constants of a block; none of one that does not parse.

    `known` holds the names given so far, and gets those of the block.
    """
    tree = parse(code)
    rows = [line.encode(errors="ignore") for line in code.split("\n")]
    for node in tree.body if tree is not None else []:
        if _is_definition(node, known):
            first, last = _span(node)
            rows_of = rows[first:last]
            # Another statement may share the line.
            rows_of[-1] = rows_of[-1][: node.end_col_offset]
            rows_of[0] = rows_of[0][node.col_offset :]
            names = _given(node)
            known |= names
            yield _Part(b"\n".join(rows_of).decode(errors="ignore"), names, _reads(node))


def _is_definition(node: ast.stmt, known: Collection[str]) -> bool:
    """Whether a statement may stay without the rest of its block: an example run may not."""
    if isinstance(node, ast.Try):
        inside = [*node.body, *(part for handler in node.handlers for part in handler.body)]
        inside += [*node.orelse, *node.finalbody]
        simple = (ast.Import, ast.ImportFrom, ast.Assign, ast.FunctionDef, ast.Pass)
        imports = any(isinstance(part, ast.Import | ast.ImportFrom) for part in node.body)
        return imports and all(isinstance(part, simple) for part in inside)
    if not isinstance(node, ast.Assign | ast.AnnAssign):
        kinds = (ast.Import, ast.ImportFrom, ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
        return isinstance(node, kinds)
    targets = node.targets if isinstance(node, ast.Assign) else [node.target]
    places = (ast.Name, ast.Tuple, ast.Store, ast.Load)
    # A list named `sum` in an example must not hide the builtin.
    if any(hasattr(builtins, name) for name in _given(node)) or node.value is None:
        return False
    if not all(isinstance(part, places) for target in targets for part in ast.walk(target)):
        return False
    return _is_constant(node, known)


def _is_constant(node: ast.stmt, known: Collection[str]) -> bool:
    """Whether an assignment's value only needs names that are there, and calls nothing of note."""
    value = getattr(node, "value", node)
    # The names of its comprehensions, but not the one assigned: `x = x + 1` needs an earlier x.
    own, todo = _names(value), [value, getattr(node, "annotation", value)]
    while todo:
        part = todo.pop()
        if isinstance(part, ast.Lambda):
            continue  # its body is not run
        if isinstance(part, ast.Call):
            call = part.func
            if not isinstance(call, ast.Name | ast.Attribute):
                return False
            called = call.id if isinstance(call, ast.Name) else f".{call.attr}"
            if called not in _MAKERS:
                return False
        there = isinstance(part, ast.Name) and (part.id in known or part.id in own)
        if isinstance(part, ast.Name) and not there and not hasattr(builtins, part.id):
            return False
        todo += ast.iter_child_nodes(part)
    return True


def _span(node: ast.stmt) -> tuple[int, int]:
    """The lines of a statement with its decorators, as the bounds of a slice."""
    decorators: list[ast.expr] = getattr(node, "decorator_list", [])
    first = min([node.lineno, *(decorator.lineno for decorator in decorators)])
    return first - 1, node.end_lineno or node.lineno


def _given(node: ast.stmt) -> set[str]:
    """The names that a statement at the margin gives."""
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        return {node.name}
    return _names(node)


def _names(tree: ast.AST) -> set[str]:
    """All names that a tree binds, at the margin or inside."""
    names: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load):
            names.add(node.id)
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            names.add(node.name)
        elif isinstance(node, ast.alias):
            names.add(node.asname or node.name.partition(".")[0])
        elif isinstance(node, ast.arg):
            names.add(node.arg)
    return names


def _reads(tree: ast.AST) -> set[str]:
    nodes = ast.walk(tree)
    return {n.id for n in nodes if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Load)}


def parse(code: str) -> ast.Module | None:
    """The syntax tree of `code`, None where it has none."""
    try:
        return ast.parse(code)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None
