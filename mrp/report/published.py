"""The paper's numbers beside ours, where backbone, task and setting are the same."""

from __future__ import annotations

from pathlib import Path

import pandas as pd

from mrp.errors import UserError

COLUMNS = ("table", "backbone", "head", "mode", "k", "tau", "task", "metric", "value")
# Settings that the paper does not report, so that a row with one has no published counterpart.
OWN = {
    "scale": 1.0,
    "rule": "confidence",
    "floor": 0.0,
    "passes": "one",
    "shortlist": 0,
    "cap": 1.0,
    "prefix": True,
}
# Problems of each benchmark, all of which the paper's accuracies are shares of.
SIZES = {"gsm8k": 1319, "math500": 500, "humaneval": 164, "mbpp": 257}
KEYS = ["table", "backbone", "task", "mode", "head_variant", "k", "tau"]


def read_published(path: Path) -> pd.DataFrame:
    """The published numbers, one row a setting: KEYS, accuracy (0..1), speedup (a ratio) and note.

    Raises:
        UserError: the file is missing or lacks a column.
    """
    try:
        raw = pd.read_csv(path, dtype={"head": str, "backbone": str, "task": str})
    except FileNotFoundError:
        raise UserError(f"--published {path}: no such file") from None
    except (pd.errors.ParserError, pd.errors.EmptyDataError, UnicodeDecodeError) as error:
        raise UserError(f"--published {path}: no valid CSV: {error}") from None
    missing = [name for name in COLUMNS if name not in raw]
    if missing:
        raise UserError(f"--published {path}: column {missing[0]!r} is missing")
    raw = raw.rename(columns={"head": "head_variant"})
    # A remask step has one head pass and static none: "k" says nothing there.
    raw.loc[raw["mode"].isin(["remask", "static"]), "k"] = None
    raw["head_variant"] = raw["head_variant"].fillna("")
    for name in ("k", "tau", "value"):
        try:
            raw[name] = pd.to_numeric(raw[name]).astype(float)
        except (ValueError, TypeError) as error:
            raise UserError(f"--published {path}: column {name!r}: {error}") from None
    raw[["k", "tau"]] = raw[["k", "tau"]].fillna(-1.0)
    wide = raw.pivot_table(index=KEYS, columns="metric", values="value", aggfunc="first")
    wide = wide.reindex(columns=["accuracy", "speedup"])
    wide["accuracy"] = wide["accuracy"] / 100
    notes = raw["note"] if "note" in raw else pd.Series("", index=raw.index)
    wide["note"] = raw.assign(note=notes.fillna("")).groupby(KEYS)["note"].first()
    return wide.reset_index()


def join_published(
    rows: pd.DataFrame, published: pd.DataFrame, table: str | None = None
) -> pd.DataFrame:
    """Our rows with what is published beside them, in columns of that name.

    They are published_accuracy, published_speedup, published_table (where they are from) and
    published_note. A head counts by its variant, whoever trained it; a row without a counterpart
    has NaN.

    Args:
        rows: of `frame.Results`.
        published: of `read_published`.
        table: one of the paper's tables; all of them, the first that has a row, if not given.
    """
    wanted = published if table is None else published[published["table"] == table]
    wanted = wanted.drop_duplicates(KEYS[1:])
    keys = rows[["backbone", "task", "mode", "head_variant", "k", "tau"]].copy()
    keys["head_variant"] = keys["head_variant"].fillna("")
    # Our task files are named after their benchmark with this harness's prefix.
    keys["task"] = keys["task"].str.removeprefix("mrp_")
    keys[["k", "tau"]] = keys[["k", "tau"]].astype(float).fillna(-1.0)
    found = keys.merge(wanted, how="left", on=KEYS[1:], validate="many_to_one")
    found.index = rows.index
    own = rows["steps"].notna()
    for option, usual in OWN.items():
        own |= rows[option].notna() & (rows[option] != usual)
    joined = rows.copy()
    for name in ("table", "note", "accuracy", "speedup"):
        joined[f"published_{name}"] = found[name].mask(own)
    return joined
