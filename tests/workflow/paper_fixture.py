"""What config/suites/paper_smoke.yaml asks for, written in seconds, in the hub's layouts.

    python -m tests.workflow.paper_fixture       writes data/paper_smoke
    snakemake --config suite=paper_smoke         the whole paper workflow on it, in minutes

Three tiny random backbones stand for the paper's three: a released repository each for the heads
default, k2 and direct (sharded bf16 weights, backbone and head in one, a real byte-level BPE
tokenizer with chat template), a few problems of our own in each benchmark's columns, and chats to
train a head on. Nothing here has learned anything: the answers are noise, the paths are real.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from torch import Tensor

from mrp.models import Backbone, BackboneConfig, Head, HeadConfig
from tests.workflow import paper_problems

BACKBONES = {"sdar-1.7b": (32, 2), "sdar-4b": (48, 2), "sdar-8b": (64, 3)}  # width, layers
VARIANTS = {"default": "", "k2": "-k2", "direct": "-direct"}  # what a repository's name ends with
END, START, STOP, MASK = "<|endoftext|>", "<|im_start|>", "<|im_end|>", "<|MASK|>"
MERGED = 400  # tokens of the vocabulary before the special ones; the embedding has some to spare
VOCABULARY = 448
BLOCK = 16
SHARDS = 2
TEMPLATE = (
    "{% for message in messages %}"
    "{{ '<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>\\n' }}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"
)


def build(root: Path) -> None:
    """Write models/, benchmarks/ and chats.jsonl to `root`; the same bytes every time."""
    torch.set_num_threads(1)
    tokenizer = train_tokenizer()
    for number, name in enumerate(BACKBONES):
        backbone = make_backbone(number)
        for index, (variant, suffix) in enumerate(VARIANTS.items()):
            directory = root / "models" / f"{name}-mrp-3lyr{suffix}"
            head = make_head(backbone, variant, seed=10 * number + index)
            # Older repositories call a head's tensors mtp_modules.
            prefix = "mtp_modules.0." if (name, variant) == ("sdar-4b", "k2") else "mrp_modules.0."
            write_repository(directory, backbone, head, prefix)
            if name == "sdar-4b":
                write_slow_tokenizer(directory, tokenizer)
            else:
                write_fast_tokenizer(directory, tokenizer)
    for task, rows in paper_problems.BENCHMARKS.items():
        write_lines(root / "benchmarks" / f"{task}.jsonl", rows)
    write_lines(root / "chats.jsonl", paper_problems.CHATS)


def write_hub_cache(root: Path, cache: Path) -> None:
    """Lay the models of `root` out as the hub's cache has them, of the owner `smoke`."""
    for directory in sorted((root / "models").iterdir()):
        place = cache / f"models--smoke--{directory.name}"
        commit = f"{sum(map(ord, directory.name)):040x}"
        (place / "refs").mkdir(parents=True)
        (place / "refs/main").write_text(commit)
        (place / "snapshots").mkdir()
        (place / "snapshots" / commit).symlink_to(directory.resolve())


# ---- models --------------------------------------------------------------------------------------


def make_backbone(number: int) -> Backbone:
    """A random backbone whose greedy choices are far apart."""
    width, layers = list(BACKBONES.values())[number]
    config = BackboneConfig(
        vocab_size=VOCABULARY,
        hidden_size=width,
        intermediate_size=2 * width,
        num_hidden_layers=layers,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=16,
        mask_token_id=MERGED + 3,
        pad_token_id=MERGED,
        eos_token_ids=(MERGED + 2, MERGED),
        block_size=BLOCK,
        initializer_range=0.3,
        max_position_embeddings=4096,
    )
    model = Backbone(config)
    model.reset_parameters(torch.Generator().manual_seed(number))
    return model


def make_head(backbone: Backbone, variant: str, seed: int) -> Head:
    """A random head of one layer: depth costs time here and shows nothing."""
    objective = "direct" if variant == "direct" else "residual"
    config = HeadConfig(backbone.config, 1, variant, objective)  # type: ignore[arg-type]
    head = Head(config)
    head.reset_parameters("normal-0.02", torch.Generator().manual_seed(100 + seed))
    return head


