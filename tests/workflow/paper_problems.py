"""A few problems of our own in the columns of the hub's data sets, and chats to train on."""

from __future__ import annotations

from typing import Any

GSM8K = [
    {
        "question": "A baker fills 6 trays of 9 rolls and sells 17 rolls. How many are left?",
        "answer": "The trays hold 6*9=<<6*9=54>>54 rolls.\n54-17=<<54-17=37>>37 are left.\n#### 37",
    },
    {
        "question": "Mira reads 24 pages on Monday, twice as many on Tuesday. How many in all?",
        "answer": "Tuesday: 2*24=<<2*24=48>>48.\nTogether 24+48=<<24+48=72>>72.\n#### 72",
    },
    {
        "question": "A tank of 1,200 litres loses 45 an hour. What is left after 4 hours?",
        "answer": "It loses 4*45=<<4*45=180>>180.\n1200-180=<<1200-180=1020>>1020\n#### 1,020",
    },
]
MATH500 = [
    {
        "problem": "What is $\\frac{3}{4} + \\frac{1}{6}$?",
        "solution": "Over twelfths, $\\frac{9}{12}+\\frac{2}{12}=\\boxed{\\frac{11}{12}}$.",
        "answer": "\\frac{11}{12}",
        "subject": "Prealgebra",
        "level": 1,
        "unique_id": "test/prealgebra/1.json",
    },
    {
        "problem": "Find the positive solution of $x^2 = 2x + 15$.",
        "solution": "$(x-5)(x+3)=0$, so $x=\\boxed{5}$.",
        "answer": "5",
        "subject": "Algebra",
        "level": 2,
        "unique_id": "test/algebra/2.json",
    },
    {
        "problem": "How many two-digit numbers are divisible by $7$?",
        "solution": "From $14$ to $98$ there are $\\boxed{13}$.",
        "answer": "13",
        "subject": "Number Theory",
        "level": 2,
        "unique_id": "test/number_theory/3.json",
    },
]
HUMANEVAL = [
    {
        "task_id": "HumanEval/0",
        "prompt": 'def largest_gap(values):\n    """The largest step between neighbours."""\n',
        "canonical_solution": "    return max(b - a for a, b in zip(values, values[1:]))\n",
        "test": "def check(candidate):\n    assert candidate([1, 4, 6]) == 3\n",
        "entry_point": "largest_gap",
    },
    {
        "task_id": "HumanEval/1",
        "prompt": 'def initials(name):\n    """The first letters of all words."""\n',
        "canonical_solution": '    return "".join(word[0] for word in name.split())\n',
        "test": 'def check(candidate):\n    assert candidate("Ada Lovelace") == "AL"\n',
        "entry_point": "initials",
    },
]
MBPP = [
    {
        "source_file": "ours.ipynb",
        "task_id": 1,
        "prompt": "Write a function that doubles every number of a list.",
        "code": "def doubled(numbers):\n    return [2 * number for number in numbers]",
        "test_imports": [],
        "test_list": ["assert doubled([1, 2]) == [2, 4]", "assert doubled([]) == []"],
    },
    {
        "source_file": "ours.ipynb",
        "task_id": 2,
        "prompt": "Write a function that returns the hypotenuse of a right triangle.",
        "code": "import math\ndef hypotenuse(a, b):\n    return math.hypot(a, b)",
        "test_imports": ["import math"],
        "test_list": ["assert math.isclose(hypotenuse(3, 4), 5)"],
    },
]
BENCHMARKS: dict[str, list[dict[str, Any]]] = {
    "mrp_gsm8k": GSM8K,
    "mrp_math500": MATH500,
    "mrp_humaneval": HUMANEVAL,
    "mrp_mbpp": MBPP,
}
CHATS: list[dict[str, Any]] = [
    {
        "messages": [
            {"role": "user", "content": row["question"]},
            {"role": "assistant", "content": row["answer"]},
        ]
    }
    for row in GSM8K
] + [
    {
        "messages": [
            {"role": "user", "content": "Is 91 a prime number?"},
            {"role": "assistant", "content": "No: 91 = 7 * 13."},
            {"role": "user", "content": "And 97?"},
            {"role": "assistant", "content": "Yes, 97 is prime."},
        ]
    }
]
