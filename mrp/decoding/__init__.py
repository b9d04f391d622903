"""Decoding: one file a mode, a session under them, one loop over them."""

from __future__ import annotations

from mrp.decoding.engine import Decoder, decode
from mrp.decoding.modes import MODES, Mode, make_mode
from mrp.decoding.sample import (
    COUNTERS,
    Decoded,
    Trace,
    tokens_per_forward,
    tokens_per_forward_end_to_end,
)

__all__ = [
    "COUNTERS",
    "MODES",
    "Decoded",
    "Decoder",
    "Mode",
    "Trace",
    "decode",
    "make_mode",
    "tokens_per_forward",
    "tokens_per_forward_end_to_end",
]
