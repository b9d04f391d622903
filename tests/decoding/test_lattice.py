"""Lattice modes and the cap: which states are verified, the walk through them, and the text."""

from __future__ import annotations

import itertools

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from mrp.decoding import Decoded, Decoder, make_mode
from mrp.decoding.engine import Rounds
from mrp.decoding.modes.lattice import Lattice, draft_sets
from mrp.decoding.modes.speculative import Drafts, Speculative, chain
from mrp.decoding.picks import Picks
from mrp.errors import UserError
from tests.decoding.test_lossless import Case, cases, check_counts
from tests.tiny import MASK, tiny_backbone, tiny_head


def samples(case: Case, name: str, rounds: Rounds = "exact", **options: object) -> list[Decoded]:
    backbone, head, prompts, budgets, batch_size, _ = case
    mode = make_mode(name, **options)
    decoder = Decoder(backbone, head, mode, batch_size, rounds=rounds)
    return sorted(decoder.decode(prompts, budgets), key=lambda sample: sample.index)


@given(cases(), st.data())
@settings(max_examples=20, deadline=None)
def test_the_text_is_that_of_static_with_the_same_cap(case: Case, data: st.DataObject) -> None:
    k, cap = case[-1], data.draw(st.sampled_from([1.0, 0.9, 0.3, 0.05]))
    window = data.draw(st.integers(1, min(k, 4)))
    static = samples(case, "static", cap=cap)
    for name in ("lattice", "self_lattice"):
        rounds: Rounds = data.draw(st.sampled_from(["exact", "fixed"]))
        ahead = data.draw(st.booleans())
        options: dict[str, object] = {"k": min(k, 5), "window": window, "cap": cap, "ahead": ahead}
        if name == "lattice":
            options["head_passes"] = data.draw(st.integers(0, min(k, 4) - 1))
        drafted = samples(case, name, rounds, **options)
        for ours, reference in zip(drafted, static, strict=True):
            assert ours.trace.ids == reference.trace.ids
            assert (ours.ids, ours.finished) == (reference.ids, reference.finished)
            check_counts(ours, reference)
    name = data.draw(st.sampled_from(["speculative", "self_speculative"]))
    drafted = samples(case, name, k=data.draw(st.sampled_from([k, "auto"])), cap=cap)
    assert [sample.trace.ids for sample in drafted] == [sample.trace.ids for sample in static]


@given(cases())
@settings(max_examples=5, deadline=None)
def test_a_window_of_one_is_the_chain(case: Case) -> None:
    k = min(case[-1], 5)
    assert samples(case, "lattice", k=k, window=1) == samples(case, "speculative", k=k)
    assert samples(case, "self_lattice", k=k, window=1) == samples(case, "self_speculative", k=k)


def test_it_accepts_what_the_chain_accepts_and_more() -> None:
    backbone = tiny_backbone(3, 16, ends=False)
    case: Case = (backbone, tiny_head(backbone), [[5, 6, 7], [9]], [60, 60], 2, 4)
    found = {}
    for window in (1, 2, 4):
        drafted = samples(case, "self_lattice", k=4, window=window)
        found[window] = sum(sample.counts["accepted"] for sample in drafted)
    assert 0 < found[1] < found[2] <= found[4]
    # Only a text's first block is opened with nothing to draft from.
    drafted = samples(case, "self_lattice", k=4, window=4, ahead=True)
    assert all(sample.counts["denoise"] == 1 for sample in drafted)
    assert sum(sample.counts["accepted"] for sample in drafted) > found[4]


@pytest.mark.parametrize("k", range(6))
@pytest.mark.parametrize("window", range(1, 7))
def test_the_sets_are_those_with_one_window_beyond_the_first_that_is_lacking(
    k: int, window: int
) -> None:
    wanted = set()
    for held in itertools.product([False, True], repeat=k):
        lacking = held.index(False) if False in held else k
        if not any(held[lacking + window :]):
            wanted.add(sum(1 << place for place, yes in enumerate(held) if yes))
    sets = draft_sets(k, window)
    assert sets[0] == 0
    assert sorted(sets) == sorted(wanted)
    assert Lattice(k=max(k, 1), window=window).states == len(draft_sets(max(k, 1), window))


