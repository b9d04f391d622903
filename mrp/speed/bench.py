"""The benchmark behind `mrp bench`: tokens per second side by side, and where the time goes."""

from __future__ import annotations

import platform
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import torch

from mrp import __version__
from mrp.decoding import Decoded, Mode, make_mode
from mrp.errors import UserError
from mrp.models import Backbone, Head
from mrp.speed.costs import Ceilings, role_costs, round_costs
from mrp.speed.eager_loop import eager_loop
from mrp.speed.interleave import (
    Contender,
    Measured,
    compare,
    cut,
    device_name,
    interleave,
    rate,
)
from mrp.speed.paired import kept
from mrp.speed.prediction import predictable, predicted_seconds

EAGER = "eager-loop"
HEAD_ROLES = ("head_draft", "head_remask")


@dataclass(frozen=True)
class Plan:
    """What to measure.

    modes: by label; "static" is always among the contenders. chunks: batches of prompts of each
    size. baseline: "static" or "eager-loop", what ratios are taken to.
    """

    modes: Mapping[str, Mode]
    batch_sizes: Sequence[int]
    new_tokens: int
    repeats: int
    chunks: int = 1
    baseline: str = "static"
    seed: int = 0


def bench(
    backbone: Backbone,
    head: Head | None,
    prompts: Sequence[list[int]],
    plan: Plan,
    ceilings: Ceilings,
) -> dict[str, Any]:
    """Measure everything in `plan`, for every batch size.

    Returns:
        what was measured on, and `batches`: for each batch size the forwards' costs by role and
        each contender's tokens/s, ratio with interval and what its rounds and the forwards' costs
        predict for it, TPF, head passes, acceptance.

    Raises:
        UserError: fewer prompts than the largest batch.
    """
    if not prompts or max(plan.batch_sizes) > len(prompts):
        raise UserError(
            f"{len(prompts)} prompts for batches of {max(plan.batch_sizes)}: give as many prompts "
            "as the largest batch, or smaller batches"
        )
    device = backbone.lm_head.weight.device
    batches = [_batch(backbone, head, prompts, plan, size, ceilings) for size in plan.batch_sizes]
    return {
        "created": datetime.now(UTC).isoformat(timespec="seconds"),
        "mrp": __version__,
        "torch": torch.__version__,
        "python": platform.python_version(),
        "device": device_name(device),
        "threads": torch.get_num_threads() if device.type == "cpu" else None,
        "dtype": str(backbone.lm_head.weight.dtype).removeprefix("torch."),
        "prompts": len(prompts),
        "new_tokens": plan.new_tokens,
        "repeats": plan.repeats,
        "baseline": plan.baseline,
        "ceilings": {
            "terabytes_per_second": ceilings.bytes_per_second / 1e12,
            "teraflops": ceilings.flops / 1e12,
        },
        "batches": batches,
    }


def _batch(
    backbone: Backbone,
    head: Head | None,
    prompts: Sequence[list[int]],
    plan: Plan,
    size: int,
    ceilings: Ceilings,
) -> dict[str, Any]:
    used = list(prompts[: size * plan.chunks])
    chunks = cut(used, size)
    modes = {"static": make_mode("static"), **plan.modes}
    contenders: dict[str, Contender] = {
        label: kept(backbone, head if mode.needs_head else None, mode, used, plan.new_tokens, size)
        for label, mode in modes.items()
    }
    if plan.baseline == EAGER:
        contenders = {
            EAGER: lambda chunk: eager_loop(backbone, chunk, plan.new_tokens),
            **contenders,
        }
    device = backbone.lm_head.weight.device
    found = interleave(contenders, chunks, plan.repeats, device, plain=(EAGER,))
    known = [mode for mode in modes.values() if mode.states > 1 and predictable(mode)]
    drafts = {mode.states - 1 for mode in modes.values() if mode.states > 1}
    drafts |= {k for mode in known for k in range(1, mode.states)}
    prefix = len(used[0]) + plan.new_tokens // 2
    block = backbone.config.block_size
    costs = role_costs(
        backbone,
        head,
        size,
        prefix // block * block,
        sorted(drafts),
        ceilings,
        lists=sorted({getattr(mode, "shortlist", 0) for mode in modes.values() if mode.states > 1}),
        prompts=used,
    )
    seconds = {cost["role"]: cost["ms"] / 1e3 for cost in costs}

    whole = {
        label: round_costs(backbone, head, mode, used[:size])
        for label, mode in modes.items()
        if predictable(mode)
    }

    def predicted(label: str) -> dict[str, float | None]:
        """The ratios to static that rounds and forwards predict; None where nothing does."""
        ratios: dict[str, float | None] = {"predicted": None, "predicted_by_rounds": None}
        if plan.baseline != "static" or label not in whole:
            return ratios
        answers = [
            sum(s.counts["answer_tokens"] for s in found[n].samples) for n in (label, "static")
        ]
        for key, by_rounds in zip(ratios, (False, True), strict=True):
            if by_rounds and not whole[label]:
                continue
            spent = [
                predicted_seconds(
                    modes[name],
                    found[name].samples,
                    chunks,
                    seconds,
                    block,
                    whole[name] if by_rounds else None,
                )
                for name in (label, "static")
            ]
            ratios[key] = answers[0] / spent[0] / (answers[1] / spent[1])
        return ratios

    return {
        "batch_size": size,
        "prompts": len(used),
        "prompt_tokens_mean": sum(map(len, used)) / len(used),
        "costs": costs,
        "contenders": [
            _summary(label, measured, found[plan.baseline], plan.seed, predicted(label))
            for label, measured in found.items()
        ],
    }


