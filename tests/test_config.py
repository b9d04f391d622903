"""Every mistake in a suite is one line that names the file, the key, the value and what to do."""

from __future__ import annotations

import copy
import json
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from mrp.config import MODES, OPTIONS, heads_from, load_suite
from mrp.decoding import make_mode
from mrp.errors import UserError
from mrp.grid import jobs

GOOD: dict[str, Any] = {
    "name": "good",
    "backbones": {"S": {"path": "nowhere/at/all"}},
    "heads": {"k2": {"variant": "k2", "path": "nowhere/{backbone}/k2"}},
    "tasks": ["mini_math"],
    "grid": [{"mode": "static"}, {"mode": "remask", "head": "k2", "tau": [0.5, 0.6]}],
}


def write(folder: Path, suite: Any) -> Path:
    path = folder / "good.yaml"
    path.write_text(suite if isinstance(suite, str) else yaml.safe_dump(suite))
    return path


def message(folder: Path, suite: Any) -> str:
    """The mistake that loading `suite` reports; checks that it is one line with the file's name."""
    path = write(folder, suite)
    with pytest.raises(UserError) as caught:
        load_suite(path)
    text = str(caught.value)
    assert "\n" not in text
    assert text.startswith(f"{path}: ")
    return text.removeprefix(f"{path}: ")


def test_a_good_suite_loads_with_its_defaults(tmp_path: Path) -> None:
    suite = load_suite(write(tmp_path, GOOD))
    assert suite.tasks == [["mini_math"]]
    assert suite.grid[1].tau == [0.5, 0.6]
    assert suite.decoding.speed is None
    assert suite.heads["k2"].source() == "released"
    assert suite.data.benchmarks == "data/benchmarks"


def test_modes_and_options_are_those_of_the_decoding_package() -> None:
    from dataclasses import MISSING, fields

    from mrp.decoding import MODES as IMPLEMENTED

    assert set(MODES) == set(IMPLEMENTED)
    for name, shape in MODES.items():
        mode = IMPLEMENTED[name]
        assert shape.needs_head == mode.needs_head
        options = {field.name: field.default for field in fields(mode)}
        assert set(shape.required + shape.optional) == set(options)
        assert {o for o, default in options.items() if default is MISSING} == set(shape.required)
        for option in set(shape.optional) - {"steps"}:  # no steps: as many as a block has tokens
            assert OPTIONS[option] == options[option]


def entry(**keys: Any) -> Callable[[dict[str, Any]], None]:
    """An edit of GOOD: a grid of this one entry."""

    def edit(suite: dict[str, Any]) -> None:
        suite["grid"] = [keys]

    return edit


def set_(*path: Any, to: Any) -> Callable[[dict[str, Any]], None]:
    """An edit of GOOD: another value at a place."""

    def edit(suite: dict[str, Any]) -> None:
        for part in path[:-1]:
            suite = suite[part]
        suite[path[-1]] = to

    return edit


OF_K2 = {"seed_of": "k2"}


def repeated(recipe: dict[str, Any], again: dict[str, Any]) -> dict[str, Any]:
    """Heads of which the second is to repeat the first."""
    return {
        "k2": {"variant": "k2", "train": recipe},
        "again": {"variant": "k2", "train": again, **OF_K2},
    }


