"""Each mode against its definition, on logits written by hand, and its error lines."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import pytest
import torch

from mrp.decoding import Decoder, Mode, decode, make_mode
from mrp.decoding.engine import Rounds
from mrp.decoding.lanes import TALLY
from mrp.decoding.modes import MODES
from mrp.decoding.modes.dynamic import above
from mrp.decoding.modes.remask import halves, veto
from mrp.decoding.modes.speculative import Drafts, chain
from mrp.decoding.picks import Picks, pick, probability
from mrp.decoding.session import Session
from mrp.errors import UserError
from mrp.models.transformer import MaskedAttention
from tests.tiny import EOS, MASK, tiny_backbone, tiny_head


def test_pick_is_argmax_with_its_softmax_probability() -> None:
    logits = torch.randn(3, 5, 50) * 4
    picks = pick(logits, torch.ones(3, 5, dtype=torch.bool))
    p, tokens = logits.softmax(-1).max(-1)
    assert torch.equal(picks.tokens, tokens)
    torch.testing.assert_close(picks.confidence, p)
    torch.testing.assert_close(probability(logits, tokens), p)


def test_exact_ties_take_the_lowest_token_and_the_lowest_position() -> None:
    logits = torch.tensor([[5.0, 5.0, 1.0], [1.0, 5.0, 5.0], [5.0, 1.0, 5.0]])
    masked = torch.tensor([False, True, True])
    picks = pick(logits, masked)
    assert picks.tokens.tolist() == [0, 1, 0]
    assert picks.best() == 1
    assert picks.top(torch.tensor(1)).tolist() == [False, True, False]
    assert picks.top(torch.tensor(9)).tolist() == [False, True, True]


def test_confidences_that_round_to_one_are_still_ordered() -> None:
    logits = torch.tensor([[40.0, 0.0, 0.0], [60.0, 0.0, 0.0], [50.0, 0.0, 0.0]])
    picks = pick(logits, torch.ones(3, dtype=torch.bool))
    assert picks.confidence.tolist() == [1.0, 1.0, 1.0]
    assert picks.best() == 1


def test_dynamic_reveals_above_tau_or_the_best() -> None:
    p = torch.tensor([[0.9, 0.6, 0.5, 0.0], [0.4, 0.3, 0.45, 0.0]])
    masked = torch.tensor([[True, True, True, False]]).expand(2, -1)
    logits = torch.stack((p.logit(), torch.zeros_like(p)), dim=-1)
    logits = torch.cat((logits, torch.full_like(logits, -30.0)), dim=-1)
    picks = pick(logits, masked)
    # With two tokens the best one has probability max(p, 1 - p).
    sure = above(picks, 0.55)
    expected = (torch.maximum(p, 1 - p) > 0.55) & masked
    expected[1] = torch.tensor([True, True, False, False])
    assert torch.equal(sure, expected)
    assert above(picks, 0.95).tolist() == [[True, False, False, False], [False, True, False, False]]


def test_veto_spares_the_least_doubtful_and_the_limit_itself() -> None:
    fresh = torch.tensor([[True, True, True, False]] * 3)
    doubt = torch.tensor([[0.5, 2.0, 1.0, 9.0], [3.0, 2.0, 4.0, 0.0], [1.0, 1.0, 1.0, 9.0]])
    assert veto(fresh, doubt, 1.0).tolist() == [
        [False, True, False, False],  # 1.0 is not above the limit
        [True, False, True, False],  # all doubted: the least doubtful stays
        [False, False, False, False],
    ]


def test_halves_take_turns_from_the_surest() -> None:
    odds = torch.tensor([[0.9, 0.1, 0.3, torch.inf, 0.2], [0.5, 2.0, 3.0, 4.0, torch.inf]])
    picks = Picks(torch.zeros_like(odds, dtype=torch.long), odds)
    fresh = above(picks, 0.6)
    assert picks.rank().tolist() == [[3, 0, 2, 4, 1], [0, 1, 2, 3, 4]]
    assert halves(fresh, picks.rank()).tolist() == [
        [[False, True, True, False, False], [False, False, False, False, True]],
        [[True, False, False, False, False], [False] * 5],
    ]


@pytest.mark.parametrize("floor", [0.0, 0.3])
def test_each_half_is_judged_from_the_other(floor: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a step keeps is what the head would say with one half masked, then the other."""
    backbone = tiny_backbone(6, ends=False)
    head, mode = tiny_head(backbone), make_mode("remask", tau=0.2, floor=floor, passes="halves")
    session = Session(backbone, head, 1, 8, 1, head_states=mode.head_states)
    with torch.inference_mode():
        session.admit([0], [[5, 6]])
        session.n = 1
        hidden = session.denoise()
        picks = session.pick(hidden)
        first, second = halves(above(picks, 0.2), picks.rank())[0]
        assert first.sum() > 1
        assert second.sum() > 1
        kept = torch.zeros(8, dtype=torch.bool)
        for half, other in ((first, second), (second, first)):
            ids = torch.where(other, picks.tokens[0], session.ids[0])[None]
            seen = session.correct(ids, hidden, torch.tensor([True]), "head_remask")
            logits = session.forwards.logits(seen)[0]
            kept |= half & (probability(logits, picks.tokens[0]) >= (floor or 0.2))
        monkeypatch.setattr(session, "denoise", lambda: hidden)
        mode.round(session, 1)
    assert 0 < kept.sum() < (first | second).sum()
    assert torch.equal(session.ids[0] != MASK, kept | torch.tensor([True] * 2 + [False] * 6))


