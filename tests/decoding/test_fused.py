"""The kernels of small rules against the rules, and whole decoding runs on them.

They run on a GPU, or, with TRITON_INTERPRET=1 and triton installed, in Triton's CPU interpreter.
"""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.utils._pytree import tree_leaves, tree_map

pytest.importorskip("triton")
GPU = torch.cuda.is_available()
if not GPU and os.environ.get("TRITON_INTERPRET") != "1":
    pytest.skip("no GPU and no TRITON_INTERPRET=1", allow_module_level=True)

from mrp.decoding import fused  # noqa: E402
from mrp.decoding.fast import drafts, lanes, places, sets  # noqa: E402
from mrp.decoding.forwards import EagerForwards  # noqa: E402
from mrp.decoding.lanes import TALLY  # noqa: E402
from mrp.decoding.modes.branches import (  # noqa: E402
    MOST_DRAFTS,
    RIVALS,
    branches_of,
    likeliest,
    reached,
)
from mrp.decoding.modes.lattice import sets_of  # noqa: E402
from tests.decoding.test_rounds import ALL_MODES, samples  # noqa: E402
from tests.tiny import tiny_backbone, tiny_head  # noqa: E402

pytestmark = pytest.mark.gpu if GPU else []
DEVICE = torch.device("cuda" if GPU else "cpu")
KERNELS: dict[str, Callable[..., Any]] = vars(lanes) | vars(places) | vars(drafts) | vars(sets)
MASK = 2


def test_every_rule_has_a_kernel_of_the_same_signature() -> None:
    for name, rule in fused.RULES.items():
        assert inspect.signature(KERNELS[name]) == inspect.signature(rule), name


BUDGETED = ("rivals", "likeliest", "branch_states", "walk_sets")


def of_a_budget(
    name: str,
    case: tuple[int, int, int, int, torch.Generator],
    numbers: Callable[..., Tensor],
    flags: Callable[..., Tensor],
) -> tuple[Any, ...]:
    """Arguments of the rules of a lattice with a budget."""
    n, size, k, states, generator = case
    k = min(max(k, 1), MOST_DRAFTS, size - 1)
    tables, picks = branches_of(k, torch.device("cpu")), k + RIVALS
    odds = torch.rand(n, picks, generator=generator) * 4
    odds = torch.where(flags(n, picks) | flags(n, picks), odds, 0.0)
    order = [torch.randperm(size, generator=generator)[:k] for _ in range(n)]
    drafted = torch.stack(order) if n else numbers(size, 0, k)
    positions = torch.cat((drafted, numbers(size, n, 1), drafted[:, :1]), dim=1)
    tokens = numbers(3, n, picks)
    chosen_of = positions, tokens, odds, numbers(k + 1, n), tables, 1 + states, bool(flags(1))
    likely = likeliest(*chosen_of)
    if name == "likeliest":
        return chosen_of
    if name == "rivals":
        cells = torch.rand(n, size, generator=generator)
        return cells, numbers(3, n, size), numbers(3, n, size, 2)
    if name == "branch_states":
        return numbers(4, n, 3, size)[:, 0], positions, likely[2], likely[0], tables.holding
    count = likely[0].shape[1]
    own = positions.gather(1, numbers(picks, n, count)), numbers(3, n, count)
    return likely[0], likely[1], (positions, likely[2]), own, tables.onto, tables.size


@st.composite
def sizes(draw: st.DrawFn) -> tuple[int, int, int, int, torch.Generator]:
    """Lanes, positions of a block, drafts, states, and where the rest is drawn from."""
    size = draw(st.sampled_from([2, 4, 5, 8, 16, 32, 64]))
    k = draw(st.integers(0, min(7, size - 1)))
    generator = torch.Generator().manual_seed(draw(st.integers(0, 10_000)))
    return draw(st.integers(1, 4)), size, k, draw(st.integers(1, 9)), generator


