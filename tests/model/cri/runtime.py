"""A container runtime in memory that keeps containerd's contract; `test_contract.py` checks both by the same tests.

Holds the state, and applies each rpc at once and completely. `calls.py` adds delays and faults.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable
from dataclasses import dataclass, field

from actors._cri.errors import CriError
from proto.cri import api_pb2 as pb
from tests.model.clock import Clock, Timer

KILLED = 137


@dataclass(frozen=True)
class Program:
    """The behavior of a container's process."""

    exits: int | None = None
    """Its exit code after `after_s` seconds; None: it runs until it is stopped."""
    after_s: float = 0.0
    term_s: float | None = 0.02
    """Seconds from SIGTERM to its exit with code 0; None: it ignores SIGTERM."""
    cannot_start: bool = False


Programs = Callable[[pb.ContainerConfig], Program]

_COMMANDS = {
    "true": Program(exits=0, after_s=0.005),
    "false": Program(exits=1, after_s=0.005),
}


def by_command(config: pb.ContainerConfig) -> Program:
    """The programs that the contract's tests run on busybox."""
    command = list(config.command)
    if command[:2] == ["sh", "-c"]:
        if "trap" not in command[2]:
            return Program(exits=int(command[2].split()[-1]), after_s=0.01)
        return Program(term_s=None if "trap ''" in command[2] else 0.02)
    return _COMMANDS.get(command[0], Program(cannot_start=True))


@dataclass
class Container:
    """One container. Its proto is built for each answer."""

    id: str
    sandbox: Sandbox
    config: pb.ContainerConfig
    created_at: int
    program: Program = Program()
    """Set at its start."""
    state: int = pb.CONTAINER_CREATED
    started_at: int = 0
    finished_at: int = 0
    exit_code: int = 0
    reason: str = ""
    message: str = ""
    pid: int = 0
    signalled: bool = False
    stopped: bool = False
    """StopContainer was called."""
    waiting: list[Callable[[], None]] = field(default_factory=list)
    """Called once it has ended."""

    @property
    def name(self) -> str:
        return self.config.metadata.name

    @property
    def running(self) -> bool:
        return self.state == pb.CONTAINER_RUNNING


@dataclass
class Sandbox:
    """One pod sandbox."""

    id: str
    config: pb.PodSandboxConfig
    created_at: int
    pid: int
    ip: str
    ready: bool = True

    @property
    def uid(self) -> str:
        return str(self.config.metadata.uid)


