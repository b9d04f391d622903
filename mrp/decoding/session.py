"""A batch of samples in decoding, as the device sees it: one lane a sample, all lanes alike.

The modes are written in terms of these operations: what is known of the lanes, read and written
(`Lanes`), and the forwards here. Every operation is about all n lanes at once; what concerns only
some of them takes a boolean mask. So a round has the same shapes whatever the samples do, and a GPU
can replay it as one captured graph. Lanes without a sample are computed along and their results
never read. B is the block length, H the hidden size.

A finished block is stored, in both caches, by the pass that opens the next one: its blocks ride
along in the first backbone forward of the round, and in the head pass that follows.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from mrp.decoding.blocks import (
    Blocks,
    candidate_states,
    join,
    plain,
    states_and_next,
    whole_blocks,
    with_shadows,
)
from mrp.decoding.cache import KVCache
from mrp.decoding.fast import available
from mrp.decoding.forwards import EagerForwards, Forwards
from mrp.decoding.fused import fused
from mrp.decoding.lanes import Lanes
from mrp.decoding.packed import PackedForwards
from mrp.decoding.picks import Picks
from mrp.errors import UserError
from mrp.models.head import Head
from mrp.models.transformer import Backbone

if TYPE_CHECKING:
    from mrp.decoding.modes.base import Mode

Choose = Callable[[Backbone, Head | None, KVCache, KVCache | None], Forwards]
PREFILL_BLOCKS = 512  # of one forward: bounds its memory


class Session(Lanes):
    """Decoding state of up to `slots` samples, and the forwards that a mode makes of it.

    Attributes:
        exact: whether operations may look at their masks and skip lanes; False under capture.
        store_lanes, waiting_lanes, waiting_back: [slots] each, what rides along in the next round:
            lanes whose finished block is to be stored; blocks that the head has yet to read, as
            their lane and how many blocks before its current one.
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
        super().__init__(
            *(backbone, head, slots, max_length, states),
            head_states=head_states,
            head_prefix=head_prefix,
        )
        self.model, self.head = backbone, head
        self.forwards = (choose or choose_forwards)(backbone, head, self.cache, self.head_cache)
        self.exact = True
        self.store_lanes = torch.full((slots,), slots, device=self.device)
        self.waiting_lanes = torch.full((slots,), slots, device=self.device)
        self.waiting_back = torch.ones_like(self.waiting_lanes)
        self._storing = self.store_lanes[:0]
        self._unread: dict[str, tuple[Tensor, Tensor]] = {}  # lanes and where their blocks begin

    def admit(
        self,
        lanes: Sequence[int],
        prompts: Sequence[list[int]],
        prefill: Callable[[Blocks], None] | None = None,
    ) -> None:
        """Put prompts into lanes and prefill their whole blocks (backbone and head).

        `prefill` does the latter in another way than `Session.prefill`.
        """
        size = self.block_size
        starts = [len(prompt) // size * size for prompt in prompts]
        # What is left of a prompt begins its first block; all of them as one array, copied once.
        rests = [prompt[start:] for start, prompt in zip(starts, prompts, strict=True)]
        opened = [rest + [self.mask_id] * (size - len(rest)) for rest in rests]
        index = torch.tensor(lanes, device=self.device)
        self.board[index] = self.blank
        self.board[index, 0] = torch.tensor(opened, device=self.device)
        self.start[index] = torch.tensor(starts, device=self.device)
        self.tally[index] = 0
        self.fresh_lanes[index] = True
        blocks = whole_blocks(list(zip(lanes, prompts, strict=True)), self.block_size, self.device)
        for begin in range(0, len(blocks.ids), PREFILL_BLOCKS):
            (prefill or self.prefill)(blocks.take(slice(begin, begin + PREFILL_BLOCKS)))

    def prefill(self, blocks: Blocks) -> None:
        """Store blocks of prompts, in the head's cache too where it reads a prefix."""
        hidden = self.forwards.backbone(blocks)
        if self.head is not None and self.head_prefix:
            self.forwards.head(blocks, hidden)

    def any(self, where: Tensor) -> bool:
        """Whether a mask holds anything; True without a look under capture."""
        return not self.exact or bool(where.any())

    # Forwards ----------------------------------------------------------------------------------

    def denoise(self) -> Tensor:
        """One backbone forward of the current blocks -> hidden states [n, B, H].

        Without a head, hidden states of positions already revealed may be anything.
        """
        self.tally[: self.n, :2].add_(1)
        return self._forward(self.ids[:, None], None)[:, 0]

    def denoise_with_shadows(self) -> tuple[Tensor, Tensor]:
        """One backbone forward of the current blocks and of a masked shadow behind each.

        A shadow's token sees the block except for the token in its own place (see `Blocks`), so it
        tells what the backbone would put there. Takes a mode with 2 `states`.

        Returns:
            The hidden states of the blocks, as from `denoise`, and of the shadows, [n, B, H] each.
        """
        self.tally[: self.n, :2].add_(1)
        masks = torch.full_like(self.ids, self.mask_id)
        blocks = with_shadows(self.ids, masks, self.every, self.start[: self.n])
        hidden = self._forward_blocks(blocks).view(self.n, 2, self.block_size, -1)
        return hidden[:, 0], hidden[:, 1]

    def verify(self, states: Tensor, read: Tensor) -> Tensor:
        """One backbone forward of candidate states [n, S, B] -> hidden states [n, S, B, H].

        Every state sees the shared prefix and itself, none sees another. Only the states
        `read` [n, S] are looked at; a lane that is `fresh` has no drafts, and its forward is a
        plain step, not counted as a verification. What `denoise` leaves out is left out here too.
        """
        self.begin_verification()
        return self._forward(states, read)

    def verify_ahead(self, states: Tensor, read: Tensor, drafts: Tensor) -> tuple[Tensor, Tensor]:
        """As `verify`, and the next blocks, all masked, beside it.

        The next block sees the last of the `states` in front of it, which so had better be what its
        lane's block is likely to become. It is read of the lanes that so many `drafts` [n] and the
        bonus may finish in this round. Takes a mode that counts it among its `states`.

        Returns:
            The hidden states of the states, [n, S, B, H], and of the next blocks, [n, B, H].
        """
        self.begin_verification()
        blocks = states_and_next(states, self.every, self.start[: self.n], self.mask_id)
        if self.exact:
            finish = self.masked().sum(dim=1) <= drafts + 1
            last = torch.arange(states.shape[1], device=self.device) == states.shape[1] - 1
            read = torch.cat(((read | (finish[:, None] & last)).flatten(), finish))
        hidden = self._some(blocks, read)
        return hidden[: -self.n].view(*states.shape, -1), hidden[-self.n :]

    def correct(
        self, ids: Tensor, accumulated: Tensor, where: Tensor, role: str, scale: float = 1.0
    ) -> Tensor:
        """One head pass: the hidden states [n, B, H] that stand for the blocks `ids` [n, B].

        `accumulated` [n, B, H] are the hidden states from before the newest reveal; the residual is
        multiplied by `scale`. Lanes not in `where` [n] keep theirs. `role` is the counter to add
        to: head_draft or head_remask. Both may be several states of each block, [n, S, B] and
        [n, S, B, H], none of which sees another; they count as S passes.
        """
        assert self.head is not None
        states = ids[0].numel() // self.block_size
        self.count(role, where if states == 1 else where * states)
        lanes = self._lanes(where)
        if not len(lanes):
            return accumulated
        some = len(lanes) < self.n
        before = accumulated[lanes] if some else accumulated
        blocks = self._head_blocks(ids[lanes] if some else ids, lanes)
        output = self._head(blocks, before.flatten(0, -3)).view_as(before)
        replaces = self.head.config.objective == "direct"
        after = advanced(before, output, None if self.exact else where, scale, replaces)
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

    # Below the modes ---------------------------------------------------------------------------

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
            self.open_next(self._storing)
        if waiting:
            lanes, back = self.waiting_lanes[:waiting], self.waiting_back[:waiting]
            self._unread["waiting"] = (lanes, self.start[lanes] - back * self.block_size)
        mode.round(self, plan)
        return set(self._unread)

    def _lanes(self, where: Tensor) -> Tensor:
        """The lanes [m] of a mask [n]; all of them under capture."""
        return where.nonzero().flatten() if self.exact else self.every

    def _finished(self, lanes: Tensor) -> Blocks:
        """The blocks before the current ones."""
        return plain(self.last[lanes], lanes, self.start[lanes] - self.block_size)

    def _forward(self, states: Tensor, needed: Tensor | None) -> Tensor:
        """Backbone forward of states [n, S, B].

        `needed` [n, S]: states whose results [n, S, B, H] are read (None: all).
        """
        blocks = candidate_states(states, self.every, self.start[: self.n])
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
        wanted = blocks.ids == self.mask_id if self.head is None and self.exact else None
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
        # A full list of lanes is all of them, in order: no gathering then.
        start = self.start[lanes] if len(lanes) < self.n else self.start[: self.n]
        blocks = candidate_states(states, lanes, start)
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


@fused
def advanced(
    before: Tensor, output: Tensor, where: Tensor | None, scale: float, replaces: bool
) -> Tensor:
    """`Head.advance` by `scale` times the head's output [n, ..., H], in the lanes `where` [n]."""
    scaled = output * scale if scale != 1.0 else output
    after = scaled if replaces else before + scaled
    if where is None:
        return after
    return torch.where(where.view(-1, *[1] * (before.dim() - 1)), after, before)


def choose_forwards(
    backbone: Backbone,
    head: Head | None,
    cache: KVCache,
    head_cache: KVCache | None,
    *,
    invariant: bool = False,
) -> Forwards:
    """The fastest forwards for the backbone's device and dtype.

    With `invariant`, the fastest whose result for a block does not depend on the blocks beside it.

    Raises:
        UserError: there are none of those.
    """
    weight = backbone.lm_head.weight
    if PackedForwards.suits(backbone):
        return PackedForwards(backbone, head, cache, head_cache, invariant=invariant)
    if available(weight.device, weight.dtype, backbone.config):
        from mrp.decoding.fast.forwards import FastForwards

        return FastForwards(backbone, head, cache, head_cache, invariant=invariant)
    if invariant:
        raise UserError(
            f"invariant: there are no such products for {weight.dtype} on {weight.device}; they "
            "need a GPU from Hopper on with triton and float32 or bfloat16, or a CPU and float32"
        )
    return EagerForwards(backbone, head, cache, head_cache)
