"""One node of the model: a runtime, peers, a pod_workers, desired pods and faults."""

from __future__ import annotations

import random
from typing import Any, Literal

from proto.agent.settings import Settings
from proto.agent.supervisor import Started
from proto.cri import api_pb2 as pb
from proto.pods.pod_workers import PodUpdate
from proto.v1 import Pod
from proto.wire.message import Message
from tests.model.clock import Clock
from tests.model.cri.calls import Fault
from tests.model.cri.runtime import Container, Program, Runtime
from tests.model.invariants import Invariants
from tests.model.peers import all_of
from tests.model.process import Process

BACK_S = 0.05
"""From the death of an actor to its next incarnation."""
SOURCES = ("file", "api")


class World:
    """The node. Time passes in `clock` only. Use it inside `process.patched(world)`."""

    def __init__(self, directory: str, seed: int = 0, *, static: bool = True) -> None:
        self.static = static
        self.rng = random.Random(seed)
        self.clock = Clock()
        self.began = self.clock.now
        self.clock.settle = self._settle
        self.message_s = 0.0005
        self.settings = Settings(
            root_dir=f"{directory}/root",
            pod_logs_dir=f"{directory}/logs",
            container_logs_dir=f"{directory}/links",
            run_dir=directory,
            node_name="node",
            node_ip="192.168.0.9",
            cgroups_per_qos=False,
            container_runtime_endpoint="unix:///run/model.sock",
            pod_sources=SOURCES,
        )
        self.program = Program()
        """The program of containers that start."""
        self.programs: dict[str, Program] = {}
        """By container name; these override `program`."""
        self.health: dict[tuple[str, str], bool] = {}
        self.no_images: set[str] = set()
        self.evicted: set[str] = set()
        """UIDs of pods that eviction asked to end."""
        self.faults: dict[str, list[Fault]] = {}
        """By rpc: the faults of its next calls."""
        self.errors: list[BaseException] = []
        """Bugs of the actor: there must be none."""
        self.answers: list[Exception] = []
        self.specs: dict[str, Pod] = {}
        """Every pod that was ever wanted, by UID, in its latest form."""
        self.wanted: dict[str, dict[str, Pod]] = {source: {} for source in SOURCES}
        self.invariants = Invariants(self)
        self.runtime = Runtime(self.clock, self._program_of)
        self.runtime.on_exit = self._process_ended
        self.runtime.on_start = self.invariants.started
        self.runtime.commands = lambda one: 0 if self.health.get((one.name, "exec"), True) else 1
        self.process: Any = None
        self.peers: dict[str, Any] = all_of(self)
        self._incarnation = 0
        self._undelivered: list[tuple[str, Message]] = []

    def _settle(self) -> None:
        if self.process is not None:
            self.process.threads.run()

    def _program_of(self, config: Any) -> Program:
        return self.programs.get(config.metadata.name, self.program)

    def _process_ended(self, _: str, pid: int) -> None:
        self.clock.call_later(0.001, lambda: self.peers["pleg"].process_ended(pid))

    # The runtime's calls

    def call_fault(self, rpc: str) -> Fault:
        queue = self.faults.get(rpc)
        return queue.pop(0) if queue else ""

    def cancelled(self, _: str) -> Literal["done", "dropped", "half"]:
        return self.rng.choice(("done", "dropped", "half"))

    # Processes

    def start(self) -> None:
        """Start a pod_workers process."""
        self._incarnation += 1
        self.process = Process(self, self._incarnation)
        self._settle()

    def kill(self) -> None:
        """Kill pod_workers; the next one starts soon."""
        if self.process is not None:
            self.process.kill()
            self.process = None
            self.clock.call_later(BACK_S, self.start)

    def kill_peer(self, name: str) -> None:
        """Kill a peer, which restarts at once with the state that it keeps on disk."""
        peer = self.peers[name]
        peer.restart()
        if self.process is not None:
            self.process.bus.peer_exited(name, peer.incarnation - 1)
            self.process.bus.on_peer_event(Started(name=name, incarnation=peer.incarnation))
            self._settle()

    def pod_workers_started(self, bus: Any) -> None:
        """It is ready: it learns its peers, and they send it their state."""
        for name, peer in self.peers.items():
            bus.on_peer_event(Started(name=name, incarnation=peer.incarnation))
        undelivered, self._undelivered = self._undelivered, []
        for source, message in undelivered:
            self.tell_pod_workers(source, message)
        for source, pods in self.wanted.items():
            self.tell_pod_workers("config", PodUpdate(source=source, op="SET", pods=tuple(pods.values())))
        for peer in self.peers.values():
            peer.pod_workers_started()

    def tell_pod_workers(self, source: str, message: Message) -> None:
        """Deliver in order; while it is down, keep messages for its next incarnation."""

        def arrive() -> None:
            if self.process is None or not self.process.bus.ready:
                self._undelivered.append((source, message))
            else:
                self.process.receive(source, message)

        self.clock.call_later(self.message_s, arrive)

    # Other clients of the runtime

    def remove(self, identity: str) -> None:
        """Remove a sandbox or container, as `crictl rm -f` does."""
        if identity in self.runtime.sandboxes:
            self.runtime.RemovePodSandbox(pb.RemovePodSandboxRequest(pod_sandbox_id=identity))
        else:
            self.runtime.RemoveContainer(pb.RemoveContainerRequest(container_id=identity))

    # Desired pods

    def update(self, source: str, op: Any, pod: Pod) -> None:
        """A source sends this update."""
        uid = pod.metadata.uid
        if op == "REMOVE":
            self.wanted[source].pop(uid, None)
        else:
            if op == "ADD" and uid in self.specs:
                self.invariants.wanted_again(uid)
            self.wanted[source][uid] = pod
            self.specs[uid] = pod
        self.tell_pod_workers("config", PodUpdate(source=source, op=op, pods=(pod,)))

    # Observations

    def running(self) -> list[Container]:
        return [one for one in self.runtime.containers.values() if one.running]

    def pods(self) -> dict[str, Pod]:
        """As published, by UID."""
        return dict(self.peers["status"].pods)

    def all_wanted(self) -> list[Pod]:
        return [pod for pods in self.wanted.values() for pod in pods.values()]

    def problems(self) -> list[str]:
        """Violated invariants, and bugs."""
        return [*self.invariants.broken, *(f"{type(error).__name__}: {error}" for error in self.errors)]

    def check(self) -> None:
        problems = self.problems()
        assert not problems, "\n".join(problems)
