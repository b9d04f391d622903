r"""Answers of GSM8K and MATH500: finding one in a reply, and telling whether it is right.

`is_right` is the score to trust: it looks where people put a final answer, the last one given
counts, and values are compared as mathematics. `paper_rule` is the rule behind the paper's
numbers, mistakes included, for a fair comparison with them.

    reply = r"... \boxed{150}. Wait. So \boxed{1\,050}"
    is_right("gsm8k", reply, "1050")     # True
    paper_rule("gsm8k", reply, "1050")   # False: that rule reads the first box
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator
from fractions import Fraction
from typing import Any, Literal

from math_verify import LatexExtractionConfig, parse, verify
from sympy import Basic, Integer, Pow, factorial  # type: ignore[import-untyped]

Benchmark = Literal["gsm8k", "math500"]

# Bounded, as is all that follows: a model may write digits without end.
_DIGITS = r"(?:\d{1,3}(?:,\d{3}){1,9}|\d{1,30})(?!\d)(?:\.\d{1,30})?|\.\d{1,30}"
LAST_CUES, LONGEST_VALUE = 8, 300  # how many "the answer is" are tried; characters of a value
LARGEST_BITS = 1e5  # of a number that is worked out; a tower of powers would run into the timeout
logging.getLogger("math_verify").setLevel(logging.ERROR)  # it logs whole formulas on a timeout
_NUMBER = re.compile(rf"(?<![\w.])[-+]?(?:{_DIGITS})(?:\s*/\s*\d{{1,30}})?")
_SCALES = {"dozen": 12, "hundred": 100, "thousand": 10**3, "million": 10**6, "billion": 10**9}
_SCALES |= {"trillion": 10**12, "k": 10**3, "K": 10**3, "M": 10**6, "B": 10**9}
_SCALES |= {f"{word}s": value for word, value in _SCALES.items() if len(word) > 1}
# Words after a number that make another number, or more than one, of it.
_NUMBER_WORDS = {"minus", "plus", "times", "divided", "multiplied", "over", "less", "half"}
_NUMBER_WORDS |= {"squared", "cubed", "two", "three", "four", "five", "six", "seven", "eight"}
_NUMBER_WORDS |= {"nine", "ten", "eleven", "twelve"}
_NO_UNITS = {"and", "or", "to", "of", "pi", "sqrt", "x"} | _NUMBER_WORDS
# Words with powers at most: "m^2", "cm2"; a digit anywhere else is a second number.
_UNIT = r"[A-Za-z](?:[A-Za-z /²³]|(?<=\w)-(?=[A-Za-z])|\^\{?-?\d\}?|(?<=[mtd])[23](?!\w))*"
# Where what is said of the number ends: "5, not 6", "18 (from step 3)", "18 in 3 bags".
_CLAUSE_END = re.compile(
    r"[(:]|,(?!\s*(?:(?:and|or)\b)?\s*\d)"
    r"|\b(?:because|since|which|not|for|from|in|after|with|if|when|at|on|by|as)\b"
)
_CURRENCY = re.compile(r"\\?\$|[€£¥₹]|\b(?:USD|EUR|GBP)\b")


def is_right(benchmark: Benchmark, reply: str, target: str) -> bool:
    """Whether the final answer of `reply` equals `target`; no answer is a wrong one."""
    numeric = benchmark == "gsm8k"
    answer = final_answer(reply, numeric)
    return answer is not None and same_answer(answer, target, numeric)


def paper_rule(benchmark: Benchmark, reply: str, target: str) -> bool:
    r"""The paper's own score, as far as its published cases show it.

    gsm8k: the first number in the first `\boxed{`, read up to the next closing brace; without a
    box the number after "answer is"; else the reply's last number. math500: math-verify on the
    whole reply, boxes first.
    """
    if benchmark == "gsm8k":
        found = _paper_number(reply)
        return found is not None and found == to_number(target)
    boxes_first = LatexExtractionConfig(boxed_match_priority=0)
    return _verify(parse(f"${target}$"), parse(reply, [boxes_first]))


def _paper_number(reply: str) -> Fraction | None:
    number = r"-?\d+(?:\.\d+)?"
    reply = reply.replace(",", "")
    boxed = re.search(r"\\boxed\{([^}]*)", reply)
    said = re.search(rf"(?i)answer is:?\s*\$?({number})", reply)
    if boxed:
        numbers = re.findall(number, boxed[1])[:1]
    else:
        numbers = [said[1]] if said else re.findall(number, reply)[-1:]
    try:
        return Fraction(numbers[0]) if numbers else None
    except ValueError:  # thousands of digits
        return None


# ---- finding the answer --------------------------------------------------------------------------


def final_answer(reply: str, numeric: bool) -> str | None:
    r"""The final answer in a reply, as it stands there; None where there is none.

    The most explicit form decides, its last occurrence in the reply: a box, a `####` line, the
    words "the answer is", then what the last line stresses in bold (numeric) or the last formula
    (otherwise), and at last the last number.

    Args:
        reply: the model's text.
        numeric: answers are numbers, so that words around one are no part of it.
    """
    reply = _unify_spaces(reply)
    stated = stated_answer(reply, numeric)
    if stated is not None:
        return stated
    plain = _without_bold(reply)
    if numeric:
        lines = [line for line in reply.splitlines() if line.strip()]
        bold = re.findall(r"\*\*([^*]+)\*\*", lines[-1]) if lines else []
        for text in reversed(bold):
            if to_number(text) is not None:
                return str(text)
    else:
        formulas = re.findall(r"\$\$?([^$]+)\$\$?|\\[(\[](.+?)\\[)\]]", plain, re.DOTALL)
        if formulas:
            return str(formulas[-1][0] or formulas[-1][1]).strip()
    numbers = _NUMBER.findall(_CURRENCY.sub("", plain))
    return numbers[-1] if numbers else None


def stated_answer(reply: str, numeric: bool) -> str | None:
    """The answer that a reply calls its answer, in whatever form; None where it calls none so."""
    marked = marked_answer(reply)
    if marked is not None:
        return marked
    reply = _unify_spaces(reply)
    values = (_value(said, numeric) for said in _said_answers(_without_bold(reply)))
    return next((value for value in values if value is not None), None)


def marked_answer(reply: str) -> str | None:
    r"""The answer in the last box or, without a box, after the last `####`.

    Where there is one it is the final answer, so that a right reply is right in the strict sense,
    too.
    """
    reply = _unify_spaces(reply)
    boxed = last_boxed(reply)
    if boxed is not None:
        return boxed
    marked = re.findall(r"####[ \t]*([^#\n]+?)[ \t]*$", reply, re.MULTILINE)
    # What is no number is a heading; "3 feet 6 inches" and "2 hours and a half" are answers.
    begins = re.compile(r"[-+]?[\d.,]*\d\s")
    answers = (
        text
        for text in reversed(marked)
        if to_number(text) is not None or begins.match(_CURRENCY.sub("", text))
    )
    return next((_value(str(text), numeric=True) for text in answers), None)


def last_boxed(text: str) -> str | None:
    r"""What the last `\boxed` holds: braces inside it are kept, `\boxed 2` needs none.

    Boxes joined by a comma, "and" or "or" are one answer, a list. Empty and unclosed boxes are no
    answers.
    """
    boxes = list(_boxes(text))
    if not boxes:
        return None
    start, _, content = boxes[-1]
    contents = [content]
    for earlier, end, content in reversed(boxes[:-1]):
        if not re.fullmatch(r"[\s$]*(?:[,;]|,?\s*(?:and|or)\b)[\s$]*", text[end:start]):
            break
        contents.insert(0, content)
        start = earlier
    return ", ".join(dict.fromkeys(contents))


def _boxes(text: str) -> Iterator[tuple[int, int, str]]:
    """Start, end and content of every complete box that is not empty."""
    closing = _closing_braces(text)
    for found in re.finditer(r"\\(?:boxed|fbox)(?![a-zA-Z])\s*", text):
        start = found.end()
        if text[start : start + 1] == "{":
            end = closing.get(start, start)
            content = text[start + 1 : end - 1]
        else:
            bare = re.compile(r"[^\s$]*").match(text, start)
            content = bare[0].rstrip(".,;:") if bare else ""
            end = start + len(content)
        if content.strip():
            yield found.start(), end, content.strip()


def _closing_braces(text: str) -> dict[int, int]:
    r"""Place of a brace -> the place after the one that closes it; `\{` and `\}` are signs."""
    closing = {}
    opened = []
    for found in re.finditer(r"\\.|[{}]", text, re.DOTALL):
        if found[0] == "{":
            opened.append(found.start())
        elif found[0] == "}" and opened:
            closing[opened.pop()] = found.end()
    return closing


def _said_answers(text: str) -> Iterator[str]:
    """What follows "the answer is", "Answer:" and the like, the last first, to the line's end."""
    cue = re.compile(r"(?i)\banswers?\b[^.\n:=]{0,60}?(?:\bis\b|\bare\b|[:=]|\n)[\s:]*")
    places = [found.end() for found in cue.finditer(text)]
    for place in reversed(places[-LAST_CUES:]):
        line = text[place : place + LONGEST_VALUE].partition("\n")[0].strip()
        if line:
            yield line


