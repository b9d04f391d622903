"""The cluster profiles: known options, the local plan, jobs as the cluster gets them."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests import forks
from tests.workflow.conftest import SOURCE, Repo

PROFILES = SOURCE / "profiles"
PLUGINS = {
    "slurm": "snakemake_executor_plugin_slurm",
    "kubernetes": "snakemake_executor_plugin_cluster_generic",
}


def read(profile: str) -> dict[str, Any]:
    loaded: dict[str, Any] = yaml.safe_load((PROFILES / profile / "config.yaml").read_text())
    return loaded


@pytest.mark.parametrize("profile", ["default", "slurm", "kubernetes"])
def test_every_key_is_an_option_of_snakemake(profile: str) -> None:
    from snakemake.cli import get_argument_parser  # slow, and every test process imports this file

    known = {option for a in get_argument_parser()._actions for option in a.option_strings}
    for key in read(profile):
        assert f"--{key}" in known or key.startswith("cluster-generic-"), key


@pytest.mark.parametrize("profile", PLUGINS)
def test_a_cluster_rations_its_gpus_itself(profile: str) -> None:
    """profiles/default is read after these: what it names, these cannot set."""
    assert read(profile)["resources"]["gpu"] >= 1000
    assert not set(read("default")) & set(read(profile))
    settings = yaml.safe_load((PROFILES / "cluster.yaml").read_text())
    assert settings == {"device": "cuda"}  # though the login node has no GPU


@pytest.mark.parametrize("profile", PLUGINS)
def test_the_plan_is_the_local_one_with_gpus(profile: str, fresh: Repo) -> None:
    if importlib.util.find_spec(PLUGINS[profile]) is None:
        pytest.skip("pip install 'mrp[cluster]'")
    environment = {**fresh.environment(), "MRP_FAKE_GPUS": "0"}
    options = f"-n -p --profile profiles/{profile} --config suite=micro gpus_per_training=2"
    done = forks.snakemake(options.split(), fresh.path, environment)
    said = done.stdout
    assert done.returncode == 0, said
    jobs = re.findall(r"^Job \d+: (.*?)(?: \(progress.*)?$", said, re.MULTILINE)
    reports = ("Write ", "Draw ")
    assert sorted(j for j in jobs if not j.startswith(reports)) == [
        j for j in fresh.planned() if j != "report"
    ]
    commands = re.findall(r"mrp train-\w+ .*?--device (\w+) --gpus (\d+)", said)
    assert commands == [("cuda", "2")] * 3
    assert set(re.findall(r"mrp decode .*?--device (\w+)", said)) == {"cuda"}


@pytest.fixture
def kubectl(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A kubectl that keeps what it is told in `asked` and says what `answer` holds."""
    program = tmp_path / "bin" / "kubectl"
    program.parent.mkdir()
    program.write_text(
        f'#!/bin/sh\necho "$@" > {tmp_path}/arguments\n'
        f'[ "$1" = create ] && cat > {tmp_path}/asked\n'
        f"cat {tmp_path}/answer\n"
    )
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}{os.pathsep}{os.environ['PATH']}")
    return tmp_path


def submit(folder: Path, **changes: str) -> subprocess.CompletedProcess[str]:
    """Call submit.py in `folder`."""
    options = {"image": "registry/mrp:1", "volume": f"claim:{folder.parent}", "gpus": "2"}
    options |= {"cpus": "4", "memory": "64000", **changes}
    words = [word for name, value in options.items() for word in (f"--{name}", value)]
    command = [str(PROFILES / "kubernetes/submit.py"), *words, "/script.sh"]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True)


def test_a_job_of_kubernetes(kubectl: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setenv("HF_HOME", "/work/hub")
    (kubectl / "answer").write_text("job.batch/mrp-x7k2p\n")
    work = kubectl / "work"
    work.mkdir()
    done = submit(work)
    assert (done.returncode, done.stdout) == (0, "mrp-x7k2p\n"), done.stderr
    asked = json.loads((kubectl / "asked").read_text())
    pod = asked["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    assert container["command"] == ["/bin/sh", "/script.sh"]
    assert container["workingDir"] == str(work)
    assert container["resources"] == {
        "limits": {"memory": "64000M", "nvidia.com/gpu": "2"},
        "requests": {"cpu": "4"},
    }
    assert {"name": "HF_HUB_OFFLINE", "value": "1"} in container["env"]
    mounts = {mount["name"]: mount["mountPath"] for mount in container["volumeMounts"]}
    assert mounts == {"shared": str(kubectl), "memory": "/dev/shm"}
    assert pod["volumes"][0] == {
        "name": "shared",
        "persistentVolumeClaim": {"claimName": "claim"},
    }
    assert (asked["spec"]["backoffLimit"], pod["restartPolicy"]) == (0, "Never")
    submit(work, gpus="0")
    asked = json.loads((kubectl / "asked").read_text())
    (container,) = asked["spec"]["template"]["spec"]["containers"]
    assert "nvidia.com/gpu" not in container["resources"]["limits"]


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"image": ""}, "MRP_IMAGE is not set"),
        ({"volume": ""}, "MRP_VOLUME is ''"),
        ({"volume": "claim"}, "MRP_VOLUME is 'claim'"),
        ({"volume": "claim:/elsewhere"}, "is not on the volume mounted at /elsewhere"),
    ],
)
def test_what_kubernetes_needs_is_one_line(
    changes: dict[str, str], said: str, kubectl: Path
) -> None:
    done = submit(kubectl, **changes)
    assert done.returncode == 2
    assert said in done.stderr
    assert done.stderr.count("\n") == 1
    assert not (kubectl / "asked").exists()


@pytest.mark.parametrize(
    ("answer", "status"),
    [
        ("mrp-1//", "running"),
        ("mrp-1/1/", "success"),
        ("mrp-1//1", "failed"),
        ("", "failed"),
        (None, "running"),  # no answer at all
    ],
)
def test_the_state_of_a_job(answer: str | None, status: str, kubectl: Path) -> None:
    if answer is not None:
        (kubectl / "answer").write_text(answer)
    script = PROFILES / "kubernetes/status.sh"
    done = subprocess.run([str(script), "mrp-1"], capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, f"{status}\n")


def test_jobs_are_cancelled_together(kubectl: Path) -> None:
    (kubectl / "answer").touch()
    subprocess.run([str(PROFILES / "kubernetes/cancel.sh"), "a", "b"], check=True)
    said = (kubectl / "arguments").read_text()
    assert said == "delete job --ignore-not-found --wait=false a b\n"
