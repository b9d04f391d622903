from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import pytest
import torch

from mrp.cli import main
from mrp.decoding import decode, make_mode
from mrp.errors import UserError
from mrp.speed.bench import EAGER, Plan, accepted_histogram, bench, lines
from mrp.speed.costs import Ceilings, measure_ceilings, role_costs, round_costs
from mrp.speed.divergence import Margin, Parting, margin, parting, report
from mrp.speed.eager_loop import eager_loop
from mrp.speed.prediction import drafts_by_round, predicted_seconds
from mrp.speed.shapes import random_models, random_prompts
from tests.tiny import tiny_backbone, tiny_head

CPU = torch.device("cpu")
EMBEDDED = Path(__file__).resolve().parents[2] / "assets" / "embedded"


def test_the_eager_loop_gives_the_text_of_static_decoding() -> None:
    for seed in range(4):
        backbone = tiny_backbone(seed)
        prompts = [[5 + row] * (3 + 4 * seed) for row in range(3)]
        static = sorted(
            decode(backbone, None, prompts, make_mode("static"), 30), key=lambda s: s.index
        )
        for ours, reference in zip(eager_loop(backbone, prompts, 30), static, strict=True):
            assert ours.ids == reference.ids
            assert ours.counts["answer_tokens"] == reference.counts["answer_tokens"]
    with pytest.raises(UserError, match="one length"):
        eager_loop(backbone, [[5], [5, 6]], 8)


def test_a_static_block_costs_as_many_forwards_as_it_has_tokens() -> None:
    """Storing a block takes no forward of its own: 16 a block, not 17."""
    backbone, _ = random_models("tiny", CPU, torch.float32)
    (sample,) = decode(backbone, None, random_prompts(backbone, 1, 32), make_mode("static"), 64)
    assert sample.counts["denoise"] == 64
    assert sample.counts["store"] == 3


def test_bench_counts_answers_alone_and_reports_what_it_measured() -> None:
    backbone, head = random_models("tiny", CPU, torch.float32)
    prompts = random_prompts(backbone, 4, 40)
    modes = {"speculative,k=2": make_mode("speculative", k=2)}
    plan = Plan(modes, [1, 2], new_tokens=20, repeats=2, baseline=EAGER)
    result = bench(backbone, head, prompts, plan, Ceilings(1e10, 1e11))
    assert [batch["batch_size"] for batch in result["batches"]] == [1, 2]
    for batch in result["batches"]:
        by_mode = {line["mode"]: line for line in batch["contenders"]}
        assert list(by_mode) == [EAGER, "static", "speculative,k=2"]
        # 40 prompt tokens and 20 new ones, whose block is filled up to 24: 20 count.
        assert all(line["answer_tokens_mean"] == 20 for line in by_mode.values())
        assert by_mode[EAGER]["ratio"] == 1.0
        speculative = by_mode["speculative,k=2"]
        verified = sum(speculative["accepted_per_verification"].values())
        assert verified == speculative["verify"]
        assert by_mode["static"]["tpf"] == 1.0
        assert speculative["predicted"] is None  # it is for ratios to static
        roles = {cost["role"]: cost for cost in batch["costs"]}
        assert {"backbone", "pick", "head", "verify K=2 + pick", "prefill + head"} <= set(roles)
        assert all(cost["ms"] > 0 and cost["share"] > 0 for cost in batch["costs"])
    assert any("verify K=2" in line for line in lines(result))


def test_the_floor_is_bytes_or_operations_whichever_takes_longer() -> None:
    backbone, _ = random_models("tiny", CPU, torch.float32)
    parameters = backbone.lm_head.weight.numel()

    def floor(ceilings: Ceilings) -> float:
        costs = role_costs(backbone, None, 3, 32, [], ceilings, repeats=1)
        return next(cost["floor_ms"] for cost in costs if cost["role"] == "pick")

    assert floor(Ceilings(1e9, 1e30)) == pytest.approx(1e3 * 4 * parameters / 1e9)
    assert floor(Ceilings(1e30, 1e9)) == pytest.approx(1e3 * 2 * parameters * 48 / 1e9)
    measured = measure_ceilings(CPU, torch.float32)
    assert measured.bytes_per_second > 1e8
    assert measured.flops > 1e8


