"""The mini tasks' character tokenizer, and chat encoding that works with any tokenizer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from mrp.errors import UserError

PAD, END, MASK, USER, ASSISTANT = SPECIAL = (
    "<|endoftext|>",
    "<|im_end|>",
    "<|mask|>",
    "<|user|>",
    "<|assistant|>",
)
UNKNOWN = "<|unk|>"  # a character outside the alphabet
CHARACTERS = "\n" + "".join(chr(code) for code in range(32, 127))
VOCAB_SIZE = 128

# A system message is one more user turn: the mini tasks have none, but templates must accept it.
CHAT_TEMPLATE = (
    "{%- for message in messages -%}"
    "{%- if message.role == 'assistant' -%}<|assistant|>{%- else -%}<|user|>{%- endif -%}"
    "{{- message.content -}}<|im_end|>"
    "{%- endfor -%}"
    "{%- if add_generation_prompt -%}<|assistant|>{%- endif -%}"
)

Message = Mapping[str, str]


def vocabulary() -> dict[str, int]:
    """Token -> id: special tokens, characters, `<|unk|>`, then reserved tokens up to 128."""
    tokens = [*SPECIAL, *CHARACTERS, UNKNOWN]
    tokens += [f"<|reserved_{i}|>" for i in range(VOCAB_SIZE - len(tokens))]
    return {token: i for i, token in enumerate(tokens)}


def build_tokenizer(directory: Path | str) -> Any:
    """Write the character tokenizer's files to `directory` and return the tokenizer.

    The files load offline with `transformers.AutoTokenizer.from_pretrained(directory)`.
    """
    from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    vocab = vocabulary()
    core = Tokenizer(models.WordLevel(vocab, unk_token=UNKNOWN))
    core.pre_tokenizer = pre_tokenizers.Split(Regex(r"[\s\S]"), behavior="isolated")
    core.decoder = decoders.Fuse()
    core.add_special_tokens(
        [AddedToken(token, normalized=False, special=True) for token in [*SPECIAL, UNKNOWN]]
    )
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=core,
        pad_token=PAD,
        eos_token=END,
        mask_token=MASK,
        unk_token=UNKNOWN,
        additional_special_tokens=[USER, ASSISTANT],
        clean_up_tokenization_spaces=False,
        chat_template=CHAT_TEMPLATE,
        model_max_length=4096,
    )
    tokenizer.save_pretrained(str(directory))
    return tokenizer


def encode_prompt(tokenizer: Any, text: str) -> list[int]:
    """The ids of one user message with the generation prompt: what decoding starts from."""
    return _ids(tokenizer, _render(tokenizer, [{"role": "user", "content": text}], prompt=True))


def encode_chat(tokenizer: Any, messages: Sequence[Message]) -> tuple[list[int], list[bool]]:
    """Encode a conversation through the tokenizer's chat template.

    Returns:
        ids [n] and an answer mask [n]: True on the tokens of assistant turns, their end token
        included. Turns are encoded apart, so a prompt gets the same ids here as in decoding,
        where the answer does not exist yet.

    Raises:
        UserError: the template's assistant turns cannot be told from the messages' text.
    """
    turns = sum(message["role"] == "assistant" for message in messages)
    text = _render(tokenizer, messages, prompt=False)
    opening, end = _frame(tokenizer)
    ids: list[int] = []
    mask: list[bool] = []

    def add(piece: str, is_answer: bool) -> None:
        piece_ids = _ids(tokenizer, piece)
        ids.extend(piece_ids)
        mask.extend([is_answer] * len(piece_ids))

    context, *parts = text.split(opening)
    if len(parts) != turns or not all(end in part for part in parts):
        raise UserError(
            f"chat with {turns} assistant messages renders as {len(parts)} turns that open with "
            f"{opening!r} and close with {end!r}: remove these markers from the messages"
        )
    for part in parts:
        answer, rest = part.split(end, 1)
        add(context + opening, False)
        add(answer + end, True)
        context = rest
    add(context, False)
    return ids, mask


def _render(tokenizer: Any, messages: Sequence[Message], *, prompt: bool) -> str:
    try:
        rendered = tokenizer.apply_chat_template(
            [dict(message) for message in messages], tokenize=False, add_generation_prompt=prompt
        )
    except Exception as error:  # a template is a program: it raises what it likes
        first = str(error).partition("\n")[0]
        raise UserError(
            f"the tokenizer's chat template does not take the messages "
            f"{repr([dict(message) for message in messages])[:80]} ({first}); mend the messages or "
            "chat_template.jinja"
        ) from None
    return str(rendered)


def _frame(tokenizer: Any) -> tuple[str, str]:
    """What the template writes before an assistant's answer, and the end token after it.

    The end token is the template's own, not `eos_token`: a base model's tokenizer names its
    document separator there while its chats end with another token.
    """
    question = [{"role": "user", "content": "?"}]
    answered = [*question, {"role": "assistant", "content": "!"}]
    asked = _render(tokenizer, question, prompt=False)
    opening = _render(tokenizer, question, prompt=True).removeprefix(asked)
    tail = _ids(tokenizer, _render(tokenizer, answered, prompt=False).rpartition("!")[2])
    if not opening or not tail:
        raise UserError(
            "the tokenizer's chat template must open an assistant's turn with "
            "add_generation_prompt and close it with an end token: it lacks one of them"
        )
    return opening, str(tokenizer.convert_ids_to_tokens(tail[0]))


def _ids(tokenizer: Any, text: str) -> list[int]:
    return [int(i) for i in tokenizer(text, add_special_tokens=False)["input_ids"]]