def arguments(name: str, case: tuple[int, int, int, int, torch.Generator]) -> tuple[Any, ...]:
    """Arguments of a rule as a round would have them: few tokens, ties, views of larger tensors."""
    n, size, k, states, generator = case

    def numbers(most: int, *shape: int) -> Tensor:
        """A view of every other one: no kernel may take memory for granted."""
        drawn = torch.randint(0, most, (*shape, 2), generator=generator)
        return drawn[..., 0] if shape else drawn

    def flags(*shape: int) -> Tensor:
        return numbers(2, *shape) == 1

    odds = numbers(5, n, states, size) / 4
    odds = torch.where(flags(n, states, size), odds, torch.inf)
    board, tally = (numbers(4, n + 2, *of).contiguous() for of in ((3, size), (len(TALLY),)))
    block, fresh = board[:n, 0], flags(n + 2)[:n]
    drafted_at = torch.stack([torch.randperm(size, generator=generator)[:k] for _ in range(n)])
    drafted, useful = numbers(4, n, k), numbers(k + 1, n)
    if name in ("set_states", "walk"):
        k = min(k, 5)
        drafted_at, drafted, useful = drafted_at[:, :k], drafted[:, :k], useful.clamp(max=k)
        tables = sets_of(k, 1 + int(numbers(3, 1)), torch.device("cpu"))
        states = len(tables.size)
    positions, tokens = numbers(size, n, states), numbers(4, n, states)
    if name == "agreement":  # mostly right drafts
        positions, tokens = numbers(size, n, k + 1), numbers(2, n, k + 1)
        positions[:, :k] = torch.where(flags(n, k) | flags(n, k), drafted_at, positions[:, :k])
        tokens[:, :k] = torch.where(flags(n, k) | flags(n, k), drafted, tokens[:, :k])
    if name in BUDGETED:
        return of_a_budget(name, case, numbers, flags)
    ids = numbers(4, n, states, size)
    if name == "steps_taken":  # so that some states are reached
        ids = ids[..., :1].expand(ids.shape).contiguous()
    hidden, at = torch.randn(n, states, size, 70, generator=generator), numbers(states, n)
    row, start = torch.arange(n), size * numbers(6, n)
    count = 1 + int(numbers(size, 1))
    made: dict[str, Callable[[], tuple[Any, ...]]] = {
        "first_place": lambda: (odds,),
        "first_places": lambda: (odds, ids, count),
        "ranks": lambda: (odds,),
        "first_among": lambda: (odds, numbers(size + 2, n, states)),
        "joint": lambda: (odds[:, 0], float(numbers(40, 1)) / 8),
        "within": lambda: (odds[:, 0], numbers(5, n, size) / 4, float(numbers(20, 1)) / 4),
        "halves": lambda: (flags(n, size), ids[:, 0]),
        "veto": lambda: (flags(n, size), numbers(5, n, size) / 4, float(numbers(5, 1)) / 4),
        "with_shadows": lambda: (block, numbers(4, n, size), row, start),
        "ages": lambda: (block, board, tally, MASK),
        "ready": lambda: (odds[:, 0], flags(n, size), float(numbers(9, 1)) / 8),
        "wide": lambda: (odds[:, 0], float(numbers(9, 1)) / 8),
        "narrow": lambda: (
            *(numbers(5, n, size) / 4, numbers(3, n, size), flags(n, size)),
            float(numbers(9, 1)) / 8,
        ),
        "mask_again": lambda: (board, flags(n, size), MASK),
        "advanced": lambda: (
            *(hidden, torch.randn(hidden.shape, generator=generator)),
            *(None if flags(1) else flags(n), 1.0 if flags(1) else 0.3, bool(flags(1))),
        ),
        "revealed": lambda: (block, drafted_at, drafted),
        "steps_taken": lambda: (ids % 2, numbers(2, n, states, size), flags(n, states)),
        "above_odds": lambda: (odds, float(numbers(9, 1)) / 8),
        "places_of_states": lambda: (row, start, states, size),
        "states_and_next": lambda: (ids, row, start, MASK),
        "write": lambda: (board, tally, flags(n, size), ids[:, 0], int(numbers(4, 1))),
        "write_verified": lambda: (board, tally, fresh, ids[:, 0], numbers(4, n, size)),
        "keep_state": lambda: (hidden, at, torch.zeros(n + 2, size, 70), flags(n + 2)),
        "count_drafts": lambda: (tally, useful, at),
        "count_verification": lambda: (tally, fresh),
        "useful_drafts_of": lambda: (block, fresh, MASK, k),
        "masked_of": lambda: (block, MASK, flags(n, 3)[:, 1]),
        "chain": lambda: (block, drafted_at, drafted, useful),
        "agreement": lambda: (useful, positions, tokens, drafted_at, drafted),
        "arrived": lambda: (ids, positions, tokens, at),
        "set_states": lambda: (block, drafted_at, drafted, useful, tables.holding, tables.needs),
        "walk": lambda: (
            *(numbers(k + 1, n, size), numbers(2, n, size)),
            *(positions, numbers(2, n, states), tables.onto, tables.size),
        ),
    }
    return made[name]()