@pytest.mark.parametrize(("name", "k"), [("speculative", 3), ("self_speculative", 2)])
def test_rounds_are_read_from_traces(name: str, k: int) -> None:
    """Drafts of every round, and so the time predicted from given costs, batches included."""
    backbone = tiny_backbone(3, ends=False)
    mode = make_mode(name, k=k)
    chunks = [[[5], [6, 7, 8]], [[9] * 11]]
    samples = []
    for chunk in chunks:
        samples += list(decode(backbone, tiny_head(backbone), chunk, mode, 40))
    for sample, prompt in zip(samples[-1:], chunks[1], strict=True):
        drafts = drafts_by_round(sample, len(prompt) % 8, 8, k)
        assert len(drafts) == sample.counts["denoise"] + sample.counts["verify"]
        assert drafts.count(0) >= sample.counts["denoise"]
        assert sum(drafts) == sample.counts["proposed"]
    costs = {"backbone + pick": 1.0, "pick": 0.25, "head + pick": 0.5, "prefill": 7.0}
    costs |= {f"verify K={number} + pick": 1.0 + number for number in range(1, k + 1)}
    costs["prefill + head"] = 8.0
    alone = predicted_seconds(mode, samples[-1:], chunks[1:], costs, 8)
    counts = samples[-1].counts
    rounds = counts["denoise"] + counts["verify"] + counts["proposed"]
    if name == "speculative":
        assert alone == 8.0 + rounds + 0.5 * counts["head_draft"]
    else:
        assert alone == 7.0 + rounds + 0.25 * sum(1 for number in drafts if number)
    assert predicted_seconds(mode, samples, chunks, costs, 8) > alone
    whole = dict.fromkeys(range(k + 1), 2.0)
    alone = predicted_seconds(mode, samples[-1:], chunks[1:], costs, 8, whole)
    assert alone == costs["prefill + head" if mode.needs_head else "prefill"] + 2.0 * len(drafts)


def test_whole_rounds_of_fixed_shape_are_timed() -> None:
    backbone = tiny_backbone(ends=False)
    mode, prompts = make_mode("speculative", k=2), [[5] * 9, [6]]
    found = round_costs(backbone, tiny_head(backbone), mode, prompts, "fixed")
    assert list(found) == [0, 1, 2]
    assert min(found.values()) > 0
    assert round_costs(backbone, tiny_head(backbone), mode, prompts) == {}


def test_histogram_of_accepted_drafts() -> None:
    backbone = tiny_backbone(ends=False)
    samples = list(
        decode(backbone, tiny_head(backbone), [[5], [6]], make_mode("speculative", k=3), 40)
    )
    histogram = accepted_histogram(samples)
    counts = [sample.counts for sample in samples]
    assert sum(histogram.values()) == sum(count["verify"] for count in counts)
    total = sum(int(number) * times for number, times in histogram.items())
    assert total == sum(count["accepted"] for count in counts)


def test_fp32_runs_do_not_part() -> None:
    backbone = tiny_backbone(2, ends=False)
    modes = {"k=3": make_mode("speculative", k=3)}
    result = report(backbone, tiny_head(backbone), modes, [[5, 6, 7], [8] * 9], 30, 2)
    assert result["modes"][0]["diverged"] == 0
    assert result["modes"][0]["samples"] == 2


def test_where_runs_part_and_by_how_much() -> None:
    backbone = tiny_backbone(2, ends=False)
    prompt = [5, 6, 7]
    (static,) = decode(backbone, None, [prompt], make_mode("static"), 21)
    (other,) = decode(backbone, None, [prompt], make_mode("self_speculative", k=2), 21)
    assert parting(static, other, 3, 8) is None
    place = max(range(5, 13), key=lambda p: static.trace.step[p])  # last pick of the second block
    other.trace.ids[place] = wrong = static.trace.ids[place] % 20 + 3
    where = parting(static, other, 3, 8)
    assert where is not None
    assert (where.begin, len(where.revealed)) == (5, 7)
    assert where.pick == (place, static.trace.ids[place])
    assert where.others[place] == wrong
    found = margin(backbone, backbone, prompt, static, where)
    assert found.steps > 100  # far from a tie in fp32
    assert (found.rounding, found.near) == (0.0, False)


def test_a_pick_that_came_later_in_its_round_is_not_taken_for_the_first() -> None:
    """A round that takes the second best position first may well change the best one's token."""
    backbone = tiny_backbone(2, ends=False)
    prompt = [5, 6, 7]
    (static,) = decode(backbone, None, [prompt], make_mode("static"), 21)
    first, second = sorted(range(5, 13), key=lambda place: static.trace.step[place])[:2]
    token = static.trace.ids[first]
    changed = {first: token % 20 + 3}
    alone = margin(backbone, backbone, prompt, static, Parting(5, {}, (first, token), changed))
    # What is likeliest at the second position before the first was revealed.
    late = Parting(5, {}, (first, token), {})
    logits = {n: late._replace(others={**changed, second: n}) for n in range(3, 24)}
    margins = {n: margin(backbone, backbone, prompt, static, where) for n, where in logits.items()}
    smaller = [n for n, found in margins.items() if found.steps < alone.steps]
    assert len(smaller) == 1  # the likeliest alone could be picked there


