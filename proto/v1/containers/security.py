"""Records of the security contexts of a pod and of a container."""

from proto.v1.scalars.base import Int64, Record


class Capabilities(Record, frozen=True, kw_only=True):
    """Linux capabilities added and dropped, without CAP_."""

    add: tuple[str, ...] = ()
    drop: tuple[str, ...] = ()


class SELinuxOptions(Record, frozen=True, kw_only=True):
    """The SELinux label."""

    user: str | None = None
    role: str | None = None
    type: str | None = None
    level: str | None = None


class WindowsSecurityContextOptions(Record, frozen=True, kw_only=True):
    """Windows settings; carried, without effect on Linux."""

    gmsa_credential_spec_name: str | None = None
    gmsa_credential_spec: str | None = None
    run_as_user_name: str | None = None
    host_process: bool | None = None


class SeccompProfile(Record, frozen=True, kw_only=True):
    """Unconfined, RuntimeDefault, or Localhost with a file under the seccomp root."""

    type: str = ""
    localhost_profile: str | None = None


class AppArmorProfile(Record, frozen=True, kw_only=True):
    """Unconfined, RuntimeDefault, or Localhost with a loaded profile's name."""

    type: str = ""
    localhost_profile: str | None = None


class Sysctl(Record, frozen=True, kw_only=True):
    """A namespaced kernel parameter."""

    name: str = ""
    value: str = ""


class SecurityContext(Record, frozen=True, kw_only=True):
    """A container's security settings; each overrides the pod's."""

    capabilities: Capabilities | None = None
    privileged: bool | None = None
    se_linux_options: SELinuxOptions | None = None
    windows_options: WindowsSecurityContextOptions | None = None
    run_as_user: Int64 | None = None
    run_as_group: Int64 | None = None
    run_as_non_root: bool | None = None
    read_only_root_filesystem: bool | None = None
    allow_privilege_escalation: bool | None = None
    proc_mount: str | None = None
    seccomp_profile: SeccompProfile | None = None
    app_armor_profile: AppArmorProfile | None = None


class PodSecurityContext(Record, frozen=True, kw_only=True):
    """Security settings of all containers of a pod, and of its volumes."""

    se_linux_options: SELinuxOptions | None = None
    windows_options: WindowsSecurityContextOptions | None = None
    run_as_user: Int64 | None = None
    run_as_group: Int64 | None = None
    run_as_non_root: bool | None = None
    supplemental_groups: tuple[Int64, ...] = ()
    supplemental_groups_policy: str | None = None
    fs_group: Int64 | None = None
    sysctls: tuple[Sysctl, ...] = ()
    fs_group_change_policy: str | None = None
    seccomp_profile: SeccompProfile | None = None
    app_armor_profile: AppArmorProfile | None = None
    se_linux_change_policy: str | None = None
