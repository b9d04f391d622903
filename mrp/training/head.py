"""Training an MRP head on a frozen backbone (method: "Training a head")."""

from __future__ import annotations

from pathlib import Path

import torch

from mrp.errors import UserError
from mrp.evaluation.tokenizer import check_vocabulary, load_tokenizer
from mrp.models import Head, HeadConfig, checkpoint_hash, load_backbone, load_head, save_head
from mrp.models.head import Objective
from mrp.training.batches import Batches
from mrp.training.distributed import resolve_device, world
from mrp.training.loop import fit
from mrp.training.losses import HeadObjective
from mrp.training.noise import generator_for
from mrp.training.runs import finish, naming_memory, packed_pool, prepare
from mrp.training.settings import DataSettings, HeadTraining, identity, with_steps

# variant -> (what the head's output means, reveals in a row during training)
VARIANTS: dict[str, tuple[Objective, int]] = {
    "default": ("residual", 1),
    "k2": ("residual", 2),
    "direct": ("direct", 1),
}


def train_head(
    settings: HeadTraining,
    backbone_dir: Path | str,
    out_dir: Path | str,
    device: str = "auto",
    data: DataSettings | None = None,
    restart: bool = False,
    label: str = "head",
) -> None:
    """Train a head into `out_dir`: config, weights, metrics.csv, provenance.json.

    A run that was killed goes on from its last resume point; a finished one is left as it is. What
    other settings or other code left in `out_dir` is kept as *.old, and the run starts over.

    Args:
        settings: variant, depth, start weights and optimisation.
        backbone_dir: the frozen backbone's checkpoint, with its tokenizer.
        out_dir: the head's directory.
        device: auto, cpu, cuda or cuda:N.
        data: which mini tasks, and which test prompts to leave out.
        restart: start over, also where `out_dir` holds this very run.
        label: the run's name in the progress display.

    Raises:
        UserError: a missing or damaged backbone, start or resume point, bad settings, or a loss
            that is not finite, or too little memory.
    """
    data = data or DataSettings()
    out, source, place = Path(out_dir), Path(backbone_dir), resolve_device(device)
    who = identity(
        settings,
        level=data.level,
        test_seed=data.seed,
        test=data.test,
        backbone=checkpoint_hash(source, "backbone"),
        start=start_hash(settings.start) if settings.start else None,
    )
    with world(place) as ours, naming_memory(settings, ours):
        if not prepare(out, who, ours, restart):
            if ours.leads:
                print(f"{label}: {out} is already trained with these settings")
            return
        backbone = load_backbone(source, place, getattr(torch, settings.backbone_dtype))
        tokenizer = load_tokenizer(source)
        check_vocabulary(tokenizer, source, backbone.config)
        objective_name, reveals = VARIANTS[settings.variant]
        config = HeadConfig(backbone.config, settings.num_layers, settings.variant, objective_name)
        head = Head(config)
        if settings.start:
            load_start(head, load_head(Path(settings.start), backbone), settings.start)
        else:
            head.reset_parameters(settings.init, generator_for(settings.seed, "head"))
        head.to(place)
        rows = packed_pool(
            settings,
            data,
            tokenizer,
            backbone.config.block_size,
            backbone.config.pad_token_id,
        )
        settings = with_steps(settings, len(rows))
        compiled = settings.compile and place.type == "cuda"
        objective = HeadObjective(backbone, head, compiled, settings.temperature)
        batches = Batches(rows, settings, ours, place, reveals, settings.reveal)
        outcome = fit(objective, head, batches, settings, who, out, label)
        if ours.leads:
            save_head(head.to(getattr(torch, settings.saved_dtype)), out)
            size = sum(parameter.numel() for parameter in head.parameters())
            finish(out, who, outcome, place, ours, size)


def start_hash(where: str) -> str:
    """The identity of the head to go on from; raises UserError if there is none."""
    try:
        return checkpoint_hash(where, "head")
    except UserError as error:
        raise UserError(f"start: {error}") from None


def load_start(head: Head, trained: Head, where: str) -> None:
    """Copy the weights of a trained head; raises UserError if it is of another shape or meaning."""
    for key in ("num_layers", "objective"):
        ours, theirs = getattr(head.config, key), getattr(trained.config, key)
        if ours != theirs:
            raise UserError(
                f"start: {where} is a head with {key}={theirs}, the settings ask for {ours}; "
                "change the settings or start from another head"
            )
    weights = trained.state_dict()
    for name, tensor in head.state_dict().items():
        if weights[name].shape != tensor.shape:
            raise UserError(
                f"start: tensor {name!r} of {where} has shape {list(weights[name].shape)}, this "
                f"backbone's head needs {list(tensor.shape)}; start from a head of this backbone"
            )
    head.load_state_dict(weights)
