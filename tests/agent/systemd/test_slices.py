"""The systemd driver on a real systemd with cgroup v2: twelve kinds of pods have the kubelet's values, always."""

from __future__ import annotations

import copy
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import pytest
import yaml

from actors._cgroup.fs import discard
from actors._cgroup.hierarchy import hierarchy
from proto.v1 import Pod
from tests.agent.agent import Agent
from tests.agent.api_source import ApiSource
from tests.agent.changing import CGROUPS
from tests.agent.systemd import slices
from tests.containerd import ContainerdInstance
from tests.harness import wait_for

pytestmark = [pytest.mark.needs("systemd"), pytest.mark.timeout(1200)]

BUSYBOX = "docker.io/library/busybox:latest"
SETTLE_S = 300.0
"""Python is up to nine times slower on an emulated CPU."""
EMPTY = {"kubepods.slice", "kubepods-burstable.slice", "kubepods-besteffort.slice"}


def manifest(name: str) -> dict[str, Any]:
    spec = copy.deepcopy(slices.PODS[name]["spec"])
    for one in (*spec["containers"], *spec.get("initContainers", [])):
        one |= {"image": BUSYBOX, "imagePullPolicy": "IfNotPresent"}
    for volume in spec.get("volumes", []):
        if len(volume) == 1:
            volume["emptyDir"] = {}
    return {"metadata": {"name": name}, "spec": spec | {"terminationGracePeriodSeconds": 1}}


class Node:
    """An agent with the twelve pods on a private containerd that uses systemd."""

    def __init__(self, agent: Agent, api: ApiSource) -> None:
        self.agent, self.api = agent, api

    @staticmethod
    def reload_systemd() -> None:
        subprocess.run(["systemctl", "daemon-reload"], check=True, timeout=60)

    def wait_started(self) -> None:
        wait_for(self.agent.all_ready, SETTLE_S, f"every actor is ready; log: {self.agent.log}")

    def restart(self) -> None:
        self.agent.stop()
        self.agent.start(wait=False)
        self.wait_started()

    def uids(self) -> dict[str, str]:
        return {name: pod.metadata.uid for name, pod in self.api.pods.items()}

    def expect_the_kubelets_values(self) -> None:
        """Every value below kubepods.slice. The QoS classes' follow the pods, and memory.oom.group the next step."""
        last: list[str] = []

        def equal() -> bool:
            last[:] = slices.differences(slices.expected(self.uids(), self.agent))
            return not last

        try:
            wait_for(equal, SETTLE_S)
        except AssertionError:
            raise AssertionError("\n".join([*last, f"log: {self.agent.log}"])) from None

    def run_to_the_end(self, pod: Pod) -> None:
        """Let the init container of init-larger end."""
        volume = Path(self.agent.root_dir, "pods", pod.metadata.uid, "volumes/kubernetes.io~empty-dir/go")
        wait_for(volume.is_dir, SETTLE_S, "the volume is there")
        (volume / "go").touch()


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Node]:
    assert not (CGROUPS / "kubepods.slice").exists(), "another agent's pods are on this machine"
    with ExitStack() as stack:
        stack.callback(discard, "/kubepods.slice", "systemd", hierarchy())
        containerd = stack.enter_context(ContainerdInstance(tmp_path_factory.mktemp("containerd"), systemd=True))
        agent = stack.enter_context(closing(Agent(containerd, api=True)))
        written = yaml.safe_load(agent.config.read_text()) | slices.CONFIGURATION
        del written["cgroupRoot"]
        agent.config.write_text(yaml.safe_dump(written))
        agent.start(wait=False)
        one = Node(agent, stack.enter_context(closing(ApiSource(agent))))
        one.wait_started()
        for name in slices.PODS:
            one.api.add(manifest(name))
        one.run_to_the_end(one.api.pods["init-larger"])
        one.api.wait_ready(*slices.PODS, timeout_s=SETTLE_S)
        yield one


def test_values_are_the_kubelets_after_the_start(node: Node) -> None:
    node.expect_the_kubelets_values()


def test_values_are_the_kubelets_after_a_resize_and_back(node: Node) -> None:
    name = "burstable-request-limit"
    (given,) = slices.PODS[name]["spec"]["containers"]
    unit = slices.PODS[name]["slice"].rpartition("/")[2].replace("UID", node.uids()[name].replace("-", "_"))
    larger = {"requests": {"cpu": "85m", "memory": "64Mi"}, "limits": {"cpu": "1", "memory": "128Mi"}}
    wanted = {"CPUWeight": "4", "CPUQuotaPerSecUSec": "1s", "MemoryMax": str(128 << 20), "TasksMax": "200"}
    node.api.update_container(name, "c", resources=larger)
    wait_for(lambda: wanted.items() <= slices.properties(unit, wanted).items(), SETTLE_S, "the pod's slice grows")
    node.reload_systemd()
    assert wanted.items() <= slices.properties(unit, wanted).items()
    directory = (CGROUPS / slices.PODS[name]["slice"]).parent / unit
    assert (directory / "memory.max").read_text() == f"{128 << 20}\n"
    node.api.update_container(name, "c", resources=given["resources"])
    node.expect_the_kubelets_values()


def test_values_are_the_kubelets_after_a_reload_of_systemd(node: Node) -> None:
    node.reload_systemd()
    node.expect_the_kubelets_values()


def test_values_are_the_kubelets_after_kills_and_a_restart(node: Node) -> None:
    before = node.agent.running()
    node.agent.kill_actors("pod_workers", "container_gc", timeout_s=SETTLE_S)
    node.expect_the_kubelets_values()
    node.restart()
    node.api.wait_ready(*slices.PODS, timeout_s=SETTLE_S)
    node.expect_the_kubelets_values()
    assert node.agent.running() == before


def test_values_are_the_kubelets_after_a_takeover(node: Node) -> None:
    """Of a kubelet there are the pods' directories, and none of our files."""
    before = node.agent.running()
    node.agent.stop()
    shutil.rmtree(node.agent.root_dir / "nodevisor")
    node.agent.start("--take-over", wait=False)
    node.wait_started()
    node.api.wait_ready(*slices.PODS, timeout_s=SETTLE_S)
    node.expect_the_kubelets_values()
    assert node.agent.running() == before


def test_slices_of_pods_go_with_their_pods(node: Node) -> None:
    gone_meanwhile = list(slices.PODS)[:4]
    node.agent.stop()
    for name in gone_meanwhile:
        del node.api.pods[name]
    node.agent.start(wait=False)
    node.wait_started()
    for name in list(node.api.pods):
        node.api.delete(name, 1)
    wait_for(lambda: slices.slices() == EMPTY, SETTLE_S, f"only {EMPTY} are left; log: {node.agent.log}")
    burstable = CGROUPS / "kubepods.slice/kubepods-burstable.slice/cpu.weight"
    wait_for(lambda: burstable.read_text() == "1\n", SETTLE_S, "the class has the weight of no pods")
