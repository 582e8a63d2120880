"""The API's rules for containers: names, images, ports, environment, mounts.

Covers regular and init containers. `probe.py` has the rules for probes and lifecycle handlers, `resources.py` those for
resources, `security.py` those for security contexts.
"""

from collections.abc import Collection, Iterator

from actors.config.validation import rules
from actors.config.validation.probe import validate_lifecycle, validate_probes
from actors.config.validation.problems import Path, Violation
from actors.config.validation.references import validate_field_ref, validate_key_selector, validate_resource_field_ref
from actors.config.validation.resources import validate_resize_policy, validate_resources
from actors.config.validation.restart import validate_restart
from actors.config.validation.security import validate_container_security
from proto.v1 import Container, ContainerPort, EnvVar, EnvVarSource, PodSpec, VolumeMount

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
RECURSIVE_READ_ONLY = ("Disabled", "Enabled", "IfPossible")


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
            # Init containers run one after another: each may have the ports of the others.
            yield from _host_ports(path / "ports", container, host_ports if field == "containers" else set())
            if spec.host_network and field == "containers":
                yield from _host_network_ports(path / "ports", container)
            is_regular_init = field == "initContainers" and container.restart_policy != "Always"
            at_policy, restarts = path / "resizePolicy", spec.restart_policy != "Never"
            yield from validate_resize_policy(
                at_policy, container, pod_restarts=restarts, is_regular_init=is_regular_init
            )
            yield from validate_probes(path, container, is_regular_init=is_regular_init)
            yield from validate_lifecycle(
                path / "lifecycle",
                container.lifecycle,
                is_regular_init=is_regular_init,
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
        if port.host_ip and not host_network:  # without an effect there, and the API server takes any text
            yield from rules.address(at / "hostIP", port.host_ip)


def _host_ports(path: Path, container: Container, taken: set[str]) -> Iterator[Violation]:
    for index, port in enumerate(container.ports):
        if port.host_port:
            key = f"{port.protocol}/{port.host_ip or ''}/{port.host_port}"
            yield from rules.unique(path / index / "hostPort", key, taken)


def _host_network_ports(path: Path, container: Container) -> Iterator[Violation]:
    """A port of the node's own network has one number. As in the API server, an init container's may have two."""
    for index, port in enumerate(container.ports):
        if port.host_port != port.container_port:
            problem = "must match `containerPort` when `hostNetwork` is true"
            yield rules.invalid(path / index / "hostPort", port.host_port, problem)


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
        yield from _env_source(at, source, volumes)


def _env_source(at: Path, source: EnvVarSource, volumes: set[str]) -> Iterator[Violation]:
    if source.field_ref is not None:
        yield from validate_field_ref(at / "fieldRef", source.field_ref, _FIELD_PATHS)
    if source.resource_field_ref is not None:
        yield from validate_resource_field_ref(at / "resourceFieldRef", source.resource_field_ref)
    if source.config_map_key_ref is not None:
        yield from validate_key_selector(at / "configMapKeyRef", source.config_map_key_ref)
    if source.secret_key_ref is not None:
        yield from validate_key_selector(at / "secretKeyRef", source.secret_key_ref)
    if source.file_key_ref is not None and source.file_key_ref.volume_name not in volumes:
        yield Violation(at / "fileKeyRef" / "volumeName", f"Not found: {rules.shown(source.file_key_ref.volume_name)}")


def _env_from(path: Path, container: Container) -> Iterator[Violation]:
    for index, source in enumerate(container.env_from):
        at = path / index
        if (source.config_map_ref is None) == (source.secret_ref is None):
            yield rules.invalid(at, "", "must specify exactly one of: `configMapRef` or `secretRef`")
        if source.prefix:
            yield from rules.env_name(at / "prefix", source.prefix)
        for field, ref in (("configMapRef", source.config_map_ref), ("secretRef", source.secret_ref)):
            if ref is not None and not ref.name:
                yield rules.required(at / field / "name")


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
        yield from _recursive_read_only(at / "recursiveReadOnly", mount)
        context = container.security_context
        if mount.mount_propagation == "Bidirectional" and not (context is not None and context.privileged):
            yield Violation(
                at / "mountPropagation", "Forbidden: Bidirectional mount propagation needs a privileged container"
            )


def _recursive_read_only(path: Path, mount: VolumeMount) -> Iterator[Violation]:
    if mount.recursive_read_only is None:
        return
    yield from rules.one_of(path, mount.recursive_read_only, RECURSIVE_READ_ONLY)
    if mount.recursive_read_only in ("Enabled", "IfPossible"):
        if not mount.read_only:
            yield Violation(path, "Forbidden: may only be specified when readOnly is true")
        if mount.mount_propagation not in (None, "", "None"):
            yield Violation(path, "Forbidden: may only be specified when mountPropagation is None or not specified")


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