def _value(said: str, numeric: bool) -> str | None:
    """The answer in the sentence after such words."""
    formula = re.match(r"\$\$?([^$]+)\$\$?|\\[(\[](.+?)\\[)\]]", said)
    if formula and not numeric:
        return (formula[1] or formula[2]).strip()
    sentence, *rest = (part.strip() for part in re.split(r"[.!?;](?:\s|$)", said, maxsplit=1))
    if not numeric:
        return sentence or None
    if to_number(sentence) is not None:
        return sentence
    # "3 + 15 = 18", "that she has 18 apples"
    text = _CURRENCY.sub("", sentence.rpartition("=")[2])
    number = _NUMBER.search(text)
    if number is None:
        return None
    if re.search(r"\bnot\b", text[: number.start()]):
        # What is ruled out is no answer, and what comes instead may follow it.
        instead = re.search(r"(?:\bbut\b|,)(.*\d.*)", text[number.end() :])
        later = instead[1] if instead else "".join(rest)
        return (_value(later.strip(), numeric) if later else None) or sentence
    said_of_it = _CLAUSE_END.split(text[number.end() :], maxsplit=1)[0]
    words = set(re.findall(r"[A-Za-z]+", said_of_it))
    if re.search(r"\d", said_of_it) or words & _NUMBER_WORDS or words & set(_SCALES):
        return number[0] + said_of_it.rstrip()
    return number[0]


