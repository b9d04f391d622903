"""Which states a lattice had better verify: what each choice would bring, and the constants of one.

    python3 -m benchmarks.lattice_drafts [--backbone DIR --head DIR --level embedded --prompts 48]

Whatever states a lossless mode verifies, it follows static decoding. So one static run is enough:
at every state of it the drafts that would be made there are noted. What a choice of states brings
follows from the backbone's own order: a round takes as many of its next picks as lead from one
verified state to another. Printed for each task: how often the backbone's next pick is the head's
first draft, the best pick of the stale distribution, or one of the two; the TPF of each choice; and
the constants of `mrp.decoding.modes.branches`, fitted here. The fixed sets that are best are found
on one half of the prompts and tried on the other.
"""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from operator import itemgetter
from typing import ClassVar

import torch
from torch import Tensor

from mrp.data import TASKS, encode_prompt, test_examples
from mrp.decoding import decode
from mrp.decoding.modes import branches
from mrp.decoding.modes.lattice import Lattice, draft_sets
from mrp.decoding.session import Session
from mrp.evaluation.tokenizer import load_tokenizer
from mrp.models import load_backbone, load_head

K, PASSES, STATES, WINDOW = 6, 5, 16, 3
PICKS = K + branches.RIVALS
Pick = tuple[int, int]  # position and token


@dataclass
class State:
    """A state of a static run.

    own: the backbone's pick. stale: that of the distribution kept before. odds: against each of the
    PICKS. live: which there are. path: the sets of them, as bits, that the backbone goes through.
    """

    prompt: int
    open: int
    own: Pick
    stale: Pick | None = None
    picks: list[Pick] = field(default_factory=list)
    odds: list[float] = field(default_factory=list)
    live: list[bool] = field(default_factory=list)
    path: list[int] = field(default_factory=list)

    @property
    def useful(self) -> int:
        """Drafts that can be accepted: the last masked position is a bonus."""
        return min(K, self.open - 1) if self.picks else 0


@dataclass(frozen=True)
class Noted(Lattice):
    """Static decoding of one sample at a time that notes what a lattice would draft."""

    name: ClassVar[str] = "noted"
    notes: list[State] = field(default_factory=list)
    prompt: int = 0

    def round(self, session: Session, plan: int) -> None:
        """A static step."""
        hidden, useful = session.denoise(), (session.masked().sum(dim=1) - 1).clamp(max=K)
        found = session.pick(hidden)
        best, count = int(found.best()[0]), int(session.masked().sum())
        note = State(self.prompt, count, (best, int(found.tokens[0, best])))
        if count > 1 and not bool(session.fresh[0]):
            drafts, stale = self.draft(session, useful, K), session.pick(session.kept)
            where = int(stale.best()[0])
            note.stale = where, int(stale.tokens[0, where])
            at, tokens, odds = (each[0].tolist() for each in drafts if each is not None)
            note.picks, note.odds = list(zip(at, tokens, strict=True)), odds
            made = [place for place, _ in note.picks[: int(useful)]]
            note.live = [i < int(useful) for i in range(K)] + [note.picks[K][0] not in made, True]
        self.notes.append(note)
        session.reveal(found.first(), found.tokens, "backbone")
        session.keep(hidden)


Choice = Callable[[State], frozenset[int]]


def follow(notes: Sequence[State]) -> None:
    """Fill in each state's path."""
    for number, note in enumerate(notes):
        index = {pick: i for i, pick in enumerate(note.picks) if note.live[i]}
        held = 0
        for later in notes[number : number + note.useful]:
            if later.own not in index:
                break
            held |= 1 << index[later.own]
            note.path.append(held)


def tpf(notes: Sequence[State], chosen: Choice) -> float:
    """Tokens a forward where the states `chosen` are verified, the block as it is always."""
    rounds = place = 0
    while place < len(notes):
        sets, taken = chosen(notes[place]), 0
        while taken < len(notes[place].path) and notes[place].path[taken] in sets:
            taken += 1
        rounds, place = rounds + 1, place + taken + 1
    return len(notes) / rounds


def best_fixed(notes: Sequence[State], count: int) -> frozenset[int]:
    """The sets that are gone through most often."""
    often = Counter(held for note in notes for held in note.path)
    return frozenset(held for held, _ in often.most_common(count - 1))


def budgeted(count: int) -> Choice:
    """What `lattice` verifies under a budget."""
    tables = branches.branches_of(K, torch.device("cpu"))
    sets = torch.tensor(branches.branch_sets(K))

    def choose(note: State) -> frozenset[int]:
        if not note.picks:
            return frozenset()
        likely = branches.reached(tables, torch.tensor([note.odds]), torch.tensor([note.live]))
        likely = likely.masked_fill(tables.size > note.useful, 0)
        return frozenset(sets[likely[0].topk(count).indices].tolist())

    return choose


