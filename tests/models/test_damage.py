"""Damaged and ill-fitting checkpoints: each is one line with the key or tensor, values and fix."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from mrp.errors import UserError
from mrp.models import load_backbone, load_head, save_backbone, save_head
from tests.models.released import (
    CONFIG,
    INDEX,
    WEIGHTS,
    change_config,
    change_index,
    change_weights,
    cut,
    file_of,
    one_file,
    write_json,
    write_released,
)
from tests.tiny import tiny_backbone, tiny_head

NORM = "model.norm.weight"
HEAD_NORM = "mrp_modules.0.model.norm.weight"
OLD_NORM = "mtp_modules.0.model.norm.weight"
QUERY = "model.layers.1.self_attn.q_proj.weight"
AGAIN = "fetch or train the checkpoint again"
TOGETHER = "put the two that belong together into one directory"
SDAR = "take a SDAR checkpoint, which has that"

Break = Callable[[Path], object]


def weights(tensor: str, change: Callable[[dict[str, torch.Tensor]], object]) -> Break:
    return lambda d: change_weights(file_of(d, tensor), change)


def config(**changes: object) -> Break:
    return lambda d: change_config(d, **changes)


def both(first: Break, second: Break) -> Break:
    return lambda d: (first(d), second(d))


def pickles(directory: Path) -> None:
    for path in directory.glob("*.safetensors"):
        path.unlink()
    (directory / INDEX).unlink()
    (directory / "pytorch_model-00001-of-00002.bin").write_bytes(b"\x80\x04")


def no_weights(directory: Path) -> None:
    for path in directory.glob("model*"):
        path.unlink()


# name -> (what is done to the released repository, what the message must say)
BACKBONE: dict[str, tuple[Break, list[str]]] = {
    # config.json
    "no config": (lambda d: (d / CONFIG).unlink(), ["config.json is missing", "check the path"]),
    "config no JSON": (lambda d: (d / CONFIG).write_text("{"), [CONFIG, "damaged or not JSON"]),
    "config binary": (lambda d: (d / CONFIG).write_bytes(b"\xff\x00"), [CONFIG, "damaged"]),
    "config a list": (lambda d: (d / CONFIG).write_text("[]"), [CONFIG, "a JSON object", AGAIN]),
    "block size a text": (config(block_size="16"), ["'block_size' is '16'", "whole number", AGAIN]),
    "no block": (config(block_size=0), ["'block_size' is 0", "at least 1"]),
    "size a truth value": (config(hidden_size=True), ["'hidden_size' is True", AGAIN]),
    "size a fraction": (config(vocab_size=24.0), ["'vocab_size' is 24.0", AGAIN]),
    "odd head": (config(head_dim=15), ["'head_dim' is 15: an even", AGAIN]),
    "unshared heads": (config(num_attention_heads=5), ["_heads' is 5: a multiple of 2", AGAIN]),
    "theta a text": (config(rope_theta="1e6"), ["'rope_theta' is '1e6'", "above 0", AGAIN]),
    "two thetas": (
        config(rope_parameters={"rope_theta": 10000}),
        ["'rope_theta' is 1000000", "in 'rope_parameters' it is 10000", "remove the wrong one"],
    ),
    "scaled positions": (
        config(rope_scaling={"rope_type": "yarn", "factor": 4.0}),
        ["'rope_scaling' is", "yarn", "null or an object of rope_type 'default'", "take a"],
    ),
    "rope a text": (config(rope_parameters="default"), ["'rope_parameters' is 'default'", "null"]),
    "mask id too large": (
        config(mask_token_id=9999),
        ["'mask_token_id' is 9999", "0 to 23 ('vocab_size' 24)", AGAIN],
    ),
    "end id a text": (
        lambda d: write_json(d / "generation_config.json", {"eos_token_id": ["x"]}),
        ["'eos_token_id' is 'x'", "0 to 23", AGAIN],
    ),
    "generation config a list": (
        lambda d: (d / "generation_config.json").write_text("[]"),
        ["generation_config.json: damaged", AGAIN],
    ),
    "another architecture": (
        config(model_type="sdar_moe"),
        ["'model_type' is 'sdar_moe'", "only 'sdar' or 'qwen3'", SDAR],
    ),
    "another activation": (config(hidden_act="gelu"), ["'hidden_act' is 'gelu'", "'silu'", SDAR]),
    "biases": (config(attention_bias=True), ["'attention_bias' is True", "only False", SDAR]),
    "sliding attention": (config(use_sliding_window=True), ["'use_sliding_window' is True", SDAR]),
    "quantised": (config(quantization_config={"bits": 4}), ["'quantization_config' is", SDAR]),
    "tied a text": (config(tie_word_embeddings="no"), ["'tie_word_embeddings' is 'no'", SDAR]),
    # config and weights
    "another width": (
        config(hidden_size=64),
        ["'lm_head.weight' has shape [24, 32]", "asks for [24, 64]", TOGETHER],
    ),
    "another vocabulary": (
        config(vocab_size=32),
        ["lm_head.weight", "has shape [24, 32]", "asks for [32, 32]", TOGETHER],
    ),
    "fewer layers": (
        config(num_hidden_layers=1),
        ["model.layers.1.", "is not part of this architecture (and 10 more)", AGAIN],
    ),
    "more layers": (
        config(num_hidden_layers=3),
        ["'model.layers.2.", "is missing (and 10 more)", AGAIN],
    ),
    "tied, but it is not": (
        config(tie_word_embeddings=True),
        ["'tie_word_embeddings' is True, yet 'lm_head.weight'", "differ", "set it to false"],
    ),
    # weights
    "no weights": (no_weights, [WEIGHTS, "weight file is missing", INDEX, AGAIN]),
    "only pickles": (
        pickles,
        ["pytorch_model-00001-of-00002.bin is a pickle", "is not read", "with safetensors"],
    ),
    "missing tensor": (
        weights(NORM, lambda w: w.pop(NORM)),
        [f"tensor {NORM!r} is missing here", "says that it is in this file", AGAIN],
    ),
    "missing tensor, index too": (
        both(
            weights(NORM, lambda w: w.pop(NORM)), lambda d: change_index(d, lambda s: s.pop(NORM))
        ),
        [f"tensor {NORM!r} is missing", AGAIN],
    ),
    "extra tensor": (
        weights(NORM, lambda w: w.update(oddity=torch.zeros(1))),
        ["tensor 'oddity' is not part of this architecture", AGAIN],
    ),
    "wrong shape": (
        weights(QUERY, lambda w: w.update({QUERY: torch.zeros(32, 31)})),
        [QUERY, "has shape [32, 31]", "asks for [32, 32]", TOGETHER],
    ),
    "transposed": (
        weights("lm_head.weight", lambda w: w.update({"lm_head.weight": torch.zeros(32, 24)})),
        ["'lm_head.weight' has shape [32, 24]", "asks for [24, 32]", TOGETHER],
    ),
    "bytes": (
        weights(QUERY, lambda w: w.update({QUERY: torch.zeros(32, 32, dtype=torch.int8)})),
        [QUERY, "is of type I8, not one of F32", "that is not quantised"],
    ),
    "not finite": (
        weights(NORM, lambda w: w[NORM].fill_(float("nan"))),
        [f"{NORM!r} holds numbers that are not finite in torch.float32", AGAIN],
    ),
    "cut shard": (lambda d: cut(file_of(d, NORM)), ["damaged weight file (", AGAIN]),
    "empty shard": (lambda d: file_of(d, NORM).write_bytes(b""), ["damaged weight file (", AGAIN]),
    "shard gone": (
        lambda d: file_of(d, NORM).unlink(),
        ["-of-00004.safetensors: weight file is missing", f"{INDEX} names it", AGAIN],
    ),
    "shard not in the index": (
        lambda d: change_index(
            d,
            lambda s: [s.pop(n) for n in list(s) if d / s[n] == file_of(d, NORM)],
        ),
        ["is missing", "is there, but", f"{INDEX} does not name it", AGAIN],
    ),
    # the index
    "index no JSON": (lambda d: cut(d / INDEX), [INDEX, "damaged or not JSON"]),
    "index a list": (lambda d: (d / INDEX).write_text("[]"), [INDEX, "no 'weight_map'", AGAIN]),
    "index empty": (
        lambda d: (d / INDEX).write_text('{"weight_map": {}}'),
        [INDEX, "no 'weight_map'", AGAIN],
    ),
    "index of numbers": (
        lambda d: (d / INDEX).write_text('{"weight_map": {"a": 1}}'),
        [INDEX, "tensor 'a' is said to be in 1", AGAIN],
    ),
    "index that leads away": (
        lambda d: change_index(d, lambda s: s.update({NORM: "../../secret.safetensors"})),
        [INDEX, "'../../secret.safetensors'", "file beside the index", AGAIN],
    ),
    "index of pickles": (
        lambda d: change_index(d, lambda s: s.update({NORM: "pytorch_model.bin"})),
        [INDEX, "'pytorch_model.bin'", ".safetensors file beside the index"],
    ),
}
for key in (
    *("vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers", "head_dim"),
    *("num_attention_heads", "num_key_value_heads", "mask_token_id", "block_size", "rope_theta"),
):
    BACKBONE[f"no {key}"] = (config(**{key: "gone"}), [f"key {key!r} is missing", "add the key"])

HEAD: dict[str, tuple[Break, list[str]]] = {
    "a backbone alone": (
        config(num_nextn_predict_layers="gone"),
        ["'num_nextn_predict_layers' is None", "no head", "name a directory"],
    ),
    "a backbone alone that says it has a head": (
        both(
            lambda d: file_of(d, HEAD_NORM).unlink(),
            lambda d: change_index(d, lambda s: [s.pop(n) for n in list(s) if "mrp_" in n]),
        ),
        ["no tensor of a head here (mrp_modules.0.model.*)", "name a directory"],
    ),
    "depth too large": (
        config(num_nextn_predict_layers=3),
        ["'num_nextn_predict_layers' is 3, the weights have 2 layers", "take the config.json"],
    ),
    "depth too small": (
        config(num_nextn_predict_layers=1),
        ["'num_nextn_predict_layers' is 1, the weights have 2 layers", "take the config.json"],
    ),
    "depth no number": (config(num_nextn_predict_layers=True), ["predict_layers' is True"]),
    "several heads": (config(num_mrp_heads=2), ["'num_mrp_heads' is 2: only 1", "one head"]),
    "two spellings": (
        weights(HEAD_NORM, lambda w: w.update({OLD_NORM: torch.ones(32)})),
        ["two heads, mrp_modules.0.model.* and mtp_modules.0.model.*", "remove the one"],
    ),
    "missing tensor": (
        weights(HEAD_NORM, lambda w: w.pop(HEAD_NORM)),
        [f"tensor {HEAD_NORM!r} is missing here", AGAIN],
    ),
    "extra tensor": (
        weights(HEAD_NORM, lambda w: w.update({"mrp_modules.1.model.x": torch.zeros(1)})),
        ["'mrp_modules.1.model.x' is not part of this architecture", AGAIN],
    ),
    "wrong shape": (
        weights(HEAD_NORM, lambda w: w.update({HEAD_NORM: torch.zeros(31)})),
        [HEAD_NORM, "has shape [31]", "asks for [32]", TOGETHER],
    ),
    "not finite": (
        weights(HEAD_NORM, lambda w: w[HEAD_NORM].fill_(float("inf"))),
        [f"{HEAD_NORM!r} holds numbers that are not finite", AGAIN],
    ),
    "cut": (lambda d: cut(file_of(d, HEAD_NORM)), ["damaged weight file (", AGAIN]),
    "unknown variant": (config(mrp_variant="k9"), ["'mrp_variant' is 'k9'", "default, k2, direct"]),
    "unknown objective": (
        config(mrp_objective="x"),
        ["'mrp_objective' is 'x'", "residual, direct"],
    ),
    **{
        f"another {key}": (
            config(**{key: other}),
            [f"made for {key}={other}", f"the backbone has {key}={ours}", "use the backbone"],
        )
        for key, ours, other in (
            ("block_size", 8, 16),
            ("vocab_size", 24, 32),
            ("hidden_size", 32, 64),
            ("mask_token_id", 2, 3),
            ("num_key_value_heads", 2, 4),
            ("head_dim", 8, 16),
            ("rope_theta", 1000000, 10000),
        )
    },
}


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    backbone = tiny_backbone()
    place = tmp_path_factory.mktemp("whole") / "released"
    return write_released(place, backbone, tiny_head(backbone, layers=2), copies=False)


@pytest.fixture
def released(whole: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(whole, tmp_path / "released"))


def check(error: UserError, directory: Path, parts: list[str]) -> None:
    text = str(error)
    assert "\n" not in text
    for part in (str(directory), *parts):
        assert part in text


@pytest.mark.parametrize("damage", BACKBONE)
def test_a_damaged_backbone(released: Path, damage: str) -> None:
    break_it, parts = BACKBONE[damage]
    break_it(released)
    with pytest.raises(UserError) as caught:
        load_backbone(released)
    check(caught.value, released, parts)


@pytest.mark.parametrize("damage", HEAD)
def test_a_damaged_or_strange_head(released: Path, damage: str) -> None:
    break_it, parts = HEAD[damage]
    break_it(released)
    with pytest.raises(UserError) as caught:
        load_head(released, tiny_backbone())
    check(caught.value, released, parts)


def test_a_plain_backbone_of_small_blocks_is_not_the_heads_own(
    released: Path, tmp_path: Path
) -> None:
    """The published backbones have blocks of 4, the heads blocks of 16."""
    change_config(released, block_size=16)
    plain = write_released(tmp_path / "plain", tiny_backbone(block_size=4), None)
    with pytest.raises(UserError) as caught:
        load_head(released, load_backbone(plain))
    check(
        caught.value,
        released,
        ["made for block_size=16", "has block_size=4", "a released head's stands in its own"],
    )


def test_a_head_alone_is_no_backbone(tmp_path: Path) -> None:
    save_head(tiny_head(tiny_backbone()), tmp_path)
    with pytest.raises(UserError) as caught:
        load_backbone(tmp_path)
    check(caught.value, tmp_path, ["no tensor of a backbone", "a head alone", "give the backbone"])


def test_numbers_too_large_for_the_dtype(released: Path) -> None:
    weights(NORM, lambda w: w[NORM].fill_(1e6))(released)
    assert load_backbone(released).config.vocab_size == 24
    with pytest.raises(UserError, match=r"not finite in torch\.float16; .* another dtype"):
        load_backbone(released, dtype=torch.float16)


def test_numbers_whose_sum_overflows_are_finite(released: Path) -> None:
    weights(NORM, lambda w: w[NORM].fill_(6e4))(released)  # 32 of them; float16 ends at 65504
    assert load_backbone(released, dtype=torch.float16).model.norm.weight.min() == 6e4


def test_a_single_file_comes_before_an_index(released: Path) -> None:
    """As in transformers; what the index says then does not matter."""
    one_file(released)
    (released / INDEX).write_text("[]")
    assert load_head(released, load_backbone(released)).config.num_layers == 2


def test_variants_may_not_contradict(tmp_path: Path) -> None:
    save_head(tiny_head(tiny_backbone(), objective="direct"), tmp_path)
    with pytest.raises(UserError, match=r"'mrp_variant' is 'direct' but the suite says .*'k2'"):
        load_head(tmp_path, tiny_backbone(), variant="k2")


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-2, 40) | st.floats() | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=3,
)
KEYS = (
    *("vocab_size", "hidden_size", "num_hidden_layers", "head_dim", "num_attention_heads"),
    *("num_key_value_heads", "mask_token_id", "block_size", "rope_theta", "rope_scaling"),
    *("rope_parameters", "eos_token_id", "pad_token_id", "bos_token_id", "rms_norm_eps"),
    *("tie_word_embeddings", "model_type", "num_nextn_predict_layers", "mrp_variant"),
    *("initializer_range", "max_position_embeddings", "num_mrp_heads", "mrp_objective"),
)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("any")
    backbone = tiny_backbone()
    save_backbone(backbone, directory / "backbone")
    save_head(tiny_head(backbone), directory / "head")
    return directory


@given(key=st.sampled_from(KEYS), value=JSON)
def test_any_value_of_any_key_loads_or_is_one_line(place: Path, key: str, value: object) -> None:
    for name, load in (
        ("backbone", load_backbone),
        ("head", lambda path: load_head(path, tiny_backbone())),
    ):
        original = (place / name / CONFIG).read_text()
        change_config(place / name, **{key: value})
        said = CONFIG
        try:
            load(place / name)
        except UserError as error:
            said = str(error)
        finally:
            (place / name / CONFIG).write_text(original)
        assert "\n" not in said
        assert CONFIG in said or key in said or "tensor" in said