class Runtime:
    """The state. Methods have the names, requests and answers of the rpcs, and raise CriError."""

    def __init__(self, clock: Clock, programs: Programs = by_command) -> None:
        self.clock = clock
        self.has_network = True
        self.programs = programs
        self.sandboxes: dict[str, Sandbox] = {}
        self.containers: dict[str, Container] = {}
        self.on_exit: Callable[[str, int], None] = lambda *_: None
        """Called with the ID and pid of a container or sandbox whose process has exited."""
        self.on_start: Callable[[Container], None] = lambda _: None
        """Called when a container's process has started."""
        self.commands: Callable[[Container], int] = lambda _: 0
        """Returns the exit code of a command that is executed in a container."""
        self.surprise_at = 0.0
        """Time at which the last abandoned call takes effect."""
        self.begun = 0
        """Number of sandboxes and containers created and started so far."""
        self._numbers = itertools.count(1)
        self._last_ns = 0

    def _now_ns(self) -> int:
        self._last_ns = max(self._last_ns + 1, int(self.clock.now * 1e9))
        return self._last_ns - int(self.clock.behind_s * 1e9)

    def alive(self, pid: int) -> bool:
        """Return True when a process of that pid exists."""
        return any(one.pid == pid for one in (*self.sandboxes.values(), *self.containers.values()))

    def Status(self, _: pb.StatusRequest) -> pb.StatusResponse:  # noqa: N802
        states = (("RuntimeReady", True), ("NetworkReady", self.has_network))
        ready = [pb.RuntimeCondition(type=kind, status=state) for kind, state in states]
        return pb.StatusResponse(status=pb.RuntimeStatus(conditions=ready))

    def RuntimeConfig(self, _: pb.RuntimeConfigRequest) -> pb.RuntimeConfigResponse:  # noqa: N802
        return pb.RuntimeConfigResponse(linux=pb.LinuxRuntimeConfiguration(cgroup_driver=pb.CGROUPFS))

    # Sandboxes

    def RunPodSandbox(self, request: pb.RunPodSandboxRequest) -> pb.RunPodSandboxResponse:  # noqa: N802
        self.reserve_sandbox(request.config.metadata)
        number = next(self._numbers)
        config = pb.PodSandboxConfig()
        config.CopyFrom(request.config)
        host = config.linux.security_context.namespace_options.network == pb.NODE
        sandbox = Sandbox(
            id=f"{number:064x}",
            config=config,
            created_at=self._now_ns(),
            pid=10_000 + number,
            ip="" if host else f"10.1.{number // 250}.{number % 250 + 1}",
        )
        self.sandboxes[sandbox.id] = sandbox
        self.begun += 1
        return pb.RunPodSandboxResponse(pod_sandbox_id=sandbox.id)

    def reserve_sandbox(self, metadata: pb.PodSandboxMetadata) -> None:
        """Refuse a name that is taken."""
        for other in self.sandboxes.values():
            if other.config.metadata == metadata:
                name = f"{metadata.name}_{metadata.namespace}_{metadata.uid}_{metadata.attempt}"
                raise CriError.of(
                    "Unknown",
                    f'failed to reserve sandbox name "{name}": name "{name}" is reserved for "{other.id}"',
                    "RunPodSandbox",
                )

    def StopPodSandbox(self, request: pb.StopPodSandboxRequest) -> pb.StopPodSandboxResponse:  # noqa: N802
        sandbox = self.sandboxes.get(request.pod_sandbox_id)
        if sandbox is not None:
            for container in self._of(sandbox):
                self.end(container, KILLED)
            self.end_sandbox(sandbox)
        return pb.StopPodSandboxResponse()

    def end_sandbox(self, sandbox: Sandbox) -> None:
        """End its own process; its containers run on."""
        if sandbox.ready:
            pid, sandbox.pid, sandbox.ready = sandbox.pid, 0, False
            self.on_exit(sandbox.id, pid)

    def RemovePodSandbox(self, request: pb.RemovePodSandboxRequest) -> pb.RemovePodSandboxResponse:  # noqa: N802
        sandbox = self.sandboxes.get(request.pod_sandbox_id)
        if sandbox is not None:
            self.StopPodSandbox(pb.StopPodSandboxRequest(pod_sandbox_id=sandbox.id))
            for container in self._of(sandbox):
                del self.containers[container.id]
            del self.sandboxes[sandbox.id]
        return pb.RemovePodSandboxResponse()

    def PodSandboxStatus(self, request: pb.PodSandboxStatusRequest) -> pb.PodSandboxStatusResponse:  # noqa: N802
        sandbox = self.sandboxes.get(request.pod_sandbox_id)
        if sandbox is None:
            raise _not_found("sandbox", request.pod_sandbox_id)
        config = sandbox.config
        status = pb.PodSandboxStatus(
            id=sandbox.id,
            metadata=config.metadata,
            state=_sandbox_state(sandbox),
            created_at=sandbox.created_at,
            network=pb.PodSandboxNetworkStatus(ip=sandbox.ip),
            linux=pb.LinuxPodSandboxStatus(
                namespaces=pb.Namespace(options=config.linux.security_context.namespace_options)
            ),
            labels=config.labels,
            annotations=config.annotations,
        )
        info = {"info": json.dumps({"pid": sandbox.pid})} if request.verbose else {}
        return pb.PodSandboxStatusResponse(status=status, info=info)

    def ListPodSandbox(self, request: pb.ListPodSandboxRequest) -> pb.ListPodSandboxResponse:  # noqa: N802
        wanted = request.filter
        found = [
            pb.PodSandbox(
                id=one.id,
                metadata=one.config.metadata,
                state=_sandbox_state(one),
                created_at=one.created_at,
                labels=one.config.labels,
                annotations=one.config.annotations,
            )
            for one in self.sandboxes.values()
            if (not wanted.id or one.id == wanted.id)
            and (not wanted.HasField("state") or wanted.state.state == _sandbox_state(one))
            and _selected(wanted.label_selector, one.config.labels)
        ]
        return pb.ListPodSandboxResponse(items=found)

    # Containers

    def CreateContainer(self, request: pb.CreateContainerRequest) -> pb.CreateContainerResponse:  # noqa: N802
        sandbox = self.sandboxes.get(request.pod_sandbox_id)
        if sandbox is None:
            raise _not_found("sandbox", request.pod_sandbox_id)
        if not sandbox.ready:
            raise _not_found("task", sandbox.id)
        for other in self.containers.values():
            if other.sandbox.config.metadata.uid == sandbox.uid and other.config.metadata == request.config.metadata:
                raise CriError.of(
                    "Unknown",
                    f'failed to reserve container name "{other.name}": name is reserved for "{other.id}"',
                    "CreateContainer",
                )
        config = pb.ContainerConfig()
        config.CopyFrom(request.config)
        container = Container(
            id=f"{next(self._numbers):064x}",
            sandbox=sandbox,
            config=config,
            created_at=self._now_ns(),
        )
        self.containers[container.id] = container
        self.begun += 1
        return pb.CreateContainerResponse(container_id=container.id)

    def StartContainer(self, request: pb.StartContainerRequest) -> pb.StartContainerResponse:  # noqa: N802
        container = self._container(request.container_id)
        if container.state != pb.CONTAINER_CREATED:
            state = pb.ContainerState.Name(container.state)
            raise CriError.of("Unknown", f'failed to start container "{container.id}": it is in {state} state')
        if not container.sandbox.ready:
            message = f'failed to start container "{container.id}": sandbox container is not running'
            self.fail_start(container, message)
            raise CriError.of("Unknown", message, "StartContainer")
        container.program = self.programs(container.config)
        if container.program.cannot_start:
            message = "failed to create containerd task: exec: no such file or directory"
            self.fail_start(container, message)
            raise CriError.of("NotFound", message, "StartContainer")
        container.state, container.started_at = pb.CONTAINER_RUNNING, self._now_ns()
        container.pid = 10_000 + next(self._numbers)
        self.begun += 1
        self.on_start(container)
        if container.program.exits is not None:
            code = container.program.exits
            self.clock.call_later(container.program.after_s, lambda: self.end(container, code))
        return pb.StartContainerResponse()

    def fail_start(self, container: Container, message: str) -> None:
        """Record a failed start."""
        container.state, container.finished_at = pb.CONTAINER_EXITED, self._now_ns()
        container.exit_code, container.reason, container.message = 128, "StartError", message

    def end(self, container: Container, code: int) -> None:
        """End its process."""
        if not container.running:
            return
        pid, container.pid = container.pid, 0
        container.state, container.finished_at, container.exit_code = pb.CONTAINER_EXITED, self._now_ns(), code
        container.reason = "Error" if code else "Completed"
        self.on_exit(container.id, pid)
        waiting, container.waiting = container.waiting, []
        for done in waiting:
            done()

    def stop(self, container: Container, grace_s: int, done: Callable[[], None]) -> Timer | None:
        """SIGTERM, then SIGKILL after the grace period; `done` after its exit. Returns the kill's timer, if any."""
        if not container.running:
            done()
            return None
        container.stopped = True
        container.waiting.append(done)
        if grace_s <= 0:
            self.end(container, KILLED)
            return None
        if not container.signalled and container.program.term_s is not None:
            container.signalled = True
            self.clock.call_later(container.program.term_s, lambda: self.end(container, 0))
        return self.clock.call_later(grace_s, lambda: self.end(container, KILLED))

    def StopContainer(self, request: pb.StopContainerRequest) -> pb.StopContainerResponse:  # noqa: N802
        """Kill it, as after the grace period; `stop` has the whole sequence."""
        self.end(self._container(request.container_id), KILLED)
        return pb.StopContainerResponse()

    def RemoveContainer(self, request: pb.RemoveContainerRequest) -> pb.RemoveContainerResponse:  # noqa: N802
        container = self.containers.get(request.container_id)
        if container is not None:
            self.end(container, KILLED)
            del self.containers[container.id]
        return pb.RemoveContainerResponse()

    def ContainerStatus(self, request: pb.ContainerStatusRequest) -> pb.ContainerStatusResponse:  # noqa: N802
        one = self._container(request.container_id)
        status = pb.ContainerStatus(
            id=one.id,
            metadata=one.config.metadata,
            state=one.state,
            created_at=one.created_at,
            started_at=one.started_at,
            finished_at=one.finished_at,
            exit_code=one.exit_code,
            image=one.config.image,
            image_ref=one.config.image.image,
            reason=one.reason,
            message=one.message,
            labels=one.config.labels,
            annotations=one.config.annotations,
            mounts=one.config.mounts,
        )
        info = {"info": json.dumps({"pid": one.pid, "sandboxID": one.sandbox.id})} if request.verbose else {}
        return pb.ContainerStatusResponse(status=status, info=info)

    def ListContainers(self, request: pb.ListContainersRequest) -> pb.ListContainersResponse:  # noqa: N802
        wanted = request.filter
        found = [
            pb.Container(
                id=one.id,
                pod_sandbox_id=one.sandbox.id,
                metadata=one.config.metadata,
                image=one.config.image,
                image_ref=one.config.image.image,
                state=one.state,
                created_at=one.created_at,
                labels=one.config.labels,
                annotations=one.config.annotations,
            )
            for one in self.containers.values()
            if (not wanted.id or one.id == wanted.id)
            and (not wanted.HasField("state") or wanted.state.state == one.state)
            and (not wanted.pod_sandbox_id or one.sandbox.id == wanted.pod_sandbox_id)
            and _selected(wanted.label_selector, one.config.labels)
        ]
        return pb.ListContainersResponse(containers=found)

    def ExecSync(self, request: pb.ExecSyncRequest) -> pb.ExecSyncResponse:  # noqa: N802
        container = self._container(request.container_id)
        if not container.running:
            state = pb.ContainerState.Name(container.state)
            raise CriError.of("Unknown", f"container is in {state} state")
        return pb.ExecSyncResponse(exit_code=self.commands(container))

    def UpdateContainerResources(  # noqa: N802
        self, request: pb.UpdateContainerResourcesRequest
    ) -> pb.UpdateContainerResourcesResponse:
        self._container(request.container_id).config.linux.resources.CopyFrom(request.linux)
        return pb.UpdateContainerResourcesResponse()

    def UpdatePodSandboxResources(  # noqa: N802
        self, request: pb.UpdatePodSandboxResourcesRequest
    ) -> pb.UpdatePodSandboxResourcesResponse:
        sandbox = self.sandboxes.get(request.pod_sandbox_id)
        if sandbox is None:
            raise _not_found("sandbox", request.pod_sandbox_id)
        sandbox.config.linux.resources.CopyFrom(request.resources)
        return pb.UpdatePodSandboxResourcesResponse()

    def _container(self, identity: str) -> Container:
        container = self.containers.get(identity)
        if container is None:
            raise _not_found("container", identity)
        return container

    def _of(self, sandbox: Sandbox) -> list[Container]:
        return [container for container in self.containers.values() if container.sandbox is sandbox]


def _not_found(what: str, identity: str) -> CriError:
    return CriError.of("NotFound", f'an error occurred when try to find {what} "{identity}": not found')


def _sandbox_state(sandbox: Sandbox) -> pb.PodSandboxState:
    return pb.SANDBOX_READY if sandbox.ready else pb.SANDBOX_NOTREADY


def _selected(selector: object, labels: object) -> bool:
    wanted, there = dict(selector), dict(labels)
    return bool(wanted.items() <= there.items())
