"""Task files for lm-eval (YAML, found by include path) and the functions that they name."""

from __future__ import annotations

from pathlib import Path

TASKS_DIR = Path(__file__).parent
