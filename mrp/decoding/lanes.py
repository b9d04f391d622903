"""What is known of each lane, and what a mode reads and writes of it.

A lane holds a sample. All buffers are on the device and have a row for every lane; operations are
about all n lanes in use at once, and what concerns only some of them takes a boolean mask. B is the
block length, H the hidden size.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from mrp.decoding.cache import KVCache
from mrp.decoding.fused import fused
from mrp.decoding.history import History
from mrp.decoding.sample import SOURCES, Source
from mrp.models.head import Head
from mrp.models.transformer import Backbone

# Per lane: rounds of the sample and of its block, then what a mode counts.
TALLY = ("step", "block_step", "verify", "head_draft", "head_remask", "proposed", "accepted")
VERIFY, PROPOSED, ACCEPTED = map(TALLY.index, ("verify", "proposed", "accepted"))
BONUS, DRAFT = SOURCES.index("bonus"), SOURCES.index("draft")


class Lanes:
    """Room for up to `slots` samples, each at its own block.

    Attributes:
        n: lanes in use, the first ones; fewer than `slots` towards the end of the queue.
        head_prefix: whether the head reads the blocks before the current one; if not, its cache
            holds nothing but the current block of each lane while a pass runs.
        board: [slots + 1, 3, B]: ids of the current blocks, who revealed each token when
            (round * len(SOURCES) + source), and how often each was masked again. The last lane is
            scratch: the padding of lists of lanes points there.

    A round of a small model takes as long as its small operations: in place where it can be.
    """

    def __init__(
        self,
        backbone: Backbone,
        head: Head | None,
        slots: int,
        max_length: int,
        states: int,
        *,
        head_states: int,
        head_prefix: bool,
    ) -> None:
        """Allocate; see `Session`."""
        config = backbone.config
        weight = backbone.lm_head.weight
        self.device, dtype = weight.device, weight.dtype
        self.block_size, self.mask_id = config.block_size, config.mask_token_id
        self.slots = self.scratch = slots
        self.max_length, self.states = max_length, states
        length = max_length + (states - 1) * self.block_size
        self.cache = KVCache(
            config, config.num_hidden_layers, slots + 1, length, self.device, dtype
        )
        self.head_prefix = head_prefix
        head_length = max_length + (head_states - 1) * self.block_size
        self.head_cache = (
            KVCache(config, head.config.num_layers, slots + 1, head_length, self.device, dtype)
            if head is not None
            else None
        )
        self.n = 0
        self._numbers = torch.arange(slots + 1, device=self.device)
        blank = torch.tensor([[self.mask_id], [0], [0]], device=self.device)
        self.blank = blank.repeat(1, self.block_size)
        self.board = self.blank.repeat(slots + 1, 1, 1)
        self.last = self.board[:, 0].clone()  # each lane's block before: to be stored
        self.start = torch.full((slots + 1,), self.block_size, device=self.device)
        self.tally = torch.zeros(slots + 1, len(TALLY), dtype=torch.long, device=self.device)
        self.fresh_lanes = torch.ones(slots + 1, dtype=torch.bool, device=self.device)
        hidden = (slots + 1, self.block_size, config.hidden_size)
        self.kept_hidden = torch.zeros(hidden, device=self.device, dtype=dtype)
        self.kept_list: Tensor | None = None
        self.ahead_hidden: Tensor | None = None
        size = (self.block_size, config.hidden_size, self.device, dtype)
        reads = head is not None and head_prefix
        self.history = History(slots + 1, max_length, *size) if reads else None

    # A lane's life -----------------------------------------------------------------------------

    def move(self, sources: Sequence[int], targets: Sequence[int]) -> None:
        """Move samples to other lanes, none of which is one of the sources."""
        source, target = torch.tensor((sources, targets), device=self.device).unbind()
        lanes = (
            *(self.board, self.last, self.start, self.tally),
            *(self.fresh_lanes, self.kept_hidden, self.ahead_hidden, self.kept_list),
        )
        for each in lanes:
            if each is not None:
                each[target] = each[source]
        self.cache.move(source, target, self.max_length)
        if self.head_cache is not None and self.history is not None:
            self.head_cache.move(source, target, self.max_length)
            self.history.move(source, target)

    def open_next(self, lanes: Tensor) -> None:
        """Go on to the next block; the scratch lane stays where it is."""
        self.start[lanes] += self.block_size * (lanes != self.scratch)
        self.last[lanes] = self.board[lanes, 0]
        self.board[lanes] = self.blank
        self.tally[:, 1].index_fill_(0, lanes, 0)
        if self.ahead_hidden is not None:
            self.kept_hidden[lanes] = self.ahead_hidden[lanes]
        self.fresh_lanes.index_fill_(0, lanes, self.ahead_hidden is None)

    # What a mode reads ---------------------------------------------------------------------------

    @property
    def every(self) -> Tensor:
        """The numbers of the lanes, 0 .. n - 1."""
        return self._numbers[: self.n]

    @property
    def ids(self) -> Tensor:
        """Ids [n, B] of the current blocks: a view that changes with every reveal."""
        return self.board[: self.n, 0]

    @property
    def block_step(self) -> Tensor:
        """Backbone rounds that each current block has had, [n]."""
        return self.tally[: self.n, 1]

    @property
    def age(self) -> Tensor:
        """How many rounds ago each position of the current blocks was revealed, [n, B].

        0 where a position is masked or the prompt's; 1 is the last round, once this one's forward
        is through.
        """
        return ages(self.ids, self.board, self.tally, self.mask_id)

    @property
    def fresh(self) -> Tensor:
        """Lanes [n] that have kept nothing for their current block yet (see `keep`)."""
        return self.fresh_lanes[: self.n]

    @property
    def kept(self) -> Tensor:
        """Hidden states [n, B, H] kept from the last round for the same block (see `keep`)."""
        return self.kept_hidden[: self.n]

    @property
    def kept_numbers(self) -> Tensor | None:
        """The whole numbers kept with them, [n, B, m]; None if there are none."""
        return None if self.kept_list is None else self.kept_list[: self.n]

    @property
    def kept_shortlist(self) -> Tensor | None:
        """The same, of a mode that keeps its shortlist."""
        return self.kept_numbers

    def masked(self) -> Tensor:
        """Which positions of the current blocks are still masked, [n, B]."""
        return self.ids == self.mask_id

    # What a mode writes --------------------------------------------------------------------------

    def reveal(self, where: Tensor, tokens: Tensor, source: Source) -> None:
        """Write `tokens` [n, B], found by `source`, into the current blocks at `where` [n, B]."""
        write(self.board, self.tally, where, tokens, SOURCES.index(source))

    def commit(self, drafted: Tensor, picked: Tensor) -> None:
        """Write accepted drafts and, on top of them, the backbone's own picks: ids [n, B] each.

        The picks are a verification's bonus, but in a fresh lane those of a plain step.
        """
        write_verified(self.board, self.tally, self.fresh, drafted, picked)

    def remask(self, where: Tensor) -> None:
        """Mask the positions `where` (boolean [n, B]) of the current blocks again."""
        mask_again(self.board, where, self.mask_id)

    def keep(self, hidden: Tensor, numbers: Tensor | None = None) -> None:
        """Keep hidden states [n, B, H] for the next round; dropped when the block is finished.

        Likewise whole numbers [n, B, m], a shortlist for one, which a mode that keeps any keeps in
        every round.
        """
        self.kept_hidden[: self.n].copy_(hidden)
        self.fresh_lanes[: self.n].fill_(False)
        self._keep_numbers(numbers)

    def keep_state(self, hidden: Tensor, at: Tensor, numbers: Tensor | None = None) -> None:
        """Keep the state `at` [n] of hidden states [n, S, B, H]; see `keep`."""
        keep_state(hidden, at, self.kept_hidden, self.fresh_lanes)
        self._keep_numbers(None if numbers is None else numbers[self.every, at])

    def _keep_numbers(self, numbers: Tensor | None) -> None:
        if numbers is not None:
            if self.kept_list is None:
                shape = (self.slots + 1, *numbers.shape[1:])
                self.kept_list = torch.zeros(shape, dtype=torch.long, device=self.device)
            self.kept_list[: self.n] = numbers

    def keep_ahead(self, hidden: Tensor) -> None:
        """Keep hidden states [n, B, H] of the next blocks: `kept` for each when it is opened.

        A mode that does this does it in every round that may finish a block.
        """
        if self.ahead_hidden is None:
            self.ahead_hidden = torch.zeros_like(self.kept_hidden)
        self.ahead_hidden[: self.n] = hidden

    def forget(self) -> None:
        """Drop what was kept: every lane is fresh again."""
        self.fresh_lanes[: self.n].fill_(True)

    def begin_verification(self) -> None:
        """Count a round, and a verification where the lane is not fresh."""
        count_verification(self.tally, self.fresh)

    def count_drafts(self, proposed: Tensor, accepted: Tensor) -> None:
        """Add drafts to the counters of that name, [n] each."""
        count_drafts(self.tally, proposed, accepted)

    def count(self, name: str, amount: Tensor) -> None:
        """Add `amount` [n] (numbers or a mask) to a counter of TALLY."""
        self.tally[: self.n, TALLY.index(name)].add_(amount)


@fused
def ages(ids: Tensor, board: Tensor, tally: Tensor, mask_id: int) -> Tensor:
    """How many rounds ago each position of `ids` [n, B] was revealed; see `Lanes.age`."""
    stamps, steps = board[: len(ids), 1], tally[: len(ids), :1]
    since = steps - stamps // len(SOURCES)
    return since.masked_fill((stamps == 0) | (ids == mask_id), 0)


@fused
def write(board: Tensor, tally: Tensor, where: Tensor, tokens: Tensor, source: int) -> None:
    """Write `tokens` [n, B] at `where` [n, B], and who revealed them when; see `Lanes.board`."""
    _write(board, tally, where, tokens, source)


def _write(
    board: Tensor, tally: Tensor, where: Tensor, tokens: Tensor, source: int | Tensor
) -> None:
    """The same, with one `source` or one for each token [n, B]."""
    n = len(where)
    stamp = tally[:n, :1] * len(SOURCES) + source
    news = torch.stack((tokens, stamp.expand_as(tokens)), dim=1)
    torch.where(where[:, None], news, board[:n, :2], out=board[:n, :2])


@fused
def write_verified(
    board: Tensor, tally: Tensor, fresh: Tensor, drafted: Tensor, picked: Tensor
) -> None:
    """Write what `picked` [n, B] has anew; of it, what `drafted` [n, B] has is a draft's."""
    block = board[: len(picked), 0]
    own = ~fresh[:, None] * BONUS  # 0 is the backbone
    source = own.expand_as(block).masked_fill(drafted != block, DRAFT)
    _write(board, tally, picked != block, picked, source)


@fused
def mask_again(board: Tensor, where: Tensor, mask_id: int) -> None:
    """Mask the positions `where` [n, B] again, and count that."""
    board[: len(where), 0].masked_fill_(where, mask_id)
    board[: len(where), 2].add_(where)


@fused
def keep_state(hidden: Tensor, at: Tensor, kept: Tensor, fresh: Tensor) -> None:
    """Copy the state `at` [n] of hidden [n, S, B, H] to the first n of `kept`: none is `fresh`."""
    n, states = hidden.shape[:2]
    place = torch.arange(0, n * states, states, device=at.device) + at
    torch.index_select(hidden.flatten(0, 1), 0, place, out=kept[:n])
    fresh[:n] = False


@fused
def count_verification(tally: Tensor, fresh: Tensor) -> None:
    """Add a round to each of the lanes `fresh` [n], and a verification where it is not."""
    tally[: len(fresh), :2] += 1
    tally[: len(fresh), VERIFY] += ~fresh


@fused
def count_drafts(tally: Tensor, proposed: Tensor, accepted: Tensor) -> None:
    """Add to what was `proposed` and `accepted` in the lanes, [n] each."""
    tally[: len(proposed), PROPOSED] += proposed
    tally[: len(proposed), ACCEPTED] += accepted
