"""The program in a chat reply, for HumanEval and MBPP.

    program = humaneval_program(problem["prompt"], problem["entry_point"], reply)
    program = mbpp_program(called_function(problem["test_list"]), reply)

Replies come with fences or without, with prose around them, in several blocks, or as the rest of
a fence or a function that the prompt began. Nothing here runs code.
"""

from __future__ import annotations

import ast
import builtins
import re
import textwrap
from collections.abc import Collection, Iterator, Sequence
from itertools import islice, takewhile

from mrp.errors import UserError
from mrp.evaluation.program_parts import joined, parse, without_stubs

# Lines that may begin a statement of a program; prose that parses ("Done") does not look so.
_STATEMENT = re.compile(
    r"(?:import|from|def|async|class|if|for|while|with|try|assert|return|raise|@)\b|@\w"
    r"|[A-Za-z_][\w.\[\], ]*(?::[^=]+)?[-+*/]?=[^=]|[a-z_][\w.]*\("
)
# Lines at the margin that go on with the statement before them.
_CONTINUED = re.compile(r"(?:else|elif|except|finally)\b|[)\]}]")
MOST_PIECES = 40  # pieces at the margin that one statement may span: long literals
MOST_TRIES = 4_000  # attempts at such statements in one reply: a second or so
MOST_BODIES = 8  # blocks of one reply tried as the rest of a function
MOST_READINGS = 40  # attempts in one reply at blocks with fences in their strings and comments
_FENCE = re.compile(r"(```+|~~~+) *([\w+#.-]*) *$")
# An opening fence with code on its line; without the language only at the line's begin.
_PYTHON = r"[Pp]y(?:thon)?3?[ \t]+"
_WITH_CODE = re.compile(
    rf"(?:^\s*(```+|~~~+) *(?:{_PYTHON})?|(?<![`~])(```+|~~~+) *{_PYTHON})(?=[^\s`~])(.*)$"
)


def humaneval_program(prompt: str, entry_point: str, reply: str) -> str:
    """A whole program from HumanEval's `prompt` and the model's reply.

    The reply may hold the function, which then gets the imports and helpers of the prompt, or the
    rest of the prompt's last function.
    """
    reply = reply.replace("\r\n", "\n")
    found = find_program(reply, entry_point)
    if found is not None:
        place = re.search(rf"^def {re.escape(entry_point)}\b", prompt, re.MULTILINE)
        return _future_first(prompt[: place.start() if place else 0] + found)
    # Prose after a body's closing fence reads as a block: the text before the fence is tried too.
    bodies = [*reversed(_blocks(reply)[-MOST_BODIES:]), _before_fences(reply)]
    programs = [_continue(prompt, body) for body in bodies if body.strip()]
    programs = programs or [_continue(prompt, _without_fences(reply))]
    return next((program for program in programs if is_answer(program, entry_point)), programs[0])


def mbpp_program(name: str, reply: str) -> str:
    """The program in a reply to MBPP, whose tests call the function `name`.

    A reply without that function is given back whole: it fails, and shows why.
    """
    found = find_program(reply, name)
    return reply if found is None else found


def is_answer(program: str, name: str) -> bool:
    """Whether a program parses and its function `name` gives something back: no stub, no prose."""
    tree = parse(program)
    values = (ast.Return, ast.Yield, ast.YieldFrom, ast.Lambda)
    for node in reversed(tree.body if tree is not None else []):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            found = node.name == name
        else:
            targets = node.targets if isinstance(node, ast.Assign) else []
            found = any(isinstance(to, ast.Name) and to.id == name for to in targets)
        if found and isinstance(node, ast.FunctionDef):
            inside = [part for part in ast.walk(node) if isinstance(part, values)]
            return any(getattr(part, "value", part) is not None for part in inside)
        if found:
            return True
    return False


# ---- the paper's own extraction (OpenCompass) ----------------------------------------------------


