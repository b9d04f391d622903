"""Programs in chat replies: each case is run, so that the whole program is what counts."""

from __future__ import annotations

import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mrp.errors import UserError
from mrp.evaluation.programs import (
    called_function,
    find_program,
    humaneval_program,
    is_answer,
    mbpp_program,
    paper_humaneval_program,
    paper_mbpp_program,
)

PROMPT = '''from typing import List


def twice(x: int) -> int:
    return 2 * x


def add(a: int, b: List[int]) -> int:
    """Sum of a and all of b.

    >>> add(1, [2])
    3
    """
'''
BODY = "    return a + sum(b)\n"
FUNCTION = "def add(a, b):\n    return a + sum(b)\n"
TYPED = "from typing import List\n\ndef add(a: int, b: List[int]) -> int:\n    return a + sum(b)\n"


def run(program: str) -> dict[str, Any]:
    space: dict[str, Any] = {}
    exec(compile(program, "reply", "exec", dont_inherit=True), space)
    return space


@pytest.mark.parametrize(
    "reply",
    [
        f"```python\n{FUNCTION}```",
        f"```python\n{TYPED}```",
        f"```python\n{TYPED}",
        f"```\n{FUNCTION}```\nThis adds the numbers.",
        f"Sure! Here it is:\n\n```python\n{FUNCTION}```\n\nIt uses `sum`.",
        f"Sure! Here it is: ```py\n{FUNCTION}```",
        f"Sure! Here it is:\n\n{FUNCTION}\nIt uses the built-in sum.",
        f"{FUNCTION}```",
        f"{FUNCTION}```\nDone.",
        f"Sure:\n```python\n{FUNCTION}```\n".replace("\n", "\r\n"),
        FUNCTION,
        TYPED,
        BODY,
        f"```python\n{BODY}```",
        BODY.lstrip(),
        "total = sum(b)\nreturn a + total",
        "total = sum(b)\n    return a + total",
        f"{BODY}\nThat is all.",
        f"1. First:\n   ```python\n   {FUNCTION.replace(chr(10), chr(10) + '   ')}\n   ```",
        f"~~~python\n{FUNCTION}~~~",
        # Several blocks: the last definition counts, imports and helpers before it stay.
        f"```python\ndef add(a, b):\n    return 0\n```\nWait:\n```python\n{FUNCTION}```",
        f"```python\n{FUNCTION}```\nUse it so:\n```python\nprint(add(1, [2]))\n```",
        "```python\nimport math\n\ndef total(b):\n    return int(math.fsum(b))\n\nprint(input())\n"
        "```\nThen:\n```python\ndef add(a, b):\n    return a + total(b)\n```",
        "```bash\npip install numpy\n```\n" + f"```python\n{FUNCTION}```",
        # Helpers of the prompt are there.
        "```python\ndef add(a, b):\n    return a + sum(twice(x) // 2 for x in b)\n```",
        f"```python\nfrom __future__ import annotations\n\n{FUNCTION}```",
        "```python\nadd = lambda a, b: a + sum(b)\n```",
        # A literal at the margin inside an unfenced function.
        'Here:\n\ndef add(a, b):\n    """Sum.\n\nIt is\ndone.\n"""\n    return a + sum(b)\n\nBye.',
    ],
)
def test_humaneval_replies_pass(reply: str) -> None:
    assert run(humaneval_program(PROMPT, "add", reply))["add"](1, [2, 3]) == 6


F = "```python\ndef f(a):\n    return {}\n```\n"