@pytest.mark.parametrize("prefix", [True, False])
def test_the_head_sees_its_prefix_or_the_block_alone(prefix: bool) -> None:
    """Several states of a block in one pass, against the head module without a cache."""
    backbone = tiny_backbone(3, block_size=4)
    head = tiny_head(backbone, layers=2)
    session = Session(backbone, head, 1, 12, 1, head_states=2, head_prefix=prefix)
    prompt = [5, 6, 7, 8, 9, 10, 11, 12]
    with torch.inference_mode():
        session.admit([0], [prompt])
        session.n = 1
        states, hidden = torch.tensor([[[3, MASK, 4, 5], [MASK] * 4]]), torch.randn(1, 2, 4, 32)
        ours = session.correct(states, hidden, torch.tensor([True]), "head_remask")
        clean = backbone.hidden(torch.tensor([prompt]), torch.arange(8)[None], block_causal(8))
        for number in range(2):
            ids = torch.cat((torch.tensor(prompt), states[0, number]))[None]
            before = torch.cat((clean, hidden[:, number]), dim=1)
            start = 0 if prefix else 8
            alone = head(
                backbone.embed(ids[:, start:]),
                before[:, start:],
                torch.arange(start, 12)[None],
                block_causal(12 - start),
            )
            torch.testing.assert_close(ours[:, number], hidden[:, number] + alone[:, -4:])
    assert session.tally[0, TALLY.index("head_remask")] == 2


def block_causal(length: int, block: int = 4) -> MaskedAttention:
    number = torch.arange(length) // block
    return MaskedAttention((number[:, None] >= number)[None, None])


def test_without_a_prefix_the_head_stores_nothing() -> None:
    backbone = tiny_backbone(ends=False)
    counts = []
    for prefix in (True, False):
        mode = make_mode("direct", k=2, prefix=prefix)
        (sample,) = decode(backbone, tiny_head(backbone), [[5] * 16], mode, 16)
        counts.append(sample.counts)
    assert [each["head_store"] for each in counts] == [2, 0]
    assert counts[0] | {"head_store": 0} == counts[1]


def test_candidates_reveal_the_first_drafts_one_after_the_other() -> None:
    block = torch.tensor([[7, MASK, MASK, MASK]])
    drafts = Drafts(torch.tensor([[2, 1]]), torch.tensor([[9, 8]]))
    states, read = chain(block, *drafts[:2], torch.tensor([1]))
    assert states.tolist() == [[[7, MASK, MASK, MASK], [7, MASK, 9, MASK], [7, 8, 9, MASK]]]
    assert read.tolist() == [[True, True, False]]


def test_static_splits_the_block_with_the_remainder_first() -> None:
    backbone = tiny_backbone(block_size=8)
    (sample,) = decode(backbone, None, [[5] * 8], make_mode("static", steps=3), 8)
    assert [sample.trace.step.count(step) for step in (1, 2, 3)] == [3, 3, 2]
    assert sample.counts["denoise"] == 3


def test_direct_reveals_k_more_than_a_backbone_step() -> None:
    backbone = tiny_backbone(block_size=8)
    (sample,) = decode(backbone, tiny_head(backbone), [[5] * 8], make_mode("direct", k=2), 8)
    assert sample.counts["denoise"] == 3
    assert sample.counts["head_draft"] == 5  # 2 + 2 + 1: the last step has two masks left
    assert [sample.trace.source.count(name) for name in ("backbone", "head")] == [3, 5]