def paper_humaneval_program(prompt: str, reply: str) -> str:
    """What the paper runs for HumanEval: the prompt, then the first closed block or all the reply.

    The indent of the first line is lost, so that the rest of a function without a block fails.
    """
    block = re.search(r"```\w*\n", reply)
    code, closed, _ = reply[block.end() if block else 0 :].partition("```")
    return prompt + (code if block and closed else reply).lstrip()


def paper_mbpp_program(reply: str) -> str:
    """What the paper runs for MBPP: a BEGIN ... DONE span, or else the first block.

    Blocks with the tag python go before others, closed ones before open ones; without any, all the
    reply. A fence that only closes leaves nothing.
    """
    before, _, inside = reply.partition("BEGIN")
    if "DONE" in inside:
        code = inside.removeprefix("]").lstrip().removeprefix("'")
    else:
        spans = [reply.partition(fence) for fence in ("```python", "```")]
        closed = [rest for _, found, rest in spans if found and "```" in rest]
        opened = [rest for _, found, rest in spans if found]
        code = next(iter([*closed, *opened, inside.removeprefix("]") if inside else before]))
    code = code.partition("```")[0]
    code, done, _ = code.partition("DONE")
    code = code.rstrip("[").rstrip().rstrip("'") if done else code
    return code.replace("\\_", "_").strip()


# ---- reading tests and replies -------------------------------------------------------------------


def called_function(tests: Sequence[str], defined: Collection[str] = ()) -> str:
    """The function that MBPP's assertions call, one of the reference's `defined` if they call one.

    Raises:
        UserError: they call none, or are no Python.
    """
    try:
        calls = [
            node.func.id
            for node in ast.walk(ast.parse("\n".join(tests)))
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)
        ]
    except SyntaxError:
        calls = []
    own = [name for name in calls if not hasattr(builtins, name)]
    if not own:
        raise UserError(
            f"test_list {list(tests)!r} calls no function: give assertions such as assert f(1) == 2"
        )
    return next((name for name in own if name in defined), own[0])


def find_program(reply: str, name: str) -> str | None:
    """The program in `reply` that defines `name`, None without one.

    The last fenced block with the definition counts, since later ones correct earlier ones, but a
    stub or a bare signature does not replace an answer. The imports, definitions and constants of
    the blocks before it stay, and those of later blocks that it uses and lacks. Without such a
    block the code is picked from the text.
    """
    blocks = without_stubs(_blocks(reply := reply.replace("\r\n", "\n")))
    defining = [index for index, block in enumerate(blocks) if _defines(block, name)]
    answers = [index for index in defining if is_answer(blocks[index], name)]
    if defining:
        return _future_first(joined(blocks, (answers or defining)[-1]))
    code = "\n".join(without_stubs(["\n".join(_statements(_without_fences(reply)))]))
    return code if _defines(code, name) else None


def _future_first(code: str) -> str:
    """Imports from __future__ at the top, the only place where Python takes them."""
    lines = code.split("\n")
    return "\n".join(sorted(lines, key=lambda line: not line.startswith("from __future__ import")))


def _defines(code: str, name: str) -> bool:
    name = re.escape(name)
    return bool(re.search(rf"^(?:(?:async )?def|class) {name}\b|^{name} *=", code, re.MULTILINE))


# ---- fences --------------------------------------------------------------------------------------


def _blocks(reply: str) -> list[str]:
    """The fenced blocks; one that the reply does not close ends with it."""
    blocks: list[str] = []
    fence, begun, index, tries = "", 0, 0, MOST_READINGS
    lines = reply.split("\n")
    while index < len(lines):
        line = lines[index]
        coded = None if fence else _WITH_CODE.search(line)
        mark = _FENCE.search(line)
        if coded is not None and _STATEMENT.match(coded[3]):
            fence = coded[1] or coded[2]
            # The code stands at the margin of a block that goes on.
            code, closed, _ = coded[3].partition(fence)
            lines[index], begun = code, index
            if closed:
                blocks.append(_block([code]))
                fence = ""
        elif fence and mark is not None and mark[1] == fence:
            inside = lines[begun:index]
            ends = _longer_ends(lines, begun, index, fence) if tries > 0 else []
            tries -= len(ends)
            end = next((end for end in ends if parse(_until(lines, begun, end)) is not None), None)
            if end is not None:
                blocks.append(_until(lines, begun, end))
                fence, index = "", end
            elif not mark[2]:
                blocks.append(_until(lines, begun, index))
                fence = ""
            else:
                # A fence with a language inside a block opens another: the first was not closed.
                blocks += [_block(inside)] if inside else []
                begun = index + 1
        elif not fence and mark is not None:
            fence, begun = mark[1], index + 1
        index += 1
    blocks += [_block(lines[begun:])] if fence and lines[begun:] else []
    return [block for block in blocks if block.strip()]


