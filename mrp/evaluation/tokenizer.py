"""The tokenizer beside a backbone: local files only, and no code that a checkpoint brings."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

from mrp.data import encode_prompt
from mrp.errors import UserError
from mrp.io import read_json, sha256_file
from mrp.models import BackboneConfig, is_hub_id, local_checkpoint

FILES = ("tokenizer.json", "vocab.json", "merges.txt", "tokenizer_config.json")
TEMPLATE = "chat_template.jinja"


def load_tokenizer(checkpoint: Path | str) -> Any:
    """Load the tokenizer beside a checkpoint, which is a directory or a hub id.

    Raises:
        UserError: there is none, it is damaged, or it has no chat template.
    """
    directory = local_checkpoint(checkpoint)
    if not any((directory / name).exists() for name in FILES[:2]):
        raise UserError(
            f"{directory}: no tokenizer here (tokenizer.json or vocab.json); "
            + (
                "run `mrp fetch` again"
                if is_hub_id(checkpoint)
                else "copy the tokenizer's files beside the backbone's config.json"
            )
        )
    try:
        tokenizer = _load(directory)
    except Exception as error:  # the library raises whatever its parser met
        first = str(error).splitlines()[0]
        raise UserError(f"{directory}: the tokenizer does not load ({first})") from None
    if not tokenizer.chat_template:
        raise UserError(f"{directory}: the tokenizer has no chat template; add {TEMPLATE}")
    try:
        encode_prompt(tokenizer, "?")  # a damaged template shows here and not in mid-run
    except UserError as error:
        raise UserError(f"{directory}: {error}") from None
    return tokenizer


def check_vocabulary(tokenizer: Any, directory: Path, config: BackboneConfig) -> None:
    """Check that a backbone knows all tokens, and that both mean the same mask token.

    Raises:
        UserError: they do not belong together.
    """
    most = max(tokenizer.get_vocab().values(), default=-1)
    if most >= config.vocab_size:
        raise UserError(
            f"{directory}: the tokenizer has token ids up to {most}, the backbone a vocabulary of "
            f"{config.vocab_size}; copy the backbone's own tokenizer"
        )
    mask = tokenizer.mask_token_id
    if mask is not None and mask != config.mask_token_id:
        raise UserError(
            f"{directory}: the tokenizer's mask token is {mask}, config.json says 'mask_token_id' "
            f"{config.mask_token_id}; copy the backbone's own tokenizer"
        )


def tokenizer_hash(checkpoint: Path | str) -> str:
    """SHA-256 over the tokenizer's files: it decides prompts and texts."""
    directory = local_checkpoint(checkpoint)
    digest = hashlib.sha256()
    for name in (*FILES, TEMPLATE):
        path = directory / name
        if path.exists():
            digest.update(f"{name} {sha256_file(path)}\n".encode())
    return digest.hexdigest()


def _load(directory: Path) -> Any:
    """Load with a class of transformers itself, never with one that the files bring along.

    The automatic class is the last resort: it reads the model's config first, and warns at length
    about an architecture that it does not know.
    """
    import transformers

    if (directory / "tokenizer.json").exists():
        kind = transformers.PreTrainedTokenizerFast
    else:
        settings = directory / "tokenizer_config.json"
        found = read_json(settings) if settings.exists() else {}
        name = found.get("tokenizer_class") if isinstance(found, dict) else None
        kind = getattr(transformers, str(name), None)
        if not isinstance(kind, type) or not issubclass(kind, transformers.PreTrainedTokenizerBase):
            kind = transformers.AutoTokenizer
    return kind.from_pretrained(str(directory), local_files_only=True, trust_remote_code=False)