def test_remask_takes_tokens_back_and_still_fills_every_block() -> None:
    vetoed = 0
    for seed in range(8):
        backbone = tiny_backbone(seed)
        mode = make_mode("remask", tau=0.2)
        (sample,) = decode(backbone, tiny_head(backbone, seed), [[5] * 3], mode, 32)
        assert MASK not in sample.trace.ids
        vetoed += sample.counts["vetoed"]
    assert vetoed > 0


def test_no_mode_ever_picks_the_mask_token() -> None:
    backbone = tiny_backbone()
    with torch.no_grad():
        backbone.lm_head.weight[MASK] = 10 * backbone.lm_head.weight.mean(0).sign()
    for name, options in (
        ("static", {}),
        ("dynamic", {"tau": 0.3}),
        ("self_speculative", {"k": 3}),
    ):
        (sample,) = decode(backbone, None, [[5, 6]], make_mode(name, **options), 14)
        assert MASK not in sample.trace.ids


def test_text_ends_before_the_end_token_and_the_block_is_the_last() -> None:
    backbone = tiny_backbone()
    with torch.no_grad():
        backbone.model.norm.weight.fill_(0.0)  # every logit ties: the lowest allowed id wins
    (sample,) = decode(backbone, None, [[5, 6, 7]], make_mode("static"), 40)
    assert sample.ids == []
    assert sample.finished
    assert sample.counts["generated"] == 5
    assert sample.counts["answer_tokens"] == 1
    assert sample.trace.ids == [0] * 5
    assert EOS in backbone.config.eos_token_ids


def test_stop_is_asked_after_each_block_with_the_new_ids() -> None:
    backbone, asked = tiny_backbone(3, ends=False), []

    def stop(index: int, ids: list[int]) -> bool:
        asked.append((index, len(ids)))
        return len(ids) >= 13

    (sample,) = decode(backbone, None, [[5, 6, 7]], make_mode("static"), 64, stop=stop)
    assert asked == [(0, 5), (0, 13)]
    assert sample.finished
    assert sample.counts["generated"] == 13


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("beam", {}, "is not one of static"),
        ("static", {"tau": 0.5}, "takes no option 'tau'"),
        ("static", {"steps": 0}, "at least 1"),
        ("dynamic", {}, "needs tau"),
        ("dynamic", {"tau": 1.0}, "between 0 and 1"),
        ("direct", {"k": 0}, "at least 1"),
        ("direct", {"k": "auto"}, "whole number of at least 1$"),
        ("speculative", {"k": "many"}, 'at least 1 or "auto"'),
        ("speculative", {"k": 1, "shortlist": -1}, "0 for none"),
        ("direct", {"k": 1, "scale": 0.0}, "above 0"),
        ("remask", {"tau": 0.5, "condition": "sometimes"}, "revealed, masked"),
        ("remask", {"tau": 0.5, "rule": "luck"}, "confidence, residual"),
        ("factor", {}, "needs factor"),
        ("entropy", {"gamma": 0.0}, "above 0"),
        ("klass", {"tau": 0.5, "history": 0}, "at least 1"),
        ("klass", {"tau": 0.5, "kl": -1.0}, "above 0"),
        ("wino", {"tau": 0.5, "back": 1.0}, "at least 0 and below 1"),
        ("freedave", {"tau": 0.5}, "needs k"),
        ("freedave", {"tau": 0.5, "k": "auto"}, "whole number of at least 1$"),
        ("remask", {"tau": 0.5, "passes": "two"}, "one, halves"),
        ("remask", {"tau": 0.5, "passes": "halves", "condition": "masked"}, "is for one pass"),
        ("remask", {"tau": 0.5, "floor": 1.0}, "at least 0 and below 1"),
        ("remask", {"tau": 0.5, "floor": 0.8, "rule": "residual"}, "has delta instead"),
        ("direct", {"k": 1, "prefix": "no"}, "True, False"),
        ("static", {"cap": 1e-320}, "cap=1e-320 must be 1e-06 to 1"),
        ("klass", {"tau": 0.5, "history": 10**30}, r"history=10{19}\.\.\. must be at most 999999"),
        ("speculative", {"k": 1, "shortlist": 10**400}, "must be at most 999999"),
        ("dynamic", {"tau": "much"}, "tau='much' must be a number"),
        ("direct", {"k": 1, "scale": True}, "scale=True must be a number"),
    ],
)
def test_a_wrong_mode_is_one_clear_line(
    name: str, options: dict[str, object], message: str
) -> None:
    with pytest.raises(UserError, match=message):
        make_mode(name, **options)


