"""Shared test setup: one torch thread, so that parallel test workers do not fight for cores,
and no deadlines, which a busy machine would miss."""

from __future__ import annotations

import torch
from hypothesis import settings

torch.set_num_threads(1)
settings.register_profile("busy", deadline=None)
settings.load_profile("busy")
