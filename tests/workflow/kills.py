"""Kill the whole workflow at random moments, run it again, and compare the end with a quiet run's.

    python -m tests.workflow.kills --kills 10 --seed 0

The micro suite runs once undisturbed. In a second copy it is killed again and again, in turn by
SIGKILL to all its processes, by SIGKILL to Snakemake alone (whose jobs stay at work while the next
run starts them once more), by SIGTERM to Snakemake and by Ctrl-C; after each kill it is started as
a user would, with `snakemake --unlock` where a lock was left. Where it ends before it is killed, it
is compared and starts from nothing. In the end tables, samples, weights and data must be the same.
"""

from __future__ import annotations

import argparse
import csv
import json
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from os import kill, killpg
from pathlib import Path
from typing import Any

from mrp.io import sha256_file
from tests.workflow.conftest import Repo, copy_repo

# What is killed, in turn: all processes of the run, or Snakemake alone.
KINDS = (
    (signal.SIGKILL, "all"),
    (signal.SIGKILL, "snakemake"),
    (signal.SIGTERM, "snakemake"),
    (signal.SIGINT, "all"),
)
# What no two runs share, in tables.csv and in a record.
TIME_COLUMNS = ("time_ratio", "time_ratio_low", "time_ratio_high", "tokens_per_second")
CLOCK = {"decode_seconds": 1.0, "tokens_per_second": 1.0, "speed": None}
PAST = {"created": "2000-01-01T00:00:00+00:00", "resumed_from": 0}


