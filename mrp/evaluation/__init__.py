"""Decode jobs: the lm-eval model and tasks, answer scoring, journals and records."""
