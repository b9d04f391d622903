"""Invented results of a whole grid, written by the evaluation's own writers."""

from __future__ import annotations

import random
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mrp.decoding import COUNTERS, Decoded, Trace
from mrp.evaluation.record import Sample, task_summary, write_run
from mrp.grid import Job, Layout, Suite, jobs, load_suite
from mrp.schema import LOSSLESS, OPTIONS

BLOCK = 16
SUITE = """\
name: embedded
backbones:
  S: {path: assets/embedded/backbone}
heads:
  default: {variant: default, path: "assets/embedded/heads/{backbone}/default"}
  k2: {variant: k2, path: "assets/embedded/heads/{backbone}/k2"}
  direct: {variant: direct, path: "assets/embedded/heads/{backbone}/direct"}
  default-here: {variant: default, train: {steps: 60}}
tasks: [[mini_math, mini_code]]
data: {test: TEST}
decoding: {speed: {prompts: 16, batch_size: 16, repeats: 2}}
grid:
  - {mode: static}
  - {mode: static, steps: [8, 6, 4]}
  - {mode: direct, head: [default, k2, direct], k: [1, 2, 3, 4]}
  - {mode: direct, head: default-here, k: [1, 2]}
  - {mode: speculative, head: [default, k2], k: [1, 2, 3, 4]}
  - {mode: speculative, head: default-here, k: 3}
  - {mode: self_speculative, k: [1, 2, 3, 4]}
  - {mode: dynamic, tau: [0.5, 0.6, 0.7, 0.8, 0.9]}
  - {mode: remask, head: k2, tau: [0.5, 0.6, 0.7, 0.8, 0.9], condition: [revealed, masked]}
  - {mode: remask, head: k2, tau: [0.5, 0.7, 0.9], rule: residual}
  - {mode: wino, tau: [0.5, 0.7]}
"""

# The same with more backbones, and with the ablations: seeds, depth, reveals, options.
REPLICA = """\
name: small
backbones:
  S: {train: &backbone {steps: 100}}
  M: {train: *backbone}
heads:
  default: {variant: default, train: &recipe {steps: 50}}
  k2: {variant: k2, train: *recipe}
  direct: {variant: direct, train: *recipe}
  default-seed1: {variant: default, seed_of: default, train: {<<: *recipe, seed: 1}}
  k2-seed1: {variant: k2, seed_of: k2, train: {<<: *recipe, seed: 1}}
  k2-seed2: {variant: k2, seed_of: k2, train: {<<: *recipe, seed: 2}}
  layers-1: {variant: default, train: {<<: *recipe, num_layers: 1}}
  layers-8: {variant: default, train: {<<: *recipe, num_layers: 8}}
  gt-1-4: {variant: default, train: {<<: *recipe, reveal: gt-1-4}}
tasks: [[mini_math, mini_code]]
data: {test: TEST}
decoding: {speed: {prompts: 16, batch_size: 16, repeats: 2}}
grid:
  - {mode: static}
  - {mode: static, steps: [8, 4]}
  - {mode: direct, head: [default, k2, direct], k: [1, 4]}
  - {mode: speculative, head: [default, k2], k: [1, 3]}
  - {mode: self_speculative, k: [1, 2, 3]}
  - {mode: dynamic, tau: [0.5, 0.7, 0.9]}
  - {mode: remask, head: k2, tau: [0.5, 0.7], passes: [one, halves]}
  - {mode: lattice, head: k2, k: 3}
  - {mode: wino, tau: [0.5, 0.7]}
  - {mode: factor, factor: 1.0}
  - {mode: freedave, k: 3, tau: [0.5, 0.7]}
  - {backbone: S, mode: direct, head: [default-seed1, k2-seed1, k2-seed2], k: 4}
  - {backbone: S, mode: speculative, head: k2-seed1, k: 3}
  - {backbone: S, mode: direct, head: [layers-1, layers-8, gt-1-4], k: [1, 4]}
  - {backbone: S, mode: speculative, head: [layers-1, layers-8], k: 3}
  - {backbone: S, mode: direct, head: k2, k: [1, 4], scale: 2}
  - {backbone: S, mode: speculative, head: k2, k: 3, prefix: false}
  - {backbone: S, mode: static, cap: 0.9}
  - {backbone: S, mode: speculative, head: k2, k: 3, cap: 0.9}
"""

