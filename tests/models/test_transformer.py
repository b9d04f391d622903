"""The backbone is Qwen3: same weights under a causal mask, same logits."""

from __future__ import annotations

import pytest
import torch

from mrp.models import Backbone, MaskedAttention
from tests.tiny import tiny_backbone, tiny_head


def causal_logits(model: Backbone, ids: torch.Tensor) -> torch.Tensor:
    length = ids.shape[1]
    mask = torch.ones(length, length, dtype=torch.bool).tril()[None, None]
    positions = torch.arange(length).expand_as(ids)
    return model.logits(model.hidden(ids, positions, MaskedAttention(mask)))


@pytest.mark.parametrize("seed", range(3))
def test_same_weights_give_the_logits_of_transformers_qwen3(seed: int) -> None:
    # Slow, and every test process imports this file.
    from transformers import Qwen3Config, Qwen3ForCausalLM

    model = tiny_backbone(seed, layers=3)
    config = model.config
    reference = Qwen3ForCausalLM(
        Qwen3Config(
            vocab_size=config.vocab_size,
            hidden_size=config.hidden_size,
            intermediate_size=config.intermediate_size,
            num_hidden_layers=config.num_hidden_layers,
            num_attention_heads=config.num_attention_heads,
            num_key_value_heads=config.num_key_value_heads,
            head_dim=config.head_dim,
            rope_parameters={"rope_type": "default", "rope_theta": config.rope_theta},
            rms_norm_eps=config.rms_norm_eps,
            tie_word_embeddings=False,
        )
    ).eval()
    reference.load_state_dict(model.state_dict())
    generator = torch.Generator().manual_seed(seed)
    ids = torch.randint(0, config.vocab_size, (3, 70), generator=generator)
    with torch.inference_mode():
        ours, theirs = causal_logits(model, ids), reference(ids).logits
    assert (ours - theirs).abs().max() <= 1e-4
    assert theirs.std() > 0.1  # the comparison is about something


def test_logits_are_linear_in_the_hidden_state() -> None:
    model = tiny_backbone()
    h, r = torch.randn(2, 5, 32).unbind(0)
    torch.testing.assert_close(model.logits(h + r), model.logits(h) + model.logits(r))


def test_a_zero_start_head_predicts_no_change_and_a_direct_head_replaces() -> None:
    backbone = tiny_backbone()
    hidden = torch.randn(1, 8, 32)
    mask = torch.ones(1, 1, 8, 8, dtype=torch.bool)
    for objective in ("residual", "direct"):
        head = tiny_head(backbone, objective=objective)
        head.requires_grad_(False).reset_parameters("zero", torch.Generator().manual_seed(0))
        out = head(torch.randn(1, 8, 32), hidden, torch.arange(8)[None], MaskedAttention(mask))
        assert out.abs().max() == 0
        expected = hidden if objective == "residual" else torch.zeros_like(hidden)
        torch.testing.assert_close(head.advance(hidden, out), expected)
