"""Every decoding mode as a model of lm-evaluation-harness, under the name `mrp`.

    lm_eval --model mrp --model_args backbone=DIR,head=DIR,mode=speculative,k=3 ...

(`python -m mrp.evaluation` is that command line with this model and our tasks registered.)
Decoding is greedy; a request that asks for sampling or for likelihoods is an error, not a guess.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from lm_eval.api.model import LM
from lm_eval.api.registry import register_model

from mrp.decoding import Decoded, Decoder, Mode, Trace, make_mode
from mrp.errors import UserError
from mrp.evaluation.identity import answer_identity
from mrp.evaluation.journal import Journal
from mrp.evaluation.progress import Progress
from mrp.evaluation.requests import Request, answer_text, find_stop, parse_settings, raw_text
from mrp.evaluation.tokenizer import check_vocabulary, load_tokenizer
from mrp.memory import halved, is_out_of_memory, only_new_garbage
from mrp.models import Backbone, Head, load_backbone, load_head
from mrp.turns import seated, working

logger = logging.getLogger(__name__)

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}


@dataclass(frozen=True)
class Outcome:
    """What became of a request: the decoder's result and the text that is scored."""

    decoded: Decoded
    text: str


@register_model("mrp")  # type: ignore[untyped-decorator, unused-ignore]
class MRPModel(LM):  # type: ignore[misc]
    """Backbone, head and mode behind lm-eval's `generate_until`.

    After a run, `outcomes` holds the result of every (task, document id), `seconds` the decoding
    time of this process and of the runs before it that the journal remembers.
    """

    def __init__(
        self,
        backbone: str | Path,
        head: str | Path | None = None,
        mode: str = "static",
        batch_size: int | str = 32,
        max_new_tokens: int = 256,
        device: str | None = None,
        dtype: str = "float32",
        head_variant: str | None = None,
        journal: str | Path | None = None,
        max_batch_size: int | None = None,
        invariant: bool = False,
        **options: Any,
    ) -> None:
        """Load the checkpoints.

        Args:
            backbone: checkpoint with the tokenizer's files in it, a directory or a hub id.
            head: checkpoint of the head, likewise, for the modes that need one.
            mode: a name in `mrp.decoding.MODES`; its knobs (k, tau, ...) are `options`.
            batch_size: samples decoded together; lm-eval's "auto" means the default.
            max_new_tokens: answer length for requests that do not say one.
            device: "cpu", "cuda", "cuda:1"; None or "auto" takes a GPU if there is one.
            dtype: float32, bfloat16 or float16.
            head_variant: how the head was trained, where its checkpoint does not say.
            journal: file that keeps finished answers for a re-run of the same setting.
            max_batch_size: accepted because lm-eval passes it; batches never grow here.
            invariant: answer so that no near tie hangs on what else is computed; see `Decoder`.
            options: the mode's knobs.

        Raises:
            UserError: unknown mode or knob, or a missing, damaged or ill-fitting checkpoint.
        """
        super().__init__()
        if dtype not in DTYPES:
            raise UserError(f"dtype {dtype!r} is unknown: choose one of {', '.join(DTYPES)}")
        self.mode_name = mode
        self.mode = make_mode(mode, **options)
        if self.mode.needs_head != (head is not None):
            need = "needs a head: add one" if self.mode.needs_head else "uses no head: leave it out"
            raise UserError(f"mode {mode!r} {need} (head is {str(head) if head else 'not given'})")
        self._device = find_device(device)
        self.dtype, self.invariant = dtype, bool(invariant)
        self.head_variant = head_variant
        self.backbone_path = Path(backbone)
        self.head_path = Path(head) if head is not None else None
        self.backbone, self.head = self._load(dtype)
        self.tokenizer = load_tokenizer(self.backbone_path)
        check_vocabulary(self.tokenizer, self.backbone_path, self.backbone.config)
        self.batch_size = 32 if batch_size == "auto" else int(batch_size)
        self.batch_size_used = self.batch_size  # less where memory ended
        self.max_new_tokens = int(max_new_tokens)
        self.outcomes: dict[tuple[str, int], Outcome] = {}
        self.seconds = 0.0
        self.resumed_from = 0
        self.journal = Journal(Path(journal), self.identity) if journal is not None else None

    @cached_property
    def identity(self) -> dict[str, Any]:
        """Everything in this process that decides an answer: the start of a journal's header."""
        return answer_identity(
            self.mode_name,
            self.mode,
            self.backbone_path,
            self.head_path,
            self.head_variant,
            self.dtype,
            self._device,
            self.invariant,
        )

    def models(self, dtype: str) -> tuple[Backbone, Head | None]:
        """Backbone and head in a precision: these, or others that are loaded now."""
        return (self.backbone, self.head) if dtype == self.dtype else self._load(dtype)

    def _load(self, dtype: str) -> tuple[Backbone, Head | None]:
        place, precision = self._device, DTYPES[dtype]
        backbone = load_backbone(self.backbone_path, place, precision)
        if self.head_path is None:
            return backbone, None
        return backbone, load_head(self.head_path, backbone, place, precision, self.head_variant)

    # Prompts

    @property
    def tokenizer_name(self) -> str:
        """Names the chat template in lm-eval's caches and logs."""
        return str(self.backbone_path).replace("/", "__")

    def chat_template(self, chat_template: bool | str = False) -> str | None:
        """The tokenizer's template as text, for lm-eval's logs."""
        return str(self.tokenizer.chat_template) if chat_template else None

    def apply_chat_template(
        self, chat_history: list[dict[str, str]], add_generation_prompt: bool = True
    ) -> str:
        """Render messages; without a generation prompt the last one is left open, as a prefill."""
        rendered = self.tokenizer.apply_chat_template(
            chat_history,
            tokenize=False,
            add_generation_prompt=add_generation_prompt,
            continue_final_message=not add_generation_prompt,
        )
        return str(rendered)

    def encode(self, text: str) -> list[int]:
        """Token ids of a rendered prompt [n].

        Raises:
            UserError: it is empty or holds the mask token.
        """
        ids = self._ids(text)
        mask = self.backbone.config.mask_token_id
        if not ids:
            raise UserError("prompt '' is empty: give at least one character")
        if mask in ids:
            raise UserError(
                f"prompt {text[:60]!r} contains the mask token "
                f"{self.tokenizer.decode([mask])!r}, which stands for a place that is to be "
                "filled: remove it from the text"
            )
        return ids

    def unknown(self, text: str) -> str | None:
        """The first character of a text that the tokenizer does not know; None if it knows all."""
        unknown = self.tokenizer.unk_token_id
        if unknown is None or unknown not in self._ids(text):
            return None
        return next((character for character in text if unknown in self._ids(character)), None)

    def _ids(self, text: str) -> list[int]:
        # Not `verbose`: how long a prompt may be is the backbone's matter, and checked.
        encoded = self.tokenizer(text, add_special_tokens=False, verbose=False)
        return [int(i) for i in encoded["input_ids"]]

    def request(self, text: str, settings: dict[str, Any]) -> Request:
        """One lm-eval request, checked.

        Raises:
            UserError: it asks for sampling or for an unknown setting, or does not fit the context.
        """
        until, length = parse_settings(settings, self.max_new_tokens)
        prompt = self.encode(text)
        context = self.backbone.config.max_position_embeddings
        if len(prompt) + length > context:
            raise UserError(
                f"prompt {text[:60]!r} of {len(prompt)} tokens and {length} new ones exceed the "
                f"model's context, max_position_embeddings = {context}: shorten the prompt or "
                "lower max_new_tokens"
            )
        return Request(prompt, until, length)

    # Decoding

    def generate_until(self, requests: list[Any], disable_tqdm: bool = False) -> list[str]:
        """Answer every request; all of them share one queue of `batch_size` places."""
        asked = [self.request(*instance.args) for instance in requests]
        unknown = self.tokenizer.unk_token_id
        strange = [
            character
            for instance, request in zip(requests, asked, strict=True)
            if unknown in request.prompt and (character := self.unknown(instance.args[0]))
        ]
        if strange:
            logger.warning(
                "%d of %d prompts hold characters that the tokenizer of %s does not know, such as "
                "%r: the model sees %s there",
                len(strange),
                len(requests),
                self.backbone_path,
                strange[0],
                self.tokenizer.unk_token,
            )
        outcomes = self.answer(asked, progress=not disable_tqdm)
        for instance, outcome in zip(requests, outcomes, strict=True):
            self.outcomes[instance.task_name, instance.doc_id] = outcome
        return [outcome.text for outcome in outcomes]

    def answer(self, asked: list[Request], progress: bool = False) -> list[Outcome]:
        """Decode the requests, or take their answers from the journal; in the order asked.

        Equal requests are decoded once, since greedy decoding gives them equal answers.
        """
        asked_keys = [request.key for request in asked]
        unique = dict(zip(asked_keys, asked, strict=True))
        done: dict[str, Decoded] = {}
        known = self.journal.entries if self.journal is not None else {}
        for key in unique.keys() & known.keys():
            try:
                done[key] = _restore(known[key])
                self.seconds += known[key]["seconds"]
                used = known[key].get("batch_size", self.batch_size_used)
                self.batch_size_used = min(self.batch_size_used, used)
            except (KeyError, TypeError):
                raise UserError(
                    f"{self.journal and self.journal.path}: the entry {key} is damaged; delete "
                    "its line, or the file to start over"
                ) from None
        if done:
            logger.info("resuming: %d of %d samples", len(done), len(unique))
        self.resumed_from += len(done)
        open_keys = [key for key in unique if key not in done]
        with Progress(len(unique), len(done), progress) as bar, seated(), only_new_garbage():
            for key, decoded, seconds in self._decode(open_keys, unique):
                done[key] = decoded
                self.seconds += seconds
                bar.update(decoded.counts)
                if self.journal is not None:
                    how = {"seconds": seconds, "batch_size": self.batch_size_used}
                    plain = {**vars(decoded), "trace": vars(decoded.trace)}
                    self.journal.append(key, {**plain, **how})
        if self.journal is not None:
            self.journal.sync()
        return [
            Outcome(done[key], answer_text(self.tokenizer, done[key].ids, request))
            for key, request in zip(asked_keys, asked, strict=True)
        ]

    def _decode(
        self, keys: list[str], unique: dict[str, Request]
    ) -> Iterator[tuple[str, Decoded, float]]:
        """Decode the requests `keys`; yields key, result and the seconds since the last yield.

        Where memory ends, what is finished is kept, and the rest decoded with half the batch.
        """
        size = self.batch_size
        while keys:
            size = min(size, len(keys))
            done = set()
            try:
                for key, decoded, seconds in self._decode_at(size, keys, unique):
                    done.add(key)
                    yield key, decoded, seconds
                return
            except (RuntimeError, MemoryError) as error:
                if not is_out_of_memory(error):
                    raise
            size = halved(size, "decoding")
            self.batch_size_used = min(self.batch_size_used, size)
            keys = [key for key in keys if key not in done]

    def _decode_at(
        self, batch_size: int, keys: list[str], unique: dict[str, Request]
    ) -> Iterator[tuple[str, Decoded, float]]:
        asked = [unique[key] for key in keys]

        def stop(index: int, ids: list[int]) -> bool:
            until = asked[index].until
            return bool(until) and find_stop(raw_text(self.tokenizer, ids), until) is not None

        results = decode(
            self.backbone,
            self.head,
            [request.prompt for request in asked],
            self.mode,
            [request.max_new_tokens for request in asked],
            batch_size=batch_size,
            stop=stop if any(request.until for request in asked) else None,
            invariant=self.invariant,
        )
        with working():
            last = time.perf_counter()
            for decoded in results:
                now = time.perf_counter()
                yield keys[decoded.index], decoded, now - last
                last = now

    # What a block-diffusion model under these modes does not offer

    def loglikelihood(self, requests: list[Any], disable_tqdm: bool = False) -> Any:
        """Not offered: raises UserError."""
        raise _no_likelihood("loglikelihood")

    def loglikelihood_rolling(self, requests: list[Any], disable_tqdm: bool = False) -> Any:
        """Not offered: raises UserError."""
        raise _no_likelihood("loglikelihood_rolling")

    def set_cache_hook(self, cache_hook: Any) -> None:
        """Refuse lm-eval's response cache, which would mix the answers of different modes."""
        if cache_hook.dbdict is not None:
            raise UserError(
                "--use_cache keeps answers by the request alone, so another mode, k or tau would "
                "read them: leave it out, and give journal=FILE in --model_args to resume a run"
            )


