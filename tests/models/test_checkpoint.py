"""Checkpoints: round trips in the published layouts, and one clear line for each kind of damage."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from mrp.errors import UserError
from mrp.models import (
    Backbone,
    checkpoint_hash,
    load_backbone,
    load_head,
    read_backbone_config,
    save_backbone,
    save_head,
)
from tests.tiny import tiny_backbone, tiny_head


@pytest.fixture
def backbone_dir(tmp_path: Path) -> Path:
    save_backbone(tiny_backbone(), tmp_path / "backbone")
    return tmp_path / "backbone"


@pytest.fixture
def head_dir(tmp_path: Path) -> Path:
    save_head(tiny_head(tiny_backbone(), layers=2, objective="direct"), tmp_path / "head")
    return tmp_path / "head"


def equal(a: torch.nn.Module, b: torch.nn.Module) -> bool:
    ours, theirs = a.state_dict(), b.state_dict()
    return ours.keys() == theirs.keys() and all(torch.equal(ours[n], theirs[n]) for n in ours)


def test_backbone_and_head_round_trip(backbone_dir: Path, head_dir: Path) -> None:
    backbone = load_backbone(backbone_dir)
    assert backbone.config == tiny_backbone().config
    assert equal(backbone, tiny_backbone())
    head = load_head(head_dir, backbone)
    assert head.config.objective == head.config.variant == "direct"
    assert equal(head, tiny_head(tiny_backbone(), layers=2, objective="direct"))


def test_released_layout_holds_backbone_and_head_in_shards(tmp_path: Path) -> None:
    """One repository, old prefix, tied copies, several shards with an index, fp32 or bf16."""
    backbone, head = tiny_backbone(), tiny_head(tiny_backbone(), layers=2)
    released = tmp_path / "released"
    save_head(head, released)
    config = json.loads((released / "config.json").read_text())
    for ours in ("mrp_variant", "mrp_objective"):
        del config[ours]
    config["rope_parameters"] = {"rope_theta": config.pop("rope_theta"), "rope_type": "default"}
    (released / "config.json").write_text(json.dumps(config))
    (released / "model.safetensors").unlink()
    trunk = backbone.state_dict()
    extra = {f"mtp_modules.0.model.{name}": t for name, t in head.state_dict().items()}
    extra["mtp_modules.0.model.embed_tokens.weight"] = trunk["model.embed_tokens.weight"].clone()
    extra["mtp_modules.0.lm_head.weight"] = trunk["lm_head.weight"].clone()
    save_file(trunk, released / "a.safetensors")
    save_file(extra, released / "b.safetensors")
    shards = {**dict.fromkeys(trunk, "a.safetensors"), **dict.fromkeys(extra, "b.safetensors")}
    (released / "model.safetensors.index.json").write_text(json.dumps({"weight_map": shards}))

    loaded = load_backbone(released)
    assert equal(loaded, backbone)
    assert loaded.config == backbone.config
    assert equal(load_head(released, loaded), head)
    assert load_head(released, loaded, variant="direct").config.objective == "direct"


def test_hash_tells_weights_and_config_apart(backbone_dir: Path) -> None:
    before = checkpoint_hash(backbone_dir)
    assert before == checkpoint_hash(backbone_dir)
    weights = load_file(backbone_dir / "model.safetensors")
    weights["lm_head.weight"][0, 0] += 1
    save_file(weights, backbone_dir / "model.safetensors")
    assert checkpoint_hash(backbone_dir) != before


def rewrite_config(directory: Path, **changes: object) -> None:
    path = directory / "config.json"
    config = json.loads(path.read_text()) | changes
    path.write_text(json.dumps({k: v for k, v in config.items() if v != "gone"}))


def rewrite_weights(directory: Path, change: Callable[[dict[str, torch.Tensor]], object]) -> None:
    weights = load_file(directory / "model.safetensors")
    change(weights)
    save_file(weights, directory / "model.safetensors")


def truncate(directory: Path) -> None:
    path = directory / "model.safetensors"
    path.write_bytes(path.read_bytes()[:-100])


BACKBONE_DAMAGE: dict[str, tuple[Callable[[Path], object], str]] = {
    "no config": (lambda d: (d / "config.json").unlink(), "config.json is missing"),
    "config no JSON": (lambda d: (d / "config.json").write_text("{"), "damaged or not JSON"),
    "config a list": (lambda d: (d / "config.json").write_text("[]"), "a JSON object is expected"),
    "no vocabulary": (lambda d: rewrite_config(d, vocab_size="gone"), "'vocab_size' is missing"),
    "no mask id": (lambda d: rewrite_config(d, mask_token_id="gone"), "'mask_token_id'"),
    "no weights": (lambda d: (d / "model.safetensors").unlink(), "weight file is missing"),
    "cut weights": (truncate, "damaged weight file"),
    "missing tensor": (
        lambda d: rewrite_weights(d, lambda w: w.pop("model.norm.weight")),
        "'model.norm.weight' is missing",
    ),
    "extra tensor": (
        lambda d: rewrite_weights(d, lambda w: w.update(oddity=torch.zeros(1))),
        "'oddity' is not part",
    ),
    "other width": (lambda d: rewrite_config(d, hidden_size=64), "has shape"),
    "not finite": (
        lambda d: rewrite_weights(d, lambda w: w["model.norm.weight"].fill_(float("nan"))),
        "'model.norm.weight' holds numbers that are not finite",
    ),
    "block size a text": (lambda d: rewrite_config(d, block_size="16"), "'block_size' is '16'"),
    "no block": (lambda d: rewrite_config(d, block_size=0), "'block_size' is 0"),
    "odd heads": (lambda d: rewrite_config(d, head_dim=15), "'head_dim' is 15: an even"),
    "heads that do not share": (
        lambda d: rewrite_config(d, num_attention_heads=5, num_key_value_heads=2),
        "'num_attention_heads' is 5: a multiple of 2",
    ),
    "theta a text": (lambda d: rewrite_config(d, rope_theta="1e6"), "'rope_theta' is '1e6'"),
    "mask id too large": (lambda d: rewrite_config(d, mask_token_id=9999), "'mask_token_id'"),
    "end id a text": (lambda d: rewrite_config(d, eos_token_id="x"), "'eos_token_id' is 'x'"),
    "generation config a list": (
        lambda d: (d / "generation_config.json").write_text("[]"),
        "generation_config.json: damaged",
    ),
    "index a list": (
        lambda d: (d / "model.safetensors.index.json").write_text("[]"),
        "index.json: damaged",
    ),
    "index of numbers": (
        lambda d: (d / "model.safetensors.index.json").write_text('{"weight_map": {"a": 1}}'),
        "no 'weight_map'",
    ),
    "fewer layers": (lambda d: rewrite_config(d, num_hidden_layers=1), "is not part"),
}


@pytest.mark.parametrize("damage", BACKBONE_DAMAGE)
def test_each_damage_is_one_clear_line(backbone_dir: Path, damage: str) -> None:
    break_it, message = BACKBONE_DAMAGE[damage]
    break_it(backbone_dir)
    with pytest.raises(UserError) as error:
        load_backbone(backbone_dir)
    text = str(error.value)
    assert message in text
    assert str(backbone_dir) in text
    assert "\n" not in text


@pytest.mark.parametrize(
    ("other", "key"),
    [
        (lambda: tiny_backbone(block_size=16), "block_size"),
        (lambda: tiny_backbone(vocab_size=32), "vocab_size"),
    ],
)
def test_a_head_of_another_backbone_is_refused(
    head_dir: Path, other: Callable[[], Backbone], key: str
) -> None:
    with pytest.raises(UserError, match=f"made for {key}="):
        load_head(head_dir, other())


def test_a_backbone_is_no_head_and_variants_may_not_contradict(
    backbone_dir: Path, head_dir: Path
) -> None:
    with pytest.raises(UserError, match="no head in this"):
        load_head(backbone_dir, tiny_backbone())
    with pytest.raises(UserError, match="'mrp_variant' is 'direct'"):
        load_head(head_dir, tiny_backbone(), variant="k2")


PUBLISHED = Path(__file__).parents[3] / "shared" / "reference"


@pytest.mark.parametrize("name", ["sdar-4b-chat", "sdar-8b-chat"])
def test_published_configs_are_understood(name: str) -> None:
    directory = PUBLISHED / name
    if not directory.exists():
        pytest.skip("the published data files are not part of the repository")
    config = read_backbone_config(directory)
    assert config.mask_token_id == 151669
    assert config.eos_token_ids == (151645, 151643)
    assert (config.head_dim, config.num_key_value_heads, config.vocab_size) == (128, 8, 151936)
    with torch.device("meta"):
        names = set(Backbone(config).state_dict())
    index = json.loads((directory / "model.safetensors.index.json").read_text())
    assert names == set(index["weight_map"])


@pytest.mark.parametrize(
    "change",
    [{"mrp_variant": "k9"}, {"mrp_objective": "other"}, {"num_nextn_predict_layers": True}],
)
def test_a_head_of_an_unknown_kind_is_refused(head_dir: Path, change: dict[str, object]) -> None:
    rewrite_config(head_dir, **change)
    with pytest.raises(UserError, match=next(iter(change))):
        load_head(head_dir, tiny_backbone())
