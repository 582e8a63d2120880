"""Pods with requests for CPUs, and a CpuManager whose writes are done at once."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from proto.v1 import Container, ObjectMeta, Pod, PodSpec, ResourceRequirements
from proto.wire.errors import ActorError

MEMORY = "1Gi"


def resources(request: str, limit: str) -> ResourceRequirements:
    def amounts(cpu: str) -> dict[str, int | float | str]:
        return {"cpu": cpu, "memory": MEMORY} if cpu else {}

    return ResourceRequirements(requests=amounts(request), limits=amounts(limit))


def container(name: str, cpus: str, limit: str | None = None, *, sidecar: bool = False) -> Container:
    needs = resources(cpus, cpus if limit is None else limit)
    return Container(name=name, resources=needs, restart_policy="Always" if sidecar else None)


def make_pod(
    uid: str, *containers: Container, init: Sequence[Container] = (), own: str = "", own_limit: str | None = None
) -> Pod:
    """`own`: CPUs at the level of the pod."""
    level = resources(own, own if own_limit is None else own_limit) if own else None
    spec = PodSpec(containers=containers, init_containers=tuple(init), resources=level)
    return Pod(metadata=ObjectMeta(name=uid, uid=uid), spec=spec)


def simple(uid: str, name: str, cpus: str, limit: str | None = None) -> Pod:
    return make_pod(uid, container(name, cpus, limit))


def at_once(_timeout_s: float, function: Callable[..., Any], *args: Any) -> Awaitable[Any]:
    """Stands for Actor.blocking: the call is done when it returns."""
    error: Exception | None = None
    try:
        function(*args)
    except (OSError, ActorError) as raised:
        error = raised
    return _Done(error)


class _Done:
    def __init__(self, error: Exception | None) -> None:
        self._error = error

    def __await__(self) -> Any:
        if self._error is not None:
            raise self._error
        return None
        yield


def run(step: Any) -> None:
    """Run a coroutine that never waits."""
    try:
        step.send(None)
    except StopIteration:
        return
    raise AssertionError("it waits")
