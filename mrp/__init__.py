"""Multi-token Residual Prediction: train the heads, decode the grid, print the paper's tables."""

from __future__ import annotations

__version__ = "0.1.0"
