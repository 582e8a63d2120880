"""Invariants of a pod that hold at any time and under any fault. Violations are collected in `broken`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from proto.v1 import Container as Spec
from proto.v1 import ContainerStatus, Pod
from tests.model.cri.runtime import Container
from tests.model.specs import is_sidecar

if TYPE_CHECKING:
    from tests.model.world import World

TERMINAL = ("Succeeded", "Failed")


class Invariants:
    """Called at every start in the runtime and at every published status."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.broken: list[str] = []
        self._shown: dict[str, Pod] = {}
        """By UID, as last published."""
        self._started: dict[str, list[Container]] = {}
        """Containers by UID, in order, since the pod was last unknown to runtime and status."""
        self._anew: set[str] = set()
        """UIDs of pods whose restart counts begin at zero again."""

    def _break(self, what: str) -> None:
        self.broken.append(f"{self.world.clock.now - self.world.began:.3f} s: {what}")

    # The runtime

    def started(self, container: Container) -> None:
        """A process has begun."""
        uid, name = container.sandbox.uid, container.name
        self._anew.discard(uid)
        others = [one for one in self.world.runtime.containers.values() if one.running and one is not container]
        own = [one for one in others if one.sandbox.uid == uid]
        if any(one.name == name for one in own):
            self._break(f"two instances of {name} run at one time")
        if any(one.sandbox is not container.sandbox for one in own):
            self._break(f"{name} starts in {container.sandbox.id[-4:]} while containers run in another sandbox")
        pod = self.world.specs.get(uid)
        lives = self._started.setdefault(uid, [])
        if pod is not None:
            if self.world.static and any(one.sandbox.uid != uid for one in others):
                self._break("two static pods of one full name run at one time")
            self._check_order(pod, container, lives)
            self._check_policy(pod, container, lives)
        lives.append(container)

    def _check_order(self, pod: Pod, container: Container, lives: list[Container]) -> None:
        """Check the containers that must have started or ended before the first start of a container in a sandbox."""
        here = [one for one in lives if one.sandbox is container.sandbox]
        mains = {one.name for one in pod.spec.containers}
        if any(one.name in mains for one in here):
            return
        for init in pod.spec.init_containers:
            if init.name == container.name:
                return
            own = [one for one in here if one.name == init.name]
            if not own:
                self._break(f"{container.name} starts before {init.name} did")
            elif is_sidecar(init):
                self._check_startup(init, container)
            elif not any(one.exit_code == 0 and not one.running for one in own):
                self._break(f"{container.name} starts before {init.name} succeeded")

    def _check_startup(self, sidecar: Spec, container: Container) -> None:
        results = self.world.peers["probe"].results
        if sidecar.startup_probe is not None:
            standing = [one for one in results.values() if (one.probe, one.container) == ("startup", sidecar.name)]
            if not any(one.result == "success" for one in standing):
                self._break(f"{container.name} starts before the startup probe of {sidecar.name} succeeded")

    def _check_policy(self, pod: Pod, container: Container, lives: list[Container]) -> None:
        """Never forbids a restart, OnFailure a restart after success. Init containers run again in a new sandbox."""
        spec = next((one for one in pod.spec.containers if one.name == container.name), None)
        own = [one for one in lives if one.name == container.name]
        if spec is None or not own or own[-1].config.image.image != container.config.image.image:
            return
        if own[-1].id not in self.world.runtime.containers:
            return  # what the runtime has forgotten begins again, as in the kubelet
        policy = spec.restart_policy or pod.spec.restart_policy
        if policy == "Never":
            self._break(f"{container.name} starts again though its policy is Never")
        if policy == "OnFailure" and own[-1].exit_code == 0 and not own[-1].stopped:
            self._break(f"{container.name} starts again after it succeeded, under OnFailure")

    # The status

    def published(self, pod: Pod) -> None:
        """The pod was published to status."""
        uid, before = pod.metadata.uid, self._shown.get(pod.metadata.uid)
        self._shown[uid] = pod
        if before is None:
            return
        if before.status.phase in TERMINAL and pod.status.phase != before.status.phase:
            self._break(f"phase {before.status.phase} became {pod.status.phase}")
        if uid in self._anew or not any(uid in pods for pods in self.world.wanted.values()):
            return  # the runtime alone knows it, which has less information
        ended = {one.container_id for one in _statuses(before) if one.state.terminated is not None}
        for one in _statuses(pod):
            if one.state.running is not None and one.container_id in ended:
                self._break(f"{one.name} was published as ended, and runs again as {one.container_id}")
        counts = {one.name: one.restart_count for one in _statuses(before)}
        for one in _statuses(pod):
            if one.restart_count < counts.get(one.name, 0):
                self._break(f"restart count of {one.name} fell from {counts[one.name]} to {one.restart_count}")

    def wanted_again(self, uid: str) -> None:
        """A removed pod is wanted again. If the runtime has none of its containers, restart counts begin at zero.

        It may still be published then, while the runtime hangs and its end is not known.
        """
        if not any(one.sandbox.uid == uid for one in self.world.runtime.containers.values()):
            self._anew.add(uid)

    def forgotten(self, uid: str) -> None:
        """Nothing of the pod is left: a later pod of that UID is a new one."""
        self._shown.pop(uid, None)
        self._started.pop(uid, None)
        for one in self.world.runtime.containers.values():
            if one.running and one.sandbox.uid == uid:
                self._break(f"the pod is said to be gone while {one.name} runs")

    def unmounted(self, uid: str, *, announced: bool) -> None:
        """Its volumes are torn down. `announced`: the volume actor was told that the pod ends."""
        if not announced:
            self._break(f"volumes of {uid} are torn down without a PodEnding")
        for one in self.world.runtime.containers.values():
            if one.running and one.sandbox.uid == uid:
                self._break(f"volumes are torn down while {one.name} runs")


def _statuses(pod: Pod) -> tuple[ContainerStatus, ...]:
    return (*pod.status.init_container_statuses, *pod.status.container_statuses)
