"""The API's rules for containers: names, images, ports, environment, mounts, resources.

Covers regular and init containers. `probe.py` has the rules for probes and lifecycle handlers, `security.py` those for
security contexts.
"""

from collections.abc import Collection, Iterator

from actors.config.validation import rules
from actors.config.validation.probe import validate_lifecycle, validate_probes
from actors.config.validation.problems import Path, Violation
from actors.config.validation.restart import validate_restart
from actors.config.validation.security import validate_container_security
from proto.v1 import Container, ContainerPort, EnvVar, PodSpec, ResourceRequirements
from proto.v1.scalars.quantity import QuantityError, parse

PULL_POLICIES = ("Always", "IfNotPresent", "Never")
PROTOCOLS = ("TCP", "UDP", "SCTP")
_FIELD_PATHS = (
    "metadata.name",
    "metadata.namespace",
    "metadata.uid",
    "spec.nodeName",
    "spec.serviceAccountName",
    "status.hostIP",
    "status.hostIPs",
    "status.podIP",
    "status.podIPs",
)
_RESOURCES = frozenset({"cpu", "memory", "ephemeral-storage"})


def validate_containers(at: Path, spec: PodSpec) -> Iterator[Violation]:
    """Yield the violations of spec.containers and spec.initContainers."""
    if not spec.containers:
        yield rules.required(at / "containers")
    names: set[str] = set()
    host_ports: set[str] = set()
    for field, containers in (("containers", spec.containers), ("initContainers", spec.init_containers)):
        for index, container in enumerate(containers):
            path = at / field / index
            yield from rules.label(path / "name", container.name)
            yield from rules.unique(path / "name", container.name, names)
            yield from _container(path, container, spec)
            if field == "containers":
                yield from _host_ports(path / "ports", container, host_ports)
            is_plain_init = field == "initContainers" and container.restart_policy != "Always"
            yield from validate_probes(path, container, is_plain_init=is_plain_init)
            yield from validate_lifecycle(
                path / "lifecycle",
                container.lifecycle,
                is_plain_init=is_plain_init,
                grace_period_s=spec.termination_grace_period_seconds or 0,
            )


def _container(path: Path, container: Container, spec: PodSpec) -> Iterator[Violation]:
    if not container.image:
        yield rules.required(path / "image")
    elif container.image != container.image.strip():
        yield rules.invalid(path / "image", container.image, "must not have leading or trailing whitespace")
    yield from rules.one_of(path / "imagePullPolicy", container.image_pull_policy, PULL_POLICIES)
    policies = ("File", "FallbackToLogsOnError")
    yield from rules.one_of(path / "terminationMessagePolicy", container.termination_message_policy, policies)
    yield from validate_restart(path, container)
    yield from _ports(path / "ports", container.ports, host_network=bool(spec.host_network))
    yield from _env(path / "env", container.env, {volume.name for volume in spec.volumes})
    yield from _env_from(path / "envFrom", container)
    yield from _mounts(path, container, spec)
    yield from _devices(path, container, spec)
    yield from validate_resources(path / "resources", container.resources)
    if container.security_context is not None:
        at = path / "securityContext"
        yield from validate_container_security(at, container.security_context, host_users=spec.host_users is not False)


def _ports(path: Path, ports: tuple[ContainerPort, ...], *, host_network: bool) -> Iterator[Violation]:
    names: set[str] = set()
    for index, port in enumerate(ports):
        at = path / index
        if port.name:
            yield from rules.port_name(at / "name", port.name)
            yield from rules.unique(at / "name", port.name, names)
        yield from rules.port_number(at / "containerPort", port.container_port)
        yield from rules.one_of(at / "protocol", port.protocol, PROTOCOLS)
        yield from rules.in_range(at / "hostPort", port.host_port, 0, 65535)
        if host_network and port.host_port != port.container_port:
            yield rules.invalid(
                at / "hostPort", port.host_port, "must match `containerPort` when `hostNetwork` is true"
            )
        if port.host_ip:
            yield from rules.address(at / "hostIP", port.host_ip)


def _host_ports(path: Path, container: Container, taken: set[str]) -> Iterator[Violation]:
    for index, port in enumerate(container.ports):
        if port.host_port:
            key = f"{port.protocol}/{port.host_ip or ''}/{port.host_port}"
            yield from rules.unique(path / index / "hostPort", key, taken)


def _env(path: Path, variables: tuple[EnvVar, ...], volumes: set[str]) -> Iterator[Violation]:
    for index, variable in enumerate(variables):
        at = path / index
        yield from rules.env_name(at / "name", variable.name)
        source = variable.value_from
        if source is None:
            continue
        at = at / "valueFrom"
        found = [name for name in source.__struct_fields__ if getattr(source, name) is not None]
        if len(found) != 1:
            yield Violation(at, f"Invalid value: must specify exactly one source, not {len(found)}")
        elif variable.value:
            yield rules.invalid(at, "", "may not be specified when `value` is not empty")
        if source.field_ref is not None:
            yield from _field_path(at / "fieldRef" / "fieldPath", source.field_ref.field_path)
        if source.resource_field_ref is not None:
            at_field = at / "resourceFieldRef"
            yield from _resource_field(at_field / "resource", source.resource_field_ref.resource)
            yield from rules.divisor(at_field / "divisor", source.resource_field_ref)
        if source.file_key_ref is not None and source.file_key_ref.volume_name not in volumes:
            yield Violation(
                at / "fileKeyRef" / "volumeName", f"Not found: {rules.shown(source.file_key_ref.volume_name)}"
            )


