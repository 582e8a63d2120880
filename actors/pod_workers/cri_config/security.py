"""Builds CRI's LinuxContainerSecurityContext of a container. Pure.

Covers the precedence of container over pod settings, seccomp, AppArmor, SELinux, capabilities, procMount, no_new_privs
and the check of runAsNonRoot. Source: https://kubernetes.io/docs/tasks/configure-pod-container/security-context/,
pkg/securitycontext and pkg/kubelet/kuberuntime/security_context.go.
"""

from __future__ import annotations

import os

from actors.pod_workers.cri_config.namespaces import OF_THE_NODE, namespace_options
from actors.pod_workers.environment.variables import ConfigError
from actors.pod_workers.model import reasons
from proto.cri import api_pb2 as pb
from proto.v1 import (
    AppArmorProfile,
    Container,
    Pod,
    PodSecurityContext,
    SeccompProfile,
    SecurityContext,
    SELinuxOptions,
)

MASKED_PATHS = (
    "/proc/asound",
    "/proc/acpi",
    "/proc/interrupts",
    "/proc/kcore",
    "/proc/keys",
    "/proc/latency_stats",
    "/proc/timer_list",
    "/proc/timer_stats",
    "/proc/sched_debug",
    "/proc/scsi",
    "/sys/firmware",
    "/sys/devices/virtual/powercap",
)
READONLY_PATHS = ("/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger")

_MOST_UID = 2**63 - 1
_MOST_VERIFIED_UID = 2**31 - 1
"""Of an image with runAsNonRoot. Some runtimes cut a larger UID to 32 bits, maybe to 0 (CVE-2024-40635)."""
_NO_CONTEXT = SecurityContext()
_NO_POD_CONTEXT = PodSecurityContext()

_USER_UNKNOWN = "cannot tell the user of the image: the container runtime has not told it; it is asked again"
_APPARMOR_ANNOTATION = "container.apparmor.security.beta.kubernetes.io/"


def security_context(
    pod: Pod,
    container: Container,
    image_user: str,
    seccomp_root: str,
    *,
    seccomp_default: bool = False,
    users: pb.UserNamespace = OF_THE_NODE,
    groups: tuple[int, ...] = (),
    masked_paths: tuple[str, ...] = (),
) -> pb.LinuxContainerSecurityContext:
    """The container's context.

    `image_user`: the image's user without group, as UID or name; empty when it is not known. `seccomp_root`: directory
    of Localhost profiles. `seccomp_default`: a container without a profile gets the runtime's. `groups`: GIDs of the
    pod's volumes.
    `masked_paths`: this machine's, besides MASKED_PATHS. Raises ConfigError if runAsNonRoot is violated, or if the user
    is the image's and not known.
    """
    own = container.security_context or _NO_CONTEXT
    of_pod = pod.spec.security_context or _NO_POD_CONTEXT
    verify_non_root(pod, container, image_user)
    config = pb.LinuxContainerSecurityContext(
        privileged=bool(own.privileged),
        readonly_rootfs=bool(own.read_only_root_filesystem),
        namespace_options=namespace_options(pod, users),
        seccomp=seccomp_profile(own.seccomp_profile or of_pod.seccomp_profile, seccomp_root, default=seccomp_default),
        supplemental_groups=supplemental_groups(pod, groups),
        supplemental_groups_policy=supplemental_groups_policy(pod),
        no_new_privs=own.allow_privilege_escalation is False,
    )
    if own.proc_mount != "Unmasked":
        config.masked_paths.extend((*MASKED_PATHS, *masked_paths))
        config.readonly_paths.extend(READONLY_PATHS)
    _set_user(config, own, of_pod, image_user)
    if own.capabilities is not None:
        config.capabilities.add_capabilities.extend(own.capabilities.add)
        config.capabilities.drop_capabilities.extend(own.capabilities.drop)
    selinux = own.se_linux_options or of_pod.se_linux_options
    if selinux is not None:
        config.selinux_options.CopyFrom(selinux_options(selinux))
    _set_apparmor(config, app_armor_profile(pod, container))
    return config


def _set_user(
    config: pb.LinuxContainerSecurityContext, own: SecurityContext, of_pod: PodSecurityContext, image_user: str
) -> None:
    user, group = effective(own.run_as_user, of_pod.run_as_user), effective(own.run_as_group, of_pod.run_as_group)
    if user is not None:
        config.run_as_user.CopyFrom(pb.Int64Value(value=user))
    elif (uid := _uid(_known(image_user))) is not None:
        config.run_as_user.CopyFrom(pb.Int64Value(value=uid))
    else:
        config.run_as_username = image_user
    if group is not None:
        config.run_as_group.CopyFrom(pb.Int64Value(value=group))


def effective(own: int | None, of_pod: int | None) -> int | None:
    """The container's setting, else the pod's."""
    return own if own is not None else of_pod