@pytest.mark.parametrize(
    "reply",
    [
        # Constants of earlier blocks.
        "```python\nMOD = 10**9 + 7\n```\n" + F.format("(a + 1) % MOD"),
        "```python\nA, B = 1, -1\nN: int = A\nS = {A: [N]}\n```\n" + F.format("a + S[A][0]"),
        "```python\nimport math\nINF = float('inf'); print(input())\n```\n"
        + F.format("min(a + 1, INF)"),
        "```python\nimport math\nTWO = [math.e, 1]\n```\n" + F.format("a + TWO[1]"),
        "```python\nplus = lambda x: x + ONE\n```\n```python\nONE = 1\n```\n" + F.format("plus(a)"),
        "```python\ntry:\n    from no_such import gcd\nexcept ImportError:\n"
        "    from math import gcd\n```\n" + F.format("a + gcd(2, 3)"),
        # Example runs are not kept, nor what they gave, nor what hides a builtin.
        "```python\nx = f(1)\ny = x\nz = [g(2)]\nx = x + 1\nsum = 0\n```\n"
        + F.format("sum([a, 1])"),
        # Later blocks give what is lacking, and no more.
        F.format("plus(a)") + "with the helper\n```python\ndef plus(x):\n    return x + 1\n```",
        F.format("plus(a)") + "```python\nfrom no_such import f\nplus = lambda x: x + ONE\n"
        "print(f(1))\n```\n```python\nONE = 1\n```",
        "```python\nfrom typing import List\ndef f(a):\n    return plus([a])\nprint(f(1))\n```\n"
        "```python\ndef plus(x: List[int]):\n    return x[0] + 1\n```",
        F.format("math.floor(a) + 1") + "Add this:\n```python\nimport math\n```",
        # Stubs do not replace what is there.
        *(
            F.format("a + 1") + f"The signature is:\n```python\ndef f(a):{stub}\n```"
            for stub in (
                " ...",
                " pass",
                "",
                '\n    """Adds."""',
                "\n    # code\n    pass",
                "\n    raise NotImplementedError",
            )
        ),
        "def f(a):\n    return a + 1\n\nThe signature is:\n\ndef f(a): ...\n",
        "```python\ndef plus(x):\n    return x + 1\n```\n"
        "```python\ndef plus(x):\n    ...  # as above\n\ndef f(a):\n    return plus(a)\n```",
        # Fences in docstrings and comments.
        '```python\ndef f(a):\n    """Adds.\n\n    ```\n    f(1)\n    ```\n    """\n'
        "    return a + 1\n```\nDone.\n```python\nprint(f(1))\n```",
        '```python\ndef f(a):\n    """Adds.\n\n    ```python\n    f(1)\n    ```\n    """\n'
        "    return a + 1",
        "```python\ndef f(a):\n    a += 1\n    # ```\n    # f(1)\n    # ```\n    return a\n```",
        # Code on the line of the fence.
        "```python def f(a): return a + 1\n```",
        "```python def f(a): return a + 1```\nDone.",
        "Sure: ```python def f(a):\n    return a + 1\n```\nDone.",
        "```def f(a):\n    return a + 1\n```",
        "```python import math\ndef f(a):\n    return math.floor(a) + 1\n```",
    ],
)
def test_programs_over_several_blocks_are_whole(reply: str) -> None:
    assert run(mbpp_program("f", reply))["f"](1) == 2
    assert run(humaneval_program('def f(a):\n    """Adds."""\n', "f", reply))["f"](1) == 2


@pytest.mark.parametrize(
    "after",
    [
        "```\nThis is it",
        "```\nDone",
        "```\nExample:\n```python\nprint(add(1, [2]))\n```",
        "~~~\n\nIt adds.",
    ],
)
def test_prose_after_the_fence_that_ends_a_body_is_dropped(after: str) -> None:
    for reply in (BODY + after, f"```python\n{BODY}" + after, BODY.lstrip() + after):
        assert run(humaneval_program(PROMPT, "add", reply))["add"](1, [2, 3]) == 6


@pytest.mark.parametrize("reply", ["", "Sorry, no.", "```python\n```", "return", "pass"])
def test_humaneval_without_a_function_does_not_pass(reply: str) -> None:
    try:
        result = run(humaneval_program(PROMPT, "add", reply))["add"](1, [2, 3])
    except SyntaxError:
        return
    assert result is None


@pytest.mark.parametrize(
    ("reply", "begin"),
    [
        ("def f(a):\n    return a\n```", "def f"),
        ("import math\ndef f(a):\n    return a\n```", "import math"),
        ("Here is it:\n```python\ndef f(a):\n    return a\n```", "def f"),
        ("Here is it:\n```\ndef f(a):\n    return a\n", "def f"),
        ("```python\n```python\ndef f(a):\n    return a\n```", "def f"),
        ("@cache\n@other\ndef f(a):\n    return a", "@cache"),
        (
            "Try this.\n\nimport os\n\nThen\n\nX = [\n    1,\n]\n\ndef f(a):\n    return X\n",
            "import os",
        ),
        ("class f:\n    pass\n\nx = 1\nEnd of it.", "class f"),
    ],
)
def test_mbpp_programs_are_whole(reply: str, begin: str) -> None:
    program = mbpp_program("f", reply)
    assert program.startswith(begin)
    compile(program, "reply", "exec")
    assert "```" not in program
    assert not {"Here", "Try", "Then", "End"} & set(program.split())


def test_mbpp_without_the_function_is_given_back() -> None:
    assert mbpp_program("f", "I do not know.") == "I do not know."
    assert find_program("def g(a):\n    return a", "f") is None


def test_an_alternative_at_the_margin_stays_with_its_condition() -> None:
    reply = (
        "So:\n\nif True:\n    def f():\n        return 1\nelse:\n    pass\n\ndef f():\n    return 2"
    )
    assert find_program(reply, "f") == reply.removeprefix("So:\n\n").replace("\n\ndef", "\ndef")


@pytest.mark.parametrize(
    ("tests", "name"),
    [
        (["assert f(1) == 2"], "f"),
        (["assert set(g(1)) == set([2])"], "g"),
        (["assert math.isclose(area(5), 3.0)"], "area"),
    ],
)
def test_the_called_function(tests: list[str], name: str) -> None:
    assert called_function(tests) == name


def test_a_function_of_the_reference_goes_before_others() -> None:
    tests = ["assert Counter(f([1])) == Counter([1])"]
    assert called_function(tests) == "Counter"
    assert called_function(tests, ["helper", "f"]) == "f"


@pytest.mark.parametrize("tests", [[], ["assert True"], ["assert ("]])
def test_tests_without_a_function_are_user_errors(tests: list[str]) -> None:
    with pytest.raises(UserError, match="calls no function"):
        called_function(tests)


