"""Records of a regular, init or ephemeral container of a pod.

Environment, probes, security and resources have their own modules.
"""

from proto.v1.containers.env import EnvFromSource, EnvVar
from proto.v1.containers.probe import Lifecycle, Probe
from proto.v1.containers.resources import NO_RESOURCES, ResourceRequirements
from proto.v1.containers.security import SecurityContext
from proto.v1.scalars.base import Int32, Record


class ContainerPort(Record, frozen=True, kw_only=True):
    """A port the container listens on; `host_port` maps it on the node."""

    name: str | None = None
    host_port: Int32 | None = None
    container_port: Int32 = 0
    protocol: str | None = None
    host_ip: str | None = None


class VolumeMount(Record, frozen=True, kw_only=True):
    """Mount of a volume of the pod in the container."""

    name: str = ""
    read_only: bool | None = None
    recursive_read_only: str | None = None
    mount_path: str = ""
    sub_path: str | None = None
    mount_propagation: str | None = None
    sub_path_expr: str | None = None


class VolumeDevice(Record, frozen=True, kw_only=True):
    """Device path of a raw block volume in the container."""

    name: str = ""
    device_path: str = ""


class ContainerResizePolicy(Record, frozen=True, kw_only=True):
    """Restart policy of the container at a change of a resource (KEP-1287)."""

    resource_name: str = ""
    restart_policy: str = ""


class ContainerRestartRuleOnExitCodes(Record, frozen=True, kw_only=True):
    """Exit codes a rule matches: `In` or `NotIn` the values."""

    operator: str = ""
    values: tuple[Int32, ...] = ()


class ContainerRestartRule(Record, frozen=True, kw_only=True):
    """Action on a matching exit: Restart or RestartAllContainers (KEP-5307, KEP-5532)."""

    action: str = ""
    exit_codes: ContainerRestartRuleOnExitCodes | None = None


class Container(Record, frozen=True, kw_only=True):
    """A container of a pod's spec."""

    name: str = ""
    image: str | None = None
    command: tuple[str, ...] = ()
    args: tuple[str, ...] = ()
    working_dir: str | None = None
    ports: tuple[ContainerPort, ...] = ()
    env_from: tuple[EnvFromSource, ...] = ()
    env: tuple[EnvVar, ...] = ()
    resources: ResourceRequirements = NO_RESOURCES
    resize_policy: tuple[ContainerResizePolicy, ...] = ()
    restart_policy: str | None = None
    restart_policy_rules: tuple[ContainerRestartRule, ...] = ()
    volume_mounts: tuple[VolumeMount, ...] = ()
    volume_devices: tuple[VolumeDevice, ...] = ()
    liveness_probe: Probe | None = None
    readiness_probe: Probe | None = None
    startup_probe: Probe | None = None
    lifecycle: Lifecycle | None = None
    termination_message_path: str | None = None
    termination_message_policy: str | None = None
    image_pull_policy: str | None = None
    security_context: SecurityContext | None = None
    stdin: bool | None = None
    stdin_once: bool | None = None
    tty: bool | None = None


class EphemeralContainer(Container, frozen=True, kw_only=True):
    """A container that is added to a running pod for debugging. It is never restarted."""

    target_container_name: str | None = None