def _until(lines: Sequence[str], begun: int, end: int) -> str:
    """The block from the line `begun` to the fence of the line `end`, or to the end of them all."""
    last = [_FENCE.sub("", lines[end])] if end < len(lines) else []
    return _block([*lines[begun:end], *last])


def _longer_ends(lines: Sequence[str], begun: int, index: int, fence: str) -> list[int]:
    """The later ends that a block may have, farthest first, if a fence stands in its docstring.

    A line of backticks is no Python but in a string or a comment, so that a reading over one
    parses only there.
    """
    text = "\n".join(lines[begun:index])
    quoted = text.count('"""') % 2 or text.count("'''") % 2
    if not quoted and not lines[index].lstrip().startswith("#"):
        return []
    marks = ((end, _FENCE.search(lines[end])) for end in range(index + 1, len(lines)))
    closing = (end for end, mark in marks if mark and mark[1] == fence and not mark[2])
    return [len(lines), *reversed(list(islice(closing, 8)))]


def _block(lines: Sequence[str]) -> str:
    return textwrap.dedent("\n".join(lines)).strip("\n") + "\n"


def _without_fences(reply: str) -> str:
    return re.sub(r"(?:```+|~~~+) *[\w+#.-]* *$", "", reply, flags=re.MULTILINE)


def _before_fences(reply: str) -> str:
    return "\n".join(takewhile(lambda line: not line.startswith(("```", "~~~")), reply.split("\n")))


# ---- code in prose -------------------------------------------------------------------------------


def _statements(text: str) -> Iterator[str]:
    """The statements at the margin that parse, in order; the prose between them is dropped."""
    pieces = _pieces(textwrap.dedent(text))
    index, tries = 0, MOST_TRIES
    while index < len(pieces):
        if _STATEMENT.match(pieces[index]):
            longest = MOST_PIECES if tries > 0 else 1
            for end in range(index + 1, min(index + longest, len(pieces)) + 1):
                tries -= 1
                statement = "\n".join(pieces[index:end])
                if parse(statement) is not None:
                    yield statement.rstrip()
                    index = end - 1
                    break
        index += 1


def _pieces(text: str) -> list[str]:
    """A line at the margin with the indented, empty and continuing lines after it."""
    pieces: list[str] = []
    for line in text.split("\n"):
        if pieces and (not line.strip() or line[0].isspace() or _CONTINUED.match(line)):
            pieces[-1] += "\n" + line
        else:
            pieces.append(line)
    return pieces


def _continue(prompt: str, rest: str) -> str:
    """The prompt with the rest of its function, indented so that it parses if it can.

    A tokenizer may drop the first line's indent, or a model all of it. Prose after the function is
    left out.
    """
    rest = rest.strip("\n")
    indented = textwrap.indent(textwrap.dedent(rest), "    ")
    whole = [body for body in (rest, f"    {rest.lstrip()}", indented) if body.strip()]
    cut = [_to_the_margin(body) for body in whole]
    # Whole first: what stands at the margin may be a line without its indent.
    for body in [*(body for body, short in zip(whole, cut, strict=True) if body == short), *cut]:
        program = f"{prompt.rstrip()}\n{body}\n"
        if body.strip() and parse(program) is not None:
            return program
    return f"{prompt.rstrip()}\n{rest}\n"


def _to_the_margin(body: str) -> str:
    """The lines before the first at the margin."""
    lines = body.split("\n")
    return "\n".join(takewhile(lambda line: not line.strip() or line[0].isspace(), lines))
