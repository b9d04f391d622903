"""What a generation request asks for, and where its answer ends in the decoded text."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import Any

from mrp.errors import UserError
from mrp.evaluation.journal import request_key

logger = logging.getLogger(__name__)

LENGTH_KEYS = ("max_gen_toks", "max_new_tokens", "max_tokens", "max_completion_tokens")
# What a greedy request may carry; anything else would change the answer and is refused.
KNOWN_KEYS = {"until", "do_sample", "temperature", "top_k", "top_p", *LENGTH_KEYS}


@dataclass(frozen=True)
class Request:
    """One prompt in token ids, the strings that end its answer, and the answer's longest length."""

    prompt: list[int]
    until: list[str]
    max_new_tokens: int

    @property
    def key(self) -> str:
        """Identity within a setting, as the journal has it."""
        return request_key(self.prompt, self.until, self.max_new_tokens)


def parse_settings(settings: dict[str, Any], default_length: int) -> tuple[list[str], int]:
    """lm-eval's generation settings as (stop strings, most new tokens).

    A string in place of a list is one stop string, never its letters; empty strings are dropped.

    Raises:
        UserError: sampling, a length below 1, a stop string that is no string, or unknown keys.
    """
    unknown = sorted(settings.keys() - KNOWN_KEYS)
    if unknown:
        raise UserError(
            f"generation setting {unknown[0]!r} is unknown: allowed are "
            f"{', '.join(sorted(KNOWN_KEYS))}"
        )
    temperature = float(settings.get("temperature") or 0.0)
    sample = settings.get("do_sample", temperature > 0.0)
    is_cold = temperature == 0.0 and "temperature" in settings
    if sample and not is_cold and settings.get("top_k") != 1:
        raise UserError(
            f"generation settings ask for sampling (do_sample={sample}, temperature="
            f"{settings.get('temperature', 'default')}), but decoding is greedy only: set "
            "do_sample: false, temperature: 0 or top_k: 1"
        )
    until = settings.get("until") or []
    until = [until] if isinstance(until, str) else list(until)
    for string in until:
        if not isinstance(string, str):
            raise UserError(f"generation setting 'until' holds {string!r}: give strings")
        if "\\n" in string:
            logger.warning(
                "stop string %r is a backslash and an n, not a line break: write it in double "
                "quotes in YAML",
                string,
            )
    length = next((settings[k] for k in LENGTH_KEYS if settings.get(k) is not None), default_length)
    if int(length) < 1:
        raise UserError(f"max_gen_toks is {length}: allow at least 1 new token")
    return [string for string in until if string], int(length)


def raw_text(tokenizer: Any, ids: list[int]) -> str:
    """Token ids as text, special tokens written out."""
    text = tokenizer.decode(ids, skip_special_tokens=False, clean_up_tokenization_spaces=False)
    return str(text)


def find_stop(text: str, until: list[str]) -> int | None:
    """Where the earliest of the stop strings begins in `text`; None without one."""
    places = [place for string in until if (place := text.find(string)) >= 0]
    return min(places, default=None)


def answer_text(tokenizer: Any, ids: list[int], request: Request) -> str:
    """The text up to the earliest stop string, without special tokens."""
    text = raw_text(tokenizer, ids)
    text = text[: find_stop(text, request.until)]
    for token in tokenizer.all_special_tokens:
        text = text.replace(token, "")
    return text
