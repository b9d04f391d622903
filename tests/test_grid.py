"""The grid: ids, digests, paths, and what does and does not make a job another one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from mrp import grid
from mrp.errors import UserError
from mrp.grid import (
    Job,
    Layout,
    Suite,
    check_paths,
    check_pieces,
    find_job,
    jobs,
    load_suite,
    missing_pieces,
    waiting,
)

GOOD: dict[str, Any] = {
    "name": "good",
    "backbones": {"S": {"path": "org/backbone"}, "M": {"train": {"steps": 3}}},
    "heads": {
        "k2": {"variant": "k2", "path": "heads/of/{backbone}"},
        "mine": {"variant": "default", "train": {"steps": 3}},
    },
    "tasks": [["mini_math", "mini_code"], "mini_math"],
    "grid": [
        {"mode": "static"},
        {"mode": "direct", "head": ["k2", "mine"], "k": [1, 2]},
        {"mode": "remask", "head": "k2", "tau": 0.5, "condition": ["revealed", "masked"]},
    ],
}


def suite(folder: Path, **changes: Any) -> Suite:
    path = folder / "good.yaml"
    path.write_text(yaml.safe_dump({**GOOD, **changes}, sort_keys=False))
    return load_suite(path)


def by_id(loaded: Suite) -> dict[str, Job]:
    return {job.id: job for job in jobs(loaded)}


def test_lists_multiply_and_ids_are_readable(tmp_path: Path) -> None:
    found = jobs(suite(tmp_path))
    assert len(found) == 2 * 2 * (1 + 4 + 2)
    assert [job.id for job in found][:7] == [
        "S.mini.static",
        "S.mini.direct.k2.k1",
        "S.mini.direct.k2.k2",
        "S.mini.direct.mine.k1",
        "S.mini.direct.mine.k2",
        "S.mini.remask.k2.tau0.5",
        "S.mini.remask.k2.tau0.5.masked",
    ]
    assert found[7].id == "S.mini_math.static"
    assert len({job.digest for job in found if job.backbone == "S"}) == len(found) / 2


def test_options_hold_the_defaults_that_apply(tmp_path: Path) -> None:
    found = by_id(suite(tmp_path))
    assert found["S.mini.static"].options == {"cap": 1.0}
    assert found["S.mini.direct.k2.k1"].options == {
        "k": 1,
        "scale": 1.0,
        "shortlist": 0,
        "prefix": True,
    }
    assert found["S.mini.remask.k2.tau0.5.masked"].options == {
        "tau": 0.5,
        "condition": "masked",
        "rule": "confidence",
        "floor": 0.0,
        "passes": "one",
        "prefix": True,
    }
    auto = {"mode": "speculative", "head": "k2", "k": ["auto", 2], "shortlist": [0, 50]}
    found = by_id(suite(tmp_path, grid=[auto]))
    assert found["S.mini.speculative.k2.kauto"].options["k"] == "auto"
    assert found["S.mini.speculative.k2.k2.shortlist50"].options["shortlist"] == 50
    residual = {"mode": "remask", "head": "k2", "tau": 0.5, "rule": "residual", "delta": [1, 2]}
    found = by_id(suite(tmp_path, grid=[residual]))
    assert found["S.mini.remask.k2.tau0.5.residual"].options["delta"] == 1.0
    assert found["S.mini.remask.k2.tau0.5.residual.delta2"].options["delta"] == 2.0


def test_two_passes_and_a_head_without_prefix_are_named_in_ids(tmp_path: Path) -> None:
    remask = {"mode": "remask", "head": "k2", "tau": 0.5, "passes": ["one", "halves"]}
    alone = {"mode": "speculative", "head": "k2", "k": 2, "scale": 2.0, "prefix": [True, False]}
    found = by_id(suite(tmp_path, grid=[remask, alone]))
    assert list(found)[:4] == [
        "S.mini.remask.k2.tau0.5",
        "S.mini.remask.k2.tau0.5.halves",
        "S.mini.speculative.k2.k2.scale2",
        "S.mini.speculative.k2.k2.scale2.no-prefix",
    ]
    assert "condition" not in found["S.mini.remask.k2.tau0.5.halves"].options  # has no part in it


def test_rivals_are_named_by_what_they_cannot_do_without(tmp_path: Path) -> None:
    from mrp.decoding import make_mode

    rivals = [
        {"mode": "factor", "factor": [0.5, 1]},
        {"mode": "entropy", "gamma": 0.1},
        {"mode": "klass", "tau": 0.9, "kl": [0.01, 0.1], "history": 1},
        {"mode": "wino", "tau": 0.6, "back": [0.9, 0.5]},
        {"mode": "freedave", "k": 2, "tau": 0.7},
    ]
    found = by_id(suite(tmp_path, grid=rivals))
    assert list(found)[:8] == [
        *("S.mini.factor.factor0.5", "S.mini.factor.factor1", "S.mini.entropy.gamma0.1"),
        *("S.mini.klass.tau0.9.history1", "S.mini.klass.tau0.9.kl0.1.history1"),
        *("S.mini.wino.tau0.6", "S.mini.wino.tau0.6.back0.5", "S.mini.freedave.k2.tau0.7"),
    ]
    for job in found.values():
        assert make_mode(job.mode, **job.options).baseline() == make_mode("static")


def test_every_job_makes_a_mode(tmp_path: Path) -> None:
    from mrp.decoding import make_mode

    for name in ("embedded", "micro"):
        for job in jobs(load_suite(name)):
            assert make_mode(job.mode, **job.options).needs_head == (job.head is not None)


def test_the_same_cell_twice_is_an_error(tmp_path: Path) -> None:
    twice = [{"mode": "dynamic", "tau": [0.5]}, {"mode": "static"}, {"mode": "dynamic", "tau": 0.5}]
    with pytest.raises(UserError, match=r"grid\[2\]: job S.mini.dynamic.tau0.5 .* from grid\[0\]"):
        jobs(suite(tmp_path, grid=twice))
    spelled_out = [{"mode": "direct", "head": "k2", "k": 1, "scale": [1, 1.0]}]
    with pytest.raises(UserError, match="is there already"):
        jobs(suite(tmp_path, grid=spelled_out))


def test_labels_of_task_groups_are_unique(tmp_path: Path) -> None:
    tasks = [["mini_math", "mini_code"], ["mini_code", "mini_math"], ["mini_code"]]
    assert grid.task_labels(suite(tmp_path, tasks=tasks)) == [
        "mini",
        "mini_code+mini_math",
        "mini_code",
    ]


@pytest.mark.parametrize(
    ("change", "changed"),
    [
        ({"seed": 1}, "all"),
        ({"data": {"test": 5}}, "all"),
        ({"decoding": {"max_new_tokens": 5}}, "all"),
        ({"tasks": [*GOOD["tasks"], "mini_code"]}, "none"),
        ({"grid": GOOD["grid"][::-1]}, "none"),
        ({"grid": [*GOOD["grid"], {"mode": "dynamic", "tau": 0.7}]}, "none"),
        ({"backbones": {**GOOD["backbones"], "L": {"path": "x/y"}}}, "none"),
    ],
)
def test_digests_change_with_what_they_cover(
    tmp_path: Path, change: dict[str, Any], changed: str
) -> None:
    before, after = by_id(suite(tmp_path)), by_id(suite(tmp_path, **change))
    assert set(before) <= set(after)
    same = [before[name].digest == after[name].digest for name in before]
    assert not any(same) if changed == "all" else all(same)


def test_a_retuned_head_is_another_training_but_the_same_decoding(tmp_path: Path) -> None:
    before = suite(tmp_path)
    heads = {**GOOD["heads"], "mine": {"variant": "default", "train": {"steps": 4}}}
    after = suite(tmp_path, heads=heads)
    other_grid = suite(tmp_path, grid=[{"mode": "static"}])
    other_seed = suite(tmp_path, seed=1)
    digests = [
        grid.training_digest(loaded, loaded.heads["mine"])
        for loaded in (before, other_grid, after, other_seed)
    ]
    assert digests[0] == digests[1]
    assert len(set(digests)) == 3
    assert by_id(before) == by_id(after)


def test_find_job_names_a_near_one(tmp_path: Path) -> None:
    loaded = suite(tmp_path)
    assert find_job(loaded, "S.mini.static").mode == "static"
    with pytest.raises(UserError, match=r"no job 'S.mini.statik': did you mean S.mini.static\?"):
        find_job(loaded, "S.mini.statik")


def test_paths(tmp_path: Path) -> None:
    layout = Layout(suite(tmp_path))
    assert layout.record("S.mini.static") == Path("results/good/runs/S.mini.static/record.json")
    assert layout.backbone_path("S") == "org/backbone"
    assert layout.backbone_inputs("S") == []  # on the hub
    trained = Path("results/good/backbones/M/model.safetensors")
    assert layout.backbone_inputs("M") == [trained]
    assert layout.head_path("S", "k2") == "heads/of/S"
    assert layout.head_inputs("S", "k2") == []  # not here; a run that needs it does not begin
    assert layout.head_inputs("M", "mine") == [Path("results/good/heads/M/mine/model.safetensors")]
    assert layout.head_inputs("S", None) == []


def test_the_generated_tasks_are_those_of_the_data_package() -> None:
    from mrp.data import TASKS

    assert set(grid.GENERATED) == set(TASKS)


# ---- released heads or their recipes -------------------------------------------------------------

BOTH = {"variant": "k2", "path": "heads/of/{backbone}", "train": {"steps": 3}}


def test_trained_heads_are_jobs_of_their_own_and_the_others_are_shared(tmp_path: Path) -> None:
    loaded = suite(tmp_path, heads={**GOOD["heads"], "k2": BOTH})
    released = {job.id: job for job in jobs(loaded, "released")}
    trained = {job.id: job for job in jobs(loaded, "train")}
    shared = released.keys() & trained.keys()
    assert "S.mini.static" in shared
    assert "S.mini.direct.mine.k1" in shared  # has a recipe only
    assert all(released[name] == trained[name] for name in shared)
    one, other = released["S.mini.direct.k2.k1"], trained["S.mini.direct.k2+trained.k1"]
    assert (one.head, one.head_source) == ("k2", "released")
    assert (other.head, other.head_source) == ("k2", "trained")
    assert one.digest != other.digest
    assert len(released) == len(trained) == len(jobs(loaded))
    # `mrp decode` needs the id alone.
    assert find_job(loaded, other.id) == other
    assert find_job(loaded, one.id) == one


def test_paths_of_trained_heads(tmp_path: Path) -> None:
    loaded = suite(tmp_path, heads={**GOOD["heads"], "k2": BOTH})
    layout = Layout(loaded, heads="train")
    assert layout.head_path("S", "k2") == "results/good/heads/S/k2"
    assert layout.head_inputs("S", "k2") == [Path("results/good/heads/S/k2/model.safetensors")]
    assert Layout(loaded).head_path("S", "k2") == "heads/of/S"


# ---- benchmarks, and what is missing -------------------------------------------------------------


def benchmark_suite(folder: Path, **changes: Any) -> Suite:
    """A suite of two benchmarks, two local backbones and a head; nothing of it exists."""
    usual = {
        "backbones": {"S": {"path": f"{folder}/S"}, "M": {"path": f"{folder}/M"}},
        "heads": {"k2": {**BOTH, "path": f"{folder}/{{backbone}}-k2"}},
        "tasks": ["mrp_gsm8k", "mrp_math500"],
        "data": {"benchmarks": f"{folder}/data"},
        "grid": [{"mode": "static"}, {"mode": "direct", "head": "k2", "k": 1}],
    }
    return suite(folder, **{**usual, **changes})


def test_all_missing_pieces_come_at_once(tmp_path: Path) -> None:
    loaded = benchmark_suite(tmp_path)
    assert missing_pieces(loaded) == [
        f"backbones.S.path: {tmp_path}/S: no checkpoint here (config.json is missing)",
        f"heads.k2.path: {tmp_path}/S-k2: no checkpoint here (config.json is missing)",
        f"backbones.M.path: {tmp_path}/M: no checkpoint here (config.json is missing)",
        f"heads.k2.path: {tmp_path}/M-k2: no checkpoint here (config.json is missing)",
        f"data.benchmarks: {tmp_path}/data/mrp_gsm8k.jsonl: no such file",
        f"data.benchmarks: {tmp_path}/data/mrp_math500.jsonl: no such file",
    ]
    with pytest.raises(UserError) as caught:
        check_pieces(loaded)
    text = str(caught.value)
    assert "\n" not in text
    assert text.startswith("suite 'good': 6 pieces are missing: backbones.S.path: ")
    assert "mrp fetch --suite good" in text


def test_only_what_the_wanted_jobs_need_is_missing(tmp_path: Path) -> None:
    loaded = benchmark_suite(tmp_path)
    static = find_job(loaded, "S.mrp_gsm8k.static")
    assert [piece.partition(":")[0] for piece in missing_pieces(loaded, wanted=[static])] == [
        "backbones.S.path",
        "data.benchmarks",
    ]
    assert missing_pieces(loaded, wanted=[]) == []
    (tmp_path / "S").mkdir()
    for file, lacking in (
        ("config.json", "config.json is missing"),
        ("model.safetensors", "model.safetensors is missing"),
        ("tokenizer.json", "no tokenizer here (tokenizer.json or vocab.json)"),
    ):
        assert any(lacking in piece for piece in missing_pieces(loaded, wanted=[static]))
        (tmp_path / "S" / file).write_text("{}")
    (tmp_path / "data").mkdir()
    (tmp_path / "data/mrp_gsm8k.jsonl").write_text("{}\n")
    assert missing_pieces(loaded, wanted=[static]) == []
    assert Layout(loaded).data_inputs(static.tasks) == [tmp_path / "data/mrp_gsm8k.jsonl"]
    assert Layout(loaded).task_data_dir(static.tasks) == tmp_path / "data"


def test_a_job_is_told_all_that_is_missing_at_once(tmp_path: Path) -> None:
    loaded = benchmark_suite(tmp_path)
    job = find_job(loaded, "S.mrp_gsm8k.direct.k2.k1")
    with pytest.raises(UserError) as caught:
        check_paths(loaded, job, "no/such/backbone", "owner/nothing-here", tmp_path / "data")
    for piece in (
        "--backbone-path: no/such/backbone: no checkpoint here (config.json is missing)",
        "--head-path: owner/nothing-here is not downloaded",
        f"--data: {tmp_path}/data/mrp_gsm8k.jsonl: no such file",
    ):
        assert piece in str(caught.value)
    generated = suite(tmp_path)
    job = find_job(generated, "S.mini_math.static")
    with pytest.raises(UserError, match=r"mini_math.jsonl: no such file \(`mrp data` writes it\)"):
        check_paths(generated, job, "no/such/backbone", None, tmp_path)


def test_a_head_to_be_trained_needs_its_data_instead(tmp_path: Path) -> None:
    chats = f"{tmp_path}/chats.jsonl"
    heads = {"k2": {**BOTH, "path": "no/such", "train": {"steps": 3, "source": chats}}}
    loaded = benchmark_suite(tmp_path, heads=heads)
    missing = missing_pieces(loaded, "train", wanted=[], trainings=[("S", "k2")])
    assert missing == [
        f"backbones.S.path: {tmp_path}/S: no checkpoint here (config.json is missing)",
        f"heads.k2.train.source: {chats}: no such file",
    ]
    with pytest.raises(UserError, match="`mrp fetch --suite good --heads train`"):
        check_pieces(loaded, "train", wanted=[], trainings=[("S", "k2")])
    Path(chats).write_text("{}\n")
    assert len(missing_pieces(loaded, "train", wanted=[], trainings=[("S", "k2")])) == 1
    Path(chats).unlink()
    # A head that is trained again lacks its data, too, and that is so whatever decoding uses.
    weights = Layout(loaded, tmp_path).trained_head_dir("S", "k2") / "model.safetensors"
    weights.parent.mkdir(parents=True)
    weights.write_text("")
    assert missing_pieces(loaded, "released", wanted=[], trainings=[("S", "k2")]) == missing


def test_where_benchmarks_lie_changes_no_digest(tmp_path: Path) -> None:
    """A path is no part of a result; the data file itself is an input of the workflow's jobs."""
    one = benchmark_suite(tmp_path)
    digests = [job.digest for job in jobs(one)]
    other = benchmark_suite(tmp_path, data={"benchmarks": "elsewhere", "test": 7})
    assert [job.digest for job in jobs(other)] == digests


def test_what_waits_for_a_checkpoint(tmp_path: Path) -> None:
    found = jobs(suite(tmp_path))
    assert waiting(found, "S") == 2 * (1 + 4 + 2)
    assert waiting(found, "S", "k2") == 2 * (2 + 2)
    assert waiting(found, "M", "mine") == 2 * 2
    assert waiting(found, "M", "default") == 0