MISTAKES = {
    "unknown key": (
        set_("backbone", to={}),
        ["unknown key 'backbone': did you mean backbones?", "grid"],
    ),
    "unknown key inside": (
        set_("heads", "k2", "varient", to="k2"),
        ["heads.k2: unknown key 'varient': did you mean variant? allowed: variant, path, train"],
    ),
    "unknown key in speed": (
        set_("decoding", to={"speed": {"prompt": 3}}),
        ["decoding.speed: unknown key 'prompt': did you mean prompts?"],
    ),
    "the same tasks twice": (
        set_("tasks", to=["mini_math", ["mini_math"]]),
        ["tasks[1]: ['mini_math'] is there already"],
    ),
    "no end of problems": (set_("data", to={"test": 10**9}), ["data.test: 1000000000 is not"]),
    "an empty path": (set_("heads", "k2", "path", to=""), ["heads.k2.path: '' is empty"]),
    "missing key": (lambda suite: suite.pop("tasks"), ["key 'tasks' is missing"]),
    "unknown mode": (
        entry(mode="specultive", k=2),
        ["grid[0].mode: 'specultive' is not allowed: did you mean speculative?", "static, dyn"],
    ),
    "unknown option": (
        entry(mode="static", K=2),
        ["grid[0]: unknown key 'K': allowed: backbone, "],
    ),
    "an option without end": (
        entry(mode="klass", tau=0.5, history=10**400),
        ["grid[0].history: 1000", "... is not allowed: must be less than or equal to 999999"],
    ),
    "drafts without end": (
        entry(mode="self_speculative", k=10**400),
        ["grid[0].k: 1000", "... is not allowed: must be at most 999999"],
    ),
    "a setting without end": (
        set_("heads", "k2", "train", to={"steps": 10**400}),
        ["heads.k2.train.steps: 1000", "... is not allowed: at most 9223372036854775807"],
    ),
    "a batch without end": (
        set_("decoding", to={"batch_size": 10**6}),
        ["decoding.batch_size: 1000000 is not allowed: must be less than or equal to 999999"],
    ),
    "infinite factor": (
        entry(mode="factor", factor=float("inf")),
        ["grid[0].factor: inf is not allowed: above 0 and finite"],
    ),
    "a cap of nothing": (
        entry(mode="static", cap=1e-320),
        ["grid[0].cap: 1e-320 is not allowed: 1e-06 to 1, which is no cap"],
    ),
    "backbone twice": (
        entry(mode="static", backbone=["S", "S"]),
        ["grid[0].backbone: 'S' is given twice"],
    ),
    "a repetition of itself": (
        set_("heads", "again", to={"variant": "k2", "path": "nowhere/{backbone}/k2"} | OF_K2),
        ["heads.again.seed_of: 'k2' has the same path, nowhere/{backbone}/k2: give each"],
    ),
    "a repetition with the same seed": (
        set_("heads", to=repeated({"steps": 3}, {"steps": 3, "log_every": 1})),
        ["heads.again.seed_of: 'k2' has the same train.seed, 0: give each its own"],
    ),
    "a repetition of another recipe": (
        set_("heads", to=repeated({"steps": 3}, {"steps": 4, "seed": 1})),
        ["heads.again.seed_of: 'k2' has another train.steps, 3 and not 4: a repetition differs"],
    ),
    "unknown backbone of an entry": (
        entry(mode="static", backbone="s"),
        ["grid[0].backbone: there is no backbone 's': allowed: S"],
    ),
    "a repetition of nothing": (
        set_("heads", "k2", "seed_of", to="k3"),
        ["heads.k2.seed_of: 'k3' is no head to repeat"],
    ),
    "a repetition of another kind": (
        set_("heads", "again", to={"variant": "default", "path": "x", "seed_of": "k2"}),
        ["heads.again.seed_of: 'k2' has variant 'k2', this head 'default'"],
    ),
    "text for a number": (
        entry(mode="self_speculative", k="3"),
        ["grid[0].k: '3' is not allowed: must be a valid integer"],
    ),
    "true for a number": (set_("data", to={"test": True}), ["data.test: True is not allowed"]),
    "fraction for a count": (
        entry(mode="self_speculative", k=[1, 2.5]),
        ["grid[0].k[1]: 2.5 is not allowed"],
    ),
    "k of zero": (entry(mode="self_speculative", k=[1, 0]), ["grid[0].k: 0 is not allowed"]),
    "k that direct cannot choose": (
        entry(mode="direct", head="k2", k="auto"),
        ["grid[0].k: 'auto' is for modes that check their drafts (speculative, self_speculative)"],
    ),
    "k in other words": (
        entry(mode="self_speculative", k="many"),
        ["grid[0].k: 'many' is not allowed: must be a valid integer, or auto"],
    ),
    "shortlist below nothing": (
        entry(mode="direct", head="k2", k=1, shortlist=-1),
        ["grid[0].shortlist: -1 is not allowed: tokens, or 0 for all of them"],
    ),
    "tau of one": (
        entry(mode="dynamic", tau=[0.5, 1.0]),
        ["grid[0].tau: 1.0 is not allowed: above 0 and below 1"],
    ),
    "tau of zero": (entry(mode="dynamic", tau=0), ["grid[0].tau: 0.0 is not allowed"]),
    "tau not a number": (entry(mode="dynamic", tau=float("nan")), ["grid[0].tau: nan is not"]),
    "steps of zero": (entry(mode="static", steps=0), ["grid[0].steps: 0 is not allowed: 1 to"]),
    "scale of zero": (
        entry(mode="direct", head="k2", k=1, scale=0.0),
        ["grid[0].scale: 0.0 is not allowed: above 0"],
    ),
    "missing option": (entry(mode="dynamic"), ["grid[0]: mode 'dynamic' needs tau"]),
    "option of another mode": (
        entry(mode="dynamic", tau=0.5, k=2),
        ["grid[0].k: mode 'dynamic' takes no k: allowed: tau"],
    ),
    "delta without its rule": (
        entry(mode="remask", head="k2", tau=0.5, delta=2.0),
        ["grid[0].delta: only rule: residual uses it"],
    ),
    "condition that two passes have not": (
        entry(mode="remask", head="k2", tau=0.5, passes=["one", "halves"], condition="masked"),
        ["grid[0].condition: masked is for one pass; with passes: halves"],
    ),
    "factor of zero": (
        entry(mode="factor", factor=0),
        ["grid[0].factor: 0.0 is not allowed: above 0"],
    ),
    "history of zero": (
        entry(mode="klass", tau=0.5, history=0),
        ["grid[0].history: 0 is not allowed: at least 1"],
    ),
    "back of one": (
        entry(mode="wino", tau=0.5, back=1.0),
        ["grid[0].back: 1.0 is not allowed: at least 0 and below 1"],
    ),
    "drafts that another mode chooses": (
        entry(mode="freedave", tau=0.5, k="auto"),
        ["grid[0].k: 'auto' is for modes that check their drafts"],
    ),
    "floor of another rule": (
        entry(mode="remask", head="k2", tau=0.5, rule="residual", floor=0.8),
        ["grid[0].floor: only rule: confidence uses it"],
    ),
    "floor of one": (
        entry(mode="remask", head="k2", tau=0.5, floor=1.0),
        ["grid[0].floor: 1.0 is not allowed: at least 0 and below 1"],
    ),
    "as many head passes as drafts": (
        entry(mode="speculative", head="k2", k=[4, 3], head_passes=[0, 3]),
        ["grid[0].head_passes: 3 is too large for k=3: less than that, or 0 for one a draft"],
    ),
    "more head passes than it ever drafts": (
        entry(mode="speculative", head="k2", k="auto", head_passes=4),
        ["grid[0].head_passes: 4 is too large for k=auto (4 drafts at most): less than that, or 0"],
    ),
    "a window of more than the drafts": (
        entry(mode="self_lattice", k=[3, 2], window=[2, 3]),
        ["grid[0].window: 3 is too large for k=2: at most that"],
    ),
    "prefix in numbers": (
        entry(mode="direct", head="k2", k=1, prefix=0),
        ["grid[0].prefix: 0 is not allowed: must be a valid boolean"],
    ),
    "unknown condition": (
        entry(mode="remask", head="k2", tau=0.5, condition="reveald"),
        ["grid[0].condition: 'reveald' is not allowed: did you mean revealed?"],
    ),
    "no such head": (
        entry(mode="direct", head=["k2", "k3"], k=1),
        ["grid[0].head: there is no head 'k3': allowed: k2"],
    ),
    "head is missing": (entry(mode="direct", k=1), ["mode 'direct' needs head: allowed: k2"]),
    "head for a mode without": (
        entry(mode="static", head="k2"),
        ["grid[0].head: mode 'static' takes no head; the modes with one: direct"],
    ),
    "empty grid": (set_("grid", to=[]), ["grid: [] is empty"]),
    "empty list": (entry(mode="dynamic", tau=[]), ["grid[0].tau: [] is empty: give at least one"]),
    "empty task group": (set_("tasks", to=[[]]), ["tasks[0]: [] is empty"]),
    "no backbones": (set_("backbones", to={}), ["backbones: {} is empty"]),
    "unknown task": (
        set_("tasks", to=[["mini_math", "mini_cod"]]),
        ["tasks[0]: unknown task 'mini_cod': did you mean mini_code?"],
    ),
    "task twice": (
        set_("tasks", to=[["mini_math", "mini_math"]]),
        ["tasks[0]: task 'mini_math' is given twice"],
    ),
    "generated and fetched tasks in one group": (
        set_("tasks", to=[["mini_math", "mrp_gsm8k"]]),
        ["tasks[0]: ['mini_math', 'mrp_gsm8k'] joins generated tasks (mini_math) and benchmarks"],
    ),
    "no folder of benchmarks": (set_("data", to={"benchmarks": ""}), ["data.benchmarks: '' is"]),
    "benchmarks of another kind": (
        set_("data", to={"benchmark": "x"}),
        ["data: unknown key 'benchmark': did you mean benchmarks? allowed: level, test, bench"],
    ),
    "bad name": (set_("backbones", to={"a/b": {"path": "x"}}), ["backbones.a/b: 'a/b' is no name"]),
    "other name than the file": (set_("name", to="best"), ["name: 'best' must be the file's name"]),
    "neither path nor train": (
        set_("backbones", "S", to={}),
        ["backbones.S: needs path (a directory or a hub id) or train"],
    ),
    "unknown placeholder": (
        set_("heads", "k2", "path", to="x/{size}"),
        ["heads.k2.path: 'x/{size}' is not allowed: the only placeholder is {backbone}"],
    ),
    "unbalanced brace": (set_("heads", "k2", "path", to="x/{size"), ["heads.k2.path: 'x/{size'"]),
    "unknown setting": (
        set_("backbones", "S", "train", to={"stepz": 3}),
        ["backbones.S.train", "'stepz'", "steps"],
    ),
    "bad setting": (
        set_("heads", "k2", "train", to={"steps": "many"}),
        ["heads.k2.train", "steps", "'many'"],
    ),
    "variant said twice": (
        set_("heads", "k2", "train", to={"variant": "default"}),
        ["heads.k2.train.variant: 'default' differs from the head's variant 'k2'"],
    ),
    "list for a mapping": (set_("data", to=[1]), ["data: [1] is not allowed: must be a mapping"]),
}