def fitted(notes: Sequence[State]) -> tuple[Tensor, Tensor, Tensor]:
    """BIAS, RISE and BELOW under which the backbone's next picks are likeliest."""
    logits, lacking, open_, came = [], [], [], []
    for note in notes:
        for held, then in zip([0, *note.path], [*note.path, -1], strict=True):
            if held.bit_count() == note.useful:
                continue
            gone = {note.picks[i][0] for i in range(PICKS) if held >> i & 1}
            earlier = [(1 << min(i, K)) - 1 for i in range(PICKS)]
            logits.append(note.odds)
            lacking.append([min(3, (mask & ~held).bit_count()) for mask in earlier])
            open_.append([note.live[i] and note.picks[i][0] not in gone for i in range(PICKS)])
            came.append(PICKS if then < 0 else (then ^ held).bit_length() - 1)
    x = -torch.tensor(logits).log().clamp(-branches.SURE, branches.SURE)
    number, blocked, target = torch.tensor(lacking), ~torch.tensor(open_), torch.tensor(came)
    kind = torch.tensor([0] * K + [1, 2])
    bias = torch.zeros(3, 4, requires_grad=True)
    rise, below = (torch.zeros(3, requires_grad=True) for _ in range(2))
    fit = torch.optim.LBFGS([bias, rise, below], max_iter=60, line_search_fn="strong_wolfe")

    def loss() -> Tensor:
        fit.zero_grad()
        weight = bias[kind, number] + rise[kind] * x + below[kind] * x.clamp(max=0)
        every = torch.nn.functional.pad(weight.masked_fill(blocked, -torch.inf), (0, 1))
        found = torch.nn.functional.cross_entropy(every, target)
        found = found + 1e-4 * sum((each**2).sum() for each in (bias, rise, below))
        found.backward()
        return found

    fit.step(loss)
    return bias.detach(), rise.detach(), below.detach()


def main() -> None:
    """Decode, then print."""
    parser = argparse.ArgumentParser(description="What choices of a lattice's states bring.")
    parser.add_argument("--backbone", default="assets/embedded/backbone")
    parser.add_argument("--head", default="assets/embedded/heads/S/k2")
    parser.add_argument("--level", default="embedded")
    parser.add_argument("--prompts", type=int, default=48, help="of each task")
    args = parser.parse_args()
    torch.set_num_threads(1)
    backbone = load_backbone(args.backbone)
    head, tokenizer = load_head(args.head, backbone), load_tokenizer(args.backbone)
    every: list[State] = []
    for task in TASKS:
        notes: list[State] = []
        for number, example in enumerate(test_examples(task, 0, args.prompts, args.level)):
            mode = Noted(k=K, head_passes=PASSES, budget=STATES, notes=notes, prompt=number)
            list(decode(backbone, head, [encode_prompt(tokenizer, example.prompt)], mode, 112, 1))
        follow(notes)
        report(task, notes)
        every += notes
    for name, values in zip(("BIAS", "RISE", "BELOW"), fitted(every), strict=True):
        print(name, values.double().numpy().round(2).tolist())


def report(task: str, notes: Sequence[State]) -> None:
    """A task's lines."""
    drafted = [note for note in notes if note.picks]
    right = [(note.own == note.picks[0], note.own == note.stale) for note in drafted]
    head, stale, either = (
        sum(map(f, right)) / len(right) for f in (itemgetter(0), itemgetter(1), any)
    )
    print(f"{task}: {len(notes)} tokens; first draft right: {head:.3f} head, {stale:.3f} stale,")
    print(f"  {either:.3f} one of the two")
    halves = [[note for note in notes if note.prompt % 2 == half] for half in (0, 1)]
    best = [best_fixed(half, STATES) for half in reversed(halves)]
    window = frozenset(draft_sets(PASSES, WINDOW))
    rows: dict[str, Choice] = {
        f"chain of {PASSES}": lambda _: frozenset((1 << i) - 1 for i in range(PASSES + 1)),
        f"window {WINDOW} of {PASSES} drafts, {len(window)} states": lambda _: window,
        f"all subsets of {PASSES} drafts": lambda _: frozenset(range(1 << PASSES)),
        f"best {STATES} fixed sets, found elsewhere": lambda note: best[note.prompt % 2],
        f"budget of {STATES}, {K} drafts": budgeted(STATES),
        "all sets": lambda note: frozenset(note.path),
    }
    for name, chosen in rows.items():
        print(f"  {name:42s} {tpf(notes, chosen):.3f}")


if __name__ == "__main__":
    main()
