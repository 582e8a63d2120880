"""`supervisor start --run-once`: verdicts on pods, output and exit codes."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from proto.pods.config import SourceProblem, Sources
from proto.v1 import Pod, from_dict
from supervisor.cli.run.once import Verdict, verdicts
from tests.cgroups import remove_cgroups
from tests.containerd import BUSYBOX, ContainerdInstance

RUNNING: dict[str, Any] = {"running": {}}
WAITING = {"waiting": {"reason": "ErrImagePull", "message": "no\nsuch image"}}
ENDED = {"terminated": {"exitCode": 3, "reason": "Error"}}


def pod(phase: str, state: dict[str, Any], *, ready: bool = False, policy: str = "Always", **metadata: str) -> Pod:
    status = {"name": "c", "ready": ready, "restartCount": 0, "state": state}
    return from_dict(
        Pod,
        {
            "metadata": {"name": "p", "namespace": "default", "uid": "u", **metadata},
            "spec": {"containers": [{"name": "c"}], "restartPolicy": policy},
            "status": {
                "phase": phase,
                "conditions": [{"type": "Ready", "status": str(ready)}],
                "containerStatuses": [status],
            },
        },
    )


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        (pod("Running", RUNNING, ready=True), Verdict("default/p  1/1  Running", True, True)),
        (pod("Running", RUNNING), Verdict("default/p  0/1  Running", False, False)),
        (pod("Running", RUNNING, ready=True, policy="OnFailure"), Verdict("default/p  1/1  Running", False, False)),
        (pod("Succeeded", ENDED, policy="Never"), Verdict("default/p  0/1  Error", True, True)),
        (
            pod("Failed", ENDED, policy="Never"),
            Verdict("default/p  0/1  Error  container c ended with exit code 3", False, True),
        ),
        (pod("Pending", WAITING), Verdict("default/p  0/1  ErrImagePull  no such image", False, False)),
        (
            pod("Running", RUNNING, ready=True, deletionTimestamp="2026-11-20T10:00:00Z"),
            Verdict("default/p  not started", False, False),
        ),
    ],
)
def test_pod_is_fine_when_ready_or_succeeded_by_its_policy(found: Pod, expected: Verdict) -> None:
    assert verdicts(Sources(pods={"file": ("default/p",)}), [found]) == [expected]


def test_only_declared_pods_count_invalid_manifests_are_final() -> None:
    problem = SourceProblem(file="/m/a.yaml", line=3, field="spec.containers", problem="is required")
    sources = Sources(pods={"file": ()}, problems=(problem,))
    found = verdicts(sources, [pod("Running", RUNNING)])
    assert found == [Verdict("/m/a.yaml:3  spec.containers: is required", False, True)]


def run(directory: Path, endpoint: str, timeout: str) -> subprocess.CompletedProcess[str]:
    flags = {
        "run-dir": directory / "run",
        "root-dir": directory / "root",
        "pod-logs-dir": directory / "pods",
        "container-logs-dir": directory / "containers",
        "container-runtime-endpoint": endpoint,
        "hostname-override": "node",
        "cgroup-root": f"/{directory.name}",
        "tune-kernel": "false",
        "healthz-port": "0",
        "pod-manifest-path": directory / "manifests",
        "run-once-timeout": timeout,
    }
    line = [sys.executable, "-m", "supervisor", "start", "--run-once", *(f"--{k}={v}" for k, v in flags.items())]
    (directory / "manifests").mkdir(exist_ok=True)
    return subprocess.run(line, capture_output=True, text=True, check=False, timeout=120)


@pytest.fixture
def own_cgroup(run_dir: Path) -> Iterator[None]:
    """The cgroup that `run` names goes with the test."""
    yield
    remove_cgroups(run_dir.name)


def manifest(directory: Path, name: str, policy: str, script: str) -> None:
    (directory / "manifests").mkdir(exist_ok=True)
    (directory / "manifests" / f"{name}.yaml").write_text(
        f"""\
apiVersion: v1
kind: Pod
metadata: {{name: {name}, namespace: default}}
spec:
  restartPolicy: {policy}
  hostNetwork: true
  terminationGracePeriodSeconds: 0
  containers:
  - {{name: c, image: "{BUSYBOX}", imagePullPolicy: IfNotPresent, command: [sh, -c, "{script}"]}}
"""
    )


@pytest.mark.usefixtures("own_cgroup")
def test_pod_that_is_not_fine_in_time_is_reported_with_reason(run_dir: Path) -> None:
    manifest(run_dir, "web", "Always", "sleep 600")
    (run_dir / "manifests/broken.yaml").write_text("kind: Pod\nspec: {}\n")
    done = run(run_dir, f"unix://{run_dir}/none.sock", "20s")  # in which a busy machine has read the manifests
    assert done.returncode == 1
    web, broken = sorted(done.stdout.splitlines(), key=lambda line: "broken" in line)
    assert web.startswith("default/web-node  ")
    assert broken.startswith(f"{run_dir}/manifests/broken.yaml")
    assert "2 of 2 are not ready or completed within 20 s; pods stay" in done.stderr


@pytest.mark.usefixtures("own_cgroup", "cri")  # which remove what the pods leave; the pods first
def test_pods_are_brought_to_their_state_and_stay(containerd: ContainerdInstance, run_dir: Path) -> None:
    manifest(run_dir, "web", "Always", "sleep 600")
    manifest(run_dir, "job", "OnFailure", "true")
    done = run(run_dir, containerd.endpoint, "90s")
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == ["default/job-node  0/1  Completed", "default/web-node  1/1  Running"]
    manifest(run_dir, "bad", "Never", "exit 3")
    done = run(run_dir, containerd.endpoint, "90s")
    assert done.returncode == 1
    assert done.stdout.splitlines() == [
        "default/bad-node  0/1  Error  container c ended with exit code 3",
        "default/job-node  0/1  Completed",
        "default/web-node  1/1  Running",
    ]
    for path in (run_dir / "manifests").iterdir():
        path.unlink()
    done = run(run_dir, containerd.endpoint, "60s")
    assert (done.returncode, done.stdout) == (0, "")
    assert "No manifests" in done.stderr
