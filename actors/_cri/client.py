"""A CRI client with a method for each rpc that the agent uses, each with a deadline. The rpcs: proto/cri/api.proto.

A method starts its call and returns a `Call` at once. Nothing is retried here: that is up to the actors' policies.
"""

import contextlib
import functools
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass

from actors._cri.call import Call
from actors._cri.channel import After, LazyChannel, never
from actors._cri.counting import Metadata, counted, recorded, traced, watched
from actors._cri.errors import CriError
from actors._cri.watch import EventWatch
from proto.cri import api_pb2 as pb

T = TypeVar("T")

REQUEST_SECONDS = 120.0
"""The kubelet's runtimeRequestTimeout."""
READ_SECONDS = 10.0
"""Deadline of calls that only read. A slower runtime counts as down, and the caller asks again."""
PULL_SECONDS = 24 * 3600.0
"""Deadline of an image pull. The kubelet has none, since a large image on a slow line takes hours.

The embedded runtime and containerd from 1.7 end a pull without progress. The runtime's death ends the call at once,
with RuntimeDown.
"""

MOST_SECONDS = 365 * 24 * 3600
"""Longest deadline of a call, and longest grace period of a container. A pod may have one of 300 billion years.
gRPC cannot wait for more than some 7e9 s."""

_STARTS = frozenset({"StartContainer", "ExecSync"})
STARTED_S = 2.0
"""The longest wait for starts at the end of a process, and the age from which an ExecSync's command runs."""

_SERVICE = {
    method.name: (service.full_name, method)
    for service in pb.DESCRIPTOR.services_by_name.values()
    for method in service.methods
}


