"""The claims: what the paper says, and what the judges beside this file ask of the records."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from mrp.report.findings import beyond, controls, drafting, heads, needs, remasking
from mrp.report.findings.place import LOW_TAU, Place
from mrp.report.findings.readings import Reading
from mrp.schema import LOSSLESS


@dataclass(frozen=True)
class Claim:
    """A claim and how it is judged.

    Attributes:
        name: the claim; paper: what the paper says of it, empty for a claim or a control of ours.
        rule: when it holds.
        judge: yields the readings of one place.
        needs: yields the planned rows that they rest on; without all of them there is no verdict.
        beyond: whether it is a goal of ours beyond the paper, not a claim of its or a control.
    """

    name: str
    paper: str
    rule: str
    judge: Callable[[Place], Iterable[Reading]]
    needs: needs.Needs
    beyond: bool = False


DRAFTING = needs.together(
    needs.heads("speculative", "default", "k2"), needs.usual("self_speculative")
)
CURVE = needs.together(needs.baseline, needs.usual("dynamic"))

PAPERS = (
    Claim(
        "Static decoding is good, and leaves room to lose",
        "",
        "accuracy's interval within {:.0f} to {:.0f} %".format(*(100 * x for x in controls.ROOM)),
        controls.room,
        needs.baseline,
    ),
    Claim(
        "Without a head, several tokens from the same logits ruin the answers",
        "",
        f"at TPF {controls.COLLAPSE_TPF:g} and above, the loss against static is more than "
        f"{100 * controls.COLLAPSE:.0f} points",
        controls.collapse,
        needs.usual("static"),
    ),
    Claim(
        "A residual head is more accurate than one trained directly",
        "+3.8 points at K = 1",
        "ahead on average over K, in direct decoding",
        heads.residual_ahead,
        needs.heads("direct", "default", "k2", "direct"),
    ),
    Claim(
        "A head trained directly falls behind a residual one as K grows",
        "+55.3 points at K = 4",
        "the residual head's lead is larger at the largest K than at the smallest",
        heads.lead_grows,
        needs.heads("direct", "default", "k2", "direct"),
    ),
    Claim(
        "Training on two chained reveals pays at K \N{GREATER-THAN OR EQUAL TO} 2",
        "the k2 head is the better one",
        "the k2 head is ahead of the default head on average over K from 2 on, in direct decoding",
        heads.chaining_pays,
        needs.heads("direct", "default", "k2"),
    ),
    Claim(
        "Direct decoding trades accuracy for speed",
        "1.56\N{MULTIPLICATION SIGN} on average at K = 1, less accurate, more so with every K",
        "at the smallest K less accurate than static and faster; less accurate still at the "
        "largest K",
        heads.trades,
        needs.together(needs.baseline, needs.heads("direct", "default", "k2", "direct")),
    ),
    Claim(
        "Speculative decoding changes no answer",
        "lossless",
        "every answer equals static's, letter for letter",
        drafting.lossless(("speculative",)),
        needs.lossless(("speculative",)),
    ),
    Claim(
        "Speculative decoding saves forwards",
        "1.26\N{EN DASH}1.40\N{MULTIPLICATION SIGN} static",
        f"TPF above {drafting.PAPER_GAIN} at its best K",
        drafting.saves_forwards,
        DRAFTING,
    ),
    Claim(
        "Speculative decoding saves time",
        "1.26\N{EN DASH}1.40\N{MULTIPLICATION SIGN} static",
        "tokens per second above static's at its best K, on this device and with these sizes",
        drafting.saves_time,
        DRAFTING,
    ),
    Claim(
        "A head drafts better than the backbone's own last distribution",
        "",
        "more tokens per forward than self-speculative decoding, which has no head, at the same K",
        drafting.drafts_better,
        DRAFTING,
    ),
    Claim(
        "The head pays by the clock",
        "",
        "faster than self-speculative decoding, each at its best K",
        drafting.head_pays,
        DRAFTING,
    ),
    Claim(
        "Dynamic decoding loses accuracy as τ falls",
        "accuracy falls with τ",
        "less accurate at its lowest than at its highest τ",
        controls.dynamic_loses,
        needs.usual("dynamic"),
    ),
    Claim(
        "Remasking recovers accuracy at a low τ, at the same τ",
        "+15.3 points on average at τ = 0.5, up to +22.6",
        f"more accurate than dynamic at the same τ, for τ up to {LOW_TAU:g}",
        remasking.papers_way(remasking.at_equal_tau),
        needs.remask("one"),
    ),
    Claim(
        "Remasking gains at the same tokens per forward",
        "",
        "more accurate than dynamic interpolated at the same TPF, likewise",
        remasking.papers_way(remasking.at_equal_tpf),
        needs.together(needs.remask("one"), CURVE),
    ),
    Claim(
        "Remasking gains in the same time",
        "",
        "more accurate than dynamic interpolated at the same time ratio, likewise; what is slower "
        "than static and all of dynamic's points is compared with the slowest of them, and what is "
        "faster than all of them is left out",
        remasking.papers_way(remasking.at_equal_time),
        needs.together(needs.remask("one"), CURVE),
    ),
    Claim(
        "Two or three layers are the sweet spot",
        "accuracy rises to 3 layers, then it is flat",
        "direct decoding: more accurate than with the shallowest head, and the deepest is less "
        f"than {100 * heads.FLAT:.0f} point ahead",
        heads.sweet_depth,
        needs.depths("direct"),
    ),
    Claim(
        "Speculative decoding prefers a shallow head",
        "shallower is faster",
        "a higher time ratio with the shallowest than with the deepest head, at the same K",
        drafting.shallow_is_faster,
        needs.depths("speculative"),
    ),
)

# Goals that were set in advance: what lossless drafting and remasking should gain beyond the paper.
BEYOND = (
    Claim(
        f"A draft lattice reveals at least {beyond.MORE_TOKENS:g} times the tokens per forward of "
        "the best chain",
        "",
        "tokens per forward, each at its best setting there; under a cap beside chains of the same "
        "cap, whose text is another",
        beyond.more_tokens,
        beyond.needs,
        beyond=True,
    ),
    Claim(
        "A draft lattice reveals more tokens per forward than every lossless rival",
        "",
        "more than each lossless way without a head of ours at its best setting, likewise; "
        "FreeDave has none that gives static's text, and is shown over dynamic",
        beyond.more_than_rivals,
        beyond.needs,
        beyond=True,
    ),
    Claim(
        f"A draft lattice decodes at least {beyond.MORE_SPEED:g} times as fast as the best chain "
        f"at batch {beyond.AT_BATCH}",
        "",
        "tokens per second, each at its fastest setting, both timed over static one prompt at a "
        "time; the interval holds the noise of both",
        beyond.faster,
        beyond.needs,
        beyond=True,
    ),
    Claim(
        "Verifying subsets of the drafts accepts more",
        "",
        "more tokens per forward than the chain alone at the same K",
        drafting.lattice_accepts_more,
        needs.lattices,
        beyond=True,
    ),
    Claim(
        "No lossless way of decoding changes an answer",
        "",
        "every answer of every run equals static's under the same cap, letter for letter: "
        f"{', '.join(name.replace('_', '-') for name in LOSSLESS)}; with every head, whatever K",
        drafting.lossless(LOSSLESS),
        needs.lossless(LOSSLESS),
        beyond=True,
    ),
    Claim(
        "FreeDave's drafts change no answer of dynamic decoding",
        "",
        "every answer equals that of dynamic decoding at the same τ, letter for letter",
        drafting.as_dynamic,
        needs.freedave,
        beyond=True,
    ),
    Claim(
        "Judging each half of the fresh tokens with that half masked gains at the same tokens per "
        "forward",
        "",
        "remasking in two passes: more accurate than dynamic interpolated at the same TPF, "
        "likewise",
        remasking.by_halves(remasking.at_equal_tpf),
        needs.together(needs.remask(remasking.HALVES), CURVE),
        beyond=True,
    ),
    Claim(
        "Judging by halves gains in the same time",
        "",
        "the same at the same time ratio",
        remasking.by_halves(remasking.at_equal_time),
        needs.together(needs.remask(remasking.HALVES), CURVE),
        beyond=True,
    ),
    Claim(
        f"Judging by halves recovers at least {remasking.MORE_POINTS:g} times the points of one "
        f"pass, in at most {remasking.MORE_PERCENT} % more time",
        "",
        "points over dynamic at the lowest τ; of several two-pass variants surely within that time "
        "the one that is best on the other half of the problems",
        remasking.recovery,
        needs.recovery,
        beyond=True,
    ),
)
CLAIMS = (*PAPERS, *BEYOND)
