r"""Answers in replies: cases that went wrong in other harnesses, and the kinds they stand for."""

from __future__ import annotations

import time
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mrp.evaluation.answers import (
    final_answer,
    is_right,
    last_boxed,
    paper_rule,
    same_answer,
    stated_answer,
    to_number,
)
from mrp.evaluation.verdicts import on_text

# Reply, gold answer, and whether the paper's own rule counts it too.
GSM8K = [
    # Currency, cents, thousands.
    ("So the order costs $29.00.", "29", True),
    ("The profit is $70,000.", "70000", True),
    (r"He made \boxed{\$70,000}.", "70000", True),
    ("The answer is €1,234,567.50", "1234567.5", True),
    (r"\boxed{29.00}", "29", True),
    (r"\boxed{1,050 \text{ dollars}}", "1050", True),
    # The last one given counts.
    ("Example.\n#### 7\nNow ours.\n#### 12", "12", True),
    (r"\boxed{150}. Wait. \boxed{1050}", "1050", False),
    ("The answer is 7. No: the answer is 9.", "9", False),
    # Without a marker.
    ("so the answer is 18", "18", True),
    ("Step 1.\n\nThe answer is 7", "7", True),
    ("Identify the Question first. #### 5", "5", True),
    ("First 3, then 5, so 8 in all.", "8", True),
    # Braces inside the box.
    (r"\boxed{\frac{10}{2}}", "5", False),
    (r"\boxed{\dfrac{36}{2}}", "18", False),
    (r"$\boxed{\text{18 apples}}$", "18", True),
    (r"\boxed{\textbf{18}}", "18", True),
    (r"\boxed{\boxed{18}}", "18", True),
    # Digit groups.
    (r"\boxed{1\,050}", "1050", False),
    (r"\boxed{1{,}050}", "1050", False),
    (r"\boxed{1\ 050}", "1050", False),
    ("\\boxed{1\u202f050}", "1050", False),
    (r"\boxed{1 050}", "1050", False),
    # Bold type.
    ("The answer is **18**. (Step 3 done)", "18", False),
    ("**Answer:** 18 (from step 3)", "18", False),
    ("**Final Answer: $18** (step 3)", "18", False),
    ("Thus she has **18 apples** in 3 bags.", "18", False),
    ("### Answer\n18\n\nDone in 3 steps", "18", False),
    # Boxes without braces.
    (r"answer is $\boxed 2$.", "2", True),
    (r"so $\boxed 1,050$", "1050", True),
    # Units, signs, equations, percent.
    (r"\boxed{18\%}", "18", True),
    (r"\boxed{18cm}", "18", True),
    (r"\boxed{-5}", "-5", True),
    ("\\boxed{\u22125}", "-5", False),
    (r"\boxed{x = 5}", "5", True),
    (r"\boxed{3 + 15 = 18}", "18", False),
    ("The answer is 3 * 6 = $18.", "18", False),
    ("The answer is that she has 18 apples.", "18", True),
    (r"\boxed{2\frac{1}{2}}", "2.5", False),
    (r"\boxed{05}", "5", True),
    (r"\boxed{18 dollars}", "18", True),
    (r"\boxed{5 miles per hour}", "5", True),
    (r"\boxed{12 cm^2}", "12", True),
    (r"\boxed{12 \text{ cm}^2}", "12", True),
    (r"\boxed{3 m/s}", "3", True),
    (r"\boxed{\underline{18}}", "18", True),
    (r"\boxed{\color{red}{18}}", "18", False),
    (r"\boxed{18 \text{ times}}", "18", True),
    ("She ran. The answer is 18 times.", "18", True),
    ("#### 18 - done", "18", True),
    ("#### $18 (step 3)", "18", False),
    # Words that multiply.
    (r"\boxed{18 million}", "18000000", False),
    (r"\boxed{\$1.5 \text{ million}}", "1500000", False),
    (r"\boxed{2 dozen}", "24", False),
    (r"\boxed{5 hundred}", "500", False),
    ("The answer is 2 hundred thousand.", "200000", False),
    # What is ruled out.
    ("The answer is not 18. It is 20.", "20", True),
    ("The answer is not 18 but 20.", "20", True),
    ("The answer is 5, not 6.", "5", True),
    # Headings and empty boxes are no answers.
    ("#### 1. First\n4 + 4 = 8\n#### 2. Last\nSo \\boxed{8}", "8", True),
    ("#### Step 2\nThe answer is 8", "8", True),
    (r"I put the answer in \boxed{}. The answer is 8.", "8", False),
]
GSM8K_WRONG = [
    ("", "5"),
    ("I do not know", "5"),
    (r"\boxed{}", "5"),
    (r"\boxed{50}", "5"),
    (r"\boxed{5} or \boxed{6}", "5"),
    (r"\boxed{5} or \boxed{6}", "6"),
    (r"\boxed{5 \text{ or } 6}", "5"),
    (r"\boxed{5 million}", "5"),
    (r"\boxed{\text{five}}", "5"),
    (r"\boxed{5/0}", "5"),
    ("The answer is 5. Wait, the answer is 6.", "5"),
    (r"The answer is 5. \boxed{6}", "5"),
    (r"\boxed{1,05}", "105"),
    (r"\boxed{-5}", "5"),
    (r"\boxed{5.5}", "5"),
    # A second number, arithmetic and scales are no units.
    (r"\boxed{2 hours 30 minutes}", "2"),
    (r"\boxed{2 \text{ hours } 30 \text{ minutes}}", "2"),
    ("The answer is 2 hours 30 minutes.", "2"),
    ("The answer is 2 hours, 30 minutes.", "2"),
    (r"\boxed{3 feet 6 inches}", "3"),
    ("#### 3 feet 6 inches", "3"),
    ("#### 3 feet 6 inches", "6"),
    (r"\boxed{5 minus 3}", "5"),
    (r"\boxed{5 times 3}", "5"),
    (r"\boxed{5 minus three}", "5"),
    (r"\boxed{5 apples plus 3 oranges}", "5"),
    ("The answer is 5 minus 3.", "5"),
    (r"\boxed{18M}", "18"),
    (r"\boxed{18e3}", "18"),
    (r"\boxed{5 \text{ million}}", "5"),
    (r"\boxed{5 \text{ hundred}}", "5"),
    ("The answer is not 18. It is 20.", "18"),
    ("The answer is not 18.", "18"),
]
MATH500 = [
    (r"\boxed{\dfrac{1}{2}}", r"\frac{1}{2}"),
    (r"\boxed{\frac12}", r"\frac{1}{2}"),
    (r"\boxed{0.5}", r"\frac{1}{2}"),
    (r"\boxed{\left( 3, \frac{\pi}{2} \right)}", r"\left( 3, \frac{\pi}{2} \right)"),
    (r"\boxed{(3,\pi/2)}", r"\left( 3, \frac{\pi}{2} \right)"),
    (r"\boxed{q - p}", r"-p + q"),
    (r"\boxed{\text{Evelyn}}", r"\text{Evelyn}"),
    (r"The answer is **Evelyn**.", r"\text{Evelyn}"),
    (r"\boxed{B}", r"\text{(B)}"),
    (r"\boxed{\text{even}}", "even"),
    (r"\boxed{5\,\text{cm}^2}", "5"),
    (r"\boxed{5}", r"5\text{ cm}"),
    (r"\boxed{10\text{ cm}}", r"10 \mbox{ cm}"),
    (r"\boxed{90}", r"90^\circ"),
    (r"\boxed{90^{\circ}}", "90"),
    (r"\boxed{10080}", r"10,\!080"),
    (r"\boxed{10,080}", r"10,\!080"),
    (r"\boxed{\$32,348}", r"\$32,\!348"),
    (r"\boxed{-2, 1}", "1,-2"),
    (r"$x = \boxed{1}$ and $\boxed{-2}$", "1,-2"),
    (r"\boxed{x = 2k}", "2k"),
    (r"\boxed{[-2,7]}", r"x \in [-2,7]"),
    (r"\boxed{\begin{pmatrix} 1 \\ 2 \end{pmatrix}}", r"\begin{pmatrix}1\\2\end{pmatrix}"),
    (r"\boxed{2516_8}", "2516_8"),
    (r"\boxed{2516_{8}}", "2516_8"),
    (r"The final answer is $\frac{3}{4}$. I hope it is correct.", r"\frac34"),
    (r"Therefore $y = x+1$ and so $2x^2$.", "2x^2"),
    (r"\boxed{\sqrt{51}}", r"51^{1/2}"),
    (r"\boxed{\{1, 2\}}", r"\{2,1\}"),
    (r"\boxed{200,300,400}", "200, 300, 400"),
]
MATH500_WRONG = [
    (r"\boxed{\frac{1}{3}}", r"\frac{1}{2}"),
    (r"\boxed{\text{seat}}", r"\text{east}"),
    (r"\boxed{2}", "2k"),
    (r"\boxed{2k}", "2"),
    (r"\boxed{(2,1)}", "(1,2)"),
    (r"\boxed{[1,2]}", "(1,2)"),
    (r"\boxed{11_3}", "11_2"),
    (r"\boxed{A}", r"\text{(B)}"),
    (r"\boxed{x+3}", "3"),
    (r"\boxed{\frac{1}{2}", r"\frac{1}{2}"),
    (r"\boxed{1}", "1,-2"),
    (r"\boxed{5 \text{ million}}", "5"),
    (r"\boxed{5 \text{ hundred}}", "5"),
    (r"\boxed{x \text{ million}}", "x"),
    ("", "1"),
]


