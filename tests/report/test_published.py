"""The join with the paper's numbers."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest

from mrp.errors import UserError
from mrp.report.published import COLUMNS, join_published, read_published

CSV = """\
table,backbone,head,mode,k,tau,task,metric,value,note
speculative,sdar-8b,default,speculative,3,,gsm8k,accuracy,90.4,"a, note"
speculative,sdar-8b,default,speculative,3,,gsm8k,speedup,1.4,
direct,sdar-8b,,static,0,,gsm8k,accuracy,90.9,
direct,sdar-8b,default,direct,1,,gsm8k,accuracy,90.1,
remask,sdar-8b,,dynamic,,0.5,gsm8k,accuracy,67.9,
remask,sdar-8b,default,remask,1,0.5,gsm8k,accuracy,82.3,
"""


@pytest.fixture
def published(tmp_path: Path) -> pd.DataFrame:
    path = tmp_path / "published.csv"
    path.write_text(CSV, encoding="utf-8")
    return read_published(path)


def row(mode: str, **changes: object) -> dict[str, object]:
    usual = {"backbone": "sdar-8b", "task": "mrp_gsm8k", "head_variant": None, "k": None}
    options = {
        "tau": None,
        "steps": None,
        "scale": None,
        "shortlist": None,
        "rule": None,
        "condition": None,
        "passes": None,
        "floor": None,
        "cap": None,
        "prefix": None,
    }
    return {**usual, **options, "mode": mode, **changes}


def accuracy(published: pd.DataFrame, table: str, *rows: dict[str, object]) -> list[float]:
    joined = join_published(pd.DataFrame(rows), published, table)
    return list(joined["published_accuracy"].fillna(-1))


def test_same_setting_joins(published: pd.DataFrame) -> None:
    spec = row("speculative", head_variant="default", k=3)
    joined = join_published(pd.DataFrame([spec]), published, "speculative").iloc[0]
    assert joined["published_accuracy"] == pytest.approx(0.904)
    assert joined["published_speedup"] == pytest.approx(1.4)
    assert joined["published_note"] == "a, note"
    assert joined["published_table"] == "speculative"


def test_each_table_has_its_own_numbers(published: pd.DataFrame) -> None:
    direct = row("direct", head_variant="default", k=1, scale=1.0)
    assert accuracy(published, "direct", direct, row("static")) == pytest.approx([0.901, 0.909])
    assert accuracy(published, "speculative", direct) == [-1]


def test_other_settings_do_not_join(published: pd.DataFrame) -> None:
    others = [
        row("direct", head_variant="k2", k=1, scale=1.0),
        row("direct", head_variant="default", k=2, scale=1.0),
        row("direct", head_variant="default", k=1, scale=0.5),
        row("direct", head_variant="default", k=1, scale=1.0, backbone="S"),
        row("direct", head_variant="default", k=1, scale=1.0, task="mini_math"),
        row("static", steps=8),
    ]
    assert accuracy(published, "direct", *others) == [-1] * len(others)


def test_remask_joins_whatever_the_head_reads_but_not_the_older_rule(
    published: pd.DataFrame,
) -> None:
    usual = {"head_variant": "default", "tau": 0.5}
    rows = [
        row("remask", **usual, condition="revealed", rule="confidence"),
        row("remask", **usual, condition="masked", rule="confidence"),
        row("remask", **usual, condition="revealed", rule="residual"),
        row("remask", **usual, passes="halves", rule="confidence"),
        row("dynamic", tau=0.5),
    ]
    assert accuracy(published, "remask", *rows) == pytest.approx([0.823, 0.823, -1, -1, 0.679])


@pytest.mark.parametrize(
    "text", ["", "backbone,value\nS,1\n", f"{','.join(COLUMNS)}\n{'x,' * 8}x\n"]
)
def test_a_wrong_file_is_named(tmp_path: Path, text: str) -> None:
    path = tmp_path / "published.csv"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(UserError, match=r"published\.csv"):
        read_published(path)
    with pytest.raises(UserError, match="no such file"):
        read_published(tmp_path / "absent.csv")


def test_the_shipped_numbers_are_read() -> None:
    path = Path(__file__).parents[2] / "config" / "published.csv"
    found = read_published(path)
    one = found[(found["table"] == "remask") & (found["backbone"] == "sdar-8b")]
    assert len(one) == 2 * 4 * 5