def decode(
    backbone: Backbone,
    head: Head | None,
    prompts: list[list[int]],
    mode: Mode,
    budgets: list[int],
    batch_size: int,
    stop: Callable[[int, list[int]], bool] | None,
    invariant: bool,
) -> Iterator[Decoded]:
    """As `mrp.decoding.decode`, prepared right now and not with the first result.

    So it is done before the device is used: it takes a processor longer than the device.
    """
    decoder = Decoder(backbone, head, mode, batch_size, invariant=invariant)
    longest, budget = max(
        zip(prompts, budgets, strict=True), key=lambda asked: len(asked[0]) + asked[1]
    )
    decoder.reserve([longest] * len(prompts), budget)
    return decoder.decode(prompts, budgets, stop)


def find_device(name: str | None) -> torch.device:
    """The device called `name`; None and "auto" take a GPU if there is one.

    Raises:
        UserError: there is no such device here.
    """
    count = torch.cuda.device_count()
    if name in (None, "auto"):
        return torch.device("cuda" if count else "cpu")
    allowed = ["auto", "cpu", *(["cuda"] if count else []), *(f"cuda:{i}" for i in range(count))]
    if name not in allowed:
        raise UserError(f"device {name!r} is not here: choose one of {', '.join(allowed)}")
    return torch.device(name)


def _restore(entry: dict[str, Any]) -> Decoded:
    other = ("trace", "seconds", "batch_size")
    fields = {name: value for name, value in entry.items() if name not in other}
    return Decoded(**fields, trace=Trace(**entry["trace"]))


def _no_likelihood(what: str) -> UserError:
    return UserError(
        f"{what} requests are not supported: block diffusion under these modes gives no "
        "likelihood of a text; choose tasks with output_type: generate_until"
    )