def _without_bold(text: str) -> str:
    """Without the signs of bold type; the power in 2**3 stays."""
    return re.sub(r"(?<![\w)])\*\*|\*\*(?![\w(])", "", text)


def _unify_spaces(text: str) -> str:
    """Typographic spaces and minus signs as on a keyboard."""
    return re.sub("[\u00a0\u2007\u2009\u202f]", " ", text).replace("\u2212", "-")


# ---- comparing answers ---------------------------------------------------------------------------


def same_answer(answer: str, target: str, numeric: bool) -> bool:
    """Whether two answers are one value.

    Numbers are compared exactly, words by their letters, everything else by math-verify. Units,
    currency, percent signs and degrees do not count.
    """
    if len(answer) > LONGEST_VALUE:
        return _letters(answer) == _letters(target)
    number = to_number(target, numeric)
    if number is not None and to_number(answer, numeric) is not None:
        return to_number(answer, numeric) == number
    ours, right = clean(answer), clean(target)
    if _letters(ours) == _letters(right):
        return True
    if re.fullmatch(r"[A-Za-z ]{4,}", right):
        return False  # mathematics would take a word for a product of its letters
    bases = [re.findall(r"_\{?(\d+)\}?$", text) for text in (ours, right)]
    if bases[0] and bases[1] and bases[0] != bases[1]:
        return False  # math-verify does not read the base of 11_2
    gold = parse(f"${right}$")
    # A comma before three digits groups them or parts a list; only the target knows which.
    spellings = dict.fromkeys([ours, clean(answer, grouped=False)])
    return any(_verify(gold, parse(f"${text}$")) for text in spellings)


def _verify(gold: list[Any], found: list[Any]) -> bool:
    """math-verify's verdict; what is too large to be worked out is equal to nothing."""
    if any(_bits(formula) > LARGEST_BITS for formula in found if isinstance(formula, Basic)):
        return False
    return bool(verify(gold, found))


def _bits(formula: Basic) -> float:
    """About the binary digits of the largest number in a formula, without working it out."""
    if isinstance(formula, Integer):
        return float(int(formula).bit_length())
    parts = [_bits(part) for part in formula.args]
    if isinstance(formula, Pow):
        return max(parts[0], 1) * 2 ** min(parts[1], 60)
    if isinstance(formula, factorial):
        return parts[0] * 2 ** min(parts[0], 60)
    return max(parts, default=1)