def _field_path(path: Path, value: str) -> Iterator[Violation]:
    if not (value.startswith(("metadata.labels['", "metadata.annotations['")) and value.endswith("']")):
        yield from rules.one_of(path, value, _FIELD_PATHS)


def _resource_field(path: Path, value: str) -> Iterator[Violation]:
    kind, _, resource = value.partition(".")
    if kind not in ("limits", "requests") or not (resource in _RESOURCES or resource.startswith("hugepages-")):
        supported = [f"{kind}.{resource}" for kind in ("limits", "requests") for resource in sorted(_RESOURCES)]
        yield from rules.one_of(path, value, supported)


def _env_from(path: Path, container: Container) -> Iterator[Violation]:
    for index, source in enumerate(container.env_from):
        at = path / index
        if (source.config_map_ref is None) == (source.secret_ref is None):
            yield rules.invalid(at, "", "must specify exactly one of: `configMapRef` or `secretRef`")
        if source.prefix:
            yield from rules.env_name(at / "prefix", source.prefix)


def _mounts(path: Path, container: Container, spec: PodSpec) -> Iterator[Violation]:
    volumes = {volume.name for volume in spec.volumes}
    taken: set[str] = set()
    for index, mount in enumerate(container.volume_mounts):
        at = path / "volumeMounts" / index
        yield from _volume_name(at / "name", mount.name, volumes)
        if not mount.mount_path:
            yield rules.required(at / "mountPath")
        elif mount.mount_path in taken:
            yield rules.invalid(at / "mountPath", mount.mount_path, "must be unique")
        taken.add(mount.mount_path)
        if mount.sub_path and mount.sub_path_expr:
            yield rules.invalid(
                at / "subPathExpr", mount.sub_path_expr, "subPathExpr and subPath are mutually exclusive"
            )
        yield from rules.relative_path(at / "subPath", mount.sub_path or "")
        yield from rules.relative_path(at / "subPathExpr", mount.sub_path_expr or "")
        modes = ("Bidirectional", "HostToContainer", "None")
        yield from rules.one_of(at / "mountPropagation", mount.mount_propagation, modes, optional=True)
        context = container.security_context
        if mount.mount_propagation == "Bidirectional" and not (context is not None and context.privileged):
            yield Violation(
                at / "mountPropagation", "Forbidden: Bidirectional mount propagation needs a privileged container"
            )


def _volume_name(path: Path, name: str, volumes: Collection[str]) -> Iterator[Violation]:
    if not name:
        yield rules.required(path)
    elif name not in volumes:
        yield Violation(path, f"Not found: {rules.shown(name)}; it must be the name of one of spec.volumes")


def _devices(path: Path, container: Container, spec: PodSpec) -> Iterator[Violation]:
    volumes = {volume.name: volume for volume in spec.volumes}
    mounted = {mount.name: mount.mount_path for mount in container.volume_mounts}
    names: set[str] = set()
    paths: set[str] = set()
    for index, device in enumerate(container.volume_devices):
        at = path / "volumeDevices" / index
        volume = volumes.get(device.name)
        if volume is None:
            yield from _volume_name(at / "name", device.name, volumes)
        elif volume.persistent_volume_claim is None and volume.ephemeral is None:
            problem = "can only use volume source type of PersistentVolumeClaim or Ephemeral for block mode"
            yield rules.invalid(at / "name", device.name, problem)
        elif device.name in names:
            yield rules.invalid(at / "name", device.name, "must be unique")
        elif device.name in mounted:
            yield rules.invalid(at / "name", device.name, "must not already exist in volumeMounts")
        if not device.device_path:
            yield rules.required(at / "devicePath")
        elif device.device_path in paths:
            yield rules.invalid(at / "devicePath", device.device_path, "must be unique")
        elif ".." in device.device_path.split("/"):
            yield rules.invalid(at / "devicePath", device.device_path, "can not contain backsteps ('..')")
        elif device.device_path in mounted.values():
            problem = "must not already exist as a path in volumeMounts"
            yield rules.invalid(at / "devicePath", device.device_path, problem)
        names.add(device.name)
        paths.add(device.device_path)


def validate_resources(path: Path, resources: ResourceRequirements) -> Iterator[Violation]:
    """Yield the violations of requests and limits: names, quantities, requests within limits."""
    for field, amounts in (("limits", resources.limits), ("requests", resources.requests)):
        for name, amount in amounts.items():
            at = path / field / name
            yield from rules.qualified_name(at, name)
            if "/" not in name and name not in _RESOURCES and not name.startswith("hugepages-"):
                yield rules.invalid(at, name, "must be a standard resource for containers or a name with a domain")
            yield from rules.quantity(at, amount)
    for name, request in resources.requests.items():
        limit = resources.limits.get(name)
        if limit is None:
            continue
        try:
            exceeds = parse(request) > parse(limit)
            differs = parse(request) != parse(limit)
        except QuantityError:
            continue
        if exceeds:
            yield rules.invalid(
                path / "requests" / name, request, f"must be less than or equal to {name} limit of {limit}"
            )
        elif differs and ("/" in name or name.startswith("hugepages-")):
            yield rules.invalid(path / "requests" / name, request, f"must be equal to {name} limit of {limit}")
