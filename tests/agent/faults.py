"""Looks at pods, actors and all leftovers of pods, without a process per look, for the tests of faults."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from actors._cri.errors import CriError
from proto.agent.actor import Describe
from proto.agent.supervisor import ActorRow, ListActors
from proto.node.container_gc import CollectGarbage
from proto.pods.status import ListPods
from proto.v1 import ContainerStatus, Pod
from proto.wire.errors import ActorError
from supervisor.sockets.client import Client
from tests.agent.agent import Agent, container, pod
from tests.agent.changing import pod_cgroups
from tests.harness import wait_for


class Eye:
    """Looks at one agent. `pods` and `actors` are empty while it does not answer."""

    def __init__(self, agent: Agent) -> None:
        self.agent = agent
        self.client = Client(agent.run_dir)

    def listed(self) -> dict[str, Pod]:
        """Return the pods by name without the node's. Raises ActorError."""
        listed = self.client.ask("status", ListPods(), 5.0).pods
        return {one.metadata.name.removesuffix(f"-{self.agent.node}"): one for one in listed}

    def pods(self) -> dict[str, Pod]:
        """Return the same; empty while the agent does not answer."""
        try:
            return self.listed()
        except ActorError:
            return {}

    def actors(self) -> dict[str, ActorRow]:
        try:
            return {row.name: row for row in self.client.ask("supervisor", ListActors(), 5.0).rows}
        except ActorError:
            return {}

    def ready(self, *names: str) -> bool:
        """Return True when exactly these pods exist and are Ready."""
        pods = self.pods()
        return set(pods) == set(names) and all(condition(one, "Ready") == "True" for one in pods.values())

    def container(self, name: str, of: str = "c") -> ContainerStatus | None:
        """Status of a container of a pod."""
        found = self.pods().get(name)
        if found is None or found.status is None:
            return None
        return next((one for one in found.status.container_statuses if one.name == of), None)

    def restarts(self) -> dict[str, int]:
        """Return pod/container to restart counts above 0."""
        return {
            f"{name}/{one.name}": one.restart_count
            for name, item in self.pods().items()
            if item.status is not None
            for one in (*item.status.init_container_statuses, *item.status.container_statuses)
            if one.restart_count
        }

    def signal(self, name: str, number: signal.Signals = signal.SIGKILL) -> int:
        """Signal an actor's process; its pid, 0 if there was none."""
        row = self.actors().get(name)
        if row is None or not row.pid:
            return 0
        with contextlib.suppress(ProcessLookupError):
            os.kill(row.pid, number)
        return row.pid

    def all_ready(self) -> bool:
        rows = self.actors()
        return bool(rows) and all(row.state == "ready" for row in rows.values())

    def lives(self, *names: str) -> list[str]:
        """Every life of these pod/containers as the runtime tells it, for messages."""
        cri, found = self.agent.containerd.cri, []
        for identity, (name, _) in self.agent.containers().items():
            if name.replace(f"-{self.agent.node}/", "/") in names:
                status = cri.container_status(identity).result().status
                found.append(f"{name} #{status.metadata.attempt} {status.reason} {status.exit_code} {status.message}")
        return found

    def explain(self) -> str:
        """Describe pods that are not ready, with the actors' states, for messages."""
        pods = self.pods()
        lines = [f"not shown: {sorted(set(MIXED) - set(pods))}, not wanted: {sorted(set(pods) - set(MIXED))}"]
        for name, one in pods.items():
            if condition(one, "Ready") != "True" and one.status is not None:
                shown = (*one.status.init_container_statuses, *one.status.container_statuses)
                lines.append(f"{name}: {one.status.phase} {[(c.name, c.container_id, c.state) for c in shown]}")
        for actor in ("pleg", "pod_workers"):
            with contextlib.suppress(ActorError):
                lines.append(str(self.client.ask(actor, Describe())))
        lines.append(str(self.agent.containers()))
        return "\n".join([*lines, *self.agent.log.read_text().splitlines()[-40:]])

    # The runtime and the disk

    def runtime(self) -> list[str]:
        """pod/container of every running container, sorted; a duplicate shows."""
        return sorted(name.replace(f"-{self.agent.node}/", "/") for name in self.agent.running().values())

    def left(self) -> list[str]:
        """Everything there is of any pod: in the runtime, on disk, in the mount table, in cgroups."""
        directory = self.agent.dir
        found = [f"sandbox {one}" for one in self.agent.sandboxes()]
        found += [f"container {name}" for name, _ in self.agent.containers().values()]
        for part in ("root/pods", "logs", "container-logs"):
            found += [str(path) for path in (directory / part).glob("*")]
        mounts = [line.split()[4] for line in Path("/proc/self/mountinfo").read_text().splitlines()]
        found += [f"mount {mount}" for mount in mounts if mount.startswith(f"{directory}/")]
        return found + [f"cgroup {path}" for path in pod_cgroups(self.agent.dir.name)]