def test_a_wrong_request_is_one_clear_line() -> None:
    backbone = tiny_backbone()
    static = make_mode("static")
    for prompts, mode, budget, batch, message in (
        ([[]], static, 8, 1, "is empty"),
        ([[5, MASK]], static, 8, 1, "mask token"),
        ([[5, 24]], static, 8, 1, "outside the backbone's vocabulary"),
        ([[5]], static, 0, 1, "max_new_tokens=0"),
        ([[5]], static, 8, 0, "batch_size=0"),
        ([[5]], make_mode("direct", k=1), 8, 1, "needs a head"),
        ([[5]], make_mode("self_speculative", k=8), 8, 1, "k=8 is too large"),
        ([[5]], make_mode("static", steps=9), 8, 1, "steps=9"),
    ):
        with pytest.raises(UserError, match=message):
            list(decode(backbone, None, prompts, mode, budget, batch))


def test_a_mode_without_a_round_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    class Half(Mode):
        name = "half"

    monkeypatch.setitem(MODES, "half", Half)
    with pytest.raises(UserError, match=r"mode 'half': its class in .*/test_modes.py lacks round"):
        make_mode("half")


@dataclass(frozen=True)
class Stuck(Mode):
    """Reveals nothing after a block's first round, or masks it again; may say otherwise."""

    name: ClassVar[str] = "stuck"
    says: tuple[int, int] | None = None
    undoes: bool = False

    def reveals(self, plan: int) -> tuple[int, int] | None:
        return self.says

    def round(self, session: Session, plan: int) -> None:
        picks = session.pick(session.denoise())
        where = picks.first() & ((session.block_step == 1)[:, None] | self.undoes)
        session.reveal(where, picks.tokens, "backbone")
        if self.undoes:
            session.remask(where)


@pytest.mark.parametrize("rounds", ["exact", "fixed"])
@pytest.mark.parametrize(
    "mode",
    [
        Stuck(says, undoes)
        for says in (None, (1, 1), (1, 3), (0, 0), (9, 9))
        for undoes in (False, True)
    ],
    ids=str,
)
def test_a_mode_that_does_not_get_on_is_an_error(mode: Mode, rounds: Rounds) -> None:
    backbone = tiny_backbone(block_size=4, ends=False)
    # The first one's only open position is revealed in time where nothing is undone.
    prompts = [[5, 6, 7], [5, 6], [4] * 9]
    decoder = Decoder(backbone, None, mode, rounds=rounds)
    lines = "mode 'stuck': a block of 4 tokens is not finished after .* rounds: each round must"
    with pytest.raises(UserError, match=lines):
        list(decoder.decode(prompts, 1))


def test_a_mode_may_go_back_over_what_it_wrote() -> None:
    """Three rounds a token are fine, if the block gets finished in the end."""

    @dataclass(frozen=True)
    class Slow(Mode):
        name: ClassVar[str] = "slow"

        def round(self, session: Session, plan: int) -> None:
            picks = session.pick(session.denoise())
            where = picks.first()
            session.reveal(where, picks.tokens, "backbone")
            session.remask(where & (session.block_step % 3 != 0)[:, None])

    backbone = tiny_backbone(block_size=4, ends=False)
    slow, static = (
        next(decode(backbone, None, [[5, 6, 7]], mode, 9)) for mode in (Slow(), make_mode("static"))
    )
    assert slow.ids == static.ids
    assert slow.counts["denoise"] == 3 * static.counts["denoise"]


@pytest.mark.parametrize(
    "options",
    [
        {"name": "static"},
        {"name": "dynamic", "tau": 0.5},
        {"name": "self_speculative", "k": 2},
        {"name": "self_lattice", "k": 2, "ahead": True},
        {"name": "freedave", "k": 2, "tau": 0.5},
    ],
    ids=str,
)
def test_a_backbone_that_gives_nan_is_named_and_not_the_mode(options: dict[str, Any]) -> None:
    backbone = tiny_backbone(block_size=4)
    backbone.lm_head.weight[5] = torch.nan
    with pytest.raises(UserError, match="the backbone's logits hold NaN or infinity"):
        list(decode(backbone, None, [[5]], make_mode(**options), 4))