@st.composite
def rounds_of_lattice(draw: st.DrawFn) -> tuple[Lattice, torch.Tensor, Drafts, torch.Tensor]:
    """A mode, blocks [n, 8] with masks, drafts at masked positions, and how many are of use."""
    k, n = draw(st.integers(0, 4)), draw(st.integers(1, 3))
    blocks, positions, tokens, useful = [], [], [], []
    for _ in range(n):
        count = draw(st.integers(0, k))
        order = draw(st.permutations(range(8)))
        # Behind the useful drafts stands anything, such as a position that is not masked.
        spare = draw(st.lists(st.integers(0, 7), min_size=k - count, max_size=k - count))
        blocks.append([MASK if place in order[: count + 1] else 9 for place in range(8)])
        positions.append([*order[:count], *spare])
        tokens.append(draw(st.lists(st.integers(3, 5), min_size=k, max_size=k)))
        useful.append(count)
    drafts = Drafts(
        torch.tensor(positions, dtype=torch.long).view(n, k),
        torch.tensor(tokens, dtype=torch.long).view(n, k),
    )
    window = draw(st.integers(1, 4))
    return Lattice(k=max(k, 1), window=window), torch.tensor(blocks), drafts, torch.tensor(useful)


@given(rounds_of_lattice(), st.data())
@settings(max_examples=100, deadline=None)
def test_states_and_walk_are_as_written_down(
    case: tuple[Lattice, torch.Tensor, Drafts, torch.Tensor], data: st.DataObject
) -> None:
    mode, block, drafts, useful = case
    n, k = drafts.positions.shape
    candidates = mode.candidates(block, drafts, useful)
    states, read, sets = candidates.states, candidates.read, draft_sets(k, mode.window)
    seed = data.draw(st.integers(0, 1000))
    generator = torch.Generator().manual_seed(seed)
    # Picks that often are one of the drafts.
    number = torch.randint(0, k + 1, states.shape[:2], generator=generator).clamp(max=k)
    none = torch.zeros(n, 1, dtype=torch.long)
    picks = Drafts(
        torch.cat((drafts.positions, none), 1).gather(1, number),
        torch.cat((drafts.tokens, none), 1).gather(1, number),
    )
    at, accepted = mode.accept(picks, drafts, useful, candidates)
    for lane in range(n):
        made = {}  # the states by the drafts that they hold
        for place, held in enumerate(sets):
            mine = frozenset(draft for draft in range(k) if held >> draft & 1)
            assert bool(read[lane, place]) == (max(mine, default=-1) < int(useful[lane]))
            made[mine] = place
            if read[lane, place]:
                wanted = block[lane].clone()
                for draft in mine:
                    wanted[drafts.positions[lane, draft]] = drafts.tokens[lane, draft]
                assert torch.equal(states[lane, place], wanted)
        walked: frozenset[int] = frozenset()
        for _ in range(k):
            place = made[walked]
            pick = (int(picks.positions[lane, place]), int(picks.tokens[lane, place]))
            for draft in range(int(useful[lane])):
                mine = int(drafts.positions[lane, draft]), int(drafts.tokens[lane, draft])
                if pick == mine and walked | {draft} in made:
                    walked |= {draft}
                    break
        assert (int(at[lane]), int(accepted[lane])) == (made[walked], len(walked))


def test_the_chain_is_among_the_states() -> None:
    block = torch.tensor([[MASK, MASK, 7, MASK]])
    drafts = Drafts(torch.tensor([[3, 0]]), torch.tensor([[5, 6]]))
    useful = torch.tensor([2])
    rows = Lattice(k=2).candidates(block, drafts, useful).states[0].tolist()
    assert all(row in rows for row in chain(block, *drafts[:2], useful)[0][0].tolist())
    assert [6, MASK, 7, MASK] in rows


def test_a_cap_makes_sure_positions_tie_and_the_leftmost_comes_first() -> None:
    odds = torch.tensor([[torch.inf, 0.5, 0.02, 1e-9, 0.2]])
    picks = Picks(torch.arange(5)[None], odds)
    assert picks.best().item() == 3
    assert picks.capped(1.0) is picks
    capped = picks.capped(0.9)  # odds of 1 to 9
    assert capped.best().item() == 2
    assert capped.top(torch.tensor([3]))[0].tolist() == [False, False, True, True, True]
    assert picks.capped(0.5).best().item() == 1
    assert not capped.first()[0, 0]