def condition(item: Pod, kind: str) -> str:
    """A condition's status; empty when there is none."""
    status: Any = item.status
    return next((one.status for one in (status.conditions if status else ()) if one.type == kind), "")


def words_of(agent: Agent, item: Pod) -> tuple[str, ...]:
    """A pod's UID, and the IDs of its containers and sandboxes, for a fault of its calls."""
    uid = item.metadata.uid or ""
    statuses = item.status.container_statuses if item.status is not None else ()
    said = [one.container_id.partition("://")[2] for one in statuses if one.container_id]
    with contextlib.suppress(CriError):
        listed = agent.containerd.cri.list_pod_sandbox().result()
        said += [one.id for one in listed if one.labels.get("io.kubernetes.pod.uid") == uid]
    return (uid, *said)


MIXED = {
    **{f"plain{n}": pod(f"plain{n}") for n in range(6)},
    **{
        f"volume{n}": pod(
            f"volume{n}",
            container("c", volumeMounts=[{"name": "m", "mountPath": "/m"}, {"name": "d", "mountPath": "/d"}]),
            volumes=[{"name": "m", "emptyDir": {"medium": "Memory"}}, {"name": "d", "emptyDir": {}}],
        )
        for n in range(2)
    },
    "two": pod("two", container("c"), container("d")),
    "inits": pod("inits", initContainers=[container("i", "exit 0"), container("j", "exit 0")]),
    "probed": pod("probed", container("c", readinessProbe={"exec": {"command": ["true"]}, "periodSeconds": 1})),
    "burstable": pod("burstable", container("c", resources={"requests": {"cpu": "1m"}})),
}
"""Twelve pods, thirteen running containers."""
MIXED_RUNNING = sorted([*(f"{name}/c" for name in MIXED), "two/d"])


@contextlib.contextmanager
def killing(eye: Eye, names: list[str], seed: int, most: int = 3) -> Iterator[list[str]]:
    """Meanwhile kill -9 one of these actors after the other at random moments; the list says whom. Few enough that the
    supervisor does not take them for degraded."""
    stop, killed = threading.Event(), []

    def kill() -> None:
        rng = random.Random(seed)
        own = Eye(eye.agent)
        while len(killed) < most and not stop.wait(rng.uniform(0.05, 0.5)):
            name = rng.choice(names)
            if own.signal(name):
                killed.append(name)
        own.client.close()

    thread = threading.Thread(target=kill)
    thread.start()
    try:
        yield killed
    finally:
        stop.set()
        thread.join()


def create(eye: Eye) -> None:
    for name, manifest in MIXED.items():
        eye.agent.write(name, manifest)


def remove_all(eye: Eye) -> None:
    for path in eye.agent.manifests.glob("*.yaml"):
        path.unlink()


def expect_mixed(eye: Eye, timeout_s: float) -> None:
    """In the end exactly the wanted pods run, one container each, none ever restarted."""
    try:
        wait_for(lambda: eye.ready(*MIXED), timeout_s)
    except AssertionError:
        raise AssertionError(f"not within {timeout_s:g} s: all ready\n{eye.explain()}") from None
    assert eye.runtime() == MIXED_RUNNING, eye.runtime()
    assert eye.restarts() == {}, eye.lives(*eye.restarts())


def expect_nothing(eye: Eye, timeout_s: float) -> None:
    """Nothing is left of any pod. Garbage is collected at once: what a killed process could not report is found by the
    pass of each minute."""
    left: list[str] = []

    def nothing_runs() -> bool:
        try:
            return not eye.runtime() and not eye.listed()
        except (CriError, ActorError):  # an answer is missing, and so is what it would say
            return False

    wait_for(nothing_runs, timeout_s, f"no pod; log: {eye.agent.log}")

    def gone() -> bool:
        nonlocal left
        try:
            eye.client.ask("container_gc", CollectGarbage(), 10)
            left = [*eye.left(), *eye.listed()]
        except (CriError, ActorError) as error:  # an actor or the runtime is just coming back; the next look may tell
            left = [f"not known: {error}"]
        return not left

    try:
        wait_for(gone, timeout_s)
    except AssertionError:
        raise AssertionError(f"left after {timeout_s:g} s: {left}; log: {eye.agent.log}") from None


def expect_only(eye: Eye, kept: frozenset[str], timeout_s: float) -> None:
    """In the end no other pods are shown than these."""

    def gone() -> bool:
        try:
            return set(eye.listed()) <= kept
        except ActorError:  # status is just coming back
            return False

    wait_for(gone, timeout_s, f"the pods of the test go; log: {eye.agent.log}")


def seconds(since: float) -> float:
    return time.monotonic() - since


def conditions(eye: Eye, name: str) -> dict[str, Any]:
    """Return a pod's conditions by type; empty while it is not shown."""
    found = eye.pods().get(name)
    status = found.status if found is not None else None
    return {one.type: one for one in status.conditions} if status is not None else {}


def ready(eye: Eye, name: str) -> bool:
    found = conditions(eye, name).get("Ready")
    return found is not None and found.status == "True"
