"""Pods to probe, and the results that the actor sent."""

import itertools
import time
from typing import Any

from proto.agent.actor import Describe
from proto.pods.pod_workers import ProbeResult, ProbeResults
from proto.pods.probe import ProbedContainer, ProbedPod
from proto.v1 import ContainerPort, GRPCAction, HTTPGetAction, Probe, TCPSocketAction
from tests.harness import ActorProcess, wait_for

_numbers = itertools.count()


def probe(**fields: Any) -> Probe:
    return Probe(**{"period_seconds": 1, "failure_threshold": 1} | fields)


def http(port: int | str, path: str = "/ok", timeout: int = 5, **fields: Any) -> Probe:
    """An HTTP probe. The default timeout is longer than a machine's stalls; set it for a server that hangs."""
    return probe(http_get=HTTPGetAction(port=port, path=path, **fields), timeout_seconds=timeout)


def tcp(port: int | str, host: str | None = None, timeout: int = 5) -> Probe:
    return probe(tcp_socket=TCPSocketAction(port=port, host=host), timeout_seconds=timeout)


def grpc_check(port: int, service: str = "", timeout: int = 5) -> Probe:
    return probe(grpc=GRPCAction(port=port, service=service or None), timeout_seconds=timeout)


def container(
    id_: str = "",
    *,
    running: bool = True,
    ports: dict[str, int] | None = None,
    field_path: str = "",
    **probes: Probe,
) -> ProbedContainer:
    return ProbedContainer(
        name="main",
        container_id=id_ or f"id-{next(_numbers)}",
        running=running,
        started_at=time.time() if running else 0.0,
        ports=tuple(ContainerPort(name=name, container_port=port) for name, port in (ports or {}).items()),
        field_path=field_path,
        **probes,
    )


def pod(*containers: ProbedContainer, uid: str = "", terminating: bool = False) -> ProbedPod:
    uid = uid or f"uid-{containers[0].container_id}"
    return ProbedPod(
        uid=uid, namespace="default", name=uid, pod_ip="127.0.0.1", terminating=terminating, containers=containers
    )


def told(actor: ActorProcess, container_id: str, kind: str) -> list[ProbeResult]:
    """Every result sent of one probe, oldest first."""
    return [
        result
        for message in actor.peers["pod_workers"].of(ProbeResults)
        if not message.full
        for result in message.results
        if result.container_id == container_id and result.probe == kind
    ]


def first_told(actor: ActorProcess, container_id: str, kind: str, timeout_s: float = 10) -> ProbeResult:
    found: list[ProbeResult] = wait_for(lambda: told(actor, container_id, kind), timeout_s, f"a {kind} result")
    return found[0]


def state(actor: ActorProcess) -> dict[str, Any]:
    return actor.ask(Describe()).state
