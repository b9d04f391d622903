"""Shared test setup: one thread for the libraries here and in what tests start, so that workers do
not fight for cores, and no deadlines, which a busy machine would miss.

Without hypothesis, as on a bare GPU machine, the tests that do not need it still run.
"""

from __future__ import annotations

import contextlib
import gc
import os

import pytest

gc.disable()  # until all is collected: what the imports make, stays

for library in ("OMP", "MKL", "OPENBLAS"):  # read when they are first imported
    os.environ[f"{library}_NUM_THREADS"] = "1"

import torch  # noqa: E402

torch.set_num_threads(1)
with contextlib.suppress(ModuleNotFoundError):
    from hypothesis import settings

    settings.register_profile("busy", deadline=None)
    settings.load_profile("busy")


# What takes longest. One that begins when all else is done keeps the others waiting.
LONG = (
    "workflow/test_report.py",  # waits for the whole micro suite, which then is there for all
    "workflow/test_paper.py",
    "workflow/test_run.py",
    "docs/test_examples.py",
    "decoding/test_lossless.py",
    "training/test_loop.py::test_two_",
    "training/test_loop.py::test_a_killed_",
    "training/test_launch.py::test_a_",
    "workflow/",
)


def pytest_collection_finish() -> None:
    """What is there now stays to the end: no collection of garbage looks at it again."""
    gc.freeze()
    gc.enable()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Long tests first, dealt to the workers in turn; the others stay together by their files.

    Tests marked gpu are skipped without one.
    """
    rank = {
        item: next((n for n, part in enumerate(LONG) if part in item.nodeid), -1) for item in items
    }
    workers = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
    long = sorted((item for item in items if rank[item] >= 0), key=rank.__getitem__)
    short = [item for item in items if rank[item] < 0]
    ordered: list[pytest.Item] = []
    for worker in range(workers):  # gets the next share of what is left, of xdist's worksteal
        share = (len(items) - len(ordered)) // (workers - worker)
        mine = long[worker::workers]
        ordered += mine
        ordered += [short.pop(0) for _ in range(min(share - len(mine), len(short)))]
    items[:] = ordered
    if not torch.cuda.is_available():
        for item in items:
            if item.get_closest_marker("gpu") is not None:
                item.add_marker(pytest.mark.skip(reason="needs a GPU"))
