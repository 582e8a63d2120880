"""The description of a pod and its events, in the layout of `kubectl describe pod`. Pure functions."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TypeAlias

from proto.common.safe_text import one_line, shown
from proto.pods.pod_columns import status as status_word
from proto.v1 import Container, ContainerState, ContainerStatus, EnvVar, Event, Pod, Probe, Volume, VolumeMount
from proto.v1.volumes.volume import VOLUME_SOURCES
from supervisor.cli.views import render
from supervisor.cli.views.event_table import last_seen

Value: TypeAlias = "str | Sequence[str] | Sequence[tuple[str, Value]]"
Tree: TypeAlias = list[tuple[str, Value]]
NONE = "<none>"


def lines(pod: Pod, events: Sequence[Event], now: float, worker: Mapping[str, Any] | None = None) -> list[str]:
    """The whole description. Times are in UTC, ages at `now`.

    `worker` is the description of the pod's worker by pod_workers, with its wait reasons.
    """
    return [*_drawn(_pod(pod, worker or {})), *_conditions(pod), *_drawn(_placement(pod)), *_events(events, now)]


def _drawn(tree: Sequence[tuple[str, Value]], indent: str = "") -> Iterator[str]:
    """Lines with aligned labels on each level; parts are below their label."""
    width = max((len(label) for label, value in tree if isinstance(value, str)), default=0) + 1
    for label, value in tree:
        title = one_line(label)
        if isinstance(value, str):
            first, *below = shown(value).split("\n")
            yield f"{indent}{title + ':' if title else '':<{width}}  {first}".rstrip()
            yield from (f"{indent}{'':<{width}}  {line}".rstrip() for line in below)
            continue
        yield f"{indent}{title}:"
        if all(isinstance(part, str) for part in value):
            yield from (f"{indent}  {one_line(str(part))}" for part in value)
        else:
            yield from _drawn([part for part in value if not isinstance(part, str)], indent + "  ")


def _pod(pod: Pod, worker: Mapping[str, Any]) -> Tree:
    meta, spec, status = pod.metadata, pod.spec, pod.status
    tree: Tree = [
        ("Name", meta.name),
        ("Namespace", meta.namespace),
        ("UID", meta.uid),
        ("Priority", str(spec.priority or 0)),
        ("Node", "/".join(part for part in (spec.node_name, status.host_ip) if part) or NONE),
        ("Start Time", status.start_time or NONE),
        *_multi("Labels", meta.labels, "="),
        *_multi("Annotations", meta.annotations, ": "),
        ("Status", _status(pod)),
        *_given(("Reason", status.reason), ("Message", status.message)),
        *_given(("Waits For", ", ".join(worker.get("waits_for", ()))), ("Last Error", worker.get("last_error"))),
        ("IP", status.pod_ip or ""),
        ("IPs", [("IP", one.ip) for one in status.pod_ips] or NONE),
    ]
    groups = (
        ("Init Containers", spec.init_containers, status.init_container_statuses),
        ("Containers", spec.containers, status.container_statuses),
        ("Ephemeral Containers", spec.ephemeral_containers, status.ephemeral_container_statuses),
    )
    for title, containers, statuses in groups:
        by_name = {one.name: one for one in statuses}
        if containers:
            tree.append((title, [(one.name, _container(one, by_name.get(one.name))) for one in containers]))
    return tree


def _status(pod: Pod) -> str:
    if pod.metadata.deletion_timestamp is None:
        return pod.status.phase or "Unknown"
    return f"{status_word(pod)} (since {pod.metadata.deletion_timestamp})"


def _container(container: Container, status: ContainerStatus | None) -> Tree:
    ports = ", ".join(f"{port.container_port}/{port.protocol or 'TCP'}" for port in container.ports)
    host_ports = ", ".join(f"{port.host_port or 0}/{port.protocol or 'TCP'}" for port in container.ports)
    tree: Tree = [
        ("Container ID", status.container_id or "" if status else ""),
        ("Image", container.image or ""),
        ("Image ID", status.image_id if status else ""),
        ("Port", ports or NONE),
        ("Host Port", host_ports or NONE),
        *_some("Command", container.command),
        *_some("Args", container.args),
    ]
    if status is not None:
        tree += _state("State", status.state)
        if status.last_state != ContainerState():
            tree += _state("Last State", status.last_state)
        tree += [("Ready", str(status.ready)), ("Restart Count", str(status.restart_count))]
    tree += _amounts("Limits", container.resources.limits) + _amounts("Requests", container.resources.requests)
    for title, probe in (
        ("Liveness", container.liveness_probe),
        ("Readiness", container.readiness_probe),
        ("Startup", container.startup_probe),
    ):
        if probe is not None:
            tree.append((title, _probe(probe)))
    tree.append(("Environment", [(one.name, _variable(one)) for one in container.env] or NONE))
    tree.append(("Mounts", [_mount(one) for one in container.volume_mounts] or NONE))
    return tree


def _state(title: str, state: ContainerState) -> Tree:
    if state.running is not None:
        return [(title, "Running"), ("  Started", state.running.started_at or "")]
    ended = state.terminated
    if ended is None:
        waiting = state.waiting
        why = _given(("  Reason", waiting.reason), ("  Message", waiting.message)) if waiting is not None else []
        return [(title, "Waiting"), *why]
    return [
        (title, "Terminated"),
        *_given(("  Reason", ended.reason), ("  Message", ended.message)),
        ("  Exit Code", str(ended.exit_code)),
        *_given(("  Started", ended.started_at), ("  Finished", ended.finished_at)),
    ]


def _probe(probe: Probe) -> str:
    numbers = (
        f"delay={probe.initial_delay_seconds or 0}s timeout={probe.timeout_seconds or 1}s "
        f"period={probe.period_seconds or 10}s #success={probe.success_threshold or 1} "
        f"#failure={probe.failure_threshold or 3}"
    )
    if probe.exec is not None:
        return f"exec [{' '.join(probe.exec.command)}] {numbers}"
    if (get := probe.http_get) is not None:
        return f"http-get {(get.scheme or 'HTTP').lower()}://{get.host or ''}:{get.port}{get.path or '/'} {numbers}"
    if (tcp := probe.tcp_socket) is not None:
        return f"tcp-socket {tcp.host or ''}:{tcp.port} {numbers}"
    if probe.grpc is not None:
        return f"grpc <pod>:{probe.grpc.port} {probe.grpc.service or ''} {numbers}"
    return f"unknown {numbers}"


def _variable(variable: EnvVar) -> str:
    """The value or its source, but never the content of a Secret."""
    source = variable.value_from
    if source is None:
        return variable.value or ""
    if (key := source.config_map_key_ref) is not None:
        return f"<set to the key '{key.key}' of config map '{key.name}'>  Optional: {str(bool(key.optional)).lower()}"
    if (secret := source.secret_key_ref) is not None:
        optional = str(bool(secret.optional)).lower()
        return f"<set to the key '{secret.key}' in secret '{secret.name}'>  Optional: {optional}"
    if source.field_ref is not None:
        return f"({source.field_ref.api_version or 'v1'}:{source.field_ref.field_path})"
    if source.resource_field_ref is not None:
        return f"({source.resource_field_ref.resource})"
    return "<set elsewhere>"


def _mount(mount: VolumeMount) -> str:
    flags = ["ro" if mount.read_only else "rw", *([f'path="{mount.sub_path}"'] if mount.sub_path else [])]
    return f"{mount.mount_path} from {mount.name} ({','.join(flags)})"


def _conditions(pod: Pod) -> Iterator[str]:
    yield "Conditions:"
    rows = [(f"  {one.type}", one.status, one.reason or "") for one in pod.status.conditions]
    yield from render.plain_lines(("  Type", "Status", "Reason"), rows) if rows else [f"  {NONE}"]


def _placement(pod: Pod) -> Tree:
    volumes: Tree = [(one.name, _volume(one)) for one in pod.spec.volumes]
    tolerations = [
        f"{one.key or ''}{f'={one.value}' if one.value else ''}:{one.effect or ''} op={one.operator or 'Equal'}"
        for one in pod.spec.tolerations
    ]
    return [
        ("Volumes", volumes or NONE),
        ("QoS Class", pod.status.qos_class or NONE),
        *_multi("Node-Selectors", pod.spec.node_selector, "="),
        ("Tolerations", tolerations or NONE),
    ]


def _volume(volume: Volume) -> Tree:
    """The volume's kind and its scalar fields."""
    for kind in VOLUME_SOURCES:
        source = getattr(volume, kind, None)
        if source is not None:
            plain = {name: getattr(source, name) for name in source.__struct_fields__}
            return [
                ("Type", "".join(part.capitalize() for part in kind.split("_"))),
                *[(name, str(value)) for name, value in plain.items() if isinstance(value, str | int) and value],
            ]
    return [("Type", NONE)]


def _events(events: Sequence[Event], now: float) -> list[str]:
    if not events:
        return [f"Events:  {NONE}"]
    rows = [
        (f"  {one.type}", one.reason or "", last_seen(one, now), one.source.component or "", _one_line(one))
        for one in events
    ]
    return ["Events:", *render.plain_lines(("  Type", "Reason", "Age", "From", "Message"), rows)]


def _one_line(event: Event) -> str:
    return " ".join((event.message or "").split("\n")).strip()


def _multi(title: str, values: Mapping[str, str], between: str) -> Tree:
    """A label with the first value beside it and the others below."""
    texts = [f"{name}{between}{value}" for name, value in sorted(values.items())] or [NONE]
    return [(title, texts[0]), *[("", text) for text in texts[1:]]]


def _given(*pairs: tuple[str, str | None]) -> Tree:
    return [(label, value) for label, value in pairs if value]


def _some(title: str, values: Sequence[str]) -> Tree:
    return [(title, tuple(values))] if values else []


def _amounts(title: str, amounts: Mapping[str, object]) -> Tree:
    return [(title, [(name, str(amount)) for name, amount in sorted(amounts.items())])] if amounts else []