@pytest.mark.parametrize("kind", MISTAKES)
def test_a_mistake_is_one_clear_line(tmp_path: Path, kind: str) -> None:
    edit, parts = MISTAKES[kind]
    suite = copy.deepcopy(GOOD)
    edit(suite)
    text = message(tmp_path, suite)
    for part in parts:
        assert part in text


def test_the_default_window_goes_with_one_draft(tmp_path: Path) -> None:
    for window in ({}, {"window": 2}):
        grid = [{"mode": "self_lattice", "k": [1, 3], **window}]
        suite = load_suite(write(tmp_path, {**GOOD, "grid": grid}))
        modes = [make_mode(job.mode, **job.options) for job in jobs(suite)]
        assert [mode.window for mode in modes] == [2, 2]  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("k", "option", "value"),
    [(2, "head_passes", 2), (2, "window", 3), ("auto", "head_passes", 4), (1, "head_passes", 9)],
)
def test_a_suite_and_a_mode_say_it_alike(tmp_path: Path, k: Any, option: str, value: int) -> None:
    name = "lattice" if option == "window" else "speculative"
    entry = {"mode": name, "head": "k2", "k": k, option: value}
    said = message(tmp_path, {**GOOD, "grid": [entry]}).removeprefix(f"grid[0].{option}: {value}")
    with pytest.raises(UserError) as caught:
        make_mode(name, **{"k": k, option: value})
    assert str(caught.value) == f"mode {name!r}: {option}={value}{said}"


