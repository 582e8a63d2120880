"""Serves the pod resources API, v1 and v1alpha1, on ROOT_DIR/pod-resources/kubelet.sock.

Its clients are monitors and schedulers in pods with the directory as a hostPath. Calls are counted, limited and
encoded in threads of the server. The mailbox thread only copies what the managers have.
"""

from __future__ import annotations

import errno
import logging
import os
import socket
import threading
import time
from collections.abc import Callable
from typing import Any, TypeVar

from actors._base import Actor, Future
from actors._host.files import paths
from actors._metrics import kubelet as metrics
from actors._metrics.registry import Counter
from actors.resources.pod_resources import answers
from actors.resources.pod_resources.answers import PodShare
from actors.resources.pod_resources.known_pods import KnownPods, NotKnownError
from actors.resources.pod_resources.shares import Shares
from actors.resources.serving.socket_proxy import SocketProxy
from actors.resources.serving.unix_server import Limits, RpcRefusedError, Service, serve
from proto.common.token_bucket import TokenBucket
from proto.plugins import podresources_pb2 as pb
from proto.plugins import podresourcesv1alpha1_pb2 as alpha
from proto.wire.errors import ActorError

log = logging.getLogger(__name__)

T = TypeVar("T")

SERVICE = pb.DESCRIPTOR.services_by_name["PodResourcesLister"]
ALPHA_SERVICE = alpha.DESCRIPTOR.services_by_name["PodResourcesLister"]
QPS, BURST = 100, 10
"""The kubelet's, for all clients together."""
LIMITS = Limits(
    threads=2,
    calls=32,
    request_bytes=64 * 1024,
    connections=64,
    streams=32,
)
"""An answer for 110 pods has some 20 KiB: 2,048 that clients do not take are 40 MiB, until keepalive ends them."""
MOST_BYTES = 16 << 20
"""Of an answer: what the kubelet's own client accepts."""
ACTOR_S = 5.0
"""A call waits this long for the mailbox thread."""
DISK_S = 10.0


class PodResources:
    """State: the server. Its methods run in the actor's mailbox thread unless their docstring differs."""

    def __init__(self, actor: Actor, pods: KnownPods, shares: Shares) -> None:
        self._actor, self._pods, self._shares = actor, pods, shares
        self._directory = os.path.dirname(self.socket)
        self._bucket, self._lock = TokenBucket(QPS, BURST), threading.Lock()
        self._server: SocketProxy | None = None

    @property
    def socket(self) -> str:
        """Path of the socket."""
        return paths.pod_resources_socket(self._actor.settings.root_dir)

    async def start(self) -> None:
        """Serve the socket. Tries again until that is possible."""
        said = ""
        while self._server is None:
            try:
                self._server = await self._actor.blocking(DISK_S, self._serve)
            except (OSError, ActorError) as error:
                if str(error) != said:
                    said = str(error)
                    log.error("cannot serve the pod resources API at %s: %s; trying again", self.socket, error)
                await self._actor.sleep(DISK_S)

    def describe(self) -> dict[str, Any]:
        """For a console."""
        return {"served": self._server is not None, "pods": len(self._pods), "pods_complete": self._pods.complete}

    # In threads

    def _serve(self) -> SocketProxy:
        os.makedirs(self._directory, mode=0o750, exist_ok=True)
        _check_stale(self.socket)
        methods = {
            "List": self._method(self._list, metrics.POD_RESOURCES_LISTS, metrics.POD_RESOURCES_LIST_ERRORS),
            "GetAllocatableResources": self._method(
                self._allocatable, metrics.POD_RESOURCES_ALLOCATABLES, metrics.POD_RESOURCES_ALLOCATABLE_ERRORS
            ),
            "Get": self._method(self._get, metrics.POD_RESOURCES_GETS, metrics.POD_RESOURCES_GET_ERRORS),
        }
        alpha_methods = {"List": self._limited("v1alpha1", self._list_devices)}
        services = [Service(SERVICE, methods), Service(ALPHA_SERVICE, alpha_methods)]
        return serve(self.socket, f"{self._actor.settings.run_dir}/pod-resources.sock", services, LIMITS)

    def _method(self, work: Callable[[Any], Any], calls: Counter, errors: Counter) -> Callable[[Any], Any]:
        """A method of version 1: `work` behind the rate limit, counted with its errors."""

        def call(request: Any) -> Any:
            calls.inc("v1")
            try:
                return work(request)
            except BaseException:
                errors.inc("v1")
                raise

        return self._limited("v1", call)

    def _limited(self, version: str, work: Callable[[Any], Any]) -> Callable[[Any], Any]:
        """`work` behind the rate limit. As in the kubelet, a call beyond the limit is not counted."""

        def call(request: Any) -> Any:
            with self._lock:
                allowed = self._bucket.try_take(time.monotonic())
            if not allowed:
                raise RpcRefusedError("RESOURCE_EXHAUSTED", "rejected by rate limit")
            metrics.POD_RESOURCES_REQUESTS.inc(version)
            return work(request)

        return call

    def _list(self, _: Any) -> Any:
        return _bounded(answers.listed(self._in_mailbox(self._take_pods)))

    def _list_devices(self, _: Any) -> Any:
        return _bounded(answers.listed_devices(self._in_mailbox(self._take_devices)))

    def _get(self, request: Any) -> Any:
        namespace, name = request.pod_namespace, request.pod_name
        share = self._in_mailbox(lambda: self._take_pod(namespace, name))
        if share is None:
            raise RpcRefusedError("UNKNOWN", f"pod {name[:253]} in namespace {namespace[:253]} not found")
        return _bounded(answers.one_pod(share))

    def _allocatable(self, _: Any) -> Any:
        return _bounded(answers.allocatable(self._in_mailbox(self._shares.of_node)))

    def _in_mailbox(self, work: Callable[[], T]) -> T:
        """The result of `work` in the mailbox thread. Raises RpcRefusedError."""
        taken: Future[T] = Future()

        def take() -> None:
            try:
                taken.set(work())
            except Exception as error:  # it is raised in the caller's thread
                taken.set_error(error)

        self._actor.post(take, name="pod_resources")
        try:
            return taken.result(ACTOR_S)
        except NotKnownError as error:
            raise RpcRefusedError("UNAVAILABLE", str(error)) from error
        except TimeoutError as error:
            raise RpcRefusedError("UNAVAILABLE", f"no answer within {ACTOR_S:g} s; try again") from error

    # In the mailbox thread

    def _take_pods(self) -> list[PodShare]:
        active = self._actor.settings.pod_resources_active_pods
        return [self._shares.of_pod(pod) for pod in self._pods.every(active=active)]

    def _take_devices(self) -> list[PodShare]:
        return [self._shares.devices_of_pod(pod) for pod in self._pods.every(active=False)]

    def _take_pod(self, namespace: str, name: str) -> PodShare | None:
        pod = self._pods.named(namespace, name)
        return None if pod is None else self._shares.of_pod(pod)


def _bounded(answer: Any) -> Any:
    if answer.ByteSize() > MOST_BYTES:
        raise RpcRefusedError("RESOURCE_EXHAUSTED", f"the answer has {answer.ByteSize()} bytes, more than {MOST_BYTES}")
    return answer


def _check_stale(path: str) -> None:
    """Raise OSError if a process listens at the path: another agent's socket is not removed."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK) as probe:
        found = probe.connect_ex(path)
    if found not in (errno.ECONNREFUSED, errno.ENOENT):
        raise OSError(found or errno.EADDRINUSE, "another process may listen there; stop it, or remove what is there")
