"""Speculative decoding: draft K picks, verify all of them in one backbone forward. Lossless.

A round, for a sample whose block x has been denoised before, h being the hidden states of the
state accepted last:

    draft    (position, token) 1..K, one after the other
    verify   C(0) = x, C(k) = x with the first k drafts revealed; one forward scores them all
    accept   while the backbone's own pick at C(k) is draft k+1, position and token
    commit   the a accepted drafts, and the backbone's pick at C(a) for free
    keep     h of C(a) for the next round

Static decoding would have taken exactly these picks one by one, so the text is the same. A block
that has not been denoised yet has no h to draft from: its first round is the same with no drafts.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal, NamedTuple

import torch
from torch import Tensor

from mrp.decoding.fused import fused
from mrp.decoding.modes.base import Mode
from mrp.decoding.pace import KEEP, MOST, PLAIN, Pace, useful_drafts
from mrp.decoding.picks import Picks
from mrp.decoding.session import Session


class Drafts(NamedTuple):
    """Picks, drafted or the backbone's own: positions in the block and tokens, each [n, K].

    The backbone's are one for each state, [n, S]. odds: against each, where that is asked for.
    """

    positions: Tensor
    tokens: Tensor
    odds: Tensor | None = None


class Candidates(NamedTuple):
    """States of the blocks to be verified, the first of each being the block as it is.

    states [n, S, B]: ids. read [n, S]: which of them may be arrived at. placed [n, B] each: where
    they are no chain, which draft stands at a position, K if none, and the token there. sets
    [n, S]: where they are other ones in every lane, which.
    """

    states: Tensor
    read: Tensor
    placed: Drafts | None = None
    sets: Tensor | None = None


@dataclass(frozen=True)
class Verified(Mode):
    """The verification shared by all drafting modes; where the drafts come from is the mode.

    `k` "auto" takes in every round the number of drafts that pays best here (see `Pace`). The text
    is the same; the counts then depend on the machine.

    `cap` is static decoding's, and the text is that of static decoding with the same cap.
    """

    k: int | Literal["auto"]
    cap: float = 1.0

    @property
    def most(self) -> int:
        """The most drafts of a round."""
        return MOST if self.k == "auto" else self.k

    @property
    def paced(self) -> bool:
        """With `k` "auto"."""
        return self.k == "auto"

    @property
    def states(self) -> int:
        """C(0) ... C(K)."""
        return self.most + 1

    @property
    def listed(self) -> int:
        """Length of the shortlists that drafts are chosen from (0: the whole vocabulary)."""
        return 0

    @abstractmethod
    def draft(self, session: Session, useful: Tensor, k: int) -> Drafts:
        """Draft `useful` [n] <= k picks for each block, k > 0; columns behind are not read."""

    def plan(self, open_: Sequence[int], fresh: Sequence[bool], pace: Pace) -> int:
        """The most drafts that any lane can use, or those that pay."""
        if self.k == "auto":
            return pace.choose(open_, fresh)
        return max(useful_drafts(open_, fresh, self.k))

    def reveals(self, plan: int) -> tuple[int, int] | None:
        """The backbone's own token, and up to `plan` drafts.

        Where `Pace` decides, a round that drafts is looked at, and a step that keeps, so that what
        drafts take and bring is known of each.
        """
        return None if self.paced and plan >= KEEP else (1, 1 + max(plan, 0))

    def round(self, session: Session, plan: int) -> None:
        """Draft, verify, accept, commit, keep; a plain step where drafting does not pay."""
        if plan <= 0 and self.paced:
            self.step(session, keep=plan != PLAIN)
            return
        block = session.ids
        # Draft. The last masked position is the bonus of the state before it: it needs no draft.
        useful = useful_drafts_of(block, session.fresh, session.mask_id, plan)
        drafts = self.draft(session, useful, plan) if plan else no_drafts(block)
        # Verify.
        candidates = self.candidates(block, drafts, useful)
        states = candidates.states
        hidden = self.verify(session, candidates, useful)
        picks, listed = session.pick_and_list(hidden, self.listed, states == session.mask_id)
        own = Drafts(*(each.squeeze(2) for each in picks.capped(self.cap).surest(1)))
        # Accept.
        at, accepted = self.accept(own, drafts, useful, candidates)
        session.count_drafts(useful, accepted)
        # Commit.
        session.commit(*arrived(states, own.positions, own.tokens, at))
        # Keep.
        session.keep_state(hidden, at, listed)

    def candidates(self, block: Tensor, drafts: Drafts, useful: Tensor) -> Candidates:
        """What is verified: C(0) ... C(K)."""
        return Candidates(*chain(block, drafts.positions, drafts.tokens, useful))

    def verify(self, session: Session, candidates: Candidates, useful: Tensor) -> Tensor:
        """The hidden states [n, S, B, H] of the candidates."""
        return session.verify(candidates.states, candidates.read)

    def accept(
        self, own: Drafts, drafts: Drafts, useful: Tensor, candidates: Candidates
    ) -> tuple[Tensor, Tensor]:
        """The state that is arrived at and how many drafts it holds, [n] each: the same in a chain.

        `own`: the backbone's picks at each state.
        """
        accepted = agreement(useful, *own[:2], *drafts[:2])
        return accepted, accepted

    def step(self, session: Session, keep: bool) -> None:
        """A plain step, as static decoding makes it."""
        hidden = session.denoise()
        picks, listed = session.pick_and_list(hidden, self.listed if keep else 0)
        session.reveal(picks.capped(self.cap).first(), picks.tokens, "backbone")
        if keep:
            session.keep(hidden, listed)
        else:
            session.forget()


def no_drafts(block: Tensor) -> Drafts:
    """None for each of the blocks [n, B]."""
    return Drafts(block[:, :0], block[:, :0])


@fused
def useful_drafts_of(block: Tensor, fresh: Tensor, mask_id: int, most: int) -> Tensor:
    """How many drafts each block [n, B] can use, [n]: one less than it has masks, at most `most`.

    A `fresh` [n] one has nothing to draft from.
    """
    masks = (block == mask_id).sum(dim=1)
    return (masks - 1).clamp(0, most).masked_fill(fresh, 0)


@fused
def revealed(block: Tensor, positions: Tensor, tokens: Tensor) -> Tensor:
    """The blocks [n, B] with `tokens` at `positions`, [n, m] each."""
    return block.scatter(1, positions, tokens)


@fused
def masked_of(block: Tensor, mask_id: int, lanes: Tensor) -> Tensor:
    """Which positions of the blocks [n, B] are masked, in the `lanes` [n] alone."""
    return (block == mask_id) & lanes[:, None]


@fused
def chain(
    block: Tensor, positions: Tensor, tokens: Tensor, useful: Tensor
) -> tuple[Tensor, Tensor]:
    """The states C(0) ... C(K) of a block [n, B]: its first 0 ... K drafts [n, K] made.

    Returns:
        The states [n, K+1, B], and which of them hold `useful` [n] drafts alone, [n, K+1].
    """
    k = positions.shape[1]
    states = block[:, None].repeat(1, k + 1, 1)
    for number in range(k):
        position = positions[:, number, None, None].expand(-1, k - number, 1)
        token = tokens[:, number, None, None].expand(-1, k - number, 1)
        states[:, number + 1 :].scatter_(2, position, token)
    return states, torch.arange(k + 1, device=block.device) <= useful[:, None]


@fused
def agreement(
    useful: Tensor, positions: Tensor, tokens: Tensor, drafted_at: Tensor, drafted: Tensor
) -> Tensor:
    """How many of the drafts, those `useful` [n], the backbone's own picks agree with, [n].

    Its pick at C(k), position and token [n, K+1], is held against draft k + 1, in column k of
    `drafted_at` and `drafted` [n, K].
    """
    k = drafted.shape[1]
    agrees = (positions[:, :k] == drafted_at) & (tokens[:, :k] == drafted)
    agrees &= torch.arange(k, device=useful.device) < useful[:, None]
    return agrees.cumprod(dim=1).sum(dim=1)  # those before the first mismatch


@fused
def arrived(states: Tensor, positions: Tensor, tokens: Tensor, at: Tensor) -> tuple[Tensor, Tensor]:
    """The state `at` [n] of [n, S, B], and the same with the backbone's own pick, [n, B] each.

    Its pick at each state: `positions` and `tokens` [n, S].
    """
    lane = torch.arange(len(at), device=at.device)
    drafted = states[lane, at]
    own = positions[lane, at, None], tokens[lane, at, None]
    return drafted, drafted.scatter(1, *own)


def arrival(following: Tensor, steps: int) -> Tensor:
    """Where a walk from place 0 arrives, [n]; it takes at most `steps` and then stays.

    `following` [n, S]: the place that each one leads to.
    """
    for _ in range((steps - 1).bit_length()):
        following = following.gather(1, following)  # twice as far
    return following[:, 0]


@dataclass(frozen=True)
class Speculative(Verified):
    """Drafts from the head, as direct decoding makes them (method: speculative).

    `shortlist` n > 0: drafts are chosen among the n tokens that the backbone found likeliest at
    each position of the accepted state, which is cheaper. `scale` multiplies each correction;
    `prefix` False lets the head see the current block alone. `head_passes` n > 0: after n passes,
    the last one's next best picks are the remaining drafts. The drafts are verified as ever.
    """

    name: ClassVar[str] = "speculative"
    needs_head: ClassVar[bool] = True
    shortlist: int = 0
    scale: float = 1.0
    prefix: bool = True
    head_passes: int = 0

    @property
    def listed(self) -> int:
        """The head's shortlist."""
        return self.shortlist

    def draft(self, session: Session, useful: Tensor, k: int) -> Drafts:
        """A head pass takes the best masked position under the corrected logits, the last more."""
        made = zip(*(made for made, *_ in self.passes(session, useful, k)), strict=True)
        return Drafts(*(torch.cat(each, 1) for each in made))

    def passes(
        self, session: Session, useful: Tensor, k: int
    ) -> Iterator[tuple[tuple[Tensor, Tensor], Picks, Tensor | None]]:
        """The head's passes: each one's drafts, its picks, what `look` listed."""
        block, accumulated = session.ids, session.kept
        passes = min(k, self.head_passes or k)
        lanes = useful > torch.arange(passes, device=useful.device)[:, None]  # of each pass
        judged = self.judged(session, lanes)
        for number, (drafting, where) in enumerate(zip(lanes, judged, strict=True)):
            accumulated = session.correct(block, accumulated, where, "head_draft", self.scale)
            masked = masked_of(block, session.mask_id, drafting)
            found, listed = self.look(session, accumulated, masked, number)
            picks = found.capped(self.cap)
            more = 1 if number < passes - 1 else k - number
            drafts = picks.surest(more)
            block = revealed(block, *drafts)
            yield drafts, picks, listed

    def look(
        self, session: Session, hidden: Tensor, masked: Tensor, number: int
    ) -> tuple[Picks, Tensor | None]:
        """The picks of pass `number`, and a list of likely tokens where one is needed."""
        return session.pick(hidden, masked, session.kept_shortlist), None

    def judged(self, session: Session, lanes: Tensor) -> Tensor:
        """Of the lanes [passes, n] that each pass drafts for, those that the head has a say in."""
        return lanes


@dataclass(frozen=True)
class SelfSpeculative(Verified):
    """Drafts from the backbone's own last distribution: no head, no training (the rival).

    The same drafts, acceptance and forwards as FreeDave's (arXiv 2510.00294) for static decoding,
    whose `draft_steps` is k + 1; for dynamic decoding that is `freedave`.
    """

    name: ClassVar[str] = "self_speculative"

    def draft(self, session: Session, useful: Tensor, k: int) -> Drafts:
        """The most confident of the still-masked positions, from the logits one token stale."""
        picks = session.pick(session.kept).capped(self.cap)
        return Drafts(*picks.surest(k))