def how_likely(chosen: tuple[Tensor, ...], given_: tuple[Any, ...]) -> Tensor:
    """How likely the chosen sets are, to four digits."""
    _, _, odds, _, tables, *_ = given_
    likely = reached(tables, odds, chosen[2] >= 0).gather(1, chosen[0])
    return (likely.masked_fill(~chosen[1], 0.0) * 1e4).round()


@pytest.mark.parametrize("name", fused.RULES)
@given(sizes())
@settings(max_examples=6 if GPU else 40, deadline=None)  # a GPU compiles each case anew
@torch.inference_mode()
def test_kernels_equal_their_rules(
    name: str, case: tuple[int, int, int, int, torch.Generator]
) -> None:
    """What they return and what they write, in the place of every argument."""
    given_ = arguments(name, case)
    seen = []
    for function in (fused.RULES[name], KERNELS[name]):
        there = tree_map(
            lambda each: (
                each.clone(memory_format=torch.preserve_format).to(DEVICE)
                if isinstance(each, Tensor)
                else each
            ),
            given_,
        )
        result = function(*there)
        if name == "likeliest":  # sums in another order: sets that are as likely may change places
            result = (how_likely(result, there), *result[1:])
        seen.append([each for each in tree_leaves((result, there)) if isinstance(each, Tensor)])
    for rules, kernels in zip(*seen, strict=True):
        assert rules.dtype == kernels.dtype
        assert torch.equal(rules, kernels)


def test_odds_that_are_no_numbers_name_places_in_the_block() -> None:
    odds = torch.full((2, 8), torch.nan, device=DEVICE)
    tokens = torch.zeros(2, 8, dtype=torch.long, device=DEVICE)
    for found in (fused.RULES, KERNELS):
        for count in (1, 3):
            first, _ = found["first_places"](odds, tokens, count)
            assert first.tolist() == [list(range(count))] * 2
        assert not found["first_place"](odds).any()


@pytest.mark.skipif(GPU, reason="test_rounds.py has the same on a GPU, for kernels and graphs")
@pytest.mark.parametrize(
    "mode", ALL_MODES, ids=lambda mode: "-".join(map(str, (mode[0], *mode[1].values())))
)
@pytest.mark.parametrize("rounds", ["exact", "fixed"])
def test_decoding_with_kernels_equals_decoding_with_rules(
    mode: tuple[str, dict[str, Any]], rounds: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    backbone = tiny_backbone(3, ends=False)
    head = tiny_head(backbone)
    case = (backbone, head, [[5, 9, 4], [7] * 11, [8]], [9, 17, 12], 2, mode)
    with_rules = samples(*case, rounds=rounds, choose=EagerForwards)
    monkeypatch.setattr(fused, "kernels_on", lambda device: KERNELS)
    assert samples(*case, rounds=rounds, choose=EagerForwards) == with_rules