def test_broken_yaml_names_the_place(tmp_path: Path) -> None:
    assert "no valid YAML at line 2, column" in message(tmp_path, "name: a\n b: [")
    assert "line 2, column 1: key 'name' is given twice" in message(tmp_path, "name: a\nname: b\n")
    assert "None is not allowed: must be a mapping" in message(tmp_path, "")


@pytest.mark.parametrize("tagged", ['!!int ""', "!!timestamp abc", "!!bool maybe", "!!float x"])
def test_a_value_that_does_not_fit_its_tag_is_no_traceback(tmp_path: Path, tagged: str) -> None:
    assert message(tmp_path, f"name: {tagged}").startswith("no valid YAML: ")


def test_heads_come_from_one_of_two_places() -> None:
    assert heads_from("train") == "train"
    with pytest.raises(UserError, match=r"heads: 'trained' is not allowed: did you mean train\?"):
        heads_from("trained")


def test_a_recipe_goes_before_a_path_only_when_asked(tmp_path: Path) -> None:
    heads = {
        "both": {"variant": "k2", "path": "a/b", "train": {"steps": 1}},
        "path": {"variant": "k2", "path": "a/b"},
        "recipe": {"variant": "k2", "train": {"steps": 1}},
    }
    loaded = load_suite(write(tmp_path, {**GOOD, "heads": heads, "grid": [{"mode": "static"}]}))
    sources = {name: (h.source("released"), h.source("train")) for name, h in loaded.heads.items()}
    assert sources == {
        "both": ("released", "trained"),
        "path": ("released", "released"),
        "recipe": ("trained", "trained"),
    }