@dataclass
class Kills:
    """A workflow's copy that is killed, and what happened to it."""

    repo: Repo
    rng: random.Random
    longest: float
    gpus: int = 0
    done: list[str] = field(default_factory=list)
    unlocked: int = 0
    ended_first: int = 0
    groups: list[int] = field(default_factory=list)

    def start(self) -> subprocess.Popen[bytes]:
        """A run in a process group of its own, its output in run.log."""
        with open(self.repo.path / "run.log", "wb") as log:
            process = subprocess.Popen(
                command(self.repo, self.gpus),
                cwd=self.repo.path,
                env=environment(self.repo, self.gpus),
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        self.groups.append(process.pid)
        return process

    def kill_once(self) -> bool:
        """Start, and kill at a random moment; False if the run was at its end before."""
        number, target = KINDS[len(self.done) % len(KINDS)]
        delay = self.rng.uniform(0.5, self.longest)
        self.unlock()
        process = self.start()
        try:
            code = process.wait(delay)
        except subprocess.TimeoutExpired:
            (killpg if target == "all" else kill)(process.pid, number)
            process.wait(timeout=180)  # after SIGTERM its jobs may end first
            self.done.append(f"{number.name} to {target} after {delay:.1f} s")
            return True
        self.ended_first += 1
        assert code == 0, (self.repo.path / "run.log").read_text()
        return False

    def finish(self) -> None:
        """Run to the end, over what the last kill left; then nothing is left to be done."""
        self.unlock()
        code = self.start().wait(timeout=600)
        said = (self.repo.path / "run.log").read_text()
        assert code == 0, said
        again = self.start()
        assert again.wait(timeout=120) == 0
        assert "Nothing to be done" in (self.repo.path / "run.log").read_text()

    def unlock(self) -> None:
        """Do as Snakemake says where it finds a lock."""
        locks = self.repo.path / ".snakemake/locks"
        if locks.exists() and any(locks.iterdir()):
            done = self.repo.run(options=("--unlock",))
            assert done.returncode == 0, done.stdout
            self.unlocked += 1

    def end(self) -> None:
        """End what a killed Snakemake left at work; each run had a process group of its own."""
        for group in self.groups:
            try:
                killpg(group, signal.SIGKILL)
            except ProcessLookupError:
                continue


def command(repo: Repo, gpus: int) -> list[str]:
    """The run's command line: on the CPU, or with pretended GPUs, of which a training takes two."""
    words = repo.command()
    if gpus:
        place = words.index("device=cpu")
        words[place : place + 1] = ["device=auto", f"gpus_per_training={min(gpus, 2)}"]
    return words


def environment(repo: Repo, gpus: int) -> dict[str, str]:
    """The run's environment, with locks of GPUs of its own."""
    (repo.path / "tmp").mkdir(exist_ok=True)
    pretended = {"MRP_FAKE_GPUS": str(gpus)} if gpus else {}
    one = {"OMP_NUM_THREADS": "1", "TMPDIR": str(repo.path / "tmp")}
    return {**repo.environment(), **one, **pretended}


def differences(one: Repo, other: Repo) -> list[str]:
    """The files of two finished runs that differ beyond what a clock decides."""
    found = []
    ours, theirs = (dict(products(repo.path)) for repo in (one, other))
    for name in sorted(ours.keys() | theirs.keys()):
        if ours.get(name) != theirs.get(name):
            found.append(name)
    return found


def products(root: Path) -> Iterator[tuple[str, Any]]:
    """Name and content of what a run is for: tables, samples, weights, data."""
    with open(root / "results/tables.csv", newline="") as file:
        rows = [
            {k: v for k, v in row.items() if k not in TIME_COLUMNS} for row in csv.DictReader(file)
        ]
    yield "results/tables.csv", rows
    for pattern in ("runs/*/samples.jsonl", "data/*.jsonl", "**/model.safetensors"):
        for path in sorted((root / "results/micro").glob(pattern)):
            yield str(path.relative_to(root)), sha256_file(path)
    yield "results/tables.html", tables_of_a_stopped_clock(root)


def tables_of_a_stopped_clock(root: Path) -> str:
    """tables.html as the run's records give it when every time is the same and none has a past."""
    with tempfile.TemporaryDirectory() as folder:
        results = Path(folder) / "results"
        for path in (root / "results/micro/runs").glob("*/*"):
            copy = results / path.relative_to(root / "results")
            copy.parent.mkdir(parents=True, exist_ok=True)
            if path.name == "record.json":
                copy.write_text(json.dumps(_stopped(json.loads(path.read_text()))))
            elif path.name == "samples.jsonl":
                shutil.copy(path, copy)
        arguments = ["report", "tables", "--suite", "config/suites/micro.yaml"]
        arguments += ["--results", str(results), "--out", folder]
        subprocess.run(
            [sys.executable, "-m", "mrp.cli", *arguments, "--published", "config/published.csv"],
            cwd=root,
            env=Repo(root).environment(),
            check=True,
            stdout=subprocess.DEVNULL,
        )
        return (Path(folder) / "tables.html").read_text()


def _stopped(value: Any) -> Any:
    """A record without its times and its past."""
    if isinstance(value, list):
        return [_stopped(item) for item in value]
    if not isinstance(value, dict):
        return value
    fixed = {**CLOCK, **PAST}
    return {key: fixed[key] if key in fixed else _stopped(item) for key, item in value.items()}


def main() -> int:
    """The script; prints a line a kill and a summary."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--kills", type=int, default=10, help="how many (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=0, help="of the moments")
    parser.add_argument("--gpus", type=int, default=0, help="pretend to have this many")
    args = parser.parse_args()
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="mrp-kills-") as folder:
        quiet = copy_repo(Path(folder) / "quiet")
        subprocess.run(
            command(quiet, args.gpus),
            cwd=quiet.path,
            env=environment(quiet, args.gpus),
            check=True,
            capture_output=True,
        )
        whole = time.monotonic() - began
        print(f"undisturbed: {whole:.0f} s; seed {args.seed}", flush=True)
        kills = Kills(
            copy_repo(Path(folder) / "killed"), random.Random(args.seed), 0.35 * whole, args.gpus
        )
        wrong: list[str] = []
        compared = 0
        try:
            while len(kills.done) < args.kills:
                if kills.kill_once():
                    print(f"kill {len(kills.done)}: {kills.done[-1]}", flush=True)
                    continue
                wrong += differences(quiet, kills.repo)
                compared += 1
                print(
                    f"at its end after {len(kills.done)} kills: compared, starting over", flush=True
                )
                for name in ("results", "figures", ".snakemake"):
                    shutil.rmtree(kills.repo.path / name)
            kills.finish()
            wrong += differences(quiet, kills.repo)
            compared += 1
        finally:
            kills.end()
    kinds = Counter(line.partition(" after")[0] for line in kills.done)
    print(
        f"{len(kills.done)} kills ({', '.join(f'{n} x {kind}' for kind, n in kinds.items())}), "
        f"{kills.unlocked} times unlocked, {compared} finished runs compared with the undisturbed "
        f"one: {'all the same' if not wrong else 'DIFFERENT: ' + ', '.join(wrong)} "
        f"({time.monotonic() - began:.0f} s)"
    )
    return bool(wrong)


if __name__ == "__main__":
    sys.exit(main())