def verify_non_root(pod: Pod, container: Container, image_user: str) -> None:
    """Raise ConfigError with the kubelet's message if runAsNonRoot is set and the user is or may become 0."""
    own = container.security_context or _NO_CONTEXT
    of_pod = pod.spec.security_context or _NO_POD_CONTEXT
    wanted = own.run_as_non_root if own.run_as_non_root is not None else of_pod.run_as_non_root
    if not wanted:
        return
    user = effective(own.run_as_user, of_pod.run_as_user)
    if user is not None:
        if user == 0:
            raise ConfigError(reasons.asked_to_run_as_root(pod, container.name))
    elif (uid := _uid(_known(image_user))) == 0:
        raise ConfigError(reasons.will_run_as_root(pod, container.name))
    elif uid is None:
        raise ConfigError(reasons.non_numeric_user(pod, container.name, image_user))
    elif uid > _MOST_VERIFIED_UID:
        raise ConfigError(reasons.invalid_user_id(pod, container.name, uid))


def _known(image_user: str) -> str:
    """The image's user. Raises ConfigError for an unknown one: only an image without a user runs as root."""
    if not image_user:
        raise ConfigError(_USER_UNKNOWN)
    return image_user


def _uid(image_user: str) -> int | None:
    # The image is hostile: int() refuses some digits that str.isdigit takes, and CRI's field takes an int64.
    is_number = image_user.isascii() and image_user.isdigit() and len(image_user) <= len(str(_MOST_UID))
    return uid if is_number and (uid := int(image_user)) <= _MOST_UID else None


def seccomp_profile(profile: SeccompProfile | None, seccomp_root: str, *, default: bool = False) -> pb.SecurityProfile:
    """CRI's profile. Without `profile` it is the runtime's with `default` (seccompDefault), else unconfined."""
    match profile.type if profile is not None else "RuntimeDefault" if default else "Unconfined":
        case "RuntimeDefault":
            return pb.SecurityProfile(profile_type=pb.SecurityProfile.RuntimeDefault)
        case "Localhost":
            name = profile.localhost_profile if profile is not None else None
            if not name:
                raise ConfigError("localhostProfile must be set if seccompProfile type is Localhost.")
            return pb.SecurityProfile(
                profile_type=pb.SecurityProfile.Localhost, localhost_ref=os.path.join(seccomp_root, name)
            )
    return pb.SecurityProfile(profile_type=pb.SecurityProfile.Unconfined)


def app_armor_profile(pod: Pod, container: Container) -> AppArmorProfile | None:
    """The first of: the container's field, its beta annotation, the pod's field."""
    if container.security_context is not None and container.security_context.app_armor_profile is not None:
        return container.security_context.app_armor_profile
    annotated = pod.metadata.annotations.get(_APPARMOR_ANNOTATION + container.name, "")
    if annotated == "runtime/default":
        return AppArmorProfile(type="RuntimeDefault")
    if annotated == "unconfined":
        return AppArmorProfile(type="Unconfined")
    if annotated.startswith("localhost/"):  # admission rejects an empty name
        return AppArmorProfile(type="Localhost", localhost_profile=annotated.removeprefix("localhost/"))
    return (pod.spec.security_context or _NO_POD_CONTEXT).app_armor_profile


def wants_app_armor(pod: Pod) -> bool:
    """Return True when the pod asks for a profile, which needs AppArmor in the kernel."""
    contexts = [
        pod.spec.security_context,
        *(one.security_context for one in (*pod.spec.init_containers, *pod.spec.containers)),
    ]
    profiles = [context.app_armor_profile for context in contexts if context is not None]
    annotated = (value for key, value in pod.metadata.annotations.items() if key.startswith(_APPARMOR_ANNOTATION))
    return any(one is not None and one.type != "Unconfined" for one in profiles) or any(
        value != "unconfined" for value in annotated
    )


def _set_apparmor(config: pb.LinuxContainerSecurityContext, profile: AppArmorProfile | None) -> None:
    """Both forms of the field: older runtimes read the string only."""
    if profile is None:
        return
    match profile.type:
        case "RuntimeDefault":
            config.apparmor.profile_type = pb.SecurityProfile.RuntimeDefault
            config.apparmor.SetInParent()
            config.apparmor_profile = "runtime/default"
        case "Localhost":
            config.apparmor.profile_type = pb.SecurityProfile.Localhost
            config.apparmor.localhost_ref = profile.localhost_profile or ""
            config.apparmor_profile = f"localhost/{profile.localhost_profile or ''}"
        case _:
            config.apparmor.profile_type = pb.SecurityProfile.Unconfined
            config.apparmor_profile = "unconfined"


def selinux_options(options: SELinuxOptions) -> pb.SELinuxOption:
    """CRI's SELinux label."""
    return pb.SELinuxOption(
        user=options.user or "", role=options.role or "", type=options.type or "", level=options.level or ""
    )


def supplemental_groups(pod: Pod, of_volumes: tuple[int, ...] = ()) -> list[int]:
    """The pod's fsGroup, then its supplementalGroups, then the remaining groups of its volumes."""
    context = pod.spec.security_context or _NO_POD_CONTEXT
    own = context.supplemental_groups
    further = [group for group in of_volumes if group not in own]
    return [*([context.fs_group] if context.fs_group is not None else []), *own, *further]


def supplemental_groups_policy(pod: Pod) -> pb.SupplementalGroupsPolicy.ValueType:
    """Merge: add the image's groups. Strict: only the pod's (KEP-3619)."""
    context = pod.spec.security_context or _NO_POD_CONTEXT
    return pb.Strict if context.supplemental_groups_policy == "Strict" else pb.Merge