@pytest.mark.parametrize(("reply", "gold", "paper"), GSM8K)
def test_gsm8k_right(reply: str, gold: str, paper: bool) -> None:
    assert is_right("gsm8k", reply, gold)
    assert paper_rule("gsm8k", reply, gold) is paper


@pytest.mark.parametrize(("reply", "gold"), GSM8K_WRONG)
def test_gsm8k_wrong(reply: str, gold: str) -> None:
    assert not is_right("gsm8k", reply, gold)


@pytest.mark.parametrize(
    ("reply", "read"),
    [
        (r"\boxed{150}. Wait. \boxed{1050}", "150"),
        (r"\boxed{\frac{10}{2}}", "10"),
        (r"\boxed{1\,050}", "1"),
        ("The answer is **18**. (Step 3 done)", "3"),
    ],
)
def test_what_the_papers_rule_reads(reply: str, read: str) -> None:
    assert paper_rule("gsm8k", reply, read)


@pytest.mark.parametrize(("reply", "gold"), MATH500)
def test_math500_right(reply: str, gold: str) -> None:
    assert is_right("math500", reply, gold)


@pytest.mark.parametrize(("reply", "gold"), MATH500_WRONG)
def test_math500_wrong(reply: str, gold: str) -> None:
    assert not is_right("math500", reply, gold)


