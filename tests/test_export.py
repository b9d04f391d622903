"""mrp export: what we write loads as what the authors release, here and in transformers."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from safetensors import safe_open

from mrp import export as export_module
from mrp.cli import main
from mrp.data.tokenizer import build_tokenizer
from mrp.errors import UserError
from mrp.evaluation.tokenizer import load_tokenizer
from mrp.export import export, parse_size
from mrp.models import (
    Backbone,
    Head,
    MaskedAttention,
    load_backbone,
    load_head,
    read_head_config,
    save_backbone,
    save_head,
)
from tests.models.released import CONFIG, INDEX, write_released
from tests.tiny import tiny_backbone, tiny_head


def models() -> tuple[Backbone, Head]:
    backbone = tiny_backbone(vocab_size=128, layers=3)
    return backbone, tiny_head(backbone, layers=2)


@pytest.fixture
def ours(tmp_path: Path) -> Path:
    """A backbone with its tokenizer and a head, as training writes them."""
    backbone, head = models()
    save_backbone(backbone, tmp_path / "backbone", {"extra": "kept", "auto_map": {"A": "b.C"}})
    build_tokenizer(tmp_path / "backbone")
    save_head(head, tmp_path / "head")
    return tmp_path


def logits(path: Path, dtype: torch.dtype = torch.float32) -> tuple[torch.Tensor, torch.Tensor]:
    """The logits [2, 40, V] of backbone and corrected ones of the head, under a causal mask."""
    backbone = load_backbone(path, dtype=dtype)
    head = load_head(path, backbone, dtype=dtype)
    ids = torch.randint(0, 128, (2, 40), generator=torch.Generator().manual_seed(3))
    attend = MaskedAttention(torch.ones(40, 40, dtype=torch.bool).tril()[None, None])
    positions = torch.arange(40).expand_as(ids)
    with torch.inference_mode():
        hidden = backbone.hidden(ids, positions, attend)
        residual = head(backbone.embed(ids), hidden, positions, attend)
        return backbone.logits(hidden), backbone.logits(head.advance(hidden, residual))


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
def test_an_export_and_a_released_repository_give_the_same_logits(ours: Path, dtype: str) -> None:
    export(ours / "backbone", ours / "head", ours / "out", dtype, "40kB")
    precision = getattr(torch, dtype)
    released = write_released(ours / "released", *models(), precision, "mtp_modules.0.")
    for got, expected in zip(logits(ours / "out"), logits(released), strict=True):
        assert torch.equal(got, expected)
        assert expected.std() > 0.1


def test_the_layout(ours: Path) -> None:
    done = export(ours / "backbone", ours / "head", ours / "out", "bfloat16", "20kB")
    index = json.loads((ours / "out" / INDEX).read_text())
    shards = sorted(path.name for path in (ours / "out").glob("*.safetensors"))
    assert len(shards) == done["shards"] > 3
    assert shards[0] == f"model-00001-of-{len(shards):05d}.safetensors"
    held: dict[str, str] = {}
    size = 0
    for shard in shards:
        with safe_open(ours / "out" / shard, "pt") as file:
            names = list(file.keys())
            tensors = [file.get_tensor(name) for name in names]
        assert {tensor.dtype for tensor in tensors} == {torch.bfloat16}
        bytes_here = sum(2 * tensor.numel() for tensor in tensors)
        assert bytes_here <= 20_000 or len(tensors) == 1
        assert len({name.startswith("mrp_modules.0.model.") for name in names}) == 1
        held |= dict.fromkeys(names, shard)
        size += bytes_here
    assert held == index["weight_map"]
    assert size == index["metadata"]["total_size"] == done["bytes"]
    config = json.loads((ours / "out" / CONFIG).read_text())
    expected = {
        "model_type": "sdar",
        "num_nextn_predict_layers": 2,
        "num_mrp_heads": 1,
        "block_size": 8,
        "torch_dtype": "bfloat16",
        "tie_word_embeddings": False,
        "extra": "kept",
    }
    assert {key: config.get(key) for key in expected} == expected
    assert "auto_map" not in config  # its files are code, which is not exported
    generation = json.loads((ours / "out" / "generation_config.json").read_text())
    assert generation["eos_token_id"] == [1, 0]
    assert load_tokenizer(ours / "out").mask_token_id == 2
    assert read_head_config(ours / "out").variant == "default"


def test_transformers_reads_the_backbone_of_an_export(ours: Path) -> None:
    from transformers import Qwen3ForCausalLM  # slow, and every test process imports this file

    export(ours / "backbone", ours / "head", ours / "out", "float32", "40kB")
    theirs = Qwen3ForCausalLM.from_pretrained(ours / "out", dtype=torch.float32).eval()
    ids = torch.randint(0, 128, (2, 40), generator=torch.Generator().manual_seed(3))
    with torch.inference_mode():
        expected = theirs(ids).logits
    assert (logits(ours / "out")[0] - expected).abs().max() <= 1e-4
    assert expected.std() > 0.1


def test_an_export_can_be_exported_again_and_is_the_same(ours: Path) -> None:
    export(ours / "backbone", ours / "head", ours / "one", "float32", "40kB")
    export(ours / "one", ours / "one", ours / "two", "float32", "40kB")
    for path in (ours / "one").iterdir():
        assert (ours / "two" / path.name).read_bytes() == path.read_bytes()


def test_what_a_released_head_does_not_say_is_not_guessed(ours: Path) -> None:
    """Its kind is the suite's to say, of the export as of the source."""
    config = json.loads((ours / "head" / "config.json").read_text())
    for key in ("mrp_variant", "mrp_objective"):
        del config[key]
    (ours / "head" / "config.json").write_text(json.dumps(config))
    export(ours / "backbone", ours / "head", ours / "out", "float32", "5GB")
    for variant in ("default", "k2", "direct"):
        source = read_head_config(ours / "head", variant)
        assert read_head_config(ours / "out", variant) == source
        assert source.objective == ("direct" if variant == "direct" else "residual")