def _summary(
    label: str,
    measured: Measured,
    baseline: Measured,
    seed: int,
    predicted: dict[str, float | None],
) -> dict[str, Any]:
    """One contender's line: padding after the end and prompts never count as tokens."""
    counts: Counter[str] = Counter()
    for sample in measured.samples:
        counts.update(sample.counts)
    forwards = counts["denoise"] + counts["verify"]
    seconds = [timing.seconds for timing in measured.timed]
    return {
        "mode": label,
        "tokens_per_second": rate(measured.timed),
        "cold_tokens_per_second": rate(measured.cold[:1]),
        "warmups": len(measured.cold),
        **compare(baseline.timed, measured.timed, seed),
        **predicted,
        "fastest_seconds": min(seconds),
        "slowest_seconds": max(seconds),
        "answer_tokens_mean": counts["answer_tokens"] / max(1, len(measured.samples)),
        "tpf": counts["generated"] / max(1, forwards),
        "denoise": counts["denoise"],
        "verify": counts["verify"],
        "head_passes": sum(counts[role] for role in HEAD_ROLES),
        "acceptance": counts["accepted"] / counts["proposed"] if counts["proposed"] else None,
        "accepted_per_verification": accepted_histogram(measured.samples),
    }


def accepted_histogram(samples: Sequence[Decoded]) -> dict[str, int]:
    """How many verifications accepted 0, 1, 2, ... drafts; empty where nothing is verified."""
    found: Counter[int] = Counter()
    for sample in samples:
        drafts: Counter[int] = Counter()
        verified = set()
        for step, source in zip(sample.trace.step, sample.trace.source, strict=True):
            if source == "bonus":
                verified.add(step)
            elif source == "draft":
                drafts[step] += 1
        found.update(drafts[step] for step in verified)
    return {str(number): found[number] for number in sorted(found)}


def lines(result: dict[str, Any]) -> list[str]:
    """The result as a printed table."""
    ceilings = result["ceilings"]
    out = [
        f"{result['device']}, {result['dtype']}, torch {result['torch']}, mrp {result['mrp']}, "
        f"{result['created']}",
        f"ceilings: {ceilings['terabytes_per_second']:.3g} TB/s, "
        f"{ceilings['teraflops']:.3g} TFLOP/s; {result['new_tokens']} new tokens, "
        f"{result['repeats']} repeats, ratios to {result['baseline']}",
    ]
    for batch in result["batches"]:
        out += ["", f"batch {batch['batch_size']}", f"  {'forward':24} {'ms':>9} {'x floor':>8}"]
        for cost in batch["costs"]:
            out.append(f"  {cost['role']:24} {cost['ms']:9.3f} {1 / cost['share']:8.2f}")
        out.append(
            f"  {'mode':32} {'tokens/s':>9} {'ratio':>7} {'predicted':>9} {'rounds':>7} "
            f"{'95 %':>15} {'TPF':>6} "
            f"{'head':>7} {'accepted':>8}"
        )
        for line in batch["contenders"]:
            low, high, accepted = line["low"], line["high"], line["acceptance"]
            interval = f"{low:.3f}-{high:.3f}" if low is not None else "-"
            predicted, rounds = (
                f"{line[key]:.3f}" if line[key] is not None else "-"
                for key in ("predicted", "predicted_by_rounds")
            )
            out.append(
                f"  {line['mode']:32} {line['tokens_per_second']:9.1f} {line['ratio']:7.3f} "
                f"{predicted:>9} {rounds:>7} {interval:>15} {line['tpf']:6.2f} "
                f"{line['head_passes']:7d} "
                + (f"{accepted:8.3f}" if accepted is not None else f"{'-':>8}")
            )
            if line["accepted_per_verification"]:
                shown = line["accepted_per_verification"].items()
                out.append("      accepted: " + ", ".join(f"{k}: {n}" for k, n in shown))
    return out