def test_with_everything_capped_static_reads_from_left_to_right() -> None:
    backbone = tiny_backbone(ends=False)
    case: Case = (backbone, tiny_head(backbone), [[5, 6, 7]], [20], 1, 1)
    (sample,) = samples(case, "static", cap=1e-6)
    assert sample.trace.step == list(range(1, len(sample.trace.ids) + 1))
    (free,) = samples(case, "static")
    assert free.trace.step != sample.trace.step


def test_head_passes_are_bounded_and_the_first_drafts_are_the_same() -> None:
    backbone = tiny_backbone(3, 16, ends=False)
    case: Case = (backbone, tiny_head(backbone), [[5, 6, 7]], [60], 1, 4)
    for most in (1, 2):
        (few,) = samples(case, "speculative", k=4, head_passes=most)
        assert 0 < few.counts["head_draft"] <= most * few.counts["verify"]
        assert few.counts["proposed"] > few.counts["head_draft"]
    alike = Decoder(backbone, case[1], Speculative(k=2, head_passes=2))
    assert list(alike.decode([[5, 6, 7]], 60)) == samples(case, "speculative", k=2)


def test_the_baseline_is_static_with_the_same_cap() -> None:
    assert make_mode("lattice", k=2, cap=0.9).baseline() == make_mode("static", cap=0.9)
    assert make_mode("dynamic", tau=0.5).baseline() == make_mode("static")
    assert make_mode("static", steps=4).baseline() == make_mode("static")


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"k": "auto"}, "k=auto"),
        ({"k": 2, "window": 0}, "window=0"),
        ({"k": 2, "window": 7}, "window=7"),
        ({"k": 2, "cap": 0.0}, "cap=0.0"),
        ({"k": 2, "cap": 1.5}, "cap=1.5"),
        ({"k": 2, "ahead": 1.5}, "ahead=1.5"),
        ({"k": 2, "head_passes": -1}, "head_passes=-1"),
        ({"k": 2, "head_passes": 2}, "head_passes=2 is too large for k=2: less than that, or 0"),
        ({"k": 2, "window": 3}, "window=3 is too large for k=2: at most that"),
    ],
)
def test_what_is_out_of_range_is_said(options: dict[str, object], said: str) -> None:
    with pytest.raises(UserError, match=said):
        make_mode("lattice", **options)


def test_the_default_window_goes_with_one_draft() -> None:
    assert make_mode("lattice", k=1) == Lattice(k=1, window=2)
    assert make_mode("speculative", k="auto", head_passes=3)
    with pytest.raises(
        UserError, match=r"head_passes=4 is too large for k=auto \(4 drafts at most"
    ):
        make_mode("speculative", k="auto", head_passes=4)


def test_a_shortlist_does_not_go_with_a_look_ahead() -> None:
    backbone = tiny_backbone()
    mode = make_mode("lattice", k=2, shortlist=3, ahead=True)
    with pytest.raises(UserError, match="shortlist=3"):
        Decoder(backbone, tiny_head(backbone), mode)


@pytest.mark.parametrize("rounds", ["exact", "fixed"])
@pytest.mark.parametrize(
    "options",
    [{}, {"ahead": True}, {"head_passes": 1}, {"budget": 6}, {"budget": 6, "ahead": True}],
    ids=str,
)
def test_a_head_that_gives_nan_costs_drafts_and_never_the_text(
    options: dict[str, object], rounds: Rounds
) -> None:
    backbone = tiny_backbone(block_size=8, ends=False)
    head = tiny_head(backbone)
    for weight in head.parameters():
        weight.data.fill_(torch.nan)
    case = (backbone, head, [[5, 6, 7], [8] * 9], [20, 12], 2, 3)
    static = [sample.ids for sample in samples(case, "static")]
    assert [sample.ids for sample in samples(case, "lattice", rounds, k=3, **options)] == static
