"""The API's rules for securityContext of a pod and its containers: users, seccomp and AppArmor profiles, sysctls.

Source: validatePodSpecSecurityContext and validateContainerSecurityContext of pkg/apis/core/validation.
"""

from collections.abc import Iterator, Sequence

from actors.config.validation import rules
from actors.config.validation.problems import Path, Violation
from proto.v1 import AppArmorProfile, Container, Pod, PodSecurityContext, SeccompProfile, SecurityContext

_PROFILES = ("Localhost", "RuntimeDefault", "Unconfined")
_MAX_APPARMOR_NAME = 4095
_APPARMOR_KEY = "container.apparmor.security.beta.kubernetes.io/"
_APPARMOR_WORDS = {"Unconfined": "unconfined", "RuntimeDefault": "runtime/default"}
_MAX_ID = 2**31 - 1
"""Of users and groups."""


def validate_pod_security(at: Path, context: PodSecurityContext) -> Iterator[Violation]:
    """Yield the violations of spec.securityContext."""
    yield from rules.in_range(at / "runAsUser", context.run_as_user, 0, _MAX_ID)
    yield from rules.in_range(at / "runAsGroup", context.run_as_group, 0, _MAX_ID)
    yield from rules.in_range(at / "fsGroup", context.fs_group, 0, _MAX_ID)
    for index, group in enumerate(context.supplemental_groups):
        yield from rules.in_range(at / "supplementalGroups" / index, group, 0, _MAX_ID)
    policies = ("OnRootMismatch", "Always")
    yield from rules.one_of(at / "fsGroupChangePolicy", context.fs_group_change_policy, policies, optional=True)
    yield from rules.one_of(
        at / "supplementalGroupsPolicy", context.supplemental_groups_policy, ("Merge", "Strict"), optional=True
    )
    yield from _profiles(at, context.seccomp_profile, context.app_armor_profile)
    names: set[str] = set()
    for index, sysctl in enumerate(context.sysctls):
        path = at / "sysctls" / index / "name"
        if not sysctl.name:
            yield rules.required(path)
        yield from rules.unique(path, sysctl.name, names)


def validate_container_security(at: Path, context: SecurityContext, *, host_users: bool) -> Iterator[Violation]:
    """Yield the violations of a container's securityContext. `host_users`: the pod has no user namespace of its own."""
    yield from rules.in_range(at / "runAsUser", context.run_as_user, 0, _MAX_ID)
    yield from rules.in_range(at / "runAsGroup", context.run_as_group, 0, _MAX_ID)
    yield from rules.one_of(at / "procMount", context.proc_mount, ("Default", "Unmasked"), optional=True)
    if context.proc_mount == "Unmasked" and host_users:
        yield rules.invalid(at / "procMount", "Unmasked", "`hostUsers` must be false to use `Unmasked`")
    yield from _profiles(at, context.seccomp_profile, context.app_armor_profile)
    if context.allow_privilege_escalation is not False:
        return
    if context.privileged:
        yield Violation(at, "Invalid value: cannot set `allowPrivilegeEscalation` to false and `privileged` to true")
    if context.capabilities is not None and "CAP_SYS_ADMIN" in context.capabilities.add:
        yield Violation(
            at, "Invalid value: cannot set `allowPrivilegeEscalation` to false and `capabilities.Add` CAP_SYS_ADMIN"
        )


def validate_apparmor_annotations(pod: Pod) -> Iterator[Violation]:
    """Yield a violation where a container's legacy annotation names another AppArmor profile than the field."""
    at = Path(("spec",))
    yield from _unmatched(at / "initContainers", pod, pod.spec.init_containers)
    yield from _unmatched(at / "containers", pod, pod.spec.containers)


def _unmatched(path: Path, pod: Pod, containers: Sequence[Container]) -> Iterator[Violation]:
    of_pod = pod.spec.security_context.app_armor_profile if pod.spec.security_context is not None else None
    for index, container in enumerate(containers):
        context = container.security_context
        profile = (context.app_armor_profile if context is not None else None) or of_pod
        annotation = pod.metadata.annotations.get(_APPARMOR_KEY + container.name)
        if profile is None or annotation is None:
            continue
        at = path / index / "securityContext" / "appArmorProfile"
        if profile.type == "Localhost":
            name = annotation.removeprefix("localhost/")
            if name == annotation:
                yield Violation(at / "type", "Forbidden: apparmor type in annotation and field must match")
            elif name != profile.localhost_profile:
                problem = "Forbidden: apparmor profile in annotation and field must match"
                yield Violation(at / "localhostProfile", problem)
        elif annotation != _APPARMOR_WORDS.get(profile.type, annotation):
            yield Violation(at / "type", "Forbidden: apparmor type in annotation and field must match")


def _profiles(at: Path, seccomp: SeccompProfile | None, apparmor: AppArmorProfile | None) -> Iterator[Violation]:
    if seccomp is not None:
        path = at / "seccompProfile"
        yield from _profile(path, "seccomp", seccomp)
        yield from rules.relative_path(path / "localhostProfile", seccomp.localhost_profile or "")
    if apparmor is not None:
        path = at / "appArmorProfile"
        yield from _profile(path, "AppArmor", apparmor)
        name = apparmor.localhost_profile or ""
        if name != name.strip():
            yield rules.invalid(path / "localhostProfile", name, "must not be padded with whitespace")
        if len(name) > _MAX_APPARMOR_NAME:
            yield Violation(path / "localhostProfile", f"Too long: may not be more than {_MAX_APPARMOR_NAME} bytes")


def _profile(path: Path, kind: str, profile: SeccompProfile | AppArmorProfile) -> Iterator[Violation]:
    yield from rules.one_of(path / "type", profile.type, _PROFILES)
    if profile.type == "Localhost" and not profile.localhost_profile:
        yield rules.required(path / "localhostProfile", f"must be set when {kind} type is Localhost")
    elif profile.type != "Localhost" and profile.localhost_profile is not None:
        yield rules.invalid(
            path / "localhostProfile", profile.localhost_profile, f"can only be set when {kind} type is Localhost"
        )
