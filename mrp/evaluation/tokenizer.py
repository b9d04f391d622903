"""The tokenizer beside a backbone: local files only, and no code that a checkpoint brings."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

from mrp.errors import UserError
from mrp.io import sha256_file

FILES = ("tokenizer.json", "vocab.json", "merges.txt", "tokenizer_config.json")
TEMPLATE = "chat_template.jinja"


def load_tokenizer(directory: Path) -> Any:
    """Load the tokenizer in a checkpoint directory.

    Raises:
        UserError: there is none, it is damaged, or it has no chat template.
    """
    directory = Path(directory)
    if not any((directory / name).exists() for name in FILES[:2]):
        raise UserError(
            f"{directory}: no tokenizer here (tokenizer.json or vocab.json); copy the tokenizer's "
            "files beside the backbone's config.json"
        )
    try:
        tokenizer = _load(directory)
    except Exception as error:  # the library raises whatever its parser met
        first = str(error).splitlines()[0]
        raise UserError(f"{directory}: the tokenizer does not load ({first})") from None
    if not tokenizer.chat_template:
        raise UserError(f"{directory}: the tokenizer has no chat template; add {TEMPLATE}")
    return tokenizer


def tokenizer_hash(directory: Path) -> str:
    """SHA-256 over the tokenizer's files: it decides prompts and texts."""
    digest = hashlib.sha256()
    for name in (*FILES, TEMPLATE):
        path = Path(directory) / name
        if path.exists():
            digest.update(f"{name} {sha256_file(path)}\n".encode())
    return digest.hexdigest()


def _load(directory: Path) -> Any:
    if (directory / "tokenizer.json").exists():
        # Complete in itself, and quicker: the automatic class would read the model's config first.
        from transformers import PreTrainedTokenizerFast

        return PreTrainedTokenizerFast.from_pretrained(str(directory), local_files_only=True)
    from transformers import AutoTokenizer

    return AutoTokenizer.from_pretrained(
        str(directory), local_files_only=True, trust_remote_code=False
    )
