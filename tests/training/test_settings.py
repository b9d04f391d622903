"""Settings from a suite: every mistake is one line that names key, value and what is allowed."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest

from mrp.errors import UserError
from mrp.source import TRAIN_CODE, code_version
from mrp.training.settings import (
    BackboneTraining,
    HeadTraining,
    identity,
    parse_settings,
    with_steps,
)


def test_given_keys_replace_the_defaults() -> None:
    settings = parse_settings(HeadTraining, {"variant": "k2", "steps": 7, "lr": 1}, "heads.k2")
    assert (settings.variant, settings.steps, settings.init) == ("k2", 7, "normal-0.2")
    assert isinstance(settings.lr, float)
    assert parse_settings(BackboneTraining, {}, "S") == BackboneTraining()


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"step": 7}, "heads.x: unknown key 'step'; known keys are .*steps"),
        ({"steps": "7"}, "heads.x: steps is '7', expected a value of type int"),
        ({"steps": True}, "heads.x: steps is True, expected a value of type int"),
        ({"lr": None}, "heads.x: lr is None, expected a value of type float"),
        ({"init": "ones"}, "heads.x: init is 'ones'; choose one of normal-0.2, normal-0.02, zero"),
        ({"steps": 0}, "heads.x: steps is 0; it must be greater than 0"),
        ({"epochs": 1, "steps": 5}, "heads.x: steps and epochs are both given; leave one"),
        ({"epochs": 0.5}, "heads.x: epochs is 0.5, expected a value of type int"),
        ({"epochs": -1}, "heads.x: epochs is -1; it must be at least 0"),
        ({"warmup": -1}, "heads.x: warmup is -1; it must be at least 0"),
        ({"noise_low": 1.0}, "heads.x: noise_low is 1.0; it must be below 1"),
        ({"min_lr": 0.1}, "heads.x: min_lr 0.1 is above lr 0.001"),
        ({"clip": 1e40}, "heads.x: clip is 1e\\+40; it must be at most 1e\\+09"),
        ({"lr": float("nan")}, "heads.x: lr is nan; it must be greater than 0"),
    ],
)
def test_mistakes_are_named(values: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError, match=message):
        parse_settings(HeadTraining, values, "heads.x")


@pytest.mark.parametrize(
    ("epochs", "rows", "steps"), [(1, 64, 4), (1, 65, 5), (3, 20, 4), (1, 1, 1), (0, 64, 1000)]
)
def test_epochs_are_steps_over_the_packed_rows(epochs: int, rows: int, steps: int) -> None:
    settings = parse_settings(HeadTraining, {"epochs": epochs, "batch_size": 16}, "heads.k2")
    assert with_steps(settings, rows).steps == steps


def test_identity_leaves_out_what_cannot_change_the_weights() -> None:
    one, two = HeadTraining(), HeadTraining(compile=False, log_every=7, checkpoint_seconds=1.0)
    assert identity(one, backbone="a") == identity(two, backbone="a")
    assert identity(one, backbone="a") != identity(one, backbone="b")
    assert identity(one)["code"] == code_version(*TRAIN_CODE)


def test_training_needs_no_suite_reader() -> None:
    """Training also runs on machines without what reads suites."""
    code = (
        "import sys, mrp.training.head, mrp.training.backbone;"
        "print([name for name in ('pydantic', 'yaml', 'mrp.config') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stdout == "[]\n", done.stderr


def test_rotary_positions_need_an_even_head() -> None:
    with pytest.raises(UserError, match="S: head_dim is 15; it must be even"):
        parse_settings(BackboneTraining, {"head_dim": 15}, "S")