def test_a_choice_within_the_formats_own_error_is_a_near_tie() -> None:
    """Of weights rounded to bf16, at the state where their own text leaves that of the exact ones.

    There the two choose differently, so the error is as large as the distance, many steps of fp32.
    """
    parted = 0
    for seed in range(4):
        precise = tiny_backbone(seed, ends=False)
        coarse = copy.deepcopy(precise).bfloat16().float()
        for prompt in ([5, 6, 7], [8] * 9):
            rounded, exact = (
                next(iter(decode(model, None, [prompt], make_mode("static"), 40)))
                for model in (coarse, precise)
            )
            where = parting(rounded, exact, len(prompt), 8)
            if where is None:
                continue
            parted += 1
            found = margin(coarse, precise, prompt, rounded, where)
            assert found.rounding >= found.steps > 2
            assert found.near
            assert not margin(coarse, coarse, prompt, rounded, where).near  # taken for exact
    assert parted
    assert [Margin(*each).near for each in ((2.5, 2.6), (2.5, 2.4), (1.9, 0.0))] == [
        True,
        False,
        True,
    ]


@pytest.fixture
def given_costs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Forwards take given times, in milliseconds, however fast the machine is."""
    given = {"prefill": 7.0, "prefill + head": 8.0, "backbone + pick": 2.0}
    for listed in ("", " of 4"):
        given |= {f"verify K={drafts} + pick{listed}": 2.0 + drafts for drafts in (1, 2)}
        given |= {f"head + pick{listed}": 1.0}

    def costs(*args: Any, **options: Any) -> list[dict[str, Any]]:
        found = role_costs(*args, **options, repeats=1)
        return [cost | {"ms": given.get(cost["role"], 1e6)} for cost in found]

    monkeypatch.setattr("mrp.speed.bench.role_costs", costs)


def predicted_by_given_costs(static: dict[str, Any], ours: dict[str, Any]) -> float:
    """The ratio of two lines of one prompt; a round of K drafts takes 2 + K, and K of the head."""
    assert ours["answer_tokens_mean"] == static["answer_tokens_mean"]
    rounds, drafts = ours["denoise"] + ours["verify"], ours["head_passes"]
    assert drafts > 0
    return (7.0 + 2.0 * static["denoise"]) / (8.0 + 2.0 * rounds + 2.0 * drafts)


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str], given_costs: None) -> None:
    out = tmp_path / "bench.json"
    arguments = ["bench", "--shape", "tiny", "--device", "cpu", "--new-tokens", "8"]
    arguments += ["--prompt-length", "20", "--repeats", "1", "--out", str(out)]
    ceilings = ["--bandwidth", "0.01", "--teraflops", "0.1"]
    modes = ["--mode", "speculative,k=auto", "--mode", "speculative,k=2,shortlist=4"]
    main([*arguments, *modes, *ceilings])
    assert "speculative,k=auto" in capsys.readouterr().out
    result: dict[str, Any] = json.loads(out.read_text())
    static, auto, fixed = result["batches"][0]["contenders"]
    assert static["mode"] == "static"
    assert static["predicted"] == static["ratio"] == 1.0
    assert auto["predicted"] is None
    assert fixed["predicted_by_rounds"] is None
    assert fixed["predicted"] == pytest.approx(predicted_by_given_costs(static, fixed))
    main([*arguments, "--mode", "speculative,k=2", "--divergence"])
    assert "0 of 1 samples" in capsys.readouterr().out


def test_trained_checkpoints(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], given_costs: None
) -> None:
    out = tmp_path / "bench.json"
    models = ["--backbone", str(EMBEDDED / "backbone"), "--head", str(EMBEDDED / "heads/S/direct")]
    arguments = ["bench", *models, "--device", "cpu", "--new-tokens", "16", "--repeats", "1"]
    mode = ["--mode", "speculative,k=1", "--prompt-length", "20"]
    ceilings = ["--bandwidth", "0.01", "--teraflops", "0.1", "--out", str(out)]
    main([*arguments, *mode, *ceilings, "--head-variant", "direct"])
    printed = [line.split() for line in capsys.readouterr().out.splitlines()]
    (line,) = [parts for parts in printed if parts[:1] == ["speculative,k=1"]]
    predicted = predicted_by_given_costs(*json.loads(out.read_text())["batches"][0]["contenders"])
    assert line[3] == f"{predicted:.3f}"  # after tokens/s and ratio


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "one of the two"),
        (["--shape", "70b"], "choose one of 1.7b, 4b, 8b, tiny"),
        (["--shape", "tiny", "--mode", "speculative,3"], "KNOB=VALUE"),
        (["--shape", "tiny", "--batch", "0"], "at least 1"),
        (["--shape", "tiny", "--baseline", "luck"], "static or eager-loop"),
        (["--shape", "tiny", "--dtype", "int8"], "choose one of float32"),
        (["--shape", "tiny", "--repeats", "0"], "at least 1"),
    ],
)
def test_mistakes_are_one_line(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["bench", "--device", "cpu", *arguments]) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1
