"""Training in several processes of this machine, one a GPU: started, watched and ended together.

torch.multiprocessing starts the workers. They end with this process, hold its locks as long as they
live, and speak through it: what goes wrong in any of them is raised here, once.
"""

from __future__ import annotations

import errno
import logging
import multiprocessing
import os
import signal
import sys
import threading
import traceback
from collections.abc import Callable, Mapping, Sequence
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import torch
from torch.distributed import TCPStore  # type: ignore[attr-defined]
from torch.multiprocessing.spawn import spawn

from mrp.errors import UserError
from mrp.locks import Inherited

HOST = "127.0.0.1"
# How long the others may take to fail for their own reason once one has, before they are killed.
LAST_WORDS_SECONDS = 2.0


def launch(train: Callable[..., None], processes: int, out_dir: Path, **arguments: Any) -> None:
    """Call `train(out_dir=..., **arguments)` in `processes` processes that train together.

    One is called here. Several find each other as torchrun's workers do, by their environment, and
    use the visible devices in order.

    Args:
        train: `train_backbone`, `train_head` or another function of a module.
        processes: how many.
        out_dir: where it writes.
        arguments: its others, which must pickle.

    Raises:
        UserError, OSError: of a worker; also OSError if one was killed. The others are ended.
        RuntimeError: any other failure of a worker, with its traceback.
    """
    if processes == 1:
        train(out_dir=out_dir, **arguments)
        return
    # The meeting place is here, on a port that the system chooses: no two runs can want the same.
    store = TCPStore(HOST, 0, None, is_master=True, wait_for_workers=False)
    pipes = [multiprocessing.Pipe(duplex=False) for _ in range(processes)]
    senders = [sender for _, sender in pipes]
    arguments = {"out_dir": out_dir, **arguments}
    context = spawn(
        _work,
        (processes, store.port, senders, Inherited(), train, arguments),
        nprocs=processes,
        join=False,
    )
    workers: Sequence[BaseProcess] = context.processes
    try:
        codes = _until_one_fails(workers)
    finally:
        for worker in workers:
            worker.kill()
        for worker in workers:
            worker.join()
    if any(codes.values()):
        _raise_first(codes, [receiver for receiver, _ in pipes], out_dir)


def _until_one_fails(workers: Sequence[BaseProcess]) -> dict[int, int]:
    """Wait for all to end well or for one not to; the exit codes of those that ended, by rank."""
    codes: dict[int, int] = {}
    while len(codes) < len(workers):
        timeout = LAST_WORDS_SECONDS if any(codes.values()) else None
        if not wait([w.sentinel for rank, w in enumerate(workers) if rank not in codes], timeout):
            break
        for rank, worker in enumerate(workers):
            if worker.exitcode is not None:
                codes[rank] = worker.exitcode
    return codes


def _raise_first(codes: Mapping[int, int], reports: Sequence[Connection], out_dir: Path) -> None:
    """Raise the cause: a worker's own error, or a kill, before what the others made of it."""
    said = {rank: report.recv() for rank, report in enumerate(reports) if report.poll()}
    for kind in (UserError, OSError):
        for error in said.values():
            if isinstance(error, kind):
                raise error
    for rank, code in codes.items():
        if code < 0:
            what = f"training process {rank + 1} of {len(reports)} was killed (signal {-code})"
            raise OSError(errno.ECHILD, what, str(out_dir))
    for rank in codes:
        if rank in said:
            raise RuntimeError(f"training process {rank + 1} of {len(reports)}: {said[rank]}")
    raise RuntimeError(f"training processes ended with {dict(codes)}")


def _work(
    rank: int,
    processes: int,
    port: int,
    reports: Sequence[Connection],
    locks: Inherited,
    train: Callable[..., None],
    arguments: Mapping[str, Any],
) -> None:
    """One worker; `locks` are held by being here."""
    threading.Thread(target=_end_with_parent, daemon=True).start()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the first process, which ends all
    logging.basicConfig(format="mrp: %(message)s", stream=sys.stderr)
    logging.getLogger("mrp").setLevel(logging.INFO)
    torch.set_num_threads(max(1, torch.get_num_threads() // processes))
    os.environ.update(
        RANK=str(rank),
        LOCAL_RANK=str(rank),
        WORLD_SIZE=str(processes),
        MASTER_ADDR=HOST,
        MASTER_PORT=str(port),
        TORCHELASTIC_USE_AGENT_STORE="True",  # the store is there already: connect to it
    )
    try:
        train(**arguments)
    except (UserError, OSError) as error:
        _end(reports[rank], error)
    except BaseException:
        _end(reports[rank], traceback.format_exc())


def _end(report: Connection, what: Exception | str) -> None:
    """Report a failure and end at once: the others may hang in a step that will never be done."""
    report.send(what)
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(1)


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        wait([parent.sentinel])
        os._exit(1)
