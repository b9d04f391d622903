"""Shared test setup: one torch thread, so that parallel test workers do not fight for cores,
and no deadlines, which a busy machine would miss.

Without hypothesis, as on a bare GPU machine, the tests that do not need it still run.
"""

from __future__ import annotations

import contextlib

import torch

torch.set_num_threads(1)
with contextlib.suppress(ModuleNotFoundError):
    from hypothesis import settings

    settings.register_profile("busy", deadline=None)
    settings.load_profile("busy")
