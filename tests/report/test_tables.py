"""How the tables name a row's options."""

from __future__ import annotations

from typing import Any

import pandas as pd
import pytest

from mrp.report.singles import remask_label
from mrp.report.tables import BESIDE_K
from mrp.schema import OPTIONS


def row(**options: Any) -> pd.Series[Any]:
    label = {"mode": "remask", "head": "k2", "head_variant": "k2", "trained_here": False}
    return pd.Series({**label, **dict.fromkeys(OPTIONS), **options}, dtype=object)


@pytest.mark.parametrize(
    ("options", "detail"),
    [
        ({"condition": "masked", "passes": "one", "prefix": True}, "masked ids, confidence"),
        ({"passes": "halves", "floor": 0.0, "prefix": True}, "halves, confidence"),
        ({"passes": "halves", "floor": 0.8, "prefix": True}, "halves, confidence 0.8"),
        (
            {"passes": "halves", "rule": "residual", "delta": 2.0, "prefix": False},
            "halves, |W r| > 2, head without prefix",
        ),
        ({"condition": "revealed"}, "revealed ids, confidence"),  # a record from before
    ],
)
def test_a_way_of_remasking_is_named(options: dict[str, Any], detail: str) -> None:
    assert remask_label(row(**options)).detail == detail


def test_rows_over_k_differ_in_k_alone() -> None:
    assert set(BESIDE_K) == {"head", *OPTIONS} - {"k"}