# Accuracy in %, or acceptance, by setting; mini_code is a few points better everywhere.
STATIC = 92.8
NO_HEAD = {8: 28.7, 6: 10.0, 4: 5.3}
DIRECT = {
    "default": [76.0, 73.2, 60.5, 49.2],
    "k2": [78.3, 77.9, 66.2, 64.3],
    "direct": [70.7, 69.1, 45.9, 40.2],
    "default-here": [35.0, 20.0],
}
ACCEPTED = {
    "default": {1: 0.686, 2: 0.544, 3: 0.437, 4: 0.36},
    "k2": {1: 0.711, 2: 0.579, 3: 0.48, 4: 0.404},
    "direct": {1: 0.549, 2: 0.409, 3: 0.312, 4: 0.248},
    "default-here": {3: 0.3},
    None: {1: 0.62, 2: 0.5, 3: 0.38, 4: 0.31},
}
DYNAMIC = {0.5: (23.6, 3.91), 0.6: (58.2, 2.55), 0.7: (79.1, 2.09), 0.8: (86.3, 1.89)}
DYNAMIC[0.9] = (89.8, 1.79)
REMASK = {0.5: (37.9, 3.31), 0.6: (66.2, 2.34), 0.7: (83.0, 2.01), 0.8: (87.0, 1.88)}
REMASK[0.9] = (90.0, 1.78)


@dataclass(frozen=True)
class Written:
    """A results folder with the suite that it belongs to."""

    suite: Suite
    suite_file: Path
    results: Path

    @property
    def layout(self) -> Layout:
        return Layout(self.suite, self.results)


def write_suite(directory: Path, n: int, text: str = SUITE) -> Path:
    path = directory / f"{text.split(maxsplit=2)[1]}.yaml"
    path.write_text(text.replace("TEST", str(n)), encoding="utf-8")
    return path


def write_results(
    directory: Path,
    n: int,
    missing: tuple[str, ...] = (),
    failed: tuple[str, ...] = (),
    text: str = SUITE,
) -> Written:
    """All jobs' runs but the missing ones; a failed one leaves its log."""
    suite_file = write_suite(directory, n, text)
    written = Written(load_suite(suite_file), suite_file, directory / "results")
    for job in jobs(written.suite):
        if job.id in failed:
            log = written.layout.log("decode", job.id)
            log.parent.mkdir(parents=True, exist_ok=True)
            log.write_text("mrp: error: out of memory\n", encoding="utf-8")
        elif job.id not in missing:
            write_job(written, job, n)
    return written


def write_job(written: Written, job: Job, n: int) -> None:
    samples = {task: _samples(job, task, n) for task in job.tasks}
    spec = written.suite.heads[job.head] if job.head else None
    record: dict[str, Any] = {
        "job": {
            "id": job.id,
            "suite": job.suite,
            "backbone": job.backbone,
            "tasks": list(job.tasks),
            "mode": job.mode,
            "head": job.head,
            **{name: job.options.get(name) for name in OPTIONS},
            "digest": job.digest,
        },
        "head": spec
        and {
            "name": job.head,
            "variant": spec.variant,
            "source": job.head_source,
            "layers": layers_of(job.head),
        },
        "tasks": {
            task: task_summary(found, 3.5, _speed(job, task)) for task, found in samples.items()
        },
        "provenance": {
            "created": f"2026-11-30T09:{len(job.id):02d}:00+00:00",
            "mrp": "0.1.0",
            "git": "0123456789abcdef0123456789abcdef01234567",
            "device": "cpu",
            "python": "3.11.2",
            "packages": {"torch": "2.13.0", "transformers": "5.24.0", "lm-eval": "0.4.13"},
            "command": f"mrp decode --suite embedded --job {job.id}",
            "seed": 0,
            "dtype": "float32",
            "batch_size": 32,
            "backbone_hash": "ab" * 32,
            "head_hash": "cd" * 32 if spec else None,
            "resumed_from": 0,
        },
    }
    every = [sample for found in samples.values() for sample in found]
    write_run(written.layout.run_dir(job.id), every, record)


