"""The processes that train together: one alone, or those that `launch` or torchrun started."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch import Tensor

from mrp.errors import UserError


@dataclass(frozen=True)
class World:
    """This process's place: `rank` 0 writes the files and shows the progress."""

    rank: int = 0
    size: int = 1

    @property
    def leads(self) -> bool:
        """Whether this process writes and speaks for all."""
        return self.rank == 0

    def wait(self) -> None:
        """Wait until every process is here (collective)."""
        if self.size > 1:
            dist.barrier()

    def mean(self, values: Tensor) -> Tensor:
        """The mean of a tensor over the processes (collective)."""
        if self.size > 1:
            dist.all_reduce(values)
            values /= self.size
        return values


def resolve_device(name: str) -> torch.device:
    """Turn --device into a device: "auto" takes a GPU if there is one, the process's own under
    torchrun.

    Raises:
        UserError: the name is unknown or there is no such GPU.
    """
    if not re.fullmatch(r"auto|cpu|cuda(:\d+)?", name):
        raise UserError(f"--device is {name!r}; choose auto, cpu, cuda or cuda:N")
    if name == "cpu" or (name == "auto" and not torch.cuda.is_available()):
        return torch.device("cpu")
    _, _, given = name.partition(":")
    index = int(given or os.environ.get("LOCAL_RANK", "0"))
    if index >= torch.cuda.device_count():
        raise UserError(
            f"--device is {name}, but PyTorch sees {torch.cuda.device_count()} GPUs here; "
            "choose another number, cpu or auto"
        )
    return torch.device("cuda", index)


@contextmanager
def world(device: torch.device) -> Iterator[World]:
    """Join the processes that train together (NCCL on GPUs, gloo on CPUs), or be alone."""
    size = int(os.environ.get("WORLD_SIZE", "1"))
    if device.type == "cuda":
        torch.cuda.set_device(device)
    if size == 1:
        yield World()
        return
    if device.type == "cuda":
        dist.init_process_group("nccl", device_id=device)
    else:
        dist.init_process_group("gloo")
    yield World(dist.get_rank(), size)
    # Not after an error: taking leave waits for processes that may be waiting themselves.
    dist.destroy_process_group()
