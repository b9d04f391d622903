"""A batch of samples in decoding: the models, their caches, and every sample's current block.

The modes are written in terms of these operations. `rows` always names the samples an operation is
about, as an ascending index tensor [n]; B is the block length, H the hidden size.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from mrp.decoding.cache import KVCache, prefill_layout, state_layout
from mrp.decoding.picks import Picks, pick
from mrp.decoding.sample import COUNTERS, SOURCES, Decoded, Source, Trace
from mrp.models.head import Head
from mrp.models.transformer import Backbone


class Session:
    """Decoding state of up to `slots` samples, each at its own block."""

    def __init__(
        self, backbone: Backbone, head: Head | None, slots: int, max_length: int, states: int
    ) -> None:
        """Allocate for sequences of `max_length` positions and `states` candidates a block."""
        config = backbone.config
        self.backbone, self.head, self.block_size = backbone, head, config.block_size
        self.mask_id, self.slots = config.mask_token_id, slots
        self.device, dtype = backbone.lm_head.weight.device, backbone.lm_head.weight.dtype
        cache_length = max_length + (states - 1) * config.block_size
        self.cache = KVCache(
            config, config.num_hidden_layers, slots, cache_length, self.device, dtype
        )
        if head is not None:
            self.head_cache = KVCache(
                config, head.config.num_layers, slots, max_length, self.device, dtype
            )
        self.ids = self._new(slots, max_length, fill=self.mask_id)
        self.prompt_length = self._new(slots)
        self.budget = self._new(slots)
        self.start = self._new(slots)
        self.active = self._new(slots, dtype=torch.bool)
        self.index = self._new(slots)
        self.step = self._new(slots)  # backbone rounds of the sample
        self.block_step = self._new(slots)  # and of its current block
        self.counts = {name: self._new(slots) for name in COUNTERS}
        self.revealed_at = self._new(slots, max_length)
        self.revealed_by = self._new(slots, max_length)
        self.remasked = self._new(slots, max_length)
        self.kept_hidden = torch.zeros(
            slots, self.block_size, config.hidden_size, device=self.device, dtype=dtype
        )
        self.has_kept = self._new(slots, dtype=torch.bool)

    # A sample's life ---------------------------------------------------------------------------

    def admit(
        self, indices: Sequence[int], prompts: Sequence[list[int]], budget: list[int]
    ) -> None:
        """Put prompts into free slots and prefill their whole blocks (backbone and head)."""
        rows = (~self.active).nonzero().flatten()[: len(prompts)]
        lengths = torch.tensor([len(prompt) for prompt in prompts], device=self.device)
        for row, prompt in zip(rows.tolist(), prompts, strict=True):
            self.ids[row] = self.mask_id
            self.ids[row, : len(prompt)] = torch.tensor(prompt, device=self.device)
        self.active[rows] = True
        self.index[rows] = torch.tensor(indices, device=self.device)
        self.prompt_length[rows] = lengths
        self.budget[rows] = torch.tensor(budget, device=self.device)
        self.start[rows] = lengths // self.block_size * self.block_size
        for per_sample in (self.step, self.block_step, self.remasked, *self.counts.values()):
            per_sample[rows] = 0
        self.has_kept[rows] = False
        self._prefill(rows)

    def finished_blocks(self) -> Tensor:
        """Rows [n] whose current block has no mask left."""
        return (self.active & ~self._masked().any(dim=1)).nonzero().flatten()

    def advance(self, rows: Tensor) -> None:
        """Store finished blocks in both caches and move on to the next block."""
        if not len(rows):
            return
        clean = self.block(rows)
        hidden = self._forward(rows, clean[:, None]).squeeze(1)
        self.count(rows, "store")
        if self.head is not None:
            self._head_forward(rows, clean, hidden)
            self.count(rows, "head_store")
        self.start[rows] += self.block_size
        self.block_step[rows] = 0
        self.has_kept[rows] = False

    def end_of_text(self, row: int) -> int | None:
        """Where in the new tokens the first end token stands, if there is one."""
        for place, token in enumerate(self.new_ids(row)):
            if token in self.backbone.config.eos_token_ids:
                return place
        return None

    def new_ids(self, row: int) -> list[int]:
        """Tokens of the row after its prompt, up to the end of the current block."""
        end = int(self.start[row]) + self.block_size
        new: list[int] = self.ids[row, int(self.prompt_length[row]) : end].tolist()
        return new

    def exhausted(self, row: int) -> bool:
        """Whether the current block reaches the sample's budget of new tokens."""
        return len(self.new_ids(row)) >= int(self.budget[row])

    def retire(self, row: int, stopped: bool) -> Decoded:
        """Take a finished sample out of its slot."""
        begin = int(self.prompt_length[row])
        ids, end = self.new_ids(row), self.end_of_text(row)
        budget = int(self.budget[row])
        kept = min(budget, len(ids) if end is None else end)
        ended = end is not None and end < budget
        counts = {name: int(counter[row]) for name, counter in self.counts.items()}
        counts["generated"] = len(ids)
        counts["answer_tokens"] = kept + ended
        span = slice(begin, begin + len(ids))
        trace = Trace(
            ids=ids,
            step=self.revealed_at[row, span].tolist(),
            source=[SOURCES[code] for code in self.revealed_by[row, span].tolist()],
            remasked=self.remasked[row, span].tolist(),
        )
        self.active[row] = False
        return Decoded(int(self.index[row]), ids[:kept], ended or stopped, counts, trace)

    # What a mode reads -------------------------------------------------------------------------

    def rows(self) -> Tensor:
        """Rows [n] in decoding; between rounds every one has a masked position in its block."""
        return self.active.nonzero().flatten()

    def block(self, rows: Tensor) -> Tensor:
        """Ids [n, B] of the current blocks."""
        return self.ids[rows[:, None], self._columns(rows)]

    def masked(self, rows: Tensor) -> Tensor:
        """Which positions of the current blocks are still masked, [n, B]."""
        return self.block(rows) == self.mask_id

    def kept(self, rows: Tensor) -> Tensor:
        """Hidden states [n, B, H] kept from the last round for the same block (see `keep`)."""
        return self.kept_hidden[rows]

    # Forwards ----------------------------------------------------------------------------------

    def denoise(self, rows: Tensor) -> Tensor:
        """One backbone forward of the current blocks -> hidden states [n, B, H]."""
        self.count(rows, "denoise")
        self._begin_step(rows)
        return self._forward(rows, self.block(rows)[:, None]).squeeze(1)

    def verify(self, rows: Tensor, states: Tensor) -> Tensor:
        """One backbone forward of candidate states [n, S, B] -> hidden states [n, S, B, H].

        Every state sees the shared prefix and itself, none sees another.
        """
        self.count(rows, "verify")
        self._begin_step(rows)
        return self._forward(rows, states)

    def correct(
        self, rows: Tensor, ids: Tensor, accumulated: Tensor, role: str, scale: float = 1.0
    ) -> Tensor:
        """One head pass: the hidden states [n, B, H] that stand for the blocks `ids` [n, B].

        `accumulated` [n, B, H] are the hidden states from before the newest reveal; the residual is
        multiplied by `scale`. `role` is the counter to add to: head_draft or head_remask.
        """
        assert self.head is not None
        self.count(rows, role)
        residual = self._head_forward(rows, ids, accumulated)
        return self.head.advance(accumulated, residual * scale if scale != 1.0 else residual)

    def logits(self, hidden: Tensor) -> Tensor:
        """W h [..., V]; the mask token can never be picked."""
        logits = self.backbone.logits(hidden)
        logits[..., self.mask_id] = -torch.inf
        return logits

    def picks(self, rows: Tensor, hidden: Tensor) -> Picks:
        """The greedy picks at the still-masked positions of the current blocks."""
        return pick(self.logits(hidden), self.masked(rows))

    # What a mode writes ------------------------------------------------------------------------

    def reveal(self, rows: Tensor, where: Tensor, tokens: Tensor, source: Source) -> None:
        """Write `tokens` [n, B] into the current blocks at `where` (boolean [n, B])."""
        index = rows[:, None].expand_as(where)[where], self._columns(rows)[where]
        self.ids[index] = tokens[where]
        self.revealed_at[index] = self.step[index[0]]
        self.revealed_by[index] = SOURCES.index(source)
        self.count(rows, "revealed", where.sum(dim=1))

    def remask(self, rows: Tensor, where: Tensor) -> None:
        """Mask the positions `where` (boolean [n, B]) of the current blocks again."""
        index = rows[:, None].expand_as(where)[where], self._columns(rows)[where]
        self.ids[index] = self.mask_id
        self.remasked[index] += 1
        self.count(rows, "vetoed", where.sum(dim=1))

    def keep(self, rows: Tensor, hidden: Tensor) -> None:
        """Keep hidden states [n, B, H] for the next round; dropped when the block is finished."""
        self.kept_hidden[rows] = hidden
        self.has_kept[rows] = True

    def count(self, rows: Tensor, name: str, amount: Tensor | int = 1) -> None:
        """Add `amount` (one number or [n]) to a counter of COUNTERS."""
        self.counts[name][rows] += amount

    # Below the modes ---------------------------------------------------------------------------

    def _new(self, *shape: int, fill: int = 0, dtype: torch.dtype = torch.long) -> Tensor:
        return torch.full(shape, fill, device=self.device, dtype=dtype)

    def _columns(self, rows: Tensor) -> Tensor:
        """Sequence positions [n, B] of the current blocks."""
        return self.start[rows, None] + torch.arange(self.block_size, device=self.device)

    def _masked(self) -> Tensor:
        return self.masked(torch.arange(self.slots, device=self.device))

    def _begin_step(self, rows: Tensor) -> None:
        self.step[rows] += 1
        self.block_step[rows] += 1

    def _prefill(self, rows: Tensor) -> None:
        rows = rows[self.start[rows] > 0]
        if not len(rows):
            return
        length = int(self.start[rows].max())
        # Shorter prompts are padded with masks: what is written there is overwritten before use.
        ids = self.ids[rows, :length]
        positions, slots, mask = prefill_layout(len(rows), length, self.block_size, self.device)
        hidden = self.backbone.hidden(ids, positions, self.cache.attend(rows, slots, mask))
        self.count(rows, "prefill")
        if self.head is not None:
            attend = self.head_cache.attend(rows, slots, mask)
            self.head(self.backbone.embed(ids), hidden, positions, attend)
            self.count(rows, "head_store")

    def _forward(self, rows: Tensor, states: Tensor) -> Tensor:
        """Backbone forward of states [n, S, B] at the current blocks -> [n, S, B, H]."""
        start = self.start[rows]
        length = int(start.max()) + states.shape[1] * self.block_size
        positions, slots, mask = state_layout(start, states.shape[1], self.block_size, length)
        attend = self.cache.attend(rows, slots, mask)
        hidden = self.backbone.hidden(states.flatten(1), positions, attend)
        return hidden.view(*states.shape, -1)

    def _head_forward(self, rows: Tensor, ids: Tensor, hidden: Tensor) -> Tensor:
        """Head forward of the current blocks [n, B] -> residual [n, B, H]."""
        assert self.head is not None
        start = self.start[rows]
        length = int(start.max()) + self.block_size
        positions, slots, mask = state_layout(start, 1, self.block_size, length)
        attend = self.head_cache.attend(rows, slots, mask)
        out: Tensor = self.head(self.backbone.embed(ids), hidden, positions, attend)
        return out
