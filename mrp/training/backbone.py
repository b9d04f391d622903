"""Training a small block-diffusion backbone from scratch on the generated tasks."""

from __future__ import annotations

from pathlib import Path

import torch

from mrp.data import build_tokenizer
from mrp.errors import UserError
from mrp.evaluation.tokenizer import load_tokenizer
from mrp.models import Backbone, BackboneConfig, save_backbone
from mrp.training.batches import Batches
from mrp.training.distributed import resolve_device, world
from mrp.training.loop import fit
from mrp.training.losses import BackboneObjective
from mrp.training.noise import generator_for
from mrp.training.runs import finish, naming_memory, packed_pool, prepare
from mrp.training.settings import BackboneTraining, DataSettings, identity, with_steps


def train_backbone(
    settings: BackboneTraining,
    data: DataSettings,
    out_dir: Path | str,
    device: str = "auto",
    restart: bool = False,
    label: str = "backbone",
) -> None:
    """Train a backbone into `out_dir`: config, weights, tokenizer, metrics.csv, provenance.json.

    A run that was killed goes on from its last resume point; a finished one is left as it is. What
    other settings or other code left in `out_dir` is kept as *.old, and the run starts over.

    Args:
        settings: shape, optimisation and noise.
        data: which mini tasks, and which test prompts to leave out.
        out_dir: the checkpoint's directory.
        device: auto, cpu, cuda or cuda:N.
        restart: start over, also where `out_dir` holds this very run.
        label: the run's name in the progress display.

    Raises:
        UserError: bad settings, a damaged resume point, a loss that is not finite, or too little
            memory.
    """
    out, place = Path(out_dir), resolve_device(device)
    who = identity(settings, level=data.level, test_seed=data.seed, test=data.test)
    with world(place) as ours, naming_memory(settings, ours):
        if not prepare(out, who, ours, restart):
            if ours.leads:
                print(f"{label}: {out} is already trained with these settings")
            return
        if ours.leads:
            build_tokenizer(out)
        ours.wait()
        tokenizer = load_tokenizer(out)
        config = backbone_config(settings, tokenizer)
        model = Backbone(config)
        model.reset_parameters(generator_for(settings.seed, "backbone"))
        model.to(place)
        rows = packed_pool(settings, data, tokenizer, config.block_size, config.pad_token_id)
        settings = with_steps(settings, len(rows))
        objective = BackboneObjective(model, settings.compile and place.type == "cuda")
        batches = Batches(rows, settings, ours, place)
        outcome = fit(objective, model, batches, settings, who, out, label)
        if ours.leads:
            save_backbone(model.to(getattr(torch, settings.saved_dtype)), out)
            size = sum(parameter.numel() for parameter in model.parameters())
            finish(out, who, outcome, place, ours, size)


def backbone_config(settings: BackboneTraining, tokenizer: object) -> BackboneConfig:
    """The shape that the settings ask for, over the tokenizer's vocabulary.

    Raises:
        UserError: the numbers of heads do not fit each other.
    """
    heads, shared = settings.num_attention_heads, settings.num_key_value_heads
    if heads % shared:
        raise UserError(
            f"num_attention_heads {heads} is no multiple of num_key_value_heads {shared}; "
            "change one of them"
        )
    pad, end = tokenizer.pad_token_id, tokenizer.eos_token_id  # type: ignore[attr-defined]
    return BackboneConfig(
        vocab_size=len(tokenizer),  # type: ignore[arg-type]
        hidden_size=settings.hidden_size,
        intermediate_size=settings.intermediate_size,
        num_hidden_layers=settings.num_hidden_layers,
        num_attention_heads=heads,
        num_key_value_heads=shared,
        head_dim=settings.head_dim,
        mask_token_id=tokenizer.mask_token_id,  # type: ignore[attr-defined]
        pad_token_id=pad,
        eos_token_ids=(end, pad),
        block_size=settings.block_size,
    )