def to_number(text: str, any_unit: bool = True) -> Fraction | None:
    r"""The exact value of "1,050", "$29.00", "x = 5", "\frac{10}{2}", "2 1/2" or "18 apples".

    Args:
        text: an answer.
        any_unit: whether letters right after a number are a unit ("18cm"), not a variable ("2k").

    Returns:
        None for what is not one number.
    """
    if len(text) > LONGEST_VALUE:
        return None
    text = _CURRENCY.sub("", clean(text)).rpartition("=")[2].strip()
    text = re.sub(r"\\frac\{(\d+)\}\{(\d+)\}", r" \1/\2", text)
    gap = r"\s*" if any_unit else r"\s+(?=[A-Za-z]{2})"
    found = re.fullmatch(
        rf"(?P<sign>[-+]?)\s*(?:(?P<whole>\d{{1,30}})\s+(?=\d+\s*/))?(?P<value>{_DIGITS})"
        rf"(?:\s*/\s*(?P<below>\d{{1,30}}))?(?:{gap}(?P<unit>{_UNIT}))?\.?",
        text,
    )
    if found is None or int(found["below"] or 1) == 0:
        return None
    words = (found["unit"] or "").split()
    scale = 1
    while words and words[0] in _SCALES:
        scale *= _SCALES[words.pop(0)]
    if words[-1:] == ["times"]:
        words.pop()  # how often, where nothing follows to be multiplied
    if (_NO_UNITS | set(_SCALES)) & {*words, *(word.lower() for word in words)}:
        return None
    value = Fraction(found["value"].replace(",", "")) / int(found["below"] or 1)
    value += int(found["whole"] or 0)
    return (-value if found["sign"] == "-" else value) * scale


def clean(text: str, grouped: bool = True) -> str:
    r"""An answer without what changes its looks alone: `\dfrac`, `\text`, spaces, units, signs.

    Args:
        text: an answer.
        grouped: whether "1,050" outside brackets is one number, not a list.
    """
    text = _unify_spaces(text).strip().strip("*").removesuffix(".").strip()
    text = re.sub(r"^(?:\$\$?|\\[(\[])\s*(.*?)\s*(?:\$\$?|\\[)\]])$", r"\1", text, flags=re.DOTALL)
    text = re.sub(r"\\([dtc])frac", r"\\frac", text)
    text = re.sub(r"\\frac\s*(\d)", r"\\frac{\1}", text)
    text = re.sub(r"(\\frac\{[^{}]*\})\s*(\d)", r"\1{\2}", text)
    text = re.sub(r"\\(?:left|right)(?![A-Za-z])", "", text)
    text = re.sub(r"\\(?:text)?color\{[^{}]*\}\s*(?:\{([^{}]*)\})?", r"\1", text)
    text = re.sub(r"\\(?:textbf|textit|mathbf|emph|underline)\{([^{}]*)\}", r"\1", text)
    text = re.sub(r"\^\s*\{?\s*\\circ\s*\}?|\\degree\b|°|\\?%|\\?\$", "", text)
    text = text.replace("{,}", ",").replace(",\\!", ",")
    space = r"(?:(?<!\\)\\[,!;: ]|~|\\q?quad\b| )"
    text = re.sub(rf"(?<=\d){space}+(?=\d{{3}}(?!\d))", "", text)
    text = re.sub(rf"{space}+", " ", text)
    if not grouped:
        text = text.replace(",", ", ")
    elif not re.search(r"[(\[]|\\\{", text):
        text = re.sub(r"(?<![\d,.])\d{1,3}(?:,\d{3})+(?![\d,])", _without_commas, text)
    return _without_text(text).strip().removesuffix(".").strip()


def _without_commas(found: re.Match[str]) -> str:
    return found[0].replace(",", "")


def _without_text(text: str) -> str:
    r"""Drop the units that `\text` and the like write; words alone are the answer and stay."""
    text = re.sub(r"\\(?:text|mbox)\{\s*,?\s*(?:and|or)\s*\}", ",", text)
    words = re.compile(r"\s*\\(?:(?:text|textrm|mbox)\{([^{}]*)\}|mathrm\{([^{}]{2,})\})")
    rest = re.sub(rf"{words.pattern}(?:\^\{{?\d\}}?)?(?P<next>\s*\d)?", _without_unit, text)
    return rest if re.search(r"\w", rest) else words.sub(r"\1\2", text)


def _without_unit(found: re.Match[str]) -> str:
    """Nothing for a unit; words that change the number, or part it from another, stay."""
    words = found[1] or found[2] or ""
    counts = set(words.lower().split()) & (_NUMBER_WORDS | set(_SCALES))
    return f" {words if counts or found['next'] else ''} {found['next'] or ''}"


def _letters(text: str) -> str:
    """For comparing looks: no spaces; "(B)" is "B"; words in either case."""
    text = re.sub(r"\s", "", text)
    choice = re.fullmatch(r"\(([A-Z])\)", text)
    if choice:
        return choice[1]
    return text.casefold() if re.fullmatch(r"[A-Za-z]{2,}", text) else text
