"""Security contexts: users, privileges, seccomp, AppArmor, masked paths."""

import pytest

from actors.pod_workers.cri_config.sandbox_config import with_present_privilege
from actors.pod_workers.cri_config.security import MASKED_PATHS
from actors.pod_workers.environment.variables import ConfigError
from proto.cri import api_pb2 as pb
from tests.pod_workers.cri_config.config_parts import config_of, pod, sandbox_of


@pytest.mark.parametrize(
    ("default", "own", "of_pod", "expected"),
    [
        (False, {}, {}, pb.SecurityProfile.Unconfined),
        (True, {}, {}, pb.SecurityProfile.RuntimeDefault),
        (True, {"seccompProfile": {"type": "Unconfined"}}, {}, pb.SecurityProfile.Unconfined),
        (True, {}, {"seccompProfile": {"type": "Unconfined"}}, pb.SecurityProfile.Unconfined),
        (False, {"seccompProfile": {"type": "RuntimeDefault"}}, {}, pb.SecurityProfile.RuntimeDefault),
    ],
)
def test_seccomp_default(default, own, of_pod, expected):
    subject = pod({"securityContext": own}, securityContext=of_pod)
    found = config_of(subject, seccomp_default=default).linux.security_context.seccomp
    assert found.profile_type == expected


def context_of(
    own: dict | None = None, of_pod: dict | None = None, user: str = "0"
) -> pb.LinuxContainerSecurityContext:
    subject = pod({"securityContext": own or {}}, securityContext=of_pod or {})
    return config_of(subject, image_user=user, seccomp_root="/seccomp").linux.security_context


@pytest.mark.parametrize(
    ("own", "of_pod", "image", "user", "name"),
    [
        ({}, {}, "0", 0, ""),
        ({}, {}, "1000", 1000, ""),
        ({}, {}, "nobody", None, "nobody"),
        ({}, {}, str(2**63 - 1), 2**63 - 1, ""),
        ({}, {}, str(2**63), None, str(2**63)),
        ({}, {}, "²", None, "²"),
        ({}, {}, "9" * 5000, None, "9" * 5000),
        ({}, {"runAsUser": 5}, "nobody", 5, ""),
        ({"runAsUser": 6}, {"runAsUser": 5}, "", 6, ""),
        ({"runAsUser": 0}, {"runAsUser": 5}, "", 0, ""),
    ],
)
def test_the_user_is_the_containers_the_pods_or_the_images(own, of_pod, image, user, name):
    got = context_of(own, of_pod, image)
    assert (got.run_as_user.value if got.HasField("run_as_user") else None, got.run_as_username) == (user, name)


HUGE = (str(2**31), str(2**32), str(2**63 - 1))
"""Users of images that a runtime may cut to 32 bits: 2**32 becomes root (CVE-2024-40635)."""
INVALID = "container has runAsNonRoot and image has an invalid user id"
RANGE = "(Must be 1-(2147483647)): must be between 0 and 2147483647, inclusive"


@pytest.mark.parametrize(
    ("own", "image", "message"),
    [
        ({}, "0", "container has runAsNonRoot and image will run as root"),
        ({}, "000", "container has runAsNonRoot and image will run as root"),
        ({}, "²", "container has runAsNonRoot and image has non-numeric user (²), cannot verify user is non-root"),
        (
            {},
            "nobody",
            "container has runAsNonRoot and image has non-numeric user (nobody), cannot verify user is non-root",
        ),
        *(({}, user, f"{INVALID} ({user}). {RANGE}") for user in HUGE),
        ({"runAsUser": 0}, "1000", "container's runAsUser breaks non-root policy"),
    ],
)
def test_root_is_refused_where_it_is_not_wanted(own, image, message):
    with pytest.raises(ConfigError) as error:
        context_of(own, {"runAsNonRoot": True}, image)
    assert str(error.value) == f'{message} (pod: "p_ns(u)", container: c)'
    assert error.value.reason == "CreateContainerConfigError"


@pytest.mark.parametrize("non_root", [True, False])
def test_container_whose_images_user_is_not_known_does_not_run_as_root(non_root):
    with pytest.raises(ConfigError, match="the container runtime has not told it") as error:
        context_of({}, {"runAsNonRoot": non_root}, "")
    assert error.value.reason == "CreateContainerConfigError"


