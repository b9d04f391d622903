"""Checkpoints: round trips, the released layouts, and that only the asked part is read."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from mrp.models import (
    Backbone,
    Head,
    HeadConfig,
    checkpoint_hash,
    load_backbone,
    load_head,
    read_backbone_config,
    save_backbone,
    save_head,
)
from tests.models.released import (
    INDEX,
    change_config,
    change_index,
    change_weights,
    file_of,
    one_file,
    released_config,
    write_json,
    write_released,
)
from tests.tiny import tiny_backbone, tiny_head


def equal(a: torch.nn.Module, b: torch.nn.Module) -> bool:
    ours, theirs = a.state_dict(), b.state_dict()
    return ours.keys() == theirs.keys() and all(torch.equal(ours[n], theirs[n]) for n in ours)


def test_backbone_and_head_round_trip(tmp_path: Path) -> None:
    save_backbone(tiny_backbone(), tmp_path / "backbone")
    save_head(tiny_head(tiny_backbone(), layers=2, objective="direct"), tmp_path / "head")
    backbone = load_backbone(tmp_path / "backbone")
    assert backbone.config == tiny_backbone().config
    assert equal(backbone, tiny_backbone())
    assert not any(parameter.requires_grad for parameter in backbone.parameters())
    head = load_head(str(tmp_path / "head"), backbone)
    assert head.config.objective == head.config.variant == "direct"
    assert equal(head, tiny_head(tiny_backbone(), layers=2, objective="direct"))


@pytest.mark.parametrize("prefix", ["mrp_modules.0.", "mtp_modules.0."])
@pytest.mark.parametrize("style", [4, 5])
@pytest.mark.parametrize("shards", [True, False])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_released_layouts(
    tmp_path: Path, prefix: str, style: int, shards: bool, dtype: torch.dtype
) -> None:
    backbone, head = tiny_backbone(), tiny_head(tiny_backbone(), layers=2)
    released = write_released(tmp_path / "it", backbone, head, dtype, prefix, style)
    if not shards:
        one_file(released)
    loaded = load_backbone(released)
    assert loaded.config == read_backbone_config(released)
    assert loaded.config.eos_token_ids == backbone.config.eos_token_ids
    assert (loaded.config.rope_theta, loaded.config.pad_token_id) == (1e6, 0)
    assert equal(loaded, backbone.to(dtype).float())
    assert equal(load_head(released, loaded), head.to(dtype).float())
    assert load_head(released, loaded, variant="direct").config.objective == "direct"
    assert load_backbone(released, dtype=torch.bfloat16).lm_head.weight.dtype == torch.bfloat16


def spoil(path: Path) -> None:
    path.write_bytes(b"\x00" * 64)


def test_a_head_is_loaded_without_its_backbone_and_the_other_way_round(tmp_path: Path) -> None:
    backbone, head = tiny_backbone(), tiny_head(tiny_backbone(), layers=2)
    whole = write_released(tmp_path / "whole", backbone, head)
    identities = checkpoint_hash(whole, "backbone"), checkpoint_hash(whole, "head")
    of_head = file_of(whole, "mrp_modules.0.model.norm.weight")
    for path in whole.glob("*.safetensors"):
        if path != of_head:
            path.unlink()
    assert equal(load_head(whole, backbone), head)
    assert checkpoint_hash(whole, "head") == identities[1]

    other = write_released(tmp_path / "other", backbone, head)
    spoil(file_of(other, "mrp_modules.0.model.norm.weight"))
    assert equal(load_backbone(other), backbone)
    assert checkpoint_hash(other, "backbone") == identities[0] != identities[1]


def test_of_one_file_only_the_asked_tensors_are_read(tmp_path: Path) -> None:
    """Numbers that are not finite are an error where they are read, and only there."""
    backbone, head = tiny_backbone(), tiny_head(tiny_backbone(), layers=2)
    released = write_released(tmp_path / "it", backbone, head)
    one_file(released)
    nan = float("nan")
    change_weights(released / "model.safetensors", lambda w: w["lm_head.weight"].fill_(nan))
    assert equal(load_head(released, backbone), head)


def test_a_tied_backbone_has_its_embedding_as_output(tmp_path: Path) -> None:
    backbone = tiny_backbone()
    released = write_released(tmp_path / "it", backbone, None)
    change_config(released, tie_word_embeddings=True)
    change_weights(file_of(released, "lm_head.weight"), lambda w: w.pop("lm_head.weight"))
    change_index(released, lambda shards: shards.pop("lm_head.weight"))
    loaded = load_backbone(released)
    assert torch.equal(loaded.lm_head.weight, backbone.model.embed_tokens.weight)
    save_backbone(loaded, tmp_path / "again")  # no longer tied: both are written
    assert equal(load_backbone(tmp_path / "again"), loaded)


def test_hash_tells_weights_and_configs_apart(tmp_path: Path) -> None:
    directory = tmp_path / "backbone"
    save_backbone(tiny_backbone(), directory)
    before = checkpoint_hash(directory)
    assert before == checkpoint_hash(str(directory)) == checkpoint_hash(directory, "backbone")
    write_json(directory / "generation_config.json", {"eos_token_id": 1})
    ends = checkpoint_hash(directory)
    weights = load_file(directory / "model.safetensors")
    weights["lm_head.weight"][0, 0] += 1
    save_file(weights, directory / "model.safetensors")
    assert len({before, ends, checkpoint_hash(directory)}) == 3


PEAK = """
import re, sys, torch
from pathlib import Path
from mrp.models import load_backbone