def test_math500_by_the_papers_rule() -> None:
    assert paper_rule("math500", r"$\boxed{\frac{1}{2}}$ (not 3)", r"\frac12")
    assert not paper_rule("math500", r"\boxed{\frac{1}{3}}", r"\frac12")
    assert not paper_rule("math500", "", r"\frac12")


@pytest.mark.parametrize(
    ("reply", "strictly"),
    [
        ("so the answer is 18", False),
        ("The answer is **18**. (Step 3 done)", False),
        ("First 3, so 18.", False),
        ("Example.\n#### 7\nNow ours.\n#### 18", True),
        ("#### 18\nThe last step was 7", True),
        (r"\boxed{18}. In words: the answer is 7", True),
        ("#### $18.00", True),
    ],
)
def test_the_strict_score_wants_the_form(reply: str, strictly: bool) -> None:
    verdict = on_text("mrp_gsm8k", reply, "18")
    assert (verdict.correct, verdict.strict) == (True, strictly)
    assert on_text("mrp_gsm8k", reply, "19").strict is False


@pytest.mark.parametrize(
    ("reply", "states"),
    [
        (r"\boxed{5}", True),
        ("#### 5", True),
        ("the answer is 5", True),
        ("5", False),
        (r"\boxed{}", False),
        ("#### Step", False),
        ("", False),
    ],
)
def test_what_states_an_answer(reply: str, states: bool) -> None:
    assert (stated_answer(reply, numeric=True) is not None) is states


@pytest.mark.parametrize(
    ("text", "content"),
    [
        (r"\boxed{\frac{1}{2}}", r"\frac{1}{2}"),
        (r"\boxed{\{1\}}", r"\{1\}"),
        (r"\boxed {2}", "2"),
        (r"$\boxed 2$", "2"),
        (r"$\boxed2$", "2"),
        (r"$\boxed\frac{1}{2}$", r"\frac{1}{2}"),
        (r"\fbox{2}", "2"),
        (r"\boxed{2} then \boxed{3", "2"),
        (r"\boxed{1}, \boxed{2}, and \boxed{3}", "1, 2, 3"),
        (r"\boxed{1} and \boxed{1}", "1"),
        (r"\boxed{1}. \boxed{2}", "2"),
        (r"\boxed{ }", None),
        (r"\boxes{1}", None),
    ],
)
def test_last_boxed(text: str, content: str | None) -> None:
    assert last_boxed(text) == content


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1,050", Fraction(1050)),
        (".5", Fraction(1, 2)),
        ("2 1/2", Fraction(5, 2)),
        (r"-\frac{1}{3}", Fraction(-1, 3)),
        ("$-5", Fraction(-5)),
        ("18 square feet.", Fraction(18)),
        ("1,2", None),
        ("5 and 6", None),
        ("x", None),
        ("", None),
    ],
)
def test_numbers(text: str, value: Fraction | None) -> None:
    assert to_number(text) == value


@given(value=st.integers(-(10**7), 10**7), style=st.sampled_from(["{}", "{:,}", "{}.00"]))
def test_every_spelling_of_a_number_is_right_and_its_neighbour_wrong(
    value: int, style: str
) -> None:
    written = style.format(value)
    for reply in (
        rf"5 \boxed{{{written}}}",
        f"5. The answer is **{written}**.",
        f"5\n#### {written}",
    ):
        assert is_right("gsm8k", reply, str(value))
        assert not is_right("gsm8k", reply, str(value + 1))


