"""Shared test setup: one torch thread, so that parallel test workers do not fight for cores."""

from __future__ import annotations

import torch

torch.set_num_threads(1)