class CriCalls:
    """A method for each rpc. Subclasses implement the transport in `_start`.

    A method's `timeout` is the call's deadline in seconds.
    """

    _request_seconds: float

    def _start(self, rpc: str, request: bytes, deadline: float) -> Any:
        """Start a call. Returns an object like gRPC's future. Request and result are serialized messages."""
        raise NotImplementedError

    def _made(
        self, rpc: str, request: bytes, deadline: float, read: Callable[[bytes], T], absent: Callable[[], T] | None
    ) -> Call[T]:
        """The started call."""
        return Call(rpc, lambda: self._start(rpc, request, deadline), read, absent)

    # The runtime itself

    def version(self, *, timeout: float = READ_SECONDS) -> Call[pb.VersionResponse]:
        """Names and versions of the runtime."""
        return self._call("Version", pb.VersionRequest(version="v1"), timeout)

    def status(self, *, verbose: bool = False, timeout: float = READ_SECONDS) -> Call[pb.StatusResponse]:
        """The conditions RuntimeReady and NetworkReady; with `verbose` also the runtime's configuration in `info`."""
        return self._call("Status", pb.StatusRequest(verbose=verbose), timeout)

    def cgroup_driver(self, *, timeout: float = READ_SECONDS) -> Call[str]:
        """The runtime's cgroup driver: cgroupfs or systemd; empty when it names none that we know.

        Unimplemented before containerd 2.0 and CRI-O 1.28.
        """
        return self._call("RuntimeConfig", pb.RuntimeConfigRequest(), timeout, _cgroup_driver)

    def update_runtime_config(self, pod_cidr: str) -> Call[None]:
        """Tell the runtime the node's pod CIDR, or several with commas between."""
        config = pb.RuntimeConfig(network_config=pb.NetworkConfig(pod_cidr=pod_cidr))
        return self._call("UpdateRuntimeConfig", pb.UpdateRuntimeConfigRequest(runtime_config=config), None, _nothing)

    # Pod sandboxes

    def run_pod_sandbox(self, config: pb.PodSandboxConfig, runtime_handler: str = "") -> Call[str]:
        """Create and start a sandbox; its ID. Has twice the usual deadline, as in the kubelet: CNI may be slow."""
        request = pb.RunPodSandboxRequest(config=config, runtime_handler=runtime_handler)
        return self._call(
            "RunPodSandbox", request, 2 * self._request_seconds, lambda answer: str(answer.pod_sandbox_id)
        )

    def stop_pod_sandbox(self, pod_sandbox_id: str) -> Call[None]:
        """End a sandbox's processes and release its network. Idempotent."""
        request = pb.StopPodSandboxRequest(pod_sandbox_id=pod_sandbox_id)
        return self._gone("StopPodSandbox", request, 2 * self._request_seconds)

    def remove_pod_sandbox(self, pod_sandbox_id: str) -> Call[None]:
        """Delete a sandbox and its containers. Idempotent."""
        request = pb.RemovePodSandboxRequest(pod_sandbox_id=pod_sandbox_id)
        return self._gone("RemovePodSandbox", request)

    def pod_sandbox_status(
        self, pod_sandbox_id: str, *, verbose: bool = False, timeout: float = READ_SECONDS
    ) -> Call[pb.PodSandboxStatusResponse]:
        """A sandbox's state and addresses. Fails with NotFound without the sandbox."""
        request = pb.PodSandboxStatusRequest(pod_sandbox_id=pod_sandbox_id, verbose=verbose)
        return self._call("PodSandboxStatus", request, timeout)

    def list_pod_sandbox(
        self, filter: pb.PodSandboxFilter | None = None, *, timeout: float = READ_SECONDS
    ) -> Call[Sequence[pb.PodSandbox]]:
        """All sandboxes that match `filter`, stopped ones too."""
        return self._call(
            "ListPodSandbox", pb.ListPodSandboxRequest(filter=filter), timeout, lambda answer: answer.items
        )

    def update_pod_sandbox_resources(
        self, pod_sandbox_id: str, resources: pb.LinuxContainerResources, overhead: pb.LinuxContainerResources
    ) -> Call[None]:
        """Tell the runtime a pod's limits, without its overhead, before the caller sets its cgroup. Idempotent.

        Unimplemented before containerd 2.1; containerd 2.2 has code Unknown for it.
        """
        request = pb.UpdatePodSandboxResourcesRequest(
            pod_sandbox_id=pod_sandbox_id, resources=resources, overhead=overhead
        )
        return self._call("UpdatePodSandboxResources", request, None, _nothing)

    # Containers

    def create_container(
        self, pod_sandbox_id: str, config: pb.ContainerConfig, sandbox_config: pb.PodSandboxConfig
    ) -> Call[str]:
        """Create a container without starting it; its ID. `sandbox_config` is the sandbox's own."""
        request = pb.CreateContainerRequest(pod_sandbox_id=pod_sandbox_id, config=config, sandbox_config=sandbox_config)
        return self._call("CreateContainer", request, None, lambda answer: str(answer.container_id))

    def start_container(self, container_id: str) -> Call[None]:
        """Start a created container. Not idempotent."""
        return self._call("StartContainer", pb.StartContainerRequest(container_id=container_id), None, _nothing)

    def stop_container(self, container_id: str, grace_seconds: int) -> Call[None]:
        """Ask a container to end, and kill it after `grace_seconds`. The deadline starts after those. Idempotent."""
        grace_seconds = min(grace_seconds, MOST_SECONDS)
        request = pb.StopContainerRequest(container_id=container_id, timeout=grace_seconds)
        return self._gone("StopContainer", request, grace_seconds + self._request_seconds)

    def remove_container(self, container_id: str) -> Call[None]:
        """Delete a container. Idempotent."""
        return self._gone("RemoveContainer", pb.RemoveContainerRequest(container_id=container_id))

    def list_containers(
        self, filter: pb.ContainerFilter | None = None, *, timeout: float = READ_SECONDS
    ) -> Call[Sequence[pb.Container]]:
        """All containers that match `filter`, exited ones too."""
        request = pb.ListContainersRequest(filter=filter)
        return self._call("ListContainers", request, timeout, lambda answer: answer.containers)

    def container_status(
        self, container_id: str, *, verbose: bool = False, timeout: float = READ_SECONDS
    ) -> Call[pb.ContainerStatusResponse]:
        """A container's state; with `verbose` also `info`, in which containerd has the init process's pid."""
        request = pb.ContainerStatusRequest(container_id=container_id, verbose=verbose)
        return self._call("ContainerStatus", request, timeout)

    def exec_sync(
        self, container_id: str, cmd: Sequence[str], timeout_seconds: int, *, timeout: float | None = None
    ) -> Call[pb.ExecSyncResponse]:
        """Run `cmd` in a container; its output and exit code. Fails with CriDeadline after `timeout_seconds`, which the
        call's deadline starts after. With 0 the runtime has no limit, and `timeout` is the deadline."""
        request = pb.ExecSyncRequest(container_id=container_id, cmd=cmd, timeout=timeout_seconds)
        return self._call("ExecSync", request, timeout or timeout_seconds + self._request_seconds)

    def exec(
        self, container_id: str, cmd: Sequence[str], *, stdin: bool, stdout: bool, stderr: bool, tty: bool
    ) -> Call[str]:
        """Prepare to run `cmd` with streams; the runtime's URL for them, valid once."""
        request = pb.ExecRequest(
            container_id=container_id, cmd=cmd, stdin=stdin, stdout=stdout, stderr=stderr, tty=tty
        )  # fmt: skip
        return self._call("Exec", request, READ_SECONDS, lambda answer: str(answer.url))

    def attach(self, container_id: str, *, stdin: bool, stdout: bool, stderr: bool, tty: bool) -> Call[str]:
        """Prepare to attach to the container's streams; the runtime's URL for them, valid once."""
        request = pb.AttachRequest(container_id=container_id, stdin=stdin, stdout=stdout, stderr=stderr, tty=tty)
        return self._call("Attach", request, READ_SECONDS, lambda answer: str(answer.url))

    def port_forward(self, pod_sandbox_id: str, ports: Sequence[int] = ()) -> Call[str]:
        """Prepare to forward ports of a sandbox; the runtime's URL for them, valid once."""
        request = pb.PortForwardRequest(pod_sandbox_id=pod_sandbox_id, port=ports)
        return self._call("PortForward", request, READ_SECONDS, lambda answer: str(answer.url))

    def checkpoint_container(self, container_id: str, location: str, timeout_seconds: int) -> Call[None]:
        """Write the container's state to the file `location`; `timeout_seconds` 0 is the runtime's own limit."""
        request = pb.CheckpointContainerRequest(container_id=container_id, location=location, timeout=timeout_seconds)
        wait = timeout_seconds + self._request_seconds if timeout_seconds > 0 else None
        return self._call("CheckpointContainer", request, wait, _nothing)

    def update_container_resources(
        self, container_id: str, linux: pb.LinuxContainerResources, annotations: Mapping[str, str] | None = None
    ) -> Call[None]:
        """Change a container's limits. Idempotent."""
        request = pb.UpdateContainerResourcesRequest(container_id=container_id, linux=linux, annotations=annotations)
        return self._call("UpdateContainerResources", request, None, _nothing)

    def reopen_container_log(self, container_id: str) -> Call[None]:
        """Make the runtime open a new log file after the old one was renamed."""
        return self._call("ReopenContainerLog", pb.ReopenContainerLogRequest(container_id=container_id), None, _nothing)

    def container_stats(self, container_id: str) -> Call[pb.ContainerStats]:
        """Usage of one container."""
        request = pb.ContainerStatsRequest(container_id=container_id)
        return self._call("ContainerStats", request, READ_SECONDS, lambda answer: answer.stats)

    def list_container_stats(self, filter: pb.ContainerStatsFilter | None = None) -> Call[Sequence[pb.ContainerStats]]:
        """Usage of all running containers that match `filter`."""
        request = pb.ListContainerStatsRequest(filter=filter)
        return self._call("ListContainerStats", request, READ_SECONDS, lambda answer: answer.stats)

    # Images; an image is a name, a digest or an ImageSpec

    def list_images(self) -> Call[Sequence[pb.Image]]:
        """All images."""
        return self._call("ListImages", pb.ListImagesRequest(), READ_SECONDS, lambda answer: answer.images)

    def image_status(self, image: str | pb.ImageSpec) -> Call[pb.Image | None]:
        """One image; None without it."""
        request = pb.ImageStatusRequest(image=_spec(image))
        return self._call(
            "ImageStatus", request, READ_SECONDS, lambda answer: answer.image if answer.HasField("image") else None
        )

    def pull_image(
        self,
        image: str | pb.ImageSpec,
        auth: pb.AuthConfig | None = None,
        sandbox_config: pb.PodSandboxConfig | None = None,
        *,
        timeout: float = PULL_SECONDS,
    ) -> Call[str]:
        """Pull an image; the reference to create containers with."""
        request = pb.PullImageRequest(image=_spec(image), auth=auth, sandbox_config=sandbox_config)
        return self._call("PullImage", request, timeout, lambda answer: str(answer.image_ref))

    def remove_image(self, image: str | pb.ImageSpec) -> Call[None]:
        """Delete an image. Idempotent."""
        return self._gone("RemoveImage", pb.RemoveImageRequest(image=_spec(image)))

    def image_fs_info(self) -> Call[pb.ImageFsInfoResponse]:
        """Usage of the file systems with images and writable layers."""
        return self._call("ImageFsInfo", pb.ImageFsInfoRequest(), READ_SECONDS)

    def _gone(self, rpc: str, request: Message, timeout: float | None = None) -> Call[None]:
        """Start an rpc that stops or deletes an object. NotFound counts as success.

        CRI requires success for a missing object, yet containerd answers some of these rpcs with NOT_FOUND.
        """
        return self._call(rpc, request, timeout, _nothing, lambda: None)

    def _call(
        self,
        rpc: str,
        request: Message,
        timeout: float | None,
        convert: Callable[[Any], T] | None = None,
        absent: Callable[[], T] | None = None,
    ) -> Call[T]:
        """Start `rpc`. `timeout` is its deadline in seconds; None is the usual one of calls with effects."""
        deadline = min(MOST_SECONDS, self._request_seconds if timeout is None else timeout)
        parse = response_type(rpc).FromString
        read = parse if convert is None else lambda content: convert(parse(content))
        content = request.SerializeToString(deterministic=True)  # a replay finds the answer by the request's digest
        return counted(self._made(rpc, content, deadline, read, absent), deadline)


