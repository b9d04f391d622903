"""The calibration set, and how a candidate decodes it."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path
from typing import Any

import torch

from mrp.data import build
from mrp.decoding import Decoded, Decoder, make_mode
from mrp.errors import UserError
from mrp.evaluation.adapter import DTYPES, MRPModel
from mrp.evaluation.requests import Request, answer_text, find_stop, raw_text
from mrp.evaluation.run import (
    DEFAULT_LENGTH,
    limit_lengths,
    load_tasks,
    quiet_lm_eval,
    requests_of,
)
from mrp.evaluation.verdicts import Doc, judge
from mrp.models import Head, load_head
from mrp.schema import GENERATED
from mrp.speed.interleave import Contender, compare, interleave, synchronize
from mrp.tuning.candidates import STATIC, Candidate
from mrp.tuning.race import Seen

SEED = 1  # of generated problems: none of the test sets, which have 0


@dataclass(frozen=True)
class Problem:
    """One problem, ready to be decoded and scored."""

    task: str
    doc: Doc
    request: Request


def calibration(
    model: MRPModel,
    tasks: Sequence[str],
    count: int,
    data_dir: Path | None = None,
    level: str = "embedded",
    max_new_tokens: int | None = None,
) -> list[Problem]:
    """`count` problems of each task, the tasks taking turns.

    `max_new_tokens` goes before a task's own limit. Without a data directory the generated tasks
    make new ones. Of a benchmark that has more they are spread over all of it; one that has fewer
    gives what it has.

    Raises:
        UserError: unknown task or level, or missing data.
    """
    found: list[list[Problem]] = []
    with tempfile.TemporaryDirectory() as made, quiet_lm_eval():
        if data_dir is None and set(tasks) & set(GENERATED):
            build(made, SEED, count, level)
        for task in tasks:
            place = Path(made) if data_dir is None and task in GENERATED else data_dir
            loaded = load_tasks([task], place)
            if max_new_tokens is not None:
                limit_lengths(loaded, max_new_tokens)
            instances = requests_of(loaded["tasks"][task], model, None)
            stride = max(1, len(instances) / count)
            chosen = [instances[int(i * stride)] for i in range(min(count, len(instances)))]
            found.append([Problem(task, i.doc, model.request(*i.args)) for i in chosen])
    return [problem for turn in zip_longest(*found) for problem in turn if problem is not None]


class Bench:
    """Decodes calibration problems with any candidate; `seconds` is what all of it took."""

    def __init__(
        self,
        backbone: Path,
        heads: Mapping[str, Path],
        device: str | None,
        dtype: str,
        max_new_tokens: int | None = None,
        head_variant: str | None = None,
    ) -> None:
        """Load the checkpoints.

        Args:
            backbone, heads: checkpoints, the heads by name.
            device, dtype: as `MRPModel` has them.
            max_new_tokens: goes before the tasks' own limits.
            head_variant: how the heads were trained, where their checkpoints do not say.
        """
        self.model = MRPModel(
            backbone, device=device, dtype=dtype, max_new_tokens=max_new_tokens or DEFAULT_LENGTH
        )
        self.limit = max_new_tokens
        self.backbone = self.model.backbone
        self.device: torch.device = self.backbone.lm_head.weight.device
        self.heads: dict[str, Head] = {
            name: load_head(path, self.backbone, self.device, DTYPES[dtype], head_variant)
            for name, path in heads.items()
        }
        self.chunks: list[list[Problem]] = []
        self.seconds = 0.0

    def prepare(
        self, tasks: Sequence[str], count: int, data: Path | None, level: str, batch_size: int
    ) -> None:
        """Load the calibration problems, `batch_size` of them to a unit; a rest is left out."""
        problems = calibration(self.model, tasks, count, data, level, self.limit)
        if len(problems) < 2 * batch_size:
            raise UserError(
                f"--calibration {count}: {len(problems)} problems are less than two batches of "
                f"{batch_size}: ask for more, or lower --batch-size"
            )
        whole = len(problems) // batch_size * batch_size
        self.chunks = [problems[i : i + batch_size] for i in range(0, whole, batch_size)]
        self.measure(STATIC, [0])  # what a process does for the first time takes longer

    def first(self, tasks: int) -> int:
        """Units of a candidate's first test: two, and every task at least once."""
        return max(2, -(-tasks // len(self.chunks[0])))

    def measure(self, candidate: Candidate, units: Sequence[int]) -> list[Seen]:
        """Decode and score some units."""
        chunks = [self.chunks[unit] for unit in units]
        decoder = self._decoder(candidate)
        decoder.reserve([p.request.prompt for chunk in chunks for p in chunk], self._longest())
        if self.device.type == "cuda":  # captures its graphs
            for chunk in chunks[:1]:
                self._decode(decoder, chunk)
        return [self._seen(decoder, chunk) for chunk in chunks]

    def in_turns(self, candidates: Sequence[Candidate], repeats: int) -> dict[Candidate, Any]:
        """Each one's tokens/s over static's, both in turns on the same units, with intervals."""
        named = {str(one): one for one in (STATIC, *candidates)}
        few = self.chunks[: max(2, -(-4 // len(self.chunks[0])))]
        prompts = [[problem.request.prompt for problem in chunk] for chunk in few]
        start = time.perf_counter()
        found = interleave(
            {name: self._contender(one) for name, one in named.items()},
            prompts,
            repeats,
            self.device,
        )
        self.seconds += time.perf_counter() - start
        return {
            one: compare(found[str(STATIC)].timed, found[name].timed, seed=0)
            for name, one in named.items()
            if one != STATIC
        }

    def _contender(self, candidate: Candidate) -> Contender:
        decoder = self._decoder(candidate)
        decoder.reserve([p.request.prompt for c in self.chunks for p in c], self._longest())
        return lambda chunk: decoder.decode(chunk, self._longest())

    def _decoder(self, candidate: Candidate) -> Decoder:
        head = self.heads[candidate.head] if candidate.head is not None else None
        mode = make_mode(candidate.mode, **candidate.knobs)
        return Decoder(self.backbone, head, mode, len(self.chunks[0]))

    def _longest(self) -> int:
        return max(p.request.max_new_tokens for chunk in self.chunks for p in chunk)

    def _decode(self, decoder: Decoder, chunk: Sequence[Problem]) -> tuple[list[Decoded], float]:
        """The answers in the order of the chunk, and the seconds they took.

        On a CPU those are the processor's: other programs stretch the clock's from one candidate to
        the next, and the fastest are timed in turns in the end.
        """

        def stop(index: int, ids: list[int]) -> bool:
            until = chunk[index].request.until
            return bool(until) and find_stop(raw_text(self.model.tokenizer, ids), until) is not None

        clock = time.perf_counter if self.device.type == "cuda" else time.process_time
        synchronize(self.device)
        start, begin = time.perf_counter(), clock()
        found = list(
            decoder.decode(
                [problem.request.prompt for problem in chunk],
                [problem.request.max_new_tokens for problem in chunk],
                stop if any(problem.request.until for problem in chunk) else None,
            )
        )
        synchronize(self.device)
        seconds = clock() - begin
        self.seconds += time.perf_counter() - start
        return sorted(found, key=lambda decoded: decoded.index), seconds

    def _seen(self, decoder: Decoder, chunk: Sequence[Problem]) -> Seen:
        found, seconds = self._decode(decoder, chunk)
        counts = [decoded.counts for decoded in found]
        return Seen(
            right=tuple(self._right(chunk, found)),
            tokens=sum(each["answer_tokens"] for each in counts),
            generated=sum(each["generated"] for each in counts),
            forwards=sum(each["denoise"] + each["verify"] for each in counts),
            seconds=seconds,
            answers=tuple(tuple(decoded.ids) for decoded in found),
        )

    def _right(self, chunk: Sequence[Problem], found: Sequence[Decoded]) -> list[bool]:
        verdicts: dict[int, bool] = {}
        for task in {problem.task for problem in chunk}:
            places = [place for place, problem in enumerate(chunk) if problem.task == task]
            texts = [
                answer_text(self.model.tokenizer, found[p].ids, chunk[p].request) for p in places
            ]
            judged = judge(task, [chunk[p].doc for p in places], texts)
            verdicts |= {p: verdict.correct for p, verdict in zip(places, judged, strict=True)}
        return [verdicts[place] for place in range(len(chunk))]