# Each kind of the cases above, with any number, in any place.
WRAPPINGS = (
    r"\boxed{{{0}}}",
    r"\boxed{{\text{{{0} apples}}}}",
    r"$\boxed{{\${0}}}$",
    r"\[\boxed{{x = {0}}}\]",
    "#### {0}",
    "#### ${0}",
    "The answer is **{0}**. (Step 3)",
    "**Answer:** {0} eggs",
    "the final answer is ${0}.",
    "Answer: €{0}",
)
SEPARATORS = (",", r"\,", "{,}", "\u202f", "\u2009", r"\ ", "")


@given(
    value=st.integers(0, 10**9),
    separator=st.sampled_from(SEPARATORS),
    wrapping=st.sampled_from(WRAPPINGS),
    cents=st.sampled_from(["", ".00", ".0"]),
)
def test_separators_currency_units_and_bold_in_every_form(
    value: int, separator: str, wrapping: str, cents: str
) -> None:
    digits = f"{value:,}".replace(",", separator)
    reply = f"Let 3 be 4.\n{wrapping.format(f'{digits}{cents}')}"
    assert is_right("gsm8k", reply, str(value))
    assert not is_right("gsm8k", reply, str(value + 1))
    assert stated_answer(reply, numeric=True) is not None


@given(
    first=st.integers(0, 10**6),
    last=st.integers(0, 10**6),
    between=st.sampled_from([" Wait. ", "\n\nNo:\n", " So not that, but\n"]),
    form=st.sampled_from([r"\boxed{{{0}}}", "\n#### {0}\n", " the answer is {0}.\n"]),
)
def test_the_last_answer_wins(first: int, last: int, between: str, form: str) -> None:
    reply = form.format(first) + between + form.format(last)
    assert is_right("gsm8k", reply, str(last))
    assert is_right("gsm8k", reply, str(first)) is (first == last)


@given(depth=st.integers(0, 60), closed=st.booleans(), sign=st.sampled_from(["", r"\{", r"\}"]))
def test_braces_of_any_depth(depth: int, closed: bool, sign: str) -> None:
    content = r"\frac{" * depth + f"7{sign}" + "}{2}" * depth
    box = r"so \boxed{" + content + ("}" if closed else "")
    assert last_boxed(f"{box} and {{more}} 5") == (content if closed else None)


@given(n=st.integers(1, 99), m=st.integers(1, 99))
def test_fractions_differ_where_they_differ(n: int, m: int) -> None:
    reply = rf"\boxed{{\frac{{{n}}}{{{m}}}}}"
    assert is_right("math500", reply, rf"\frac{{{n}}}{{{m}}}")
    assert not is_right("math500", reply, rf"\frac{{{n}}}{{{m + 1}}}")
    assert is_right("gsm8k", reply, str(n // m)) is (n % m == 0)


@given(text=st.text(alphabet="\\{}$boxed12, .*#answer is\n/=frac", max_size=60))
def test_any_reply_is_read(text: str) -> None:
    for numeric in (True, False):
        final_answer(text, numeric)
    assert not is_right("gsm8k", text, "987654")
    paper_rule("gsm8k", text, "987654")


@pytest.mark.parametrize(
    "piece", ["\\boxed{", "\\boxed{1} and ", "the answer is ", "$", "1,", "**", "#### ", "9", " \n"]
)
def test_a_long_reply_is_read_at_once(piece: str) -> None:
    text = piece * (40_000 // len(piece))
    start = time.perf_counter()
    for numeric in (True, False):
        final_answer(text, numeric)
    paper_rule("gsm8k", text, "5")
    assert time.perf_counter() - start < 2  # a runaway match would take minutes


def test_words_are_no_products() -> None:
    assert not same_answer("seat", "east", numeric=False)
    assert same_answer("East", "east", numeric=False)
    assert same_answer("yx", "xy", numeric=False)


@pytest.mark.parametrize(
    "value",
    [
        "9^{9^{9^9}}",
        "9^{999999999}",
        "((9^{99})^{99})^{99}",
        "1000000!",
        "9!!!",
        r"\frac{1}{9^{9^9}}",
        "1+" * 20_000 + "1",
    ],
)
def test_what_is_too_large_is_wrong_at_once(value: str, caplog: pytest.LogCaptureFixture) -> None:
    same_answer("2+3", "5", numeric=False)  # loads the grammar
    start = time.perf_counter()
    for numeric in (True, False):
        assert not same_answer(value, "5", numeric)
    assert time.perf_counter() - start < 2  # a timeout takes 5 s
    assert not caplog.records


def test_a_long_value_is_right_where_it_is_the_target() -> None:
    long = "+".join(f"x_{{{n}}}" for n in range(100))
    assert same_answer(long.replace("+", " + "), long, numeric=False)
    assert not same_answer(f"{long}+1", long, numeric=False)
