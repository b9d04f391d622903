"""A small suite whose checkpoints and problems are on a hub of our own."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pyarrow
import pyarrow.parquet
import pytest
import yaml
from huggingface_hub import constants

from mrp.data.tokenizer import build_tokenizer
from mrp.evaluation.tasks import hub_source
from mrp.export import export
from mrp.models import save_backbone, save_head
from tests.fetch.fake_hub import FakeHub
from tests.tiny import tiny_backbone, tiny_head

GSM8K = [
    {"question": f"What is {n} + {n}?\u2028Say it.", "answer": f"It is {2 * n}.\n#### {2 * n}"}
    for n in range(5)
]
MATH = [
    {"problem": f"${n}^2$?", "solution": f"\\boxed{{{n * n}}}", "answer": str(n * n), "level": 1}
    for n in range(3)
]


@dataclass
class Lab:
    """The hub, the suite's file, and where the user keeps things."""

    hub: FakeHub
    suite: Path
    home: Path
    benchmarks: Path
    released: Path  # what the hub's repositories hold, as a directory
    commit: str  # of the backbone's repository

    @property
    def cache(self) -> Path:
        """The hub's cache."""
        return self.home / "hub"

    def environment(self) -> dict[str, str]:
        """For a process of its own."""
        return {
            "HF_ENDPOINT": self.hub.url,
            "HF_HOME": str(self.home),
            "HF_HUB_OFFLINE": "0",
            "HF_HUB_DISABLE_TELEMETRY": "1",
        }


def parquet(rows: list[dict[str, object]]) -> bytes:
    sink = io.BytesIO()
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows), sink)
    return sink.getvalue()


def contents(directory: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in directory.iterdir()}


@pytest.fixture(scope="session")
def released(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A backbone with tokenizer and a head in the released layout, several shards each."""
    root = tmp_path_factory.mktemp("released")
    backbone = tiny_backbone(vocab_size=128)
    save_backbone(backbone, root / "backbone")
    build_tokenizer(root / "backbone")
    save_head(tiny_head(backbone), root / "head")
    export(root / "backbone", root / "head", root / "out", "float32", "40kB")
    return root / "out"


@pytest.fixture
def lab(tmp_path: Path, released: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Lab]:
    """The suite `lab`; this process, too, uses the hub and its cache."""
    with FakeHub() as hub:
        files = contents(released)
        extra = {"modeling_sdar.py": b"raise SystemExit", "pytorch_model.bin": b"\x80pickle"}
        commit = hub.add("model", "lab/tiny", {**files, **extra, "logs/a.json": b"{}"})
        hub.add("model", "lab/tiny-k2", files)
        hub.add("model", "lab/unused", files)
        source = hub_source("mrp_gsm8k")
        configs = [
            {
                "config_name": name,
                "data_files": [
                    {"split": split, "path": f"{name}/{split}-*"} for split in ("train", "test")
                ],
            }
            for name in ("main", "socratic")
        ]
        hub.add(
            "dataset",
            source.id,
            {
                "README.md": b"",
                "main/train-00000-of-00001.parquet": parquet(GSM8K[:1]),
                "main/test-00000-of-00002.parquet": parquet(GSM8K[:3]),
                "main/test-00001-of-00002.parquet": parquet(GSM8K[3:]),
                "socratic/test-00000-of-00001.parquet": parquet(GSM8K[:1]),
            },
            commit=source.revision,
            card={"configs": configs},
        )
        source = hub_source("mrp_math500")
        lines = "".join(json.dumps(row) + "\n" for row in MATH).encode()
        hub.add("dataset", source.id, {"test.jsonl": lines}, commit=source.revision)

        suite = tmp_path / "lab.yaml"
        description = {
            "name": "lab",
            "backbones": {"S": {"path": "lab/tiny"}},
            "heads": {
                "k2": {"variant": "k2", "path": "lab/tiny-k2@main", "train": {"steps": 1}},
                "other": {"variant": "k2", "path": "lab/unused"},
            },
            "tasks": ["mrp_gsm8k", "mrp_math500"],
            "data": {"benchmarks": str(tmp_path / "benchmarks")},
            "grid": [{"mode": "static"}, {"mode": "speculative", "head": "k2", "k": 1}],
        }
        suite.write_text(yaml.safe_dump(description))
        home = tmp_path / "home"
        monkeypatch.setattr(constants, "ENDPOINT", hub.url)
        template = hub.url + "/{repo_id}/resolve/{revision}/{filename}"
        monkeypatch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", template)
        monkeypatch.setattr(constants, "HF_HUB_CACHE", str(home / "hub"))
        monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
        yield Lab(hub, suite, home, tmp_path / "benchmarks", released, commit)
