"""The status actor as a process: its answers, its checkpoint, and its state after kill -9."""

import os
import re
import subprocess
import sys
import time
from pathlib import Path

import pytest
from msgspec.structs import replace

from proto.agent.actor import Describe, GetMetrics
from proto.pods.status import Flush, ListPods, RemovePod, SetApiPods, SetPod, SetPods, SetPodStatus
from proto.v1 import ObjectMeta, Pod, PodCondition, PodStatus
from tests.harness import actor_process, wait_for


@pytest.fixture
def status():
    with actor_process("status") as process:
        yield process


def pod(name: str, ready: str = "False", phase: str = "Running") -> Pod:
    return Pod(metadata=ObjectMeta(namespace="default", name=name, uid=f"uid-{name}"), status=pod_status(ready, phase))


def pod_status(ready: str = "False", phase: str = "Running") -> PodStatus:
    return PodStatus(phase=phase, conditions=(PodCondition(type="Ready", status=ready),))


def listed(status) -> dict[str, Pod]:
    return {one.metadata.name: one for one in status.ask(ListPods()).pods}


def ready(one: Pod) -> tuple[str, str]:
    (condition,) = one.status.conditions
    return condition.status, condition.last_transition_time


def test_pods_are_listed_in_order_with_their_times(status):
    for name in ("b", "a"):
        status.tell(SetPod(pod=pod(name)))
    wait_for(lambda: len(listed(status)) == 2)
    assert list(listed(status)) == ["a", "b"]
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", ready(listed(status)["a"])[1])
    assert listed(status)["a"].status.start_time


def test_status_of_known_pod_is_set_and_of_unknown_one_ignored(status):
    status.tell(SetPod(pod=pod("a")))
    status.tell(SetPodStatus(pod_uid="uid-b", status=pod_status()))
    status.tell(SetPodStatus(pod_uid="uid-a", status=pod_status("True")))
    wait_for(lambda: ready(listed(status)["a"])[0] == "True" if listed(status) else False)
    assert list(listed(status)) == ["a"]


def test_set_pods_drops_unlisted_pods_and_remove_pod_forgets(status):
    status.tell(SetPods(pods=(pod("a"), pod("b"))))
    wait_for(lambda: len(listed(status)) == 2)
    status.tell(SetPods(pods=(pod("b"),)))
    wait_for(lambda: list(listed(status)) == ["b"])
    status.tell(RemovePod(pod_uid="uid-b"))
    status.tell(RemovePod(pod_uid="uid-b"))
    wait_for(lambda: not listed(status))


def test_old_end_of_a_pod_is_removed_and_no_other_status(status):
    def ended(name: str, message: str) -> Pod:
        found = pod(name, phase="Failed")
        return replace(found, status=replace(found.status, reason="NodePorts", message=message))

    status.tell(SetPods(pods=(ended("old", "m"), ended("other", "n"), pod("runs"))))
    wait_for(lambda: len(listed(status)) == 3)
    shown = listed(status)
    for name in (*shown, "unknown"):
        status.tell(RemovePod(pod_uid=f"uid-{name}", reason="NodePorts", message="m"))
    wait_for(lambda: "old" not in listed(status))
    del shown["old"]
    assert listed(status) == shown


def test_kill_takes_back_no_status_that_was_listed(status):
    status.tell(SetPods(pods=(pod("a"), pod("b", phase="Failed"))))
    wait_for(lambda: len(listed(status)) == 2)
    status.tell(SetPodStatus(pod_uid="uid-a", status=pod_status("True")))
    wait_for(lambda: ready(listed(status)["a"])[0] == "True")
    shown = listed(status)
    status.restart()
    assert listed(status) == shown  # before pod_workers says anything: it may be restarting itself
    wait_past(shown)
    status.tell(SetPods(pods=(pod("a", "True"), pod("b"))))
    status.tell(SetPod(pod=pod("c")))
    wait_for(lambda: "c" in listed(status))
    after = listed(status)
    assert {name: after[name] for name in shown} == shown


def wait_past(shown: dict[str, Pod]) -> None:
    """Until the clock shows another second than any of these times."""
    latest = max(ready(one)[1] for one in shown.values())
    wait_for(lambda: time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()) > latest)


def test_changes_are_written_without_a_reader(status):
    status.tell(SetPod(pod=pod("a")))
    path = Path(status.settings.root_dir, "nodevisor", "status.json")
    wait_for(lambda: path.exists() and b"uid-a" in path.read_bytes())
    status.restart()
    assert list(listed(status)) == ["a"]


def test_a_damaged_checkpoint_is_left_out(status):
    status.tell(SetPod(pod=pod("a")))
    wait_for(lambda: listed(status))
    status.kill()
    path = Path(status.settings.root_dir, "nodevisor", "status.json")
    path.write_bytes(path.read_bytes()[:-10])
    status.start()
    assert listed(status) == {}
    status.tell(SetPods(pods=(pod("a"),)))
    wait_for(lambda: list(listed(status)) == ["a"])


def test_unwritable_checkpoint_holds_back_no_answer(status):
    os.makedirs(status.settings.root_dir, exist_ok=True)
    Path(status.settings.root_dir, "nodevisor").write_text("in the way")
    status.tell(SetPod(pod=pod("a")))
    wait_for(lambda: list(listed(status)) == ["a"])
    assert status.ask(Describe()).state["checkpoint_failed"] is True


def test_without_kubeconfig_no_api_client_is_imported(status):
    status.tell(SetPod(pod=pod("a")))
    assert listed(status)
    loaded = "import sys, actors.status.actor; print([one for one in sys.modules if '_kube' in one or 'h11' in one])"
    done = subprocess.run([sys.executable, "-c", loaded], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
    assert "api" not in status.ask(Describe()).state
    assert status.ask(GetMetrics()).samples["kubelet_mirror_pods"] == (((), (0.0,)),)
    status.tell(SetApiPods(pods=(pod("b"),), full=True))
    assert status.ask(Flush(timeout_s=5)).unsaid == 0
    assert list(listed(status)) == ["a"]