def test_an_unknown_suite_names_the_known_ones() -> None:
    with pytest.raises(UserError, match=r"suite 'embeded': no file .* did you mean embedded\?"):
        load_suite("embeded")


def checkpoint(folder: Path, block_size: int) -> str:
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps({"block_size": block_size}))
    return str(folder)


def test_the_backbones_block_length_bounds_k_and_steps(tmp_path: Path) -> None:
    backbone = {"S": {"path": checkpoint(tmp_path / "backbone", 4)}}
    suite = {**GOOD, "backbones": backbone, "grid": [{"mode": "self_speculative", "k": [3, 4]}]}
    assert message(tmp_path, suite) == (
        "grid[0].k: 4 is not allowed: at least 1 and below the block length "
        "(blocks of 'S' have 4 tokens)"
    )
    suite = {**GOOD, "backbones": backbone, "grid": [{"mode": "static", "steps": [4, 5]}]}
    assert "grid[0].steps: 5 is not allowed: 1 to the block length" in message(tmp_path, suite)
    recipe = {"S": {"train": {"block_size": 4}}}
    suite = {**GOOD, "backbones": recipe, "grid": [{"mode": "self_speculative", "k": 4}]}
    assert "grid[0].k: 4 is not allowed" in message(tmp_path, suite)


def test_an_entry_of_some_backbones_is_bound_by_their_blocks(tmp_path: Path) -> None:
    both = {name: {"train": {"block_size": size}} for name, size in (("S", 4), ("M", 16))}
    entries = [{"mode": "self_speculative", "k": 10, "backbone": "M"}]
    assert load_suite(write(tmp_path, {**GOOD, "backbones": both, "grid": entries})).grid[0].k
    entries[0]["backbone"] = ["M", "S"]
    text = message(tmp_path, {**GOOD, "backbones": both, "grid": entries})
    assert text.startswith("grid[0].k: 10 is not allowed")
    assert "blocks of 'S' have 4" in text


def test_a_backbone_of_other_blocks_than_wanted_is_found(tmp_path: Path) -> None:
    backbone = {"S": {"path": checkpoint(tmp_path / "backbone", 4)}}
    suite = {**GOOD, "backbones": backbone, "decoding": {"block_size": 16}}
    assert message(tmp_path, suite).startswith(
        "backbones.S: has blocks of 4 tokens, decoding.block_size says 16: take the backbone"
    )
    load_suite(write(tmp_path, {**suite, "decoding": {"block_size": 4}}))
    load_suite(write(tmp_path, {**GOOD, "decoding": {"block_size": 16}}))  # not here: not known


