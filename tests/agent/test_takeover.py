"""A node that changes from the kubelet to us and back: containers with the kubelet's labels and annotations go on.

They are made here through CRI, as the kubelet 1.36 makes them, while no agent runs.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from typing import Any

import pytest

from proto.cri import api_pb2 as pb
from proto.v1 import ContainerStatus
from tests.agent.agent import Agent, container, pod
from tests.agent.api_source import ApiSource
from tests.containerd import ContainerdInstance
from tests.containerd.images import BUSYBOX
from tests.harness import wait_for

pytestmark = [pytest.mark.containerd, pytest.mark.timeout(200)]

RUNS = ("sleep", "100000")


def the_kubelets_hash(name: str, image: str) -> str:
    """io.kubernetes.container.hash, spelled out once more: a node is taken over by it."""
    text = "([]uint8)[" + " ".join(str(byte) for byte in f'{{"image":"{image}","name":"{name}"}}'.encode()) + "]"
    digest = 2166136261
    for byte in text.encode():
        digest = (digest ^ byte) * 16777619 % 2**32
    return f"{digest:x}"


class Kubelet:
    """What the kubelet left in the runtime."""

    def __init__(self, containerd: ContainerdInstance) -> None:
        self.cri = containerd.cri
        self.sandboxes: dict[str, tuple[str, pb.PodSandboxConfig]] = {}
        self.made: dict[str, str] = {}
        """NAME/CONTAINER to the newest container of it."""

    def run(self, name: str, one: str, *command: str, attempt: int = 0, hash_of: str = BUSYBOX) -> str:
        """Start a container of a pod, in its sandbox; its ID."""
        sandbox, config = self.sandboxes.get(name) or self._sandbox(name)
        made = self.cri.create_container(
            sandbox,
            pb.ContainerConfig(
                metadata=pb.ContainerMetadata(name=one, attempt=attempt),
                image=pb.ImageSpec(image=BUSYBOX),
                command=command or RUNS,
                labels={**config.labels, "io.kubernetes.container.name": one},
                annotations={
                    "io.kubernetes.container.hash": the_kubelets_hash(one, hash_of),
                    "io.kubernetes.container.restartCount": str(attempt),
                    "io.kubernetes.container.terminationMessagePath": "/dev/termination-log",
                    "io.kubernetes.container.terminationMessagePolicy": "File",
                    "io.kubernetes.pod.terminationGracePeriod": "1",
                },
                linux=pb.LinuxContainerConfig(),
            ),
            config,
        ).result()
        self.cri.start_container(made).result()
        self.made[f"{name}/{one}"] = made
        return made

    def end(self, name: str, one: str, code: int = 0, attempt: int = 0) -> None:
        """One that has run already."""
        made = self.run(name, one, "sh", "-c", f"exit {code}", attempt=attempt)
        wait_for(lambda: self.cri.container_status(made).result().status.state == pb.CONTAINER_EXITED, 20, "it exits")

    def _sandbox(self, name: str) -> tuple[str, pb.PodSandboxConfig]:
        uid = f"uid-of-{name}"
        config = pb.PodSandboxConfig(
            metadata=pb.PodSandboxMetadata(name=name, uid=uid, namespace="default"),
            hostname=name,
            labels={
                "app": name,
                "io.kubernetes.pod.name": name,
                "io.kubernetes.pod.namespace": "default",
                "io.kubernetes.pod.uid": uid,
            },
            annotations={"kubernetes.io/config.seen": "2026-01-01T00:00:00Z", "kubernetes.io/config.source": "api"},
            linux=pb.LinuxPodSandboxConfig(),
        )
        self.sandboxes[name] = self.cri.run_pod_sandbox(config).result(), config
        return self.sandboxes[name]


def inits_and_main(kubelet: Kubelet, name: str) -> None:
    kubelet.end(name, "i")
    kubelet.run(name, "s")
    kubelet.run(name, "c")


NEVER = {"restartPolicy": "Never"}
INITS = {"initContainers": [container("i"), container("s", restartPolicy="Always")]}
Make = Callable[[Kubelet, str], Any]
TABLE: dict[str, tuple[Make, dict[str, Any], str, dict[str, int]]] = {
    # name: (what the kubelet left, the pod's spec, its phase, restart counts in the end)
    "runs": (lambda kubelet, name: kubelet.run(name, "c"), {}, "Running", {"c": 0}),
    "restarted": (lambda kubelet, name: kubelet.run(name, "c", attempt=4), {}, "Running", {"c": 4}),
    "inits": (inits_and_main, INITS, "Running", {"i": 0, "s": 0, "c": 0}),
    "initializing": (lambda kubelet, name: kubelet.run(name, "i"), INITS, "Pending", {"i": 0, "s": 0, "c": 0}),
    "failed": (lambda kubelet, name: kubelet.end(name, "c", 3), NEVER, "Failed", {"c": 0}),
    "succeeded": (lambda kubelet, name: kubelet.end(name, "c"), NEVER, "Succeeded", {"c": 0}),
    "crashed": (lambda kubelet, name: kubelet.end(name, "c", 1, attempt=2), {}, "Running", {"c": 3}),
    "changed": (lambda kubelet, name: kubelet.run(name, "c", hash_of="other"), {}, "Running", {"c": 1}),
}
REPLACED = {"crashed/c", "changed/c"}
"""Whose end, or another definition, asks for the next container; every other one stays as it is."""


def identity(status: ContainerStatus) -> str:
    return (status.container_id or "").removeprefix("containerd://")


def test_containers_of_the_kubelet_go_on_and_ours_look_like_its(containerd):
    kubelet = Kubelet(containerd)
    with closing(Agent(containerd, api=True)) as agent, closing(ApiSource(agent)) as api:
        for name, (make, spec, _, _) in TABLE.items():
            make(kubelet, name)
            api.add(pod(name, container("c"), **spec), uid=f"uid-of-{name}")
        api.add(pod("ours", container("c", ports=[{"containerPort": 80}])))
        agent.start()
        for name, (_, _, phase, counts) in TABLE.items():

            def settled(name=name, phase=phase, counts=counts):
                found = api.status(name)
                if found is None or found.status.phase != phase:
                    return False
                every = (*found.status.init_container_statuses, *found.status.container_statuses)
                return {one.name: one.restart_count for one in every} == counts and every

            shown = wait_for(settled, 60, f"{name}: {api.status(name)}; log: {agent.log}")
            left = {one: made for one, made in kubelet.made.items() if one.startswith(f"{name}/")}
            now = {f"{name}/{one.name}": identity(one) for one in shown if identity(one)}
            assert {one for one in left if now[one] != left[one]} == REPLACED & left.keys()
        api.wait_ready("runs", "restarted", "inits", "crashed", "changed", "ours")
        assert set(agent.sandboxes()) > {sandbox for sandbox, _ in kubelet.sandboxes.values()}, "no sandbox is replaced"

        ours = api.status("ours")
        found = containerd.cri.container_status(identity(ours.status.container_statuses[0])).result().status
        uid = ours.metadata.uid
        assert dict(found.labels) == {
            "io.kubernetes.container.name": "c",
            "io.kubernetes.pod.name": "ours",
            "io.kubernetes.pod.namespace": "default",
            "io.kubernetes.pod.uid": uid,
        }
        assert dict(found.annotations) == {
            "io.kubernetes.container.hash": the_kubelets_hash("c", BUSYBOX),
            "io.kubernetes.container.ports": '[{"containerPort":80,"protocol":"TCP"}]',
            "io.kubernetes.container.restartCount": "0",
            "io.kubernetes.container.terminationMessagePath": "/dev/termination-log",
            "io.kubernetes.container.terminationMessagePolicy": "File",
            "io.kubernetes.pod.terminationGracePeriod": "1",
        }
        assert (found.metadata.name, found.metadata.attempt) == ("c", 0)
        assert the_kubelets_hash("c", "busybox") == "ad819b5c"
