"""A batch of samples in decoding, as the device sees it: one lane a sample, all lanes alike.

The modes are written in terms of these operations. Every operation is about all n lanes at once;
what concerns only some of them takes a boolean mask. So a round has the same shapes whatever the
samples do, and a GPU can replay it as one captured graph. Lanes without a sample are computed along
and their results never read. B is the block length, H the hidden size.

A finished block is stored, in both caches, by the pass that opens the next one: its blocks ride
along in the first backbone forward of the round, and in the head pass that follows.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence, Set
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from mrp.decoding.blocks import (
    Blocks,
    candidate_states,
    join,
    plain,
    whole_blocks,
    with_shadows,
)
from mrp.decoding.cache import KVCache
from mrp.decoding.fast import available
from mrp.decoding.forwards import EagerForwards, Forwards
from mrp.decoding.history import History, blocks_back
from mrp.decoding.packed import PackedForwards
from mrp.decoding.picks import Picks
from mrp.decoding.sample import SOURCES, Source
from mrp.models.head import Head
from mrp.models.transformer import Backbone

if TYPE_CHECKING:
    from mrp.decoding.graphs import FixedRounds
    from mrp.decoding.modes.base import Mode

Choose = Callable[[Backbone, Head | None, KVCache, KVCache | None], Forwards]
# Per lane: rounds of the sample and of its block, then what a mode counts.
TALLY = ("step", "block_step", "verify", "head_draft", "head_remask", "proposed", "accepted")
PREFILL_BLOCKS = 512  # of one forward: bounds its memory


class Session:
    """Decoding state of up to `slots` samples, each at its own block.

    Attributes:
        n: lanes in use, the first ones; fewer than `slots` towards the end of the queue.
        head_prefix: whether the head reads the blocks before the current one; if not, its cache
            holds nothing but the current block of each lane while a pass runs.
        exact: whether operations may look at their masks and skip lanes; False under capture.
        board: [slots + 1, 3, B]: ids of the current blocks, who revealed each token when
            (round * len(SOURCES) + source), and how often each was masked again. The last lane is
            scratch: the padding of lists of lanes points there.
    """

    def __init__(
        self,
        backbone: Backbone,
        head: Head | None,
        slots: int,
        max_length: int,
        states: int,
        choose: Choose | None = None,
        *,
        head_states: int = 1,
        head_prefix: bool = True,
    ) -> None:
        """Allocate for sequences of `max_length` positions and `states` candidates a block.

        `head_states` is how many the head is given at once. `choose` makes the forwards; by default
        the fastest for the device.
        """
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
        self.model, self.head = backbone, head
        self.forwards = (choose or choose_forwards)(backbone, head, self.cache, self.head_cache)
        self.exact = True
        self.rounds: FixedRounds | None = None  # None: rounds of exactly what is needed
        self.n = 0
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
        # Lanes to store in this round; blocks that the head has yet to read: whose, how far back.
        self.store_lanes = torch.full((slots,), slots, device=self.device)
        self.waiting_lanes = torch.full((slots,), slots, device=self.device)
        self.waiting_back = torch.ones_like(self.waiting_lanes)
        self._storing = self.store_lanes[:0]
        self._unread: dict[str, tuple[Tensor, Tensor]] = {}  # lanes and where their blocks begin

    # A lane's life -----------------------------------------------------------------------------

    def admit(self, lanes: Sequence[int], prompts: Sequence[list[int]]) -> None:
        """Put prompts into lanes and prefill their whole blocks (backbone and head)."""
        for lane, prompt in zip(lanes, prompts, strict=True):
            tail = len(prompt) % self.block_size
            begin = len(prompt) - tail
            self.board[lane] = self.blank
            if tail:
                self.board[lane, 0, :tail] = torch.tensor(prompt[begin:], device=self.device)
            self.start[lane] = begin
        index = torch.tensor(lanes, device=self.device)
        self.tally[index] = 0
        self.fresh_lanes[index] = True
        blocks = whole_blocks(list(zip(lanes, prompts, strict=True)), self.block_size, self.device)
        for begin in range(0, len(blocks.ids), PREFILL_BLOCKS):
            part = blocks.take(slice(begin, begin + PREFILL_BLOCKS))
            (self if self.rounds is None else self.rounds).prefill(part)

    def prefill(self, blocks: Blocks) -> None:
        """Store blocks of prompts, in the head's cache too where it reads a prefix."""
        hidden = self.forwards.backbone(blocks)
        if self.head is not None and self.head_prefix:
            self.forwards.head(blocks, hidden)

    def move(self, source: int, target: int) -> None:
        """Move a sample to another lane."""
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

    def read(self) -> Tensor:
        """The board of the lanes in use, [n, 3, B], on the host: the one look at the device."""
        return self.board[: self.n].cpu() if self.rounds is None else self.rounds.read()

    def counted(self, lane: int) -> dict[str, int]:
        """What was counted for the sample in a lane, by the names of TALLY."""
        return dict(zip(TALLY, self.tally[lane].tolist(), strict=True))

    # What a mode reads -------------------------------------------------------------------------

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
        stamps, steps = self.board[: self.n, 1], self.tally[: self.n, :1]
        ages = steps - stamps // len(SOURCES)
        return ages.masked_fill((stamps == 0) | self.masked(), 0)

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

    def any(self, where: Tensor) -> bool:
        """Whether a mask holds anything; True without a look under capture."""
        return not self.exact or bool(where.any())

    # Forwards ----------------------------------------------------------------------------------

    def denoise(self) -> Tensor:
        """One backbone forward of the current blocks -> hidden states [n, B, H].

        Without a head, hidden states of positions already revealed may be anything.
        """
        self.tally[: self.n, :2] += 1
        return self._forward(self.ids[:, None], None)[:, 0]

    def denoise_with_shadows(self) -> tuple[Tensor, Tensor]:
        """One backbone forward of the current blocks and of a masked shadow behind each.

        A shadow's token sees the block except for the token in its own place (see `Blocks`), so it
        tells what the backbone would put there. Takes a mode with 2 `states`.

        Returns:
            The hidden states of the blocks, as from `denoise`, and of the shadows, [n, B, H] each.
        """
        self.tally[: self.n, :2] += 1
        masks = torch.full_like(self.ids, self.mask_id)
        blocks = with_shadows(self.ids, masks, self._every(), self.start[: self.n])
        hidden = self._forward_blocks(blocks).view(self.n, 2, self.block_size, -1)
        return hidden[:, 0], hidden[:, 1]

    def verify(self, states: Tensor, read: Tensor) -> Tensor:
        """One backbone forward of candidate states [n, S, B] -> hidden states [n, S, B, H].

        Every state sees the shared prefix and itself, none sees another. Only the states
        `read` [n, S] are looked at; a lane that is `fresh` has no drafts, and its forward is a
        plain step, not counted as a verification. What `denoise` leaves out is left out here too.
        """
        self.tally[: self.n, :2] += 1
        self.count("verify", ~self.fresh)
        return self._forward(states, read)

    def verify_ahead(self, states: Tensor, read: Tensor, last: Tensor) -> tuple[Tensor, Tensor]:
        """As `verify`, and the next blocks, all masked, beside it.

        The next block sees the last of the `states` in front of it, which so had better be what its
        lane's block is likely to become. It is computed for the lanes `last` [n], whose block may
        be finished in this round. Takes a mode that counts it among its `states`.

        Returns:
            The hidden states of the states, [n, S, B, H], and of the next blocks, [n, B, H].
        """
        self.tally[: self.n, :2] += 1
        self.count("verify", ~self.fresh)
        count, size = states.shape[1:]
        start, lanes = self.start[: self.n], self._every()
        blocks = candidate_states(states, lanes, start)
        # The last state is written where the finished block will stand: right before the next.
        blocks = blocks._replace(slot=2 * blocks.position + (count - 1) * size - blocks.slot)
        masks = torch.full_like(self.ids, self.mask_id)
        following = Blocks(masks, lanes, start + size, start + count * size, start + size)
        number = torch.arange(count, device=self.device)
        read = read | (last[:, None] & (number == count - 1))
        hidden = self._some(join((blocks, following)), torch.cat((read.flatten(), last)))
        return hidden[: -self.n].view(*states.shape, -1), hidden[-self.n :]

    def correct(
        self, ids: Tensor, accumulated: Tensor, where: Tensor, role: str, scale: float = 1.0
    ) -> Tensor:
        """One head pass: the hidden states [n, B, H] that stand for the blocks `ids` [n, B].

        `accumulated` [n, B, H] are the hidden states from before the newest reveal; the residual is
        multiplied by `scale`. Only lanes in `where` [n] are read. `role` is the counter to add to:
        head_draft or head_remask. Both may be several states of each block, [n, S, B] and
        [n, S, B, H], none of which sees another; they count as S passes.
        """
        assert self.head is not None
        self.count(role, where * (ids[0].numel() // self.block_size))
        lanes = self._lanes(where)
        if not len(lanes):
            return accumulated
        some = len(lanes) < self.n
        before = accumulated[lanes] if some else accumulated
        blocks = self._head_blocks(ids[lanes] if some else ids, lanes)
        residual = self._head(blocks, before.flatten(0, -3)).view_as(before)
        after = self.head.advance(before, residual * scale if scale != 1.0 else residual)
        return accumulated.index_copy(0, lanes, after) if some else after

    def pick(
        self, hidden: Tensor, masked: Tensor | None = None, shortlist: Tensor | None = None
    ) -> Picks:
        """The greedy picks at the positions `masked` (None: those of the current blocks).

        With a `shortlist` [..., B, n] only its tokens are looked at.
        """
        masked = self.masked() if masked is None else masked
        if shortlist is None:
            return self.forwards.pick(hidden, masked)
        return self.forwards.pick_shortlist(hidden, shortlist, masked)

    def pick_and_list(
        self, hidden: Tensor, count: int, masked: Tensor | None = None
    ) -> tuple[Picks, Tensor | None]:
        """The picks, and the `count` likeliest tokens of each position (0: no list)."""
        masked = self.masked() if masked is None else masked
        if not count:
            return self.forwards.pick(hidden, masked), None
        count = min(count, self.model.config.vocab_size)
        return self.forwards.pick_and_shortlist(hidden, masked, count)

    # What a mode writes ------------------------------------------------------------------------

    def reveal(self, where: Tensor, tokens: Tensor, source: Source) -> None:
        """Write `tokens` [n, B] into the current blocks at `where` (boolean [n, B])."""
        stamp = self.tally[: self.n, :1] * len(SOURCES) + SOURCES.index(source)
        news = torch.stack((tokens, stamp.expand_as(tokens)), dim=1)
        board = self.board[: self.n, :2]
        torch.where(where[:, None], news, board, out=board)

    def remask(self, where: Tensor) -> None:
        """Mask the positions `where` (boolean [n, B]) of the current blocks again."""
        self.board[: self.n, 0].masked_fill_(where, self.mask_id)
        self.board[: self.n, 2] += where

    def keep(self, hidden: Tensor, numbers: Tensor | None = None) -> None:
        """Keep hidden states [n, B, H] for the next round; dropped when the block is finished.

        Likewise whole numbers [n, B, m], a shortlist for one, which a mode that keeps any keeps in
        every round.
        """
        self.kept_hidden[: self.n] = hidden
        if numbers is not None:
            if self.kept_list is None:
                shape = (self.slots + 1, *numbers.shape[1:])
                self.kept_list = torch.zeros(shape, dtype=torch.long, device=self.device)
            self.kept_list[: self.n] = numbers
        self.fresh_lanes[: self.n] = False

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

    def count(self, name: str, amount: Tensor) -> None:
        """Add `amount` [n] (numbers or a mask) to a counter of TALLY."""
        self.tally[: self.n, TALLY.index(name)] += amount

    # Below the modes ---------------------------------------------------------------------------

    def run(self, mode: Mode, plan: int, stores: list[int], waiting: list[int]) -> Set[str]:
        """One round: store the blocks of lanes `stores`, let the head read those of `waiting`.

        Returns which of the two the head has not read at its end, as `round` does.
        """
        if plan >= 0 and len(waiting) > self.slots:
            self._catch_up(waiting)
            waiting = []
        if waiting and plan <= 0:
            return self.run(mode, plan, stores, []) | {"waiting"}  # no head pass to ride along in
        back = blocks_back(waiting, stores)
        if self.rounds is not None:
            return self.rounds.run(plan, stores, waiting, back)
        lists = ((stores, self.store_lanes), (waiting, self.waiting_lanes))
        for numbers, buffer in (*lists, (back, self.waiting_back)):
            if numbers:
                buffer[: len(numbers)] = torch.tensor(numbers, device=self.device)
        return self.round(mode, plan, len(stores), len(waiting))

    def ready(self, plan: int, stores: list[int], waiting: list[int]) -> bool:
        """Whether such a round needs no capture first."""
        if self.rounds is None:
            return True
        read = len(waiting) if plan > 0 and len(waiting) <= self.slots else 0
        return self.rounds.ready(self.rounds.shape(plan, len(stores), read))

    def round(self, mode: Mode, plan: int, stores: int, waiting: int) -> set[str]:
        """One round of a mode, the way it runs eagerly and is captured.

        Args:
            mode: what decodes.
            plan: what `mode.plan` said.
            stores: how many of `store_lanes` finished their block and go on.
            waiting: how many blocks of `waiting_lanes` the head has yet to read.

        Returns:
            Which of "stores", "waiting" the head has not read when the round ends.
        """
        self._storing = self.store_lanes[:stores]
        self._unread = {}
        if stores:
            self._advance(self._storing)
        if waiting:
            lanes, back = self.waiting_lanes[:waiting], self.waiting_back[:waiting]
            self._unread["waiting"] = (lanes, self.start[lanes] - back * self.block_size)
        mode.round(self, plan)
        return set(self._unread)

    def _advance(self, lanes: Tensor) -> None:
        """Go on to the next block; the scratch lane stays where it is."""
        self.start[lanes] += self.block_size * (lanes != self.scratch)
        self.last[lanes] = self.board[lanes, 0]
        self.board[lanes] = self.blank
        self.tally[:, 1].index_fill_(0, lanes, 0)
        if self.ahead_hidden is not None:
            self.kept_hidden[lanes] = self.ahead_hidden[lanes]
        self.fresh_lanes.index_fill_(0, lanes, self.ahead_hidden is None)

    def _lanes(self, where: Tensor) -> Tensor:
        """The lanes [m] of a mask [n]; all of them under capture."""
        return where.nonzero().flatten() if self.exact else self._every()

    def _every(self) -> Tensor:
        return torch.arange(self.n, device=self.device)

    def _finished(self, lanes: Tensor) -> Blocks:
        """The blocks before the current ones."""
        return plain(self.last[lanes], lanes, self.start[lanes] - self.block_size)

    def _forward(self, states: Tensor, needed: Tensor | None) -> Tensor:
        """Backbone forward of states [n, S, B].

        `needed` [n, S]: states whose results [n, S, B, H] are read (None: all).
        """
        blocks = candidate_states(states, self._every(), self.start[: self.n])
        hidden = self._some(blocks, None if needed is None else needed.flatten())
        return hidden.view(*states.shape, -1)

    def _some(self, blocks: Blocks, needed: Tensor | None) -> Tensor:
        """Backbone forward of M blocks -> [M, B, H], of which those `needed` [M] are read."""
        if needed is None or not self.exact or bool(needed.all()):
            return self._forward_blocks(blocks)
        kept = needed.nonzero().flatten()
        hidden = self._forward_blocks(blocks.take(kept))
        every = hidden.new_zeros(len(needed), *hidden.shape[1:])
        return every.index_copy_(0, kept, hidden)

    def _forward_blocks(self, blocks: Blocks) -> Tensor:
        """Backbone forward of M blocks -> [M, B, H], and of the finished blocks to be stored."""
        count = len(blocks.ids)
        wanted = blocks.ids == self.mask_id if self.head is None else None
        stores, self._storing = self._storing, self._storing[:0]
        if len(stores):
            blocks = join((blocks, self._finished(stores)))
            if wanted is not None:
                wanted = torch.cat((wanted, wanted.new_zeros(len(stores), self.block_size)))
        hidden = self.forwards.backbone(blocks, wanted)
        if len(stores) and self.history is not None:
            start = self.start[stores] - self.block_size
            self.history.put(stores, start, self.last[stores], hidden[count:])
            self._unread["stores"] = (stores, start)
        return hidden[:count]

    def _head_blocks(self, ids: Tensor, lanes: Tensor) -> Blocks:
        """The states `ids` [m, B] or [m, S, B] of the lanes' current blocks as the head sees them.

        Without a prefix they see themselves alone, at their own rotary positions.
        """
        states = ids.view(len(lanes), -1, self.block_size)
        blocks = candidate_states(states, lanes, self.start[lanes])
        if self.head_prefix:
            return blocks
        return blocks._replace(
            slot=blocks.slot - blocks.visible, visible=torch.zeros_like(blocks.visible)
        )

    def _head(self, blocks: Blocks, hidden: Tensor) -> Tensor:
        """Head pass of `blocks` and of every finished block that it has not read yet."""
        count, parts = len(hidden), [(blocks, hidden)]
        if self.history is not None:
            parts += [self.history.get(*unread) for unread in self._unread.values()]
        self._unread = {}
        hiddens = [part[1] for part in parts]
        merged = hiddens[0] if len(parts) == 1 else torch.cat(hiddens)
        return self.forwards.head(join([part[0] for part in parts]), merged)[:count]

    def _catch_up(self, waiting: list[int]) -> None:
        """Let the head read more blocks than can ride along in a round."""
        assert self.history is not None
        every = torch.tensor((waiting, blocks_back(waiting, [])), device=self.device)
        for lanes, back in (part.unbind() for part in every.split(PREFILL_BLOCKS, dim=1)):
            start = self.start[lanes] - back * self.block_size
            self.forwards.head(*self.history.get(lanes, start))


def choose_forwards(
    backbone: Backbone, head: Head | None, cache: KVCache, head_cache: KVCache | None
) -> Forwards:
    """The fastest forwards for the backbone's device and dtype."""
    weight = backbone.lm_head.weight
    if PackedForwards.suits(backbone):
        return PackedForwards(backbone, head, cache, head_cache)
    if available(weight.device, weight.dtype, backbone.config):
        from mrp.decoding.fast.forwards import FastForwards

        return FastForwards(backbone, head, cache, head_cache)
    return EagerForwards(backbone, head, cache, head_cache)
