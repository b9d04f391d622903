"""Programs in chat replies: each case is run, so that the whole program is what counts."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mrp.errors import UserError
from mrp.evaluation.programs import (
    called_function,
    find_program,
    humaneval_program,
    mbpp_program,
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


@pytest.mark.parametrize("reply", ["", "Sorry, no.", "```python\n```", "return", "pass"])
def test_humaneval_without_a_function_does_not_pass(reply: str) -> None:
    try:
        result = run(humaneval_program(PROMPT, "add", reply))["add"](1, [2, 3])
    except SyntaxError:
        return
    assert result is None


TESTS = ["assert f([4, 9]) == 2", "assert set(f([1])) == {1}"]


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
    program = mbpp_program(TESTS, reply)
    assert program.startswith(begin)
    compile(program, "reply", "exec")
    assert "```" not in program
    assert not {"Here", "Try", "Then", "End"} & set(program.split())


def test_mbpp_without_the_function_is_given_back() -> None:
    assert mbpp_program(TESTS, "I do not know.") == "I do not know."
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


@pytest.mark.parametrize("tests", [[], ["assert True"], ["assert ("]])
def test_tests_without_a_function_are_user_errors(tests: list[str]) -> None:
    with pytest.raises(UserError, match="calls no function"):
        called_function(tests)


@given(reply=st.text(alphabet="`~ \n\tdef add(a,b):return#\"'\\x", max_size=80))
def test_any_reply_gives_a_program(reply: str) -> None:
    assert isinstance(humaneval_program(PROMPT, "add", reply), str)
    assert isinstance(mbpp_program(TESTS, reply), str)
