"""Speculative and self-speculative decoding equal static decoding, token for token."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from mrp.decoding import Decoded, Mode, decode, make_mode
from mrp.models import Backbone, Head
from tests.tiny import tiny_backbone, tiny_head

VOCABULARY = 24
Case = tuple[Backbone, Head, list[list[int]], list[int], int, int]


@st.composite
def cases(
    draw: st.DrawFn,
) -> tuple[Backbone, Head, list[list[int]], list[int], int, int]:
    """A random model, prompts that end anywhere in a block, budgets, a batch size and K."""
    block = draw(st.sampled_from([2, 4, 8, 16]))
    seed = draw(st.integers(0, 10_000))
    backbone = tiny_backbone(
        seed, block, VOCABULARY, layers=draw(st.integers(1, 3)), ends=draw(st.booleans())
    )
    head = tiny_head(
        backbone, seed + 1, draw(st.integers(1, 2)), draw(st.sampled_from(["residual", "direct"]))
    )
    tokens = st.integers(3, VOCABULARY - 1)
    texts = draw(
        st.lists(st.lists(tokens, min_size=1, max_size=2 * block + 3), min_size=1, max_size=6)
    )
    budgets = [draw(st.integers(1, 3 * block)) for _ in texts]
    return (
        backbone,
        head,
        texts,
        budgets,
        draw(st.integers(1, 5)),
        draw(st.integers(1, block - 1)),
    )


def run(
    backbone: Backbone,
    head: Head,
    prompts: list[list[int]],
    mode: Mode,
    budgets: list[int],
    batch_size: int,
) -> list[Decoded]:
    samples = decode(backbone, head, prompts, mode, budgets, batch_size)
    return sorted(samples, key=lambda sample: sample.index)


@given(cases(), st.data())
@settings(max_examples=100, deadline=None)
def test_speculative_modes_equal_static_token_for_token(
    case: tuple[Backbone, Head, list[list[int]], list[int], int, int], data: st.DataObject
) -> None:
    backbone, head, prompts, budgets, batch_size, k = case
    static = run(backbone, head, prompts, make_mode("static"), budgets, batch_size)
    assert [sample.index for sample in static] == list(range(len(prompts)))
    variant: tuple[str, dict[str, object]] = data.draw(
        st.sampled_from(
            [
                ("speculative", {"k": k, "shortlist": 3}),
                ("speculative", {"k": k, "head_passes": int(k > 1)}),
                ("speculative", {"k": k, "scale": 0.5, "prefix": False}),
                ("speculative", {"k": k, "scale": 2.0}),
                ("lattice", {"k": min(k, 6), "budget": 12, "head_passes": int(k > 1)}),
                ("lattice", {"k": min(k, 3), "budget": 5}),
                ("lattice", {"k": min(k, 3), "budget": 5, "ahead": True}),
                ("self_lattice", {"k": min(k, 6), "budget": 8, "ahead": True}),
                ("speculative", {"k": "auto"}),
                ("self_speculative", {"k": "auto"}),
            ]
        )
    )
    for name, options in (("speculative", {"k": k}), ("self_speculative", {"k": k}), variant):
        drafted = run(backbone, head, prompts, make_mode(name, **options), budgets, batch_size)
        for ours, reference in zip(drafted, static, strict=True):
            assert ours.trace.ids == reference.trace.ids
            assert ours.ids == reference.ids
            assert ours.finished == reference.finished
            check_counts(ours, reference)


def check_counts(ours: Decoded, static: Decoded) -> None:
    """What must hold between a drafting run and the static run of the same prompt."""
    counts = ours.counts
    assert counts["generated"] == counts["revealed"] == static.counts["generated"]
    assert static.counts["denoise"] == static.counts["generated"]  # one token a forward
    assert counts["accepted"] <= counts["proposed"]
    assert counts["bonus"] == counts["verify"]
    # every token is an opening pick, an accepted draft or a bonus
    assert counts["generated"] == counts["denoise"] + counts["accepted"] + counts["bonus"]
    assert counts["store"] == static.counts["store"]
    assert counts["prefill"] == static.counts["prefill"]
    assert counts["vetoed"] == 0


@given(cases(), st.data())
@settings(max_examples=60, deadline=None)
def test_batched_equals_single_in_every_mode(
    case: tuple[Backbone, Head, list[list[int]], list[int], int, int], data: st.DataObject
) -> None:
    backbone, head, prompts, budgets, batch_size, k = case
    tau = data.draw(st.floats(0.05, 0.95))
    block = backbone.config.block_size
    prefix = data.draw(st.booleans())
    judged = data.draw(st.sampled_from([("condition", "masked"), ("passes", "halves"), None]))
    options: dict[str, dict[str, object]] = {
        "static": {"steps": data.draw(st.integers(1, block))},
        "dynamic": {"tau": tau},
        "direct": {"k": k, "scale": data.draw(st.sampled_from([1.0, 2.0])), "prefix": prefix},
        "speculative": {"k": k, "prefix": prefix},
        "self_speculative": {"k": k},
        "lattice": data.draw(
            st.sampled_from(
                [
                    {"k": min(k, 4), "window": 2, "ahead": False},
                    {"k": min(k, 4), "window": 2, "ahead": True},
                    {"k": min(k, 4), "budget": 8},
                    {"k": min(k, 4), "budget": 4, "ahead": True},
                ]
            )
        ),
        "self_lattice": {"k": min(k, 4), "window": min(k, 3), "ahead": True},
        "remask": {
            "tau": tau,
            "rule": data.draw(st.sampled_from(["confidence", "residual"])),
            "prefix": prefix,
            **dict([judged] if judged else []),
        },
        "factor": {"factor": 2 * tau},
        "entropy": {"gamma": 3 * tau},
        "klass": {"tau": tau, "kl": 0.5, "history": data.draw(st.integers(1, 3))},
        "wino": {"tau": tau, "back": data.draw(st.floats(0, 0.95))},
        "freedave": {"tau": tau, "k": k},
    }
    name = data.draw(st.sampled_from(sorted(options)))
    mode = make_mode(name, **options[name])
    batched = run(backbone, head, prompts, mode, budgets, batch_size)
    for sample in batched:
        index = sample.index
        (alone,) = decode(backbone, head, [prompts[index]], mode, [budgets[index]], 1)
        assert alone.ids == sample.ids
        assert alone.counts == sample.counts
        assert alone.trace == sample.trace
        check_sample(sample, prompts[index], budgets[index], block)


def check_sample(sample: Decoded, prompt: list[int], budget: int, block: int) -> None:
    """Counters add up and the trace describes every generated position, in every mode."""
    counts, trace = sample.counts, sample.trace
    generated = counts["generated"]
    assert counts["revealed"] - counts["vetoed"] == generated
    assert (len(prompt) + generated) % block == 0
    assert len(trace.ids) == len(trace.step) == len(trace.source) == generated
    assert sum(trace.remasked) == counts["vetoed"]
    assert min(trace.step) >= 1
    assert max(trace.step) == counts["denoise"] + counts["verify"]
    assert max(trace.step) <= generated  # a round gets on by a token or more
    assert sample.ids == trace.ids[: len(sample.ids)]
    assert len(sample.ids) <= budget
    blocks = (len(prompt) + generated) // block - len(prompt) // block
    assert counts["store"] == blocks - 1
    assert counts["prefill"] == (len(prompt) >= block)