@pytest.mark.parametrize("kind", ["initContainers", "containers", "ephemeralContainers"])
def test_sandbox_is_privileged_with_any_privileged_container(kind):
    mighty = {"name": "m", "image": "i", "securityContext": {"privileged": True}}
    plain = {"name": "c", "image": "i", "securityContext": {"privileged": False}}
    assert not sandbox_of(pod()).linux.security_context.privileged
    assert sandbox_of(pod(**{"containers": [plain], kind: [plain, mighty]})).linux.security_context.privileged


def test_config_beside_a_call_is_privileged_as_the_pod_is_now():
    mighty = pod(ephemeralContainers=[{"name": "m", "image": "i", "securityContext": {"privileged": True}}])
    created = sandbox_of(pod())
    assert with_present_privilege(created, mighty) == sandbox_of(mighty)
    assert created == sandbox_of(pod()), "its own is kept"
    assert with_present_privilege(created, pod()) is created


def test_a_user_that_is_not_root_is_let_through():
    assert context_of({}, {"runAsNonRoot": True}, "1000").run_as_user.value == 1000
    assert context_of({}, {"runAsNonRoot": True}, str(2**31 - 1)).run_as_user.value == 2**31 - 1
    assert context_of({"runAsUser": 7}, {"runAsNonRoot": True}, str(2**32)).run_as_user.value == 7
    assert context_of({"runAsUser": 7}, {"runAsNonRoot": True}, "root").run_as_user.value == 7
    assert context_of({"runAsNonRoot": False}, {"runAsNonRoot": True}).run_as_user.value == 0


@pytest.mark.parametrize(("mount", "masked"), [(None, True), ("Default", True), ("Unmasked", False)])
def test_paths_of_the_machine_are_masked_besides_the_common_ones(mount, masked):
    thermal = ("/sys/devices/system/cpu/cpu0/thermal_throttle", "/sys/devices/system/cpu/cpu1/thermal_throttle")
    subject = pod({"securityContext": {"procMount": mount}})
    got = config_of(subject, masked_paths=thermal).linux.security_context
    assert tuple(got.masked_paths) == ((*MASKED_PATHS, *thermal) if masked else ())
    assert "/proc/interrupts" in MASKED_PATHS


def test_groups_capabilities_and_switches():
    got = context_of(
        {
            "capabilities": {"add": ["NET_ADMIN"], "drop": ["ALL"]},
            "privileged": True,
            "readOnlyRootFilesystem": True,
            "allowPrivilegeEscalation": False,
            "runAsGroup": 0,
            "procMount": "Unmasked",
            "seLinuxOptions": {"level": "s0", "role": "r", "type": "t", "user": "u"},
        },
        {
            "fsGroup": 9,
            "supplementalGroups": [1, 2],
            "supplementalGroupsPolicy": "Strict",
            "seLinuxOptions": {"level": "s1"},
        },
    )
    assert (list(got.capabilities.add_capabilities), list(got.capabilities.drop_capabilities)) == (
        ["NET_ADMIN"],
        ["ALL"],
    )
    assert (got.privileged, got.readonly_rootfs, got.no_new_privs) == (True, True, True)
    assert got.HasField("run_as_group")
    assert (list(got.masked_paths), list(got.readonly_paths)) == ([], [])
    labels = got.selinux_options
    assert (labels.level, labels.role, labels.type, labels.user) == ("s0", "r", "t", "u")
    assert list(got.supplemental_groups) == [9, 1, 2]
    assert got.supplemental_groups_policy == pb.Strict


@pytest.mark.parametrize(
    ("profile", "kind", "reference"),
    [
        (None, pb.SecurityProfile.Unconfined, ""),
        ({"type": "Unconfined"}, pb.SecurityProfile.Unconfined, ""),
        ({"type": "RuntimeDefault"}, pb.SecurityProfile.RuntimeDefault, ""),
        ({"type": "Localhost", "localhostProfile": "a/b.json"}, pb.SecurityProfile.Localhost, "/seccomp/a/b.json"),
    ],
)
def test_seccomp(profile, kind, reference):
    of_pod = {"seccompProfile": profile} if profile else {}
    got = context_of({}, of_pod).seccomp
    assert (got.profile_type, got.localhost_ref) == (kind, reference)


def test_apparmor_by_field_and_by_the_old_annotation():
    by_field = context_of({"appArmorProfile": {"type": "Localhost", "localhostProfile": "mine"}})
    assert (by_field.apparmor.profile_type, by_field.apparmor.localhost_ref) == (pb.SecurityProfile.Localhost, "mine")
    assert by_field.apparmor_profile == "localhost/mine"
    assert context_of().apparmor_profile == ""