def test_a_failed_export_leaves_nothing_and_a_killed_ones_rest_is_removed(
    ours: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rest = ours / ".out.partial"
    rest.mkdir()
    (rest / "model-00009-of-00009.safetensors").write_bytes(b"")

    def fail(*args: object) -> None:
        raise OSError(28, "No space left on device", "disk")

    with monkeypatch.context() as patch:
        patch.setattr(export_module, "atomic_write_json", fail)
        with pytest.raises(OSError, match="No space left"):
            export(ours / "backbone", ours / "head", ours / "out", "float32", "40kB")
    assert not rest.exists()
    assert not (ours / "out").exists()
    (ours / "out").mkdir()  # empty is fine
    export(ours / "backbone", ours / "head", ours / "out", "float32", "5GB")
    assert sorted(path.name for path in (ours / "out").glob("model-*")) == [
        f"model-0000{n}-of-00002.safetensors" for n in (1, 2)
    ]


def test_the_command_and_its_mistakes(ours: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = [f"--backbone={ours / 'backbone'}", f"--head={ours / 'head'}", f"--out={ours / 'out'}"]
    for extra, said in (
        (["--dtype", "int8"], "--dtype 'int8' is unknown: choose one of float32, bfloat16"),
        (["--max-shard-size", "big"], "--max-shard-size 'big' is no size: such as 5GB"),
        ([f"--head={ours / 'backbone'}"], "no head in this checkpoint"),
        ([f"--out={ours / 'head'}"], "something is there already; name a new directory"),
        (["--head", "no/such"], "no/such: no such directory"),
    ):
        assert main(["export", *words, *extra]) == 2
        err = capsys.readouterr().err
        assert said in err
        assert err.count("\n") == 1
    save_head(tiny_head(tiny_backbone(vocab_size=64)), ours / "other")
    assert main(["export", *words, f"--head={ours / 'other'}"]) == 2
    assert "made for vocab_size=64, the backbone has vocab_size=128" in capsys.readouterr().err
    assert not (ours / "out").exists()
    assert main(["export", *words]) == 0
    assert "of bfloat16 in 2 shards" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("text", "size"),
    [("5GB", 5 * 10**9), ("500 mb", 5 * 10**8), ("1GiB", 2**30), ("1.5kB", 1500), ("7", 7)],
)
def test_sizes(text: str, size: int) -> None:
    assert parse_size(text) == size


@pytest.mark.parametrize("text", ["", "GB", "-1GB", "0", "5XB", "1e9", "nanGB"])
def test_what_is_no_size(text: str) -> None:
    with pytest.raises(UserError, match="is no size"):
        parse_size(text)
