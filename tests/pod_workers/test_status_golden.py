"""Statuses equal the ones that the kubelet 1.36 stored for the same specs and runtime states."""

import datetime
import json
from pathlib import Path
from typing import Any

import pytest

from actors.pod_workers.model.view import ContainerView, PodView, SandboxView
from actors.pod_workers.status.inputs import StatusInputs
from actors.pod_workers.status.pod_status import compute_status
from proto.v1 import Pod
from proto.v1.codec import from_dict, to_dict

GOLDEN = json.loads((Path(__file__).parent / "golden" / "pods.json").read_text())
SPEC_PROBED = json.loads((Path(__file__).parent / "golden" / "spec-probed.json").read_text())
IMAGE = "docker.io/library/busybox:latest"
PROBE = {"exec": {"command": ["true"]}}

SPECS: dict[str, dict[str, Any]] = {
    "crashing": {"containers": [{"name": "c", "image": IMAGE}], "restartPolicy": "Always"},
    "deadline": {
        "containers": [{"name": "c", "image": IMAGE}],
        "restartPolicy": "Always",
        "activeDeadlineSeconds": 5,
    },
    "done": {"containers": [{"name": "c", "image": IMAGE}], "restartPolicy": "Never"},
    "failed": {"containers": [{"name": "c", "image": IMAGE}], "restartPolicy": "Never"},
    "inits": {
        "initContainers": [
            {"name": "first", "image": IMAGE},
            {"name": "side", "image": IMAGE, "restartPolicy": "Always"},
        ],
        "containers": [{"name": "main", "image": IMAGE}],
        "restartPolicy": "Always",
    },
    "nocommand": {"containers": [{"name": "c", "image": IMAGE}], "restartPolicy": "Always"},
    "nomap": {"containers": [{"name": "c", "image": IMAGE}], "restartPolicy": "Always"},
    "nopull": {
        "containers": [
            {"name": "c", "image": "example.invalid/none:1"},
            {"name": "never", "image": "example.invalid/none:2"},
        ],
        "restartPolicy": "Always",
    },
    "probed": SPEC_PROBED,
    "rootless": {"containers": [{"name": "c", "image": IMAGE}], "restartPolicy": "Always"},
    "static-vm": {"containers": [{"name": "c", "image": IMAGE}], "restartPolicy": "Always"},
    "unready": {
        "containers": [{"name": "c", "image": IMAGE, "readinessProbe": PROBE, "livenessProbe": PROBE}],
        "restartPolicy": "Always",
    },
}


def nanoseconds(text: str) -> int:
    return int(datetime.datetime.fromisoformat(text).timestamp()) * 10**9


def container_view(
    name: str, image: dict[str, Any], state: dict[str, Any], restarts: int, created: int
) -> ContainerView:
    """The container instance that the kubelet described in this status."""
    kind, said = next(iter(state.items()))
    common = {
        "name": name,
        "restart_count": restarts,
        "created_at_ns": created,
        "image": image["image"],
        "image_ref": image["imageID"],
        "complete": True,
        "started_at_ns": nanoseconds(said["startedAt"]),
    }
    if kind == "running":
        return ContainerView(id=image["containerID"].removeprefix("containerd://"), state="running", **common)
    return ContainerView(
        id=said["containerID"].removeprefix("containerd://"),
        state="exited",
        finished_at_ns=nanoseconds(said["finishedAt"]),
        exit_code=said["exitCode"],
        reason=said["reason"],
        message=said.get("message", ""),
        **common,
    )


def view_of(status: dict[str, Any]) -> PodView:
    """The state of the runtime when the kubelet wrote this status."""
    lives = []
    for one in (*status.get("initContainerStatuses", ()), *status["containerStatuses"]):
        last, now = one["lastState"], one["state"]
        if last:
            lives.append(container_view(one["name"], one, last, one["restartCount"] - ("waiting" not in now), 10))
        if "waiting" not in now:
            lives.append(container_view(one["name"], one, now, one["restartCount"], 20))
    sandbox_ready = (
        next(c["status"] for c in status["conditions"] if c["type"] == "PodReadyToStartContainers") == "True"
    )
    sandbox = SandboxView(id="s", state="ready" if sandbox_ready else "notready", ips=(status["podIP"],))
    return PodView.of([sandbox], lives)


def inputs_of(name: str, status: dict[str, Any]) -> StatusInputs:
    waiting = {
        one["name"]: (one["state"]["waiting"]["reason"], one["state"]["waiting"]["message"])
        for one in status["containerStatuses"]
        if "waiting" in one["state"]
    }
    results = {"probed": "success", "unready": "failure"}
    return StatusInputs(
        waiting=waiting,
        probe_result=lambda _, probe: results.get(name) if probe != "liveness" else None,
        now=status["startTime"],
        host_ips=(status["hostIP"],),
        terminal=status["phase"] in ("Succeeded", "Failed"),
        reason=status.get("reason", ""),
        message=status.get("message", "") if "reason" in status else "",
        termination_message=lambda container: container.message,
    )


def normalised(status: dict[str, Any]) -> dict[str, Any]:
    """Without transition times, which the status actor sets, and without a value that is read from the cgroup."""
    for condition in status["conditions"]:
        condition.pop("lastTransitionTime", None)
    if status["resources"].get("limits") == {"memory": "9007199254740988Ki"}:
        status[
            "resources"
        ] = {}  # cgroup v1's "no limit", which the kubelet takes for one after a restart of a container
    return status


@pytest.mark.parametrize("name", SPECS)
def test_the_status_is_the_one_the_kubelet_stored(name):
    entry = GOLDEN[name]
    expected = json.loads(json.dumps(entry["status"]))
    pod = from_dict(Pod, {"metadata": entry["metadata"], "spec": SPECS[name]})
    if name == "static-vm":  # the mirror pod has a generation, the static pod itself has none
        pod = from_dict(Pod, {"metadata": entry["metadata"] | {"generation": None}, "spec": SPECS[name]})
    got = to_dict(compute_status(pod, view_of(expected), inputs_of(name, expected)))
    assert normalised(got) == normalised(expected)


def test_a_rejected_pod_is_as_the_kubelet_stored_it():
    entry = GOLDEN["toobig"]
    container = {"name": "c", "image": IMAGE, "resources": {"requests": {"cpu": "64"}}}
    pod = from_dict(Pod, {"metadata": entry["metadata"], "spec": {"containers": [container]}})
    status = entry["status"]
    inputs = StatusInputs(now=status["startTime"], reason=status["reason"], message=status["message"], terminal=True)
    assert to_dict(compute_status(pod, PodView(), inputs)) == status