@functools.cache
def response_type(rpc: str) -> Any:
    """The class of an rpc's response message."""
    return GetMessageClass(_SERVICE[rpc][1].output_type)


class Cri(CriCalls):
    """The runtime at `endpoint`; its image service may be at another `image_endpoint`. Safe from any thread.

    Endpoints are unix:///PATH; others raise BadEndpoint. Nothing is opened before the first call. Calls fail with
    RuntimeDown while no runtime listens.
    """

    def __init__(
        self,
        endpoint: str,
        image_endpoint: str | None = None,
        *,
        request_seconds: float = REQUEST_SECONDS,
        after: After = never,
    ) -> None:
        """With an actor's `after`, its channels are closed while unused."""
        self._runtime = LazyChannel(endpoint, after)
        self._images = LazyChannel(image_endpoint, after) if image_endpoint else self._runtime
        self._request_seconds = request_seconds
        self._starts: dict[Call[Any], float] = {}
        """Calls of `_STARTS` under way, with the times of their begin."""

    @property
    def endpoint(self) -> str:
        """The runtime's endpoint as unix:///PATH."""
        return self._runtime.endpoint

    def last_use(self) -> contextlib.AbstractContextManager[None]:
        """Close the runtime's channel at the end of the block until the next call, unless calls are under way."""
        return self._runtime.last_use()

    def close(self) -> None:
        """End all calls under way with code Canceled. Later calls fail with RuntimeDown."""
        self._runtime.close()
        self._images.close()

    def _start(self, rpc: str, request: bytes, deadline: float) -> Any:
        service, _ = _SERVICE[rpc]
        channel = self._images if service.endswith("ImageService") else self._runtime
        path = f"/{service}/{rpc}"

        def start(metadata: Metadata) -> Any:
            return channel.call(path, lambda callable_: callable_.future(request, deadline, metadata))

        return traced(path[1:], start)

    def _made(
        self, rpc: str, request: bytes, deadline: float, read: Callable[[bytes], T], absent: Callable[[], T] | None
    ) -> Call[T]:
        began = time.monotonic()
        call = Call(rpc, lambda: self._start(rpc, request, deadline), read, absent, recorded(rpc, request))
        if rpc in _STARTS:
            self._starts[call] = began
            call.on_end(lambda _: self._starts.__delitem__(call))
        return call

    def wait_for_starts(self) -> None:
        """Wait for containers and commands that are being started, `STARTED_S` at most. For the end of the process.

        That end cancels its calls. A cancelled start may leave a container that containerd (seen in 1.6 and 2.1) can
        neither run nor delete. A cancelled command may let the container's next one hang for half a minute.
        """
        now = time.monotonic()
        for call, began in self._starts.copy().items():
            if call.rpc == "StartContainer" or now - began < STARTED_S:
                with contextlib.suppress(CriError, TimeoutError):
                    call.result(max(0.0, now + STARTED_S - time.monotonic()))

    def relay(self, rpc: str, request: bytes, timeout: float) -> Call[bytes]:
        """Make a call for another process, with serialized messages. Raises ValueError for an unknown rpc."""
        if rpc not in _SERVICE:
            raise ValueError(f"CRI has no rpc {rpc!r}")
        return watched(self._made(rpc, request, timeout, lambda content: content, None), timeout)

    def container_events(
        self, on_event: Callable[[pb.ContainerEventResponse], None], on_end: Callable[[CriError], None]
    ) -> EventWatch:
        """Follow the events of all containers. Not in every runtime; see EventWatch."""
        service, method = _SERVICE["GetContainerEvents"]

        def start() -> Any:
            return self._runtime.stream(f"/{service}/{method.name}", method, pb.GetEventsRequest())

        return EventWatch(start, on_event, on_end)


def _spec(image: str | pb.ImageSpec) -> pb.ImageSpec:
    return pb.ImageSpec(image=image) if isinstance(image, str) else image


def _cgroup_driver(answer: pb.RuntimeConfigResponse) -> str:
    if not answer.HasField("linux"):  # its driver would read as the enum's first
        return ""
    return {pb.SYSTEMD: "systemd", pb.CGROUPFS: "cgroupfs"}.get(answer.linux.cgroup_driver, "")


def _nothing(_: Any) -> None:
    return None