def setting(job: Job) -> tuple[float, float]:
    """The invented accuracy in % and the tokens per forward of a job."""
    mode, k, tau = job.mode, job.options.get("k"), job.options.get("tau")
    if mode == "static":
        steps = job.options.get("steps") or BLOCK
        return NO_HEAD.get(steps, STATIC), BLOCK / steps
    if mode == "direct":
        accuracy = DIRECT[base_of(job.head)][k - 1] - 8 * (job.options.get("scale", 1) != 1)
        return accuracy - 9 * (layers_of(job.head) == 1), BLOCK / -(-BLOCK // (k + 1))
    if mode == "dynamic":
        return DYNAMIC[tau]
    if mode == "freedave":
        return DYNAMIC[tau][0], 1.2 * DYNAMIC[tau][1]
    if mode == "remask":
        accuracy, tpf = REMASK[tau]
        worse = job.options.get("condition") == "masked"
        accuracy += 0.4 * (93 - accuracy) * (job.options.get("passes", "one") == "halves")
        return (accuracy - 4 * worse, tpf + 0.1 * worse)
    if mode in LOSSLESS:
        share = accepted_share(job) - 0.05 * (not job.options.get("prefix", True))
        return STATIC, 1 + 0.86 * k * share
    return DYNAMIC[0.7]  # a mode that is not known here


def accepted_share(job: Job) -> float:
    by_k = ACCEPTED[base_of(job.head)]
    return by_k[min(job.options["k"], max(by_k))]


def base_of(head: str | None) -> str | None:
    """The head with invented numbers that another takes its own from."""
    if head is None or head in DIRECT:
        return head
    start = head.partition("-seed")[0]
    return start if start in DIRECT else "default"


def layers_of(head: str | None) -> int:
    return int(head.removeprefix("layers-")) if head and head.startswith("layers-") else 3


def _samples(job: Job, task: str, n: int) -> list[Sample]:
    accuracy, tpf = setting(job)
    if task == "mini_code":
        accuracy = 100 - (100 - accuracy) * 0.8
    lossless = job.mode in LOSSLESS
    name = f"{task} static" if lossless else f"{task} {job.id}"
    if job.mode == "static" and "steps" not in job.options:
        name = f"{task} static"
    if job.mode == "freedave":
        name = f"{task} {job.backbone}.mini.dynamic.tau{job.options['tau']:g}"
    luck = random.Random(zlib.crc32(name.encode()))
    problems = random.Random(zlib.crc32(task.encode()))
    ease = [problems.random() + 0.5 * luck.random() for _ in range(n)]
    cut = sorted(ease, reverse=True)[: round(accuracy * n / 100)]
    right = [value >= cut[-1] if cut else False for value in ease]
    pace = random.Random(zlib.crc32(f"{task} {job.id} pace".encode()))
    spread = 0.0 if job.mode in ("static", "direct") else 0.08
    paces = [tpf * pace.uniform(1 - spread, 1 + spread) for _ in range(n)]
    return [_sample(job, task, i, right[i], paces[i]) for i in range(n)]


def _sample(job: Job, task: str, i: int, right: bool, tpf: float) -> Sample:
    target = str(i + 7)
    text = f"{i + 3}+4={target};#{target}" if right else f"wrong {job.mode}#0"
    if job.mode in LOSSLESS and not right:
        text = "wrong static#0"
    if job.mode == "freedave" and not right:
        text = "wrong dynamic#0"
    blocks = 2 + i % 3
    made = BLOCK * blocks
    rounds = max(blocks, round(made / tpf))
    counts = dict.fromkeys(COUNTERS, 0)
    counts |= {"prefill": 1, "store": blocks, "revealed": made}
    counts |= {"generated": made, "answer_tokens": len(text) + 1}
    counts["verify" if "speculative" in job.mode else "denoise"] = rounds
    k = job.options.get("k", 0)
    if "speculative" in job.mode:
        share = accepted_share(job)
        counts |= {"proposed": k * rounds, "accepted": round(k * rounds * share), "bonus": rounds}
    if job.head:
        counts |= {"head_store": blocks + 1, "head_draft": k * rounds}
    if job.mode == "remask":
        counts |= {"head_remask": rounds, "vetoed": made // 5, "revealed": made + made // 5}
    trace = Trace(ids=[3] * made, step=[1] * made, source=["backbone"] * made, remasked=[0] * made)
    decoded = Decoded(index=i, ids=[3] * len(text), finished=True, counts=counts, trace=trace)
    tokens = list(text.ljust(made))
    return Sample(task, i, f"({i + 3}+4)?", text, target, right, decoded, tokens)


def _speed(job: Job, task: str) -> dict[str, Any] | None:
    if job.mode == "static" and "steps" not in job.options:
        return None
    _, tpf = setting(job)
    passes = 0.35 * job.options.get("k", 0) + (0.5 if job.mode == "remask" else 0)
    cost = 1 + passes * layers_of(job.head) / 3
    ratio = tpf / cost if "speculative" not in job.mode else 0.8 * tpf / cost
    return {
        "ratio": ratio,
        "low": ratio * 0.94,
        "high": ratio * 1.05,
        "static_tokens_per_second": 800.0,
        "tokens_per_second": 800.0 * ratio,
        "prompts": 16,
        "batch_size": 16,
        "repeats": 2,
        "device": "cpu",
        "dtype": "bfloat16",
    }
