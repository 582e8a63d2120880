"""Runs one probe by its handler: exec, httpGet, tcpSocket or grpc."""

from __future__ import annotations

import errno
import time
from collections.abc import Callable, Coroutine
from typing import Any

from actors._base import Actor, Future
from actors._cri.client import Cri
from actors._net.names import Names
from actors._net.probing.network import Done, HttpProbe, TcpProbe
from actors._net.probing.outcome import Outcome
from actors._net.probing.poller import Poller
from actors._net.probing.target import BadTarget, is_address, joined, resolve_port, url_of
from actors.probe.exec import ExecProbes
from actors.probe.grpc_health import HealthClient
from actors.probe.timer_queue import TimerQueue
from proto.pods.probe import ProbedContainer, ProbedPod
from proto.v1 import Probe
from proto.wire.errors import AskTimeout

Cancel = Callable[[], None]
Make = Callable[[tuple[str, ...], Done], TcpProbe]
"""Makes a network probe of an address, which is not started yet."""


class Runner:
    """Starts probes. For the actor's thread. `timers` holds the deadlines of network probes."""

    def __init__(self, actor: Actor, timers: TimerQueue, cri: Cri | None) -> None:
        self._actor = actor
        self._timers = timers
        self._execs = ExecProbes(actor, cri) if cri is not None else None
        self._health = HealthClient()
        self._names = Names()
        self.poller = Poller(actor.bus, actor.post)

    def start(self, pod: ProbedPod, container: ProbedContainer, probe: Probe, timeout_s: float, done: Done) -> Cancel:
        """Start a probe and return a function that cancels it. `done` gets the outcome, maybe before this returns."""
        try:
            return self._start(pod, container, probe, timeout_s, done)
        except BadTarget as error:
            done(Outcome("errored", str(error)))
            return lambda: None

    def _start(self, pod: ProbedPod, container: ProbedContainer, probe: Probe, timeout_s: float, done: Done) -> Cancel:
        if probe.exec is not None:
            if self._execs is None:
                raise BadTarget("no container runtime endpoint is configured")
            return self._spawn(self._execs.run(container.container_id, probe.exec.command, timeout_s), done)
        if probe.http_get is not None:
            url = url_of(probe.http_get, pod.pod_ip, container.ports)
            headers = probe.http_get.http_headers
            return self._network(
                url.host, timeout_s, lambda ips, end: HttpProbe(self.poller, ips, url, headers, end), done
            )
        if probe.tcp_socket is not None:
            host = probe.tcp_socket.host or _required(pod.pod_ip)
            port = resolve_port(probe.tcp_socket.port, container.ports)
            return self._network(host, timeout_s, lambda ips, end: TcpProbe(self.poller, ips, port, end), done)
        if probe.grpc is not None:
            peer = joined(_required(pod.pod_ip), resolve_port(probe.grpc.port, ()))
            return self._spawn(self._health.check(peer, probe.grpc.service or "", timeout_s), done)
        raise BadTarget("missing probe handler")

    def _spawn(self, work: Coroutine[Any, None, Outcome], done: Done) -> Cancel:
        async def run() -> None:
            done(await work)

        return self._actor.spawn(run(), "probe").cancel

    def _network(self, host: str, timeout_s: float, make: Make, done: Done) -> Cancel:
        if host == "localhost":
            host = "127.0.0.1"
        if is_address(host):
            return self._with_deadline(timeout_s, lambda end: make((host,), end), done)
        return self._spawn(self._by_name(host, timeout_s, make), done)

    def _with_deadline(self, timeout_s: float, make: Callable[[Done], TcpProbe], done: Done) -> Cancel:
        def end(outcome: Outcome) -> None:
            deadline.cancel()
            done(outcome)

        def cancel() -> None:
            deadline.cancel()
            probe.cancel()

        probe = make(end)
        deadline = self._timers.at(time.monotonic() + timeout_s, probe.expire)
        probe.start()
        return cancel

    async def _by_name(self, host: str, timeout_s: float, make: Make) -> Outcome:
        began = time.monotonic()
        found = self._names.addresses(host)
        late = self._timers.at(began + timeout_s, lambda: found.set_error(AskTimeout("i/o timeout")))
        try:
            addresses = await found
        except OSError as error:
            if error.errno == errno.EAGAIN:  # this process's limit, and no answer of the resolver
                return Outcome("errored", f"lookup {host}: {error.strerror}")
            return Outcome("failure", f"dial tcp: lookup {host}: {error.strerror or error}")
        except AskTimeout as error:
            return Outcome("failure", f"dial tcp: lookup {host}: {error}")
        finally:
            late.cancel()
        ended: Future[Outcome] = Future()
        left_s = timeout_s - (time.monotonic() - began)
        cancel = self._with_deadline(left_s, lambda end: make(addresses, end), ended.set)
        try:
            return await ended
        except BaseException:
            cancel()
            raise


def _required(pod_ip: str) -> str:
    if not pod_ip:
        raise BadTarget("the pod has no address yet")
    return pod_ip
