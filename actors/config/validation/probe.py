"""The API's rules for probes and lifecycle handlers (postStart, preStop): one handler each, and ranges."""

import re
from collections.abc import Iterator

from actors.config.validation import rules
from actors.config.validation.problems import Path, Violation
from proto.v1 import Container, HTTPGetAction, IntOrString, Lifecycle, LifecycleHandler, Probe
from proto.v1.scalars.base import json_name

SCHEMES = ("HTTP", "HTTPS")
_HEADER_NAME = re.compile(r"[-A-Za-z0-9]+", re.ASCII)
_PROBE_HANDLERS = ("exec", "http_get", "tcp_socket", "grpc")
_HOOK_HANDLERS = ("exec", "http_get", "tcp_socket", "sleep")


def validate_probes(path: Path, container: Container, *, is_regular_init: bool) -> Iterator[Violation]:
    """Yield the violations of a container's probes. An init container that is no sidecar may have none."""
    for attribute in ("liveness_probe", "readiness_probe", "startup_probe"):
        probe: Probe | None = getattr(container, attribute)
        at = path / json_name(attribute)
        if probe is None:
            continue
        if is_regular_init:
            yield Violation(at, "Forbidden: may not be set for init containers without restartPolicy=Always")
            continue
        yield from _probe(at, probe, is_readiness=attribute == "readiness_probe")


def validate_lifecycle(
    path: Path, lifecycle: Lifecycle | None, *, is_regular_init: bool, grace_period_s: int
) -> Iterator[Violation]:
    """Yield the violations of lifecycle handlers; a sleep has to fit into the pod's grace period."""
    if lifecycle is None:
        return
    if is_regular_init:
        yield Violation(path, "Forbidden: may not be set for init containers without restartPolicy=Always")
        return
    for attribute in ("post_start", "pre_stop"):
        handler: LifecycleHandler | None = getattr(lifecycle, attribute)
        if handler is None:
            continue
        at = path / json_name(attribute)
        yield from _handler(at, handler, _HOOK_HANDLERS)
        if handler.sleep is not None and not 0 <= handler.sleep.seconds <= grace_period_s:
            rule = f"must be non-negative and less than terminationGracePeriodSeconds ({grace_period_s})"
            yield rules.invalid(at / "sleep", handler.sleep.seconds, rule)


def _probe(path: Path, probe: Probe, *, is_readiness: bool) -> Iterator[Violation]:
    yield from _handler(path, probe, _PROBE_HANDLERS)
    if probe.grpc is not None:
        yield from rules.port_number(path / "grpc" / "port", probe.grpc.port)
    yield from rules.in_range(path / "initialDelaySeconds", probe.initial_delay_seconds, 0)
    yield from rules.in_range(path / "timeoutSeconds", probe.timeout_seconds, 0)
    yield from rules.in_range(path / "periodSeconds", probe.period_seconds, 0)
    yield from rules.in_range(path / "failureThreshold", probe.failure_threshold, 0)
    yield from rules.in_range(path / "successThreshold", probe.success_threshold, 0)
    grace = probe.termination_grace_period_seconds
    if is_readiness and grace is not None:
        yield rules.invalid(path / "terminationGracePeriodSeconds", grace, "must not be set for readinessProbes")
    elif grace is not None and grace <= 0:
        yield rules.invalid(path / "terminationGracePeriodSeconds", grace, "must be greater than 0")
    if not is_readiness and probe.success_threshold != 1:
        yield rules.invalid(path / "successThreshold", probe.success_threshold, "must be 1")


def _handler(path: Path, owner: Probe | LifecycleHandler, handlers: tuple[str, ...]) -> Iterator[Violation]:
    found = [name for name in handlers if getattr(owner, name) is not None]
    if not found:
        yield rules.required(path, f"must specify a handler type: {', '.join(map(json_name, handlers))}")
    for extra in found[1:]:
        yield Violation(path / json_name(extra), "Forbidden: may not specify more than 1 handler type")
    if owner.exec is not None and not owner.exec.command:
        yield rules.required(path / "exec" / "command")
    if owner.http_get is not None:
        yield from _http_get(path / "httpGet", owner.http_get)
    if owner.tcp_socket is not None:
        yield from _port(path / "tcpSocket" / "port", owner.tcp_socket.port)


def _http_get(path: Path, action: HTTPGetAction) -> Iterator[Violation]:
    if not action.path:
        yield rules.required(path / "path")
    yield from _port(path / "port", action.port)
    yield from rules.one_of(path / "scheme", action.scheme, SCHEMES)
    for index, header in enumerate(action.http_headers):
        if not _HEADER_NAME.fullmatch(header.name):
            problem = "a valid HTTP header must consist of alphanumeric characters or '-'"
            yield rules.invalid(path / "httpHeaders" / index, header.name, problem)


def _port(path: Path, port: IntOrString) -> Iterator[Violation]:
    if isinstance(port, int):
        yield from rules.port_number(path, port)
    else:
        yield from rules.port_name(path, port)
