"""Shared test setup: one torch thread, so that parallel test workers do not fight for cores,
and no deadlines, which a busy machine would miss.

Without hypothesis, as on a bare GPU machine, the tests that do not need it still run.
"""

from __future__ import annotations

import contextlib

import pytest
import torch

torch.set_num_threads(1)
with contextlib.suppress(ModuleNotFoundError):
    from hypothesis import settings

    settings.register_profile("busy", deadline=None)
    settings.load_profile("busy")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Whole workflows first: they take longest, and workers that wait for one keep no other up.

    Tests marked gpu are skipped without one.
    """
    items.sort(key=lambda item: "workflow" not in item.path.parts)
    if not torch.cuda.is_available():
        for item in items:
            if item.get_closest_marker("gpu") is not None:
                item.add_marker(pytest.mark.skip(reason="needs a GPU"))