def kilobytes(key):
    return int(re.search(rf"{key}:\\s+(\\d+)", Path("/proc/self/status").read_text())[1])

torch.set_num_threads(1)
load_backbone(sys.argv[1], dtype=torch.bfloat16)  # imports and allocators are warm
Path("/proc/self/clear_refs").write_text("5")  # the peak starts over
before = kilobytes("VmRSS")
model = load_backbone(sys.argv[2], dtype=torch.bfloat16)
size = sum(p.numel() * p.element_size() for p in model.parameters())
print((kilobytes("VmHWM") - before) * 1024 / size)
"""


@pytest.mark.skipif(not Path("/proc/self/clear_refs").exists(), reason="the peak is Linux's")
def test_loading_takes_the_memory_of_one_copy(tmp_path: Path) -> None:
    """fp32 files of 2 x the model's size, read and converted tensor by tensor."""
    config = tiny_backbone().config
    wide = {"hidden_size": 256, "intermediate_size": 1024, "num_hidden_layers": 24, "head_dim": 64}
    shape = type(config)(**{**config.__dict__, **wide})
    with torch.device("meta"):
        model = Backbone(shape)
    model = model.to_empty(device="cpu")
    model.reset_parameters(torch.Generator().manual_seed(0))
    big = write_released(tmp_path / "big", model, None, shards=12)
    small = write_released(tmp_path / "small", tiny_backbone(), None)
    done = subprocess.run(
        [sys.executable, "-c", PEAK, small, big], capture_output=True, text=True, check=True
    )
    assert 0.9 < float(done.stdout) < 1.5


# ---- the published configs -----------------------------------------------------------------------


def facts(hidden: int, layers: int, ffn: int, heads: int = 32) -> dict[str, int]:
    return {
        "hidden_size": hidden,
        "num_hidden_layers": layers,
        "intermediate_size": ffn,
        "num_attention_heads": heads,
    }


SIZES = {
    "1.7B": facts(2048, 28, 6144, 16),
    "4B": facts(2560, 36, 9728),
    "8B": facts(4096, 36, 12288),
}
PUBLISHED_IDS = {
    "vocab_size": 151936,
    "mask_token_id": 151669,
    "bos_token_id": 151643,
    "eos_token_id": 151643,
    "head_dim": 128,
    "num_key_value_heads": 8,
    "max_position_embeddings": 32768,
}


@pytest.mark.parametrize("block_size", [4, 16])
@pytest.mark.parametrize("size", SIZES)
def test_published_configs_give_the_published_tensors(
    tmp_path: Path, size: str, block_size: int
) -> None:
    config = released_config(tiny_backbone(), None) | PUBLISHED_IDS | SIZES[size]
    write_json(tmp_path / "config.json", config | {"block_size": block_size})
    write_json(tmp_path / "generation_config.json", {"eos_token_id": [151645, 151643]})
    shape = read_backbone_config(tmp_path)
    assert (shape.block_size, shape.pad_token_id) == (block_size, 151643)
    assert shape.eos_token_ids == (151645, 151643)
    with torch.device("meta"):
        backbone, head = Backbone(shape), Head(HeadConfig(shape))
    width, ffn = SIZES[size]["hidden_size"], SIZES[size]["intermediate_size"]
    queries = SIZES[size]["num_attention_heads"] * 128
    layer = {
        "self_attn.q_proj": [queries, width],
        "self_attn.k_proj": [1024, width],
        "self_attn.v_proj": [1024, width],
        "self_attn.o_proj": [width, queries],
        "self_attn.q_norm": [128],
        "self_attn.k_norm": [128],
        "mlp.gate_proj": [ffn, width],
        "mlp.up_proj": [ffn, width],
        "mlp.down_proj": [width, ffn],
        "input_layernorm": [width],
        "post_attention_layernorm": [width],
    }
    count = SIZES[size]["num_hidden_layers"]
    names = {"lm_head.weight": [151936, width], "model.norm.weight": [width]}
    names["model.embed_tokens.weight"] = [151936, width]
    for index in range(count):
        names |= {f"model.layers.{index}.{n}.weight": shape for n, shape in layer.items()}
    assert {name: list(t.shape) for name, t in backbone.state_dict().items()} == names
    names = {f"layers.{i}.{n}.weight": shape for i in range(3) for n, shape in layer.items()}
    names |= {"enorm.weight": [width], "hnorm.weight": [width], "norm.weight": [width]}
    names["eh_proj.weight"] = [width, 2 * width]
    assert {name: list(t.shape) for name, t in head.state_dict().items()} == names


FILES = Path(__file__).parents[3] / "shared" / "reference"


@pytest.mark.parametrize("name", ["sdar-4b-chat", "sdar-8b-chat"])
def test_the_published_files_are_understood(name: str) -> None:
    directory = FILES / name
    if not directory.exists():
        pytest.skip("the published data files are not part of the repository")
    shape = read_backbone_config(directory)
    assert (shape.mask_token_id, shape.eos_token_ids) == (151669, (151645, 151643))
    assert (shape.head_dim, shape.num_key_value_heads, shape.block_size) == (128, 8, 4)
    with torch.device("meta"):
        names = set(Backbone(shape).state_dict())
    assert names == set(json.loads((directory / INDEX).read_text())["weight_map"])
