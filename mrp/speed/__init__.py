"""Speed of a mode, always as a ratio measured beside the static baseline."""

from __future__ import annotations

from mrp.speed.paired import paired_speeds

__all__ = ["paired_speeds"]
