"""Each rival's rule on numbers written by hand, and its paper's invariant on random models."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from mrp.decoding import Decoded, make_mode
from mrp.decoding.blocks import with_shadows
from mrp.decoding.cache import KVCache
from mrp.decoding.forwards import EagerForwards
from mrp.decoding.modes.entropy import within
from mrp.decoding.modes.factor import joint
from mrp.decoding.modes.freedave import steps_taken
from mrp.decoding.modes.klass import divergence, ready
from mrp.decoding.modes.wino import narrow, wide
from mrp.decoding.packed import PackedForwards
from mrp.decoding.picks import Picks
from mrp.models.transformer import MaskedAttention
from tests.decoding.test_lossless import Case, cases, run
from tests.tiny import MASK, tiny_backbone


def picks_of(confidence: torch.Tensor) -> Picks:
    """Picks of these confidences, 0 where a position is not masked."""
    odds = (1 - confidence) / confidence
    return Picks(torch.zeros_like(odds, dtype=torch.long), odds)


def some(case: Case, name: str, **options: object) -> list[Decoded]:
    backbone, head, prompts, budgets, batch_size, _ = case
    return run(backbone, head, prompts, make_mode(name, **options), budgets, batch_size)


def same_text(ours: list[Decoded], others: list[Decoded]) -> bool:
    return [(s.ids, s.trace.ids) for s in ours] == [(s.ids, s.trace.ids) for s in others]


def forwards(sample: Decoded) -> int:
    return sample.counts["denoise"] + sample.counts["verify"]


confidences = st.lists(
    st.one_of(st.just(0.0), st.floats(0.01, 1.0)), min_size=1, max_size=8
).filter(any)


# ---- factor and entropy --------------------------------------------------------------------------


@given(confidences, st.floats(0.01, 3.0))
def test_factor_is_the_largest_n_of_the_rule(values: list[float], factor: float) -> None:
    confidence = torch.tensor([values], dtype=torch.float64)
    ordered = [c for c in sorted(confidence[0].tolist(), reverse=True) if c > 0]
    bounds = [(n + 1) * (1 - c) for n, c in enumerate(ordered, 1)]
    if min(abs(bound - factor) for bound in bounds) < 1e-9:
        return  # rounding decides
    largest = max([n for n, bound in enumerate(bounds, 1) if bound < factor], default=1)
    picks = picks_of(confidence)
    assert picks.top(joint(picks.odds, factor)).sum() == largest


@given(confidences, st.data(), st.floats(0.0, 2.0))
def test_entropy_is_the_largest_prefix_within_the_budget(
    values: list[float], data: st.DataObject, gamma: float
) -> None:
    confidence = torch.tensor([values], dtype=torch.float64)
    nats = data.draw(st.lists(st.floats(0, 3), min_size=len(values), max_size=len(values)))
    order = sorted((i for i, c in enumerate(values) if c), key=lambda i: -confidence[0, i].item())
    sets = [[nats[i] for i in order[:n]] for n in range(1, len(order) + 1)]
    excesses = [sum(each) - max(each) for each in sets]
    if min(abs(excess - gamma) for excess in excesses) < 1e-9:
        return
    largest = max([n for n, e in enumerate(excesses, 1) if e <= gamma], default=1)
    picks = picks_of(confidence)
    entropy = torch.tensor([nats], dtype=torch.float64)
    assert picks.top(within(picks.odds, entropy, gamma)).sum() == largest


@given(cases())
@settings(max_examples=8, deadline=None)
def test_factor_and_entropy_towards_0_are_static(case: Case) -> None:
    static = some(case, "static")
    assert some(case, "factor", factor=1e-9) == static
    assert some(case, "entropy", gamma=1e-9) == static


# ---- klass ---------------------------------------------------------------------------------------


def test_divergence_is_kl_from_the_step_before() -> None:
    new, old = torch.randn(2, 2, 3, 7, generator=torch.Generator().manual_seed(0))
    p, q = new.softmax(-1), old.softmax(-1)
    expected = (p * (p / q).log()).sum(-1)
    expected[1] = (p[1] * (p[1] / 1e-12).log()).sum(-1)
    torch.testing.assert_close(divergence(new, old, torch.tensor([False, True])), expected)
    new[..., 3] = -torch.inf  # as the mask token's
    assert divergence(new, new, torch.tensor([False, False])).abs().max() < 1e-6


def test_klass_reveals_what_is_stable_and_sure_or_the_best() -> None:
    picks = picks_of(torch.tensor([[0.9, 0.8, 0.95], [0.9, 0.5, 0.95]]))
    stable = torch.tensor([[True, True, False], [False, True, False]])
    assert ready(picks.odds, stable, 0.7).tolist() == [[True, True, False], [False, False, True]]


@given(cases(), st.floats(0.05, 0.95))
@settings(max_examples=8, deadline=None)
def test_klass_lies_between_dynamic_and_static(case: Case, tau: float) -> None:
    assert some(case, "klass", tau=tau, kl=1e9, history=1) == some(case, "dynamic", tau=tau)
    # No block of 16 has that many steps, and so nothing is ever stable.
    assert some(case, "klass", tau=tau, kl=1e9, history=17) == some(case, "static")


# ---- wino ----------------------------------------------------------------------------------------


def test_a_shadow_sees_all_but_the_token_in_its_own_place() -> None:
    """Against one plain forward of prefix, block and shadow with the mask written out."""
    backbone = tiny_backbone(5, block_size=4)
    ids = torch.tensor([[5, 6, 7, 8, 9, MASK, 11, 12]])
    shadow = torch.full((1, 4), MASK)
    mask = torch.zeros(12, 12, dtype=torch.bool)
    mask[:4, :4] = mask[4:8, :8] = True
    mask[8:, :4] = mask[8:, 8:] = True
    mask[8:, 4:8] = ~torch.eye(4, dtype=torch.bool)
    positions = torch.tensor([[0, 1, 2, 3, 4, 5, 6, 7, 4, 5, 6, 7]])
    expected = backbone.hidden(
        torch.cat((ids, shadow), 1), positions, MaskedAttention(mask[None, None])
    )
    start = torch.tensor([4])
    for kind in (EagerForwards, PackedForwards):
        cache = KVCache(backbone.config, 2, 1, 12, torch.device("cpu"), torch.float32)
        run_forward = kind(backbone, None, cache, None).backbone
        blocks = with_shadows(ids[:, :4], shadow, torch.tensor([0]), start * 0)
        run_forward(blocks.take(slice(0, 1)))
        hidden = run_forward(with_shadows(ids[:, 4:], shadow, torch.tensor([0]), start))
        torch.testing.assert_close(hidden.flatten(0, 1), expected[0, 4:], rtol=1e-4, atol=1e-5)


def test_wide_takes_all_above_tau_up_to_the_cap() -> None:
    sure = torch.linspace(0.7, 0.9, 16)[None]
    assert wide(picks_of(sure).odds, 0.5).sum() == 11  # 0.7 of 16
    assert wide(picks_of(sure).odds, 0.5)[0, 5:].all()
    assert wide(picks_of(sure[:, :6]).odds, 0.5).sum() == 5
    assert wide(picks_of(sure[:, :4]).odds, 0.5).all()
    assert wide(picks_of(sure).odds, 0.95).nonzero().tolist() == [[0, 15]]


def test_narrow_takes_back_fewer_than_the_last_round_revealed() -> None:
    trust = torch.tensor([[0.5, 0.1, 0.0, 0.3, 0.95]]).expand(5, -1)
    age = [[1, 1, 0, 1, 1], [1, 1, 0, 1, 2], [1, 2, 0, 2, 2], [2, 2, 0, 2, 2], [1, 1, 0, 1, 1]]
    new = torch.tensor([[0, 0, 1, 1, 0]] * 4 + [[0, 0, 1, 0, 0]]) == 1
    back = narrow(trust, torch.tensor(age), new, 0.9)
    assert back.tolist() == [
        [True, True, False, True, False],
        [False, True, False, True, False],
        [False] * 5,
        [False] * 5,
        [False] * 5,  # where the round reveals one token alone
    ]


@given(cases(), st.floats(0.05, 0.95))
@settings(max_examples=8, deadline=None)
def test_wino_that_takes_nothing_back_is_dynamic(case: Case, tau: float) -> None:
    dynamic, wino = some(case, "dynamic", tau=tau), some(case, "wino", tau=tau, back=0.0)
    # The cap leaves blocks of up to 5 positions alone.
    if case[0].config.block_size <= 4:
        assert wino == dynamic
    for ours, other in zip(wino, dynamic, strict=True):
        assert ours.counts["vetoed"] == 0
        steps = [other.trace.step.count(step) for step in set(other.trace.step)]
        if max(steps) <= 5:
            assert ours == other


def test_wino_takes_back_and_ends() -> None:
    backbone = tiny_backbone(1, block_size=16, ends=False)
    mode = make_mode("wino", tau=0.1, back=0.6)
    (sample,) = run(backbone, None, [[5] * 13], mode, [64], 1)
    assert sample.counts["vetoed"] > 0
    assert MASK not in sample.trace.ids
    assert sample.counts["generated"] == 67  # the prompt's tail was never masked
    assert forwards(sample) <= sample.counts["generated"]


# ---- freedave ------------------------------------------------------------------------------------


def test_the_walk_goes_on_while_a_step_is_a_drafted_state() -> None:
    states = torch.tensor([[[0, 0, 0], [1, 0, 0], [1, 2, 0]]]).expand(4, -1, -1)
    targets = states.clone()
    targets[0] = torch.tensor([[1, 2, 0], [9, 9, 9], [1, 2, 3]])  # two tokens at once
    targets[1] = torch.tensor([[1, 0, 0], [1, 0, 3], [1, 2, 3]])  # leaves after the first
    targets[2] = torch.tensor([[1, 2, 3], [1, 2, 0], [1, 2, 3]])  # more than was drafted
    targets[3] = torch.tensor([[1, 0, 0], [1, 2, 0], [1, 2, 3]])
    read = torch.tensor([[True] * 3] * 3 + [[True, True, False]])
    assert steps_taken(states, targets, read).tolist() == [2, 1, 0, 1]


@given(cases(), st.floats(0.05, 0.95))
@settings(max_examples=20, deadline=None)
def test_freedave_is_dynamic_in_no_more_forwards(case: Case, tau: float) -> None:
    dynamic = some(case, "dynamic", tau=tau)
    drafted = some(case, "freedave", tau=tau, k=case[-1])
    assert same_text(drafted, dynamic)
    for ours, other in zip(drafted, dynamic, strict=True):
        assert forwards(ours) <= forwards(other)
        assert ours.counts["accepted"] <= ours.counts["proposed"]
        assert ours.counts["accepted"] == ours.trace.source.count("draft")
        assert ours.counts["bonus"] == ours.trace.source.count("bonus")


@given(cases())
@settings(max_examples=8, deadline=None)
def test_freedave_of_single_tokens_is_self_speculation(case: Case) -> None:
    """A threshold that nothing reaches makes dynamic decoding static."""
    k = case[-1]
    assert some(case, "freedave", tau=1 - 1e-9, k=k) == some(case, "self_speculative", k=k)


@pytest.mark.parametrize("tau", [0.3, 0.6])
def test_freedave_saves_forwards(tau: float) -> None:
    backbone = tiny_backbone(2, ends=False)
    dynamic, drafted = (
        run(backbone, None, [[5, 6], [7]], make_mode(name, tau=tau, **options), [40, 40], 2)
        for name, options in (("dynamic", {}), ("freedave", {"k": 3}))
    )
    assert sum(map(forwards, drafted)) < sum(map(forwards, dynamic))