def test_blocks_of_a_downloaded_hub_id_are_known(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from huggingface_hub import constants

    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
    place = tmp_path / "hub/models--owner--name"
    (place / "refs").mkdir(parents=True)
    (place / "refs/main").write_text("0" * 40)
    (place / "snapshots").mkdir()
    checkpoint(place / "snapshots" / ("0" * 40), 4)
    suite = {**GOOD, "backbones": {"S": {"path": "owner/name"}}, "decoding": {"block_size": 16}}
    assert "backbones.S: has blocks of 4 tokens" in message(tmp_path, suite)


def test_a_head_for_other_blocks_is_found_in_the_grid(tmp_path: Path) -> None:
    suite = {
        **GOOD,
        "backbones": {"S": {"path": checkpoint(tmp_path / "backbone", 4)}},
        "heads": {"k2": {"variant": "k2", "path": checkpoint(tmp_path / "head", 8)}},
    }
    assert "has block_size 8, backbone 'S' has 4" in message(tmp_path, suite)


def test_1e_3_is_a_number(tmp_path: Path) -> None:
    text = yaml.safe_dump(GOOD).replace("- 0.5", "- 5e-1")
    assert load_suite(write(tmp_path, text)).grid[1].tau == [0.5, 0.6]


def test_a_recipe_may_be_merged_into_another(tmp_path: Path) -> None:
    heads = """
  one: {variant: default, train: &recipe {steps: 3, num_layers: 1}}
  two: {variant: default, train: {<<: *recipe, num_layers: 2}}
"""
    text = yaml.safe_dump({**GOOD, "grid": [{"mode": "static"}], "heads": "HEADS"})
    loaded = load_suite(write(tmp_path, text.replace(" HEADS", heads)))
    assert loaded.heads["two"].train == {"steps": 3, "num_layers": 2}
    assert loaded.heads["one"].train == {"steps": 3, "num_layers": 1}


def places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """The paths of everything inside nested lists and mappings."""
    if isinstance(value, dict):
        items = list(value.items())
    else:
        items = list(enumerate(value)) if isinstance(value, list) else []
    return [place for key, inner in items for place in [(*path, key), *places(inner, (*path, key))]]


FULL = {
    **GOOD,
    "seed": 1,
    "data": {"level": "hard", "test": 3},
    "decoding": {"batch_size": 2, "dtype": "float32", "speed": {"prompts": 1}},
    "backbones": {"S": {"train": {"steps": 3, "lr": 0.1}}},
    "jobs_per_gpu": 2,
    "heads": repeated({"seed": 1}, {"seed": 2}),
    "grid": [
        {"mode": "direct", "head": "k2", "k": 1, "scale": 0.5, "prefix": False, "backbone": "S"},
        {"mode": "lattice", "head": "k2", "k": 2, "window": 2, "ahead": True, "head_passes": 1},
        {"mode": "self_lattice", "k": [2, 3], "cap": 0.9},
        {"mode": "speculative", "head": "k2", "k": "auto", "shortlist": 3},
        {"mode": "remask", "head": "k2", "tau": 0.5, "passes": "halves", "floor": 0.1},
        {"mode": "remask", "head": "k2", "tau": 0.5, "rule": "residual", "delta": 2},
        {"mode": "factor", "factor": 1},
        {"mode": "entropy", "gamma": 0.1},
        {"mode": "klass", "tau": 0.5, "kl": 0.1, "history": 1},
        {"mode": "wino", "tau": 0.5, "back": 0.1},
        {"mode": "freedave", "tau": 0.5, "k": 2},
    ],
}
ANYTHING = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-2, 20)
    | st.sampled_from([10**7, -(10**400), 10**400])
    | st.floats()
    | st.sampled_from(["", "k2", "x"]),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from("ab"), inner),
    max_leaves=3,
)


@settings(max_examples=120, deadline=None)
@given(st.sampled_from(places(FULL)), ANYTHING)
def test_whatever_stands_anywhere_there_is_no_traceback(place: tuple[Any, ...], value: Any) -> None:
    suite = copy.deepcopy(FULL)
    set_(*place, to=value)(suite)
    with tempfile.TemporaryDirectory() as folder:
        path = write(Path(folder), suite)
        mistake = ""
        try:
            jobs(load_suite(path))
        except UserError as error:
            mistake = str(error)
        assert "\n" not in mistake
