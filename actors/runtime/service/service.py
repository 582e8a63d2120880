"""CRI's RuntimeService: one method for each rpc.

The comments of CRI's api.proto say what a repeated rpc does. An rpc without a method here is UNIMPLEMENTED.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator, Sequence
from typing import Any, TypeVar

import msgspec

from actors.runtime.containers.containers import Containers
from actors.runtime.containers.exec_sync import exec_sync
from actors.runtime.engine.engine import Engine
from actors.runtime.model import views
from actors.runtime.model.errors import AtEnd, unmet
from actors.runtime.network.api import Network
from actors.runtime.sandboxes.sandboxes import Sandboxes
from actors.runtime.stats import metrics
from actors.runtime.stats.measuring import Metrics
from actors.runtime.stats.stats import Stats
from actors.runtime.streaming.sessions import Sessions
from proto.cri import api_pb2 as pb

# ruff: noqa: N802  (the rpcs' own names)

NAME = "nodevisor"
PART = 200
"""Items in one message of a streamed list: at most some 100 KiB."""
T = TypeVar("T")
log = logging.getLogger(__name__)


class RuntimeService:
    """All rpcs: request in, response out. Raises RpcError. Safe from any thread."""

    def __init__(
        self,
        engine: Engine,
        containers: Containers,
        sandboxes: Sandboxes,
        stats: Stats,
        network: Network,
        sessions: Sessions,
        about: dict[str, Any],
    ) -> None:
        """`about`: verbose information for Status, such as isolation, versions and directories."""
        self._engine = engine
        self._state = engine.state
        self._containers = containers
        self._sandboxes = sandboxes
        self._stats = stats
        self._metrics = Metrics(engine, stats)
        self._network = network
        self._sessions = sessions
        self._about = about

    def Version(self, _: pb.VersionRequest) -> pb.VersionResponse:
        """The name and version of this runtime."""
        version = str(self._about.get("version", ""))
        return pb.VersionResponse(version="0.1.0", runtime_name=NAME, runtime_version=version, runtime_api_version="v1")

    def Status(self, request: pb.StatusRequest) -> pb.StatusResponse:
        """Conditions RuntimeReady and NetworkReady, and features."""
        problem, remark = self._network.problem(), self._network.remark()
        network = pb.RuntimeCondition(
            type="NetworkReady",
            status=not problem,
            reason="NetworkPluginNotReady" if problem else "HostNetwork" if remark else "",
            message=problem or remark,
        )
        runtime = pb.RuntimeCondition(
            type="RuntimeReady",
            status=True,
            reason=f"IsolationLevel{self._about['isolation']}",
            message=self._about["isolationReason"],
        )
        info = {}
        if request.verbose:
            config = {"sandboxImage": "", "containerdRootDir": str(self._engine.root)}
            info = {
                "config": msgspec.json.encode(config).decode(),
                "runtime": msgspec.json.encode(self._about).decode(),
            }
        return pb.StatusResponse(
            status=pb.RuntimeStatus(conditions=[runtime, network]),
            info=info,
            runtime_handlers=[
                pb.RuntimeHandler(
                    name=name,
                    features=pb.RuntimeHandlerFeatures(
                        recursive_read_only_mounts=True,
                        user_namespaces=not self._engine.choose_oci(name, users=True).problem,
                    ),
                )
                for name in ("", *self._engine.offered)
            ],
            features=pb.RuntimeFeatures(
                supplemental_groups_policy=True,
                mount_options=self._engine.privileged,  # plain processes cannot mount
            ),
        )

    def RuntimeConfig(self, _: pb.RuntimeConfigRequest) -> pb.RuntimeConfigResponse:
        """The agent's cgroup driver."""
        driver = pb.SYSTEMD if self._engine.machine.systemd_cgroups else pb.CGROUPFS
        return pb.RuntimeConfigResponse(linux=pb.LinuxRuntimeConfiguration(cgroup_driver=driver))

    def UpdateRuntimeConfig(self, _: pb.UpdateRuntimeConfigRequest) -> pb.UpdateRuntimeConfigResponse:
        """Ignore the pod CIDR: networks read theirs from their configuration."""
        return pb.UpdateRuntimeConfigResponse()

    # Sandboxes

    def RunPodSandbox(self, request: pb.RunPodSandboxRequest) -> pb.RunPodSandboxResponse:
        """Create a sandbox; it is ready on return."""
        sandbox = self._sandboxes.run(request.config, request.runtime_handler)
        return pb.RunPodSandboxResponse(pod_sandbox_id=sandbox.record.id)

    def StopPodSandbox(self, request: pb.StopPodSandboxRequest) -> pb.StopPodSandboxResponse:
        """Stop a sandbox. Idempotent, also for a missing one."""
        if (sandbox := self._state.sandboxes.find(request.pod_sandbox_id)) is not None:
            self._sandboxes.stop(sandbox)
        return pb.StopPodSandboxResponse()

    def RemovePodSandbox(self, request: pb.RemovePodSandboxRequest) -> pb.RemovePodSandboxResponse:
        """Remove a sandbox and its containers by force. Idempotent."""
        if (sandbox := self._state.sandboxes.find(request.pod_sandbox_id)) is not None:
            containers = self._state.containers_of(sandbox.record.id)
            self._sandboxes.remove(sandbox)
            for container in containers:
                self._stats.written.forget(container.record.id)
        return pb.RemovePodSandboxResponse()

    def UpdatePodSandboxResources(
        self, request: pb.UpdatePodSandboxResourcesRequest
    ) -> pb.UpdatePodSandboxResourcesResponse:
        """Record the resources; pod_workers sets the pod's cgroup. NOT_FOUND without the sandbox."""
        self._sandboxes.note_resources(self._state.sandboxes.get(request.pod_sandbox_id), request)
        return pb.UpdatePodSandboxResourcesResponse()

    def PodSandboxStatus(self, request: pb.PodSandboxStatusRequest) -> pb.PodSandboxStatusResponse:
        """Describe a sandbox. NOT_FOUND without it."""
        sandbox = self._state.sandboxes.get(request.pod_sandbox_id)
        info = views.sandbox_info(sandbox) if request.verbose else None
        return pb.PodSandboxStatusResponse(status=views.sandbox_status(sandbox), info=info)

    def ListPodSandbox(self, request: pb.ListPodSandboxRequest) -> pb.ListPodSandboxResponse:
        """List the sandboxes that the filter accepts."""
        items = [
            views.listed_sandbox(one)
            for one in self._state.sandboxes.all()
            if views.sandbox_matches(one, request.filter)
        ]
        return pb.ListPodSandboxResponse(items=items)

    def StreamPodSandboxes(
        self, request: pb.StreamPodSandboxesRequest, _: object
    ) -> Iterator[pb.StreamPodSandboxesResponse]:
        """Stream the answer of ListPodSandbox."""
        listed = self.ListPodSandbox(pb.ListPodSandboxRequest(filter=request.filter)).items
        return (pb.StreamPodSandboxesResponse(pod_sandboxes=part) for part in parts(listed))

    # Containers

    def CreateContainer(self, request: pb.CreateContainerRequest) -> pb.CreateContainerResponse:
        """Create a container. ALREADY_EXISTS if its name and attempt exist."""
        sandbox = self._state.sandboxes.get(request.pod_sandbox_id)
        pod = request.sandbox_config if request.HasField("sandbox_config") else sandbox.config
        return pb.CreateContainerResponse(container_id=self._containers.create(sandbox, request.config, pod).record.id)

    def StartContainer(self, request: pb.StartContainerRequest) -> pb.StartContainerResponse:
        """Start a container, once: FAILED_PRECONDITION later."""
        self._containers.start(self._state.containers.get(request.container_id))
        return pb.StartContainerResponse()

    def StopContainer(self, request: pb.StopContainerRequest, at_end: AtEnd) -> pb.StopContainerResponse:
        """Stop a container. Idempotent, also for a missing one."""
        if (container := self._state.containers.find(request.container_id)) is not None:
            self._containers.stop(container, min(request.timeout, threading.TIMEOUT_MAX), at_end)
        return pb.StopContainerResponse()

    def RemoveContainer(self, request: pb.RemoveContainerRequest) -> pb.RemoveContainerResponse:
        """Remove a container by force. Idempotent. Refused while it starts, as containerd does."""
        if (container := self._state.containers.find(request.container_id)) is not None:
            if container.starting:
                raise unmet(f"container {container.record.id} is starting, and cannot be removed; try again")
            self._containers.remove(container)
            self._stats.written.forget(container.record.id)
        return pb.RemoveContainerResponse()

    def ListContainers(self, request: pb.ListContainersRequest) -> pb.ListContainersResponse:
        """List the containers that the filter accepts."""
        containers = self._state.containers.all()
        for container in containers:
            self._containers.refresh(container)
        found = [views.listed_container(one) for one in containers if views.container_matches(one, request.filter)]
        return pb.ListContainersResponse(containers=found)

    def StreamContainers(self, request: pb.StreamContainersRequest, _: object) -> Iterator[pb.StreamContainersResponse]:
        """Stream the answer of ListContainers."""
        listed = self.ListContainers(pb.ListContainersRequest(filter=request.filter)).containers
        return (pb.StreamContainersResponse(containers=part) for part in parts(listed))

    def ContainerStatus(self, request: pb.ContainerStatusRequest) -> pb.ContainerStatusResponse:
        """Describe a container. NOT_FOUND without it."""
        container = self._state.containers.get(request.container_id)
        self._containers.refresh(container)
        info = views.container_info(container) if request.verbose else None
        return pb.ContainerStatusResponse(status=views.container_status(container), info=info)

    def UpdateContainerResources(
        self, request: pb.UpdateContainerResourcesRequest
    ) -> pb.UpdateContainerResourcesResponse:
        """Change a running container's cgroup, or the configuration for a later start."""
        self._containers.update(self._state.containers.get(request.container_id), request.linux)
        return pb.UpdateContainerResourcesResponse()

    def ReopenContainerLog(self, request: pb.ReopenContainerLogRequest) -> pb.ReopenContainerLogResponse:
        """Open the log file again, after a rename."""
        self._containers.reopen_log(self._state.containers.get(request.container_id))
        return pb.ReopenContainerLogResponse()

    def ExecSync(self, request: pb.ExecSyncRequest, at_end: AtEnd) -> pb.ExecSyncResponse:
        """Run a command. DEADLINE_EXCEEDED after its time limit. A client that goes ends it."""
        container = self._state.containers.get(request.container_id)
        output = exec_sync(self._engine, container, list(request.cmd), request.timeout, at_end)
        return pb.ExecSyncResponse(stdout=output.stdout, stderr=output.stderr, exit_code=output.code)

    # Sessions

    def Exec(self, request: pb.ExecRequest) -> pb.ExecResponse:
        """Prepare a session; the command starts when a client requests the URL."""
        return pb.ExecResponse(url=self._sessions.exec(request))

    def Attach(self, request: pb.AttachRequest) -> pb.AttachResponse:
        """Prepare a session."""
        return pb.AttachResponse(url=self._sessions.attach(request))

    def PortForward(self, request: pb.PortForwardRequest) -> pb.PortForwardResponse:
        """Prepare a session."""
        return pb.PortForwardResponse(url=self._sessions.port_forward(request))

    # Statistics and events

    def ContainerStats(self, request: pb.ContainerStatsRequest) -> pb.ContainerStatsResponse:
        """Statistics of a container. NOT_FOUND without it."""
        return pb.ContainerStatsResponse(stats=self._stats.container(self._state.containers.get(request.container_id)))

    def ListContainerStats(self, request: pb.ListContainerStatsRequest) -> pb.ListContainerStatsResponse:
        """Statistics of running containers."""
        return pb.ListContainerStatsResponse(stats=self._stats.containers(request.filter))

    def StreamContainerStats(
        self, request: pb.StreamContainerStatsRequest, _: object
    ) -> Iterator[pb.StreamContainerStatsResponse]:
        """Stream the answer of ListContainerStats."""
        listed = self._stats.containers(request.filter)
        return (pb.StreamContainerStatsResponse(container_stats=part) for part in parts(listed))

    def PodSandboxStats(self, request: pb.PodSandboxStatsRequest) -> pb.PodSandboxStatsResponse:
        """Statistics of a sandbox. NOT_FOUND without it."""
        return pb.PodSandboxStatsResponse(stats=self._stats.sandbox(self._state.sandboxes.get(request.pod_sandbox_id)))

    def ListPodSandboxStats(self, request: pb.ListPodSandboxStatsRequest) -> pb.ListPodSandboxStatsResponse:
        """Statistics of ready sandboxes."""
        return pb.ListPodSandboxStatsResponse(stats=self._stats.sandboxes(request.filter))

    def StreamPodSandboxStats(
        self, request: pb.StreamPodSandboxStatsRequest, _: object
    ) -> Iterator[pb.StreamPodSandboxStatsResponse]:
        """Stream the answer of ListPodSandboxStats."""
        listed = self._stats.sandboxes(request.filter)
        return (pb.StreamPodSandboxStatsResponse(pod_sandbox_stats=part) for part in parts(listed))

    def ListMetricDescriptors(self, _: pb.ListMetricDescriptorsRequest) -> pb.ListMetricDescriptorsResponse:
        """Names, helps and labels of the metrics of ListPodSandboxMetrics."""
        return pb.ListMetricDescriptorsResponse(descriptors=metrics.descriptors())

    def ListPodSandboxMetrics(self, _: pb.ListPodSandboxMetricsRequest) -> pb.ListPodSandboxMetricsResponse:
        """Metrics of ready sandboxes and their running containers."""
        return pb.ListPodSandboxMetricsResponse(pod_metrics=self._metrics.sandboxes())

    def StreamPodSandboxMetrics(
        self, _: pb.StreamPodSandboxMetricsRequest, __: object
    ) -> Iterator[pb.StreamPodSandboxMetricsResponse]:
        """Stream the answer of ListPodSandboxMetrics, a sandbox in each message: each is some 10 KiB."""
        return (pb.StreamPodSandboxMetricsResponse(pod_sandbox_metrics=[one]) for one in self._metrics.sandboxes())

    def GetContainerEvents(self, _: pb.GetEventsRequest, at_end: AtEnd) -> Iterator[pb.ContainerEventResponse]:
        """Stream container events from now on."""
        listener = self._engine.hub.listen()
        at_end(listener.close)
        for event in listener:
            yield self._complete(event)

    def _complete(self, event: pb.ContainerEventResponse) -> pb.ContainerEventResponse:
        """Add the current status of the pod to an event."""
        container = self._state.containers.find(event.container_id)
        sandbox = self._state.sandboxes.find(container.record.sandbox_id) if container is not None else None
        if sandbox is None:
            return event
        completed = pb.ContainerEventResponse()
        completed.CopyFrom(event)
        completed.pod_sandbox_status.CopyFrom(views.sandbox_status(sandbox))
        inside = self._state.containers_of(sandbox.record.id)
        completed.containers_statuses.extend(views.container_status(one) for one in inside)
        return completed


def parts(listed: Sequence[T]) -> Iterator[Sequence[T]]:
    """Divide a list into messages of PART items."""
    for at in range(0, len(listed), PART):
        yield listed[at : at + PART]