def write_repository(directory: Path, backbone: Backbone, head: Head, prefix: str) -> None:
    """A released repository: config.json as published, weights in shards with their index.

    The head's file also repeats the frozen embedding and output matrix, as some released ones do.
    """
    config = backbone.config
    tensors = dict(backbone.state_dict())
    tensors |= {f"{prefix}model.{name}": value for name, value in head.state_dict().items()}
    tensors[f"{prefix}model.embed_tokens.weight"] = backbone.model.embed_tokens.weight
    tensors[f"{prefix}lm_head.weight"] = backbone.lm_head.weight
    write_json(
        directory / "config.json",
        {
            "architectures": ["SDARForCausalLM"],
            "auto_map": {"AutoModelForCausalLM": "modeling_sdar.SDARForCausalLM"},
            "model_type": "sdar",
            "attention_bias": False,
            "block_size": BLOCK,
            "bos_token_id": config.pad_token_id,
            "eos_token_id": config.pad_token_id,
            "mask_token_id": config.mask_token_id,
            "hidden_act": "silu",
            "rope_theta": 1000000,
            "rope_scaling": None,
            "rms_norm_eps": 1e-06,
            "tie_word_embeddings": False,
            "torch_dtype": "bfloat16",
            "use_sliding_window": False,
            "num_nextn_predict_layers": head.config.num_layers,
            "num_mrp_heads": 1,
            **{
                key: getattr(config, key)
                for key in (
                    *("vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers"),
                    *("num_attention_heads", "num_key_value_heads", "head_dim"),
                    "max_position_embeddings",
                )
            },
        },
    )
    ends = {"eos_token_id": list(config.eos_token_ids), "pad_token_id": config.pad_token_id}
    write_json(directory / "generation_config.json", ends)
    write_shards(directory, tensors)


def write_shards(directory: Path, tensors: Mapping[str, Tensor]) -> None:
    """Weights in bf16 over SHARDS files, in the order of their names."""
    names = sorted(tensors)
    per_file = -(-len(names) // SHARDS)
    where: dict[str, str] = {}
    for shard in range(SHARDS):
        file = f"model-{shard + 1:05d}-of-{SHARDS:05d}.safetensors"
        mine = names[shard * per_file : (shard + 1) * per_file]
        where |= dict.fromkeys(mine, file)
        # Contiguous copies: the tied ones share their memory with the backbone's.
        content = {name: tensors[name].detach().to(torch.bfloat16).clone() for name in mine}
        save_file(content, directory / file, {"format": "pt"})
    size = 2 * sum(tensor.numel() for tensor in tensors.values())
    index = {"metadata": {"total_size": size}, "weight_map": where}
    write_json(directory / "model.safetensors.index.json", index)


# ---- tokenizer -----------------------------------------------------------------------------------


def train_tokenizer() -> Tokenizer:
    """Byte-level BPE, as Qwen's, on the problems' and chats' own text."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Digits(individual_digits=True),
            pre_tokenizers.ByteLevel(add_prefix_space=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=MERGED,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    text = json.dumps([paper_problems.BENCHMARKS, paper_problems.CHATS], ensure_ascii=False)
    tokenizer.train_from_iterator(text.split("\\n") * 2, trainer)
    assert tokenizer.get_vocab_size() == MERGED, "the text is too short for so many merges"
    tokenizer.add_special_tokens([END, START, STOP, MASK])
    return tokenizer


def write_fast_tokenizer(directory: Path, tokenizer: Tokenizer) -> None:
    """tokenizer.json with its settings beside it."""
    tokenizer.save(str(directory / "tokenizer.json"))
    write_json(directory / "tokenizer_config.json", tokenizer_config(tokenizer, inline=True))


def write_slow_tokenizer(directory: Path, tokenizer: Tokenizer) -> None:
    """vocab.json and merges.txt, as SDAR's repositories have it, with the template in a file."""
    tokenizer.model.save(str(directory))
    write_json(directory / "tokenizer_config.json", tokenizer_config(tokenizer, inline=False))
    (directory / "chat_template.jinja").write_text(TEMPLATE, encoding="utf-8")


def tokenizer_config(tokenizer: Tokenizer, inline: bool) -> dict[str, Any]:
    """tokenizer_config.json; `inline`: with the chat template in it."""
    plain = dict.fromkeys(("lstrip", "rstrip", "normalized", "single_word"), False)
    added = {
        str(tokenizer.token_to_id(token)): {"content": token, **plain, "special": True}
        for token in (END, START, STOP, MASK)
    }
    return {
        "add_prefix_space": False,
        "added_tokens_decoder": added,
        "additional_special_tokens": [START, STOP],
        "clean_up_tokenization_spaces": False,
        "eos_token": END,
        "mask_token": MASK,
        "pad_token": END,
        "model_max_length": 4096,
        "tokenizer_class": "Qwen2Tokenizer",
        **({"chat_template": TEMPLATE} if inline else {}),
    }


# ---- files ---------------------------------------------------------------------------------------


def write_json(path: Path, value: Any) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(value, indent=2) + "\n", encoding="utf-8")


def write_lines(path: Path, rows: list[dict[str, Any]]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path("data/paper_smoke"), metavar="DIR")
    folder = parser.parse_args().out
    build(folder)
    print(f"{folder}: written; now run `snakemake --config suite=paper_smoke`")
