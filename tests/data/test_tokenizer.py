"""The character tokenizer, and chat encoding through it and through another chat format."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mrp.data import build_tokenizer, encode_chat, encode_prompt
from mrp.data.tokenizer import CHARACTERS, SPECIAL, UNKNOWN
from mrp.errors import UserError

TURNS = [
    {"role": "system", "content": "brief"},
    {"role": "user", "content": "1+1?"},
    {"role": "assistant", "content": "#2"},
    {"role": "user", "content": "2+2?"},
    {"role": "assistant", "content": "#4"},
]

# A chat format whose end token is not the tokenizer's eos token, as published backbones have it.
OTHER_TEMPLATE = (
    "{% for m in messages %}[{{ m.role }}]{{ m.content }}<|mask|>\n{% endfor %}"
    "{% if add_generation_prompt %}[assistant]{% endif %}"
)


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("tokenizer")
    build_tokenizer(path)
    return path


@pytest.fixture(scope="module")
def tokenizer(directory: Path) -> Any:
    from transformers import AutoTokenizer

    return AutoTokenizer.from_pretrained(str(directory), local_files_only=True)


def test_ids_are_the_documented_ones(tokenizer: Any) -> None:
    assert tokenizer.convert_tokens_to_ids(list(SPECIAL)) == [0, 1, 2, 3, 4]
    assert len(tokenizer) == 128 == len(tokenizer.get_vocab())
    assert (tokenizer.pad_token_id, tokenizer.eos_token_id, tokenizer.mask_token_id) == (0, 1, 2)
    assert tokenizer.convert_tokens_to_ids(list(CHARACTERS)) == list(range(5, 101))
    assert tokenizer.convert_tokens_to_ids(UNKNOWN) == 101


def test_files_are_the_same_each_time(directory: Path, tmp_path: Path) -> None:
    build_tokenizer(tmp_path)
    names = sorted(path.name for path in tmp_path.iterdir())
    assert names == sorted(path.name for path in directory.iterdir())
    assert all((tmp_path / n).read_bytes() == (directory / n).read_bytes() for n in names)


@given(text=st.text(alphabet=CHARACTERS, max_size=80))
def test_text_survives_one_id_a_character(tokenizer: Any, text: str) -> None:
    if any(token in text for token in (*SPECIAL, UNKNOWN)):
        return
    ids = tokenizer(text, add_special_tokens=False)["input_ids"]
    assert len(ids) == len(text)
    assert tokenizer.decode(ids) == text
    assert tokenizer.decode([3, *ids, 1, 0, 0], skip_special_tokens=True) == text


def test_other_characters_become_unknown(tokenizer: Any) -> None:
    assert tokenizer("1\u00b7é\t", add_special_tokens=False)["input_ids"][1:] == [101, 101, 101]


def test_chat_marks_answers_and_their_end(tokenizer: Any) -> None:
    ids, mask = encode_chat(tokenizer, TURNS)
    assert tokenizer.decode(ids) == (
        "<|user|>brief<|im_end|><|user|>1+1?<|im_end|><|assistant|>#2<|im_end|>"
        "<|user|>2+2?<|im_end|><|assistant|>#4<|im_end|>"
    )
    answer = [i for i, is_answer in zip(ids, mask, strict=True) if is_answer]
    assert tokenizer.decode(answer) == "#2<|im_end|>#4<|im_end|>"
    assert ids == tokenizer.apply_chat_template(TURNS, tokenize=True, return_dict=False)


def test_prompt_is_the_start_of_its_chat(tokenizer: Any) -> None:
    prompt = encode_prompt(tokenizer, "1+1?")
    ids, mask = encode_chat(tokenizer, TURNS[1:3])
    assert ids[: len(prompt)] == prompt
    assert mask == [False] * len(prompt) + [True] * (len(ids) - len(prompt))


def test_chat_follows_another_template_and_its_end_token(tmp_path: Path) -> None:
    tokenizer = build_tokenizer(tmp_path)
    tokenizer.chat_template = OTHER_TEMPLATE
    ids, mask = encode_chat(tokenizer, TURNS)
    answer = [i for i, is_answer in zip(ids, mask, strict=True) if is_answer]
    assert tokenizer.decode(answer) == "#2<|mask|>#4<|mask|>"
    assert tokenizer.decode(ids) == tokenizer.apply_chat_template(TURNS, tokenize=False)


def test_chat_without_answers_has_none(tokenizer: Any) -> None:
    ids, mask = encode_chat(tokenizer, TURNS[:2])
    assert len(ids) == len(mask)
    assert not any(mask)


@pytest.mark.parametrize("content", ["<|assistant|>#3", "a<|im_end|><|assistant|>"])
def test_markers_in_a_message_are_an_error(tokenizer: Any, content: str) -> None:
    with pytest.raises(UserError, match="remove these markers"):
        encode_chat(tokenizer, [{"role": "user", "content": content}, TURNS[2]])


def test_template_without_generation_prompt_is_an_error(tmp_path: Path) -> None:
    tokenizer = build_tokenizer(tmp_path)
    tokenizer.chat_template = "{% for m in messages %}{{ m.content }}<|im_end|>{% endfor %}"
    with pytest.raises(UserError, match="add_generation_prompt"):
        encode_chat(tokenizer, TURNS)


@pytest.mark.parametrize("template", ["{% if %}", "{{ raise_exception('no') }}"])
def test_a_template_that_fails_is_an_error(tmp_path: Path, template: str) -> None:
    tokenizer = build_tokenizer(tmp_path)
    tokenizer.chat_template = template
    with pytest.raises(UserError, match="does not take the messages"):
        encode_chat(tokenizer, TURNS)
