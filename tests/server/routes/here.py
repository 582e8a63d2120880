"""A server's handlers with stand-ins for the runtime, the peers and the pods."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from actors._base.messaging.futures import Future
from actors._cgroup.migration_prewarm import MigrationPrewarm
from actors._cri.errors import CriError, Unimplemented
from actors.server.context import Context
from actors.server.policy import Table
from proto.agent.actor import Ping, Pong, Profile, Samples, SetVerbosity
from proto.agent.settings import Settings
from proto.agent.supervisor import ActorRow, ActorRows, ListActors
from proto.cri import api_pb2 as pb
from proto.cri.labels import POD_UID
from proto.pods.status import FindPod, ListPods, Pods
from proto.resources.resources import CheckDevicePlugins
from proto.v1 import Pod, from_dict
from proto.wire.message import Done
from tests.server.routes.test_following import blocking
from tests.server.site import Site, say, status_of


def pod(name: str, uid: str = "u", **state: Any) -> Pod:
    status = {"name": "c", "state": state or {"running": {}}, "containerID": f"containerd://id-{name}"}
    return from_dict(
        Pod,
        {
            "metadata": {"name": name, "namespace": "ns", "uid": uid},
            "spec": {"containers": [{"name": "c"}]},
            "status": {"containerStatuses": [status]},
        },
    )


def done(value: Any) -> Future[Any]:
    future: Future[Any] = Future()
    if isinstance(value, Exception):
        future.set_error(value)
    else:
        future.set(value)
    return future


class _Cancelled(Future[Any]):
    """A call that ends when it is cancelled."""

    def cancel(self) -> None:
        self.set_error(CriError("Canceled", "context canceled", "ExecSync"))


class Runtime:
    """Records calls and answers them."""

    def __init__(self) -> None:
        self.calls: list[tuple[Any, ...]] = []
        self.url: Any = CriError("Unknown", "no url", "Exec")
        self.hanging: list[Future[Any]] = []

    def exec(self, container: str, command: Any, **streams: bool) -> Future[Any]:
        self.calls.append(("exec", container, list(command), streams))
        return done(self.url)

    def attach(self, container: str, **streams: bool) -> Future[Any]:
        self.calls.append(("attach", container, streams))
        return done(self.url)

    def port_forward(self, sandbox: str, ports: Any) -> Future[Any]:
        self.calls.append(("port_forward", sandbox, list(ports)))
        return done(self.url)

    def exec_sync(self, container: str, command: Any, _: int, timeout: float) -> Future[Any]:
        assert timeout > 24 * 3600
        self.calls.append(("run", container, list(command)))
        if command == ["hang"]:
            self.hanging.append(_Cancelled())
            return self.hanging[-1]
        code = 3 if command == ["fail"] else 0
        return done(pb.ExecSyncResponse(stdout=b"out", stderr=b"err", exit_code=code))

    def checkpoint_container(self, container: str, location: str, timeout: int) -> Future[Any]:
        self.calls.append(("checkpoint", container, os.path.basename(location)[:20], timeout))
        return done(Unimplemented("Unimplemented", "method CheckpointContainer not implemented"))

    def list_pod_sandbox(self, wanted: Any = None) -> Future[Any]:
        """The sandbox of the pod `one`, and a former one from before the clock was set back; the pod `two` has none."""
        meta = pb.PodSandboxMetadata(name="one", namespace="ns", uid="u", attempt=1)
        sandbox = pb.PodSandbox(id="box", state=pb.SANDBOX_READY, metadata=meta, created_at=1)
        if wanted is None:
            return done([sandbox])
        meta.attempt = 0
        former = pb.PodSandbox(id="former", state=pb.SANDBOX_READY, metadata=meta, created_at=9)
        return done([sandbox, former] if wanted.label_selector[POD_UID] == "u" else [])

    def list_containers(self) -> Future[Any]:
        meta = pb.ContainerMetadata(name="c")
        state = pb.CONTAINER_RUNNING
        return done([pb.Container(id="x", pod_sandbox_id="box", state=state, metadata=meta, image_ref="sha256:1")])


class Here:
    """A server's table on a loop."""

    def __init__(self, started: Site, tmp_path: Path) -> None:
        self.site, self.runtime, self.asked = started, Runtime(), []
        self.answers_after_s: float | None = None
        """Delay of the peers' answers; None for answers that are ready at once."""
        self.answers: dict[type, Callable[[Any], Any]] = {
            ListPods: lambda _: Pods(pods=(pod("one"), pod("two", terminated={"exitCode": 0}))),
            FindPod: lambda ask: Pods(pods=tuple(one for one in PODS if one.metadata.name == ask.name)),
            Ping: lambda _: Pong(mailbox=0),
            CheckDevicePlugins: lambda _: Done(),
            ListActors: lambda asked: asked.with_memory or ActorRows(rows=tuple(ActorRow(
                name=name, pid=1, state="ready", incarnation=1, uptime_s=1.0, restarts=0,
            ) for name in ("supervisor", "forkserver", "pleg", "status"))),
            Profile: lambda _: Samples(samples={"a;b": 3}),
            SetVerbosity: lambda _: Done(),
        }  # fmt: skip
        self.settings = Settings(run_dir=str(tmp_path), root_dir=str(tmp_path), streaming_idle_timeout_s=2.0)
        self.context = Context(
            started.loop, self.settings, self._ask, blocking,
            cri=self.runtime, moves=MigrationPrewarm(), paths=["/pods"], log_root=str(tmp_path),
        )  # fmt: skip

    def _ask(self, name: str, request: Any, _: float) -> Future[Any]:
        self.asked.append((name, request))
        if self.answers_after_s is None:
            return done(self.answers[type(request)](request))
        future: Future[Any] = Future()
        self.site.loop.call_later(self.answers_after_s, lambda: future.set(self.answers[type(request)](request)))
        return future

    def use(self, table: Table) -> None:
        for route in table.routes:
            handler = route.handler
            self.site.table.routes += (route._replace(handler=lambda _, r, h=handler: h(self.context, r)),)
        self.site.table = Table(self.site.table.routes)

    def say(self, method: str, target: str, head: str = "", body: bytes = b"") -> tuple[int, bytes]:
        length = f"Content-Length: {len(body)}\r\n" if body else ""
        answer = say(self.site.plain, f"{method} {target} HTTP/1.0\r\n{length}{head}\r\n".encode() + body)
        return status_of(answer), answer.partition(b"\r\n\r\n")[2]


PODS = (pod("one"), pod("two", "u2", terminated={"exitCode": 0}))


UPGRADE = "Connection: Upgrade\r\nUpgrade: SPDY/3.1\r\n"