@given(reply=st.text(alphabet="`~ \n\tdef add(a,b):return#\"'\\x", max_size=80))
def test_any_reply_gives_a_program(reply: str) -> None:
    assert isinstance(humaneval_program(PROMPT, "add", reply), str)
    assert isinstance(mbpp_program("f", reply), str)


# Each kind of the cases above, combined.
BEFORE = ("", "Sure! Here it is:\n\n", "Step 1: think.\n", "```bash\npip install x\n```\n\n")
IMPORTS = ("", "import math\n", "from typing import List\nimport math\n\n")
AFTER = ("", "\nIt uses a sum.", "\n\nExample:\n```python\nprint(f([1]))\n```\n", "\n\nDone.")


@given(
    before=st.sampled_from(BEFORE),
    imports=st.sampled_from(IMPORTS),
    fence=st.sampled_from(["```python\n", "```py\n", "```Python\n", "```\n", "~~~python\n", ""]),
    close=st.booleans(),
    after=st.sampled_from(AFTER),
    wrong_first=st.booleans(),
    newline=st.sampled_from(["\n", "\r\n"]),
)
def test_any_reply_with_the_function_gives_it(
    before: str, imports: str, fence: str, close: bool, after: str, wrong_first: bool, newline: str
) -> None:
    needs = "math.floor(sum(a))" if imports else "sum(a)"
    code = f"{imports}def f(a):\n    return {needs}\n"
    mark = fence.strip()[:3]
    # An open block ends with the reply.
    block = fence + code + (mark if close else "")
    tail = after if close or not fence else ""
    wrong = f"{fence}def f(a):\n    return 0\n{mark}\n\nNo:\n" if wrong_first and fence else ""
    reply = (before + wrong + block + tail).replace("\n", newline)
    assert run(mbpp_program("f", reply))["f"]([1, 2]) == 3
    program = humaneval_program('def f(a):\n    """Sum."""\n', "f", reply)
    assert run(program)["f"]([1, 2]) == 3
    assert is_answer(program, "f")


@pytest.mark.parametrize(
    ("program", "answers"),
    [
        (FUNCTION, True),
        ("add = lambda a, b: a", True),
        ("class add:\n    pass", True),
        ("async def add(a):\n    return 1", True),
        ("def add(a):\n    yield 1", True),
        ("import math\nadd = math.fsum", True),
        (PROMPT + BODY, True),
        (PROMPT, False),
        (PROMPT + "    pass", False),
        (PROMPT + "    return", False),
        (PROMPT + "    x x x", False),
        ("def other(a):\n    return 1", False),
        ("", False),
    ],
)
def test_what_counts_as_a_program(program: str, answers: bool) -> None:
    assert is_answer(program, "add") is answers


@pytest.mark.parametrize(
    ("reply", "read"),
    [
        ("```python\ndef f(): 1\n```", "def f(): 1\n"),
        ("a ```py\n  b\n``` c ```\nd\n```", "b\n"),
        ("  return 1", "return 1"),
        ("```python\nopen", "```python\nopen"),
        ("no block ``` here", "no block ``` here"),
    ],
)
def test_what_the_papers_rule_takes_for_humaneval(reply: str, read: str) -> None:
    assert paper_humaneval_program("P\n", reply) == f"P\n{read}"


@pytest.mark.parametrize(
    ("reply", "read"),
    [
        ("```python\na\n```\n```python\nb\n```", "a"),
        ("x\n```\na\n```\ny", "a"),
        ("```python\na", "a"),
        ("```\na", "a"),
        ("a\n```", ""),
        ("[BEGIN]\n'a'\n[DONE]", "a"),
        ("BEGIN a DONE b", "a"),
        ("[BEGIN] a", "a"),
        ("a\\_b", "a_b"),
        ("a\n[DONE]\nb", "a"),
        ("all of it", "all of it"),
        ("", ""),
    ],
)
def test_what_the_papers_rule_takes_for_mbpp(reply: str, read: str) -> None:
    assert paper_mbpp_program(reply) == read


PIECES = ["```", "```python\n", "@a\n", "def f(\n", "x = (\n", "(", '"' * 3, "    ", "if a:\n", "-"]
PIECES += ["BEGIN ", "DONE", "f'{", "a.", "1+", "#", "\\\n", "\t", "\r", "return ", "lambda:"]
PIECES += ["def f(a):\n    return 1\n", "x = 1\n", "import a\n", "\n", "~~~\n", "[BEGIN]'"]


@pytest.mark.parametrize("piece", PIECES)
def test_a_long_reply_is_read_soon(piece: str) -> None:
    """Extraction works on untrusted text in this process: no recursion, no runaway match."""
    reply = piece * (20_000 // len(piece))
    begun = time.process_time()
    for text in (reply, f"def f(a):\n    return {reply}", f"```python\ndef f(a): {reply}\n```"):
        is_answer(humaneval_program(PROMPT, "f", text), "f")
        paper_humaneval_program(PROMPT, text)
        paper_mbpp_program(text)
        mbpp_program("f", text)
    assert time.process_time() - begun < 5  # a runaway match would take minutes
