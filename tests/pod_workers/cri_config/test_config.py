"""Sandbox and container configs: cases that the golden pod does not cover."""

import os
from types import SimpleNamespace

import pytest

from actors._cgroup.hierarchy import Hierarchy
from actors.pod_workers.cri_config.container_config import InstanceInputs, container_config
from actors.pod_workers.cri_config.dns import DnsConfig, host_problem, parse_resolv_conf, pod_dns, within_limits
from actors.pod_workers.cri_config.host_files import (
    HostFiles,
    gets_hosts_file,
    host_network_hosts_content,
    hosts_content,
    prepare,
)
from actors.pod_workers.cri_config.hostname import hostname_and_domain, pod_hostname
from actors.pod_workers.cri_config.mounts import MountInputs, image_volumes, sub_paths, to_bind
from actors.pod_workers.cri_config.resolv_conf import ResolvConfCheck, read_resolv_conf
from actors.pod_workers.cri_config.sandbox_config import build_sandbox_config, sandbox_config, with_present_privilege
from actors.pod_workers.cri_config.security import MASKED_PATHS
from actors.pod_workers.environment.variables import ConfigError
from actors.pod_workers.model.view import SandboxView
from proto.agent.settings import Settings
from proto.cri import api_pb2 as pb
from proto.pods.volume import SubPath
from proto.v1 import Container, HostAlias, Pod
from proto.v1.codec import from_dict

HOST = DnsConfig(("192.0.2.53",), ("example.org",), ("timeout:1",))


def pod(container: dict | None = None, **spec) -> Pod:
    containers = [{"name": "c", "image": "i", **(container or {})}]
    return from_dict(
        Pod, {"metadata": {"name": "p", "namespace": "ns", "uid": "u"}, "spec": {"containers": containers, **spec}}
    )


def config_of(subject: Pod, image_user: str = "0", **instance) -> pb.ContainerConfig:
    instance["image_user"] = image_user
    return container_config(subject, subject.spec.containers[0], InstanceInputs(image_ref="sha256:1", **instance))


def sandbox_of(subject: Pod) -> pb.PodSandboxConfig:
    return sandbox_config(subject, 1, Settings(), "/kubepods/podu", DnsConfig())


@pytest.mark.parametrize(
    ("cfs", "quota", "told"),
    [(True, True, (200_000, 100_000)), (True, False, (-1, 100_000)), (False, False, (0, 0))],
)
def test_sandbox_with_exclusive_cpus_has_no_quota(cfs, quota, told):
    subject = pod({"resources": {"limits": {"cpu": "2"}}})
    settings = Settings(cpu_cfs_quota=cfs)
    config = sandbox_config(subject, 1, settings, "/kubepods/podu", DnsConfig(), quota=quota)
    assert (config.linux.resources.cpu_quota, config.linux.resources.cpu_period) == told
    assert config.linux.resources.cpu_shares == 2048


@pytest.mark.parametrize("is_v2", [False, True])
def test_sandbox_names_its_oom_group_on_cgroup_v2(monkeypatch, is_v2):
    tree = Hierarchy(unified=is_v2, mounts={})
    monkeypatch.setattr("actors.pod_workers.cri_config.sandbox_config.hierarchy", lambda: tree)
    users = SimpleNamespace(of=lambda _: pb.UserNamespace())
    context = SimpleNamespace(settings=Settings(resolv_conf=""), userns=users, missing_dns_reported=True)
    linux = build_sandbox_config(pod(overhead={"memory": "1Mi"}), 0, context).linux
    wanted = {"memory.oom.group": "1"} if is_v2 else {}
    assert (dict(linux.resources.unified), dict(linux.overhead.unified)) == (wanted, wanted)


# DNS


def test_resolv_conf_is_read_as_a_resolver_does():
    lines = ("# note", "; note", "nameserver 192.0.2.1", "search a.", "search b.c. .", "options ndots:2  rotate")
    text = "\n".join((*lines, "options timeout:1 ndots:3", "nonsense", ""))
    assert parse_resolv_conf(text) == DnsConfig(("192.0.2.1",), ("b.c", "."), ("ndots:3", "rotate", "timeout:1"))


@pytest.mark.parametrize(
    ("text", "servers", "problem"),
    [
        ("", (), ""),
        ("nameserver 192.0.2.1\n", ("192.0.2.1",), ""),
        ("#comment\nnameserver", (), "nameserver list is empty "),
        ("#comment\nnameserver\nsearch\n", (), "nameserver list is empty "),
        (f"nameserver 192.0.2.1\n nameserver \nsearch {'a ' * 33}\n", ("192.0.2.1",), "nameserver list is empty "),
        ("# nameserver\n; nameserver\nnameservers\n", (), ""),
    ],
)
def test_bare_nameserver_line_is_an_event_and_pods_start(tmp_path, text, servers, problem):
    path = tmp_path / "resolv.conf"
    path.write_text(text)
    recorded: list[str] = []

    async def blocking(_, work, *args):
        return work(*args)

    def every(_, look, __):
        with pytest.raises(StopIteration):
            look().send(None)

    actor = SimpleNamespace(settings=Settings(resolv_conf=str(path)), blocking=blocking, every=every)
    ResolvConfCheck(actor, SimpleNamespace(node=lambda *event: recorded.append(event))).begin()
    assert recorded == ([("Warning", "CheckLimitsForResolvConf", problem)] if problem else [])
    assert read_resolv_conf(str(path)).servers == servers


@pytest.mark.parametrize(
    ("searches", "domain", "problem"),
    [
        (["a"] * 32, "", ""),
        (["a"] * 33, "", "'/r' contains search line consisting of more than 32 domains!"),
        (["a"] * 30, "cluster.local", "'/r' contains search line consisting of more than 29 domains!"),
        (["a" * 254], "", '"/r" contains a search path which length is more than allowed 253 chars!'),
        (["a" * 250] * 9, "", "'/r' contains search line which length is more than allowed 2048 chars!"),
    ],
)
def test_limits_of_the_nodes_resolv_conf(searches, domain, problem):
    assert host_problem("/r", tuple(searches), domain) == (problem and f"Resolv.conf file {problem}")


@pytest.mark.parametrize(
    ("spec", "servers", "searches", "options"),
    [
        ({}, ("10.0.0.10",), ("ns.svc.c.l", "svc.c.l", "c.l", "example.org"), ("ndots:5",)),
        ({"dnsPolicy": "ClusterFirst", "hostNetwork": True}, ("192.0.2.53",), ("example.org",), ("timeout:1",)),
        (
            {"dnsPolicy": "ClusterFirstWithHostNet", "hostNetwork": True},
            ("10.0.0.10",),
            ("ns.svc.c.l", "svc.c.l", "c.l", "example.org"),
            ("ndots:5",),
        ),
        ({"dnsPolicy": "Default"}, ("192.0.2.53",), ("example.org",), ("timeout:1",)),
        ({"dnsPolicy": "None"}, (), (), ()),
        (
            {
                "dnsPolicy": "None",
                "dnsConfig": {
                    "nameservers": ["192.0.2.9", "192.0.2.9"],
                    "searches": ["x"],
                    "options": [{"name": "ndots", "value": "1"}, {"name": "rotate"}],
                },
            },
            ("192.0.2.9",),
            ("x",),
            ("ndots:1", "rotate"),
        ),
        (
            {"dnsPolicy": "Default", "dnsConfig": {"options": [{"name": "timeout", "value": "9"}]}},
            ("192.0.2.53",),
            ("example.org",),
            ("timeout:9",),
        ),
    ],
)
def test_dns_by_policy(spec, servers, searches, options):
    assert pod_dns(pod(**spec), ("10.0.0.10",), "c.l", HOST) == DnsConfig(servers, searches, options)


def test_without_a_cluster_dns_pods_use_the_nodes_own():
    assert pod_dns(pod(), (), "", HOST) == HOST


class Events:
    """Keeps the kinds of objects with events."""

    def __init__(self) -> None:
        self.of: list[str] = []

    def node(self, *_: str) -> None:
        self.of.append("node")

    def pod(self, *_: object) -> None:
        self.of.append("pod")


def test_missing_resolv_conf_is_told_in_the_kubelets_words(tmp_path):
    settings = Settings(resolv_conf=f"{tmp_path}/resolv.conf")
    context = SimpleNamespace(settings=settings, userns=SimpleNamespace(of=lambda _: pb.UserNamespace()))
    with pytest.raises(ConfigError, match=rf"^open {tmp_path}/resolv\.conf: no such file or directory$"):
        build_sandbox_config(pod(), 0, context)


@pytest.mark.parametrize(("kubeconfig", "recorded"), [("", ["node"]), ("/kubeconfig", ["node", "pod", "node", "pod"])])
def test_missing_cluster_dns_is_one_event_without_a_cluster(kubeconfig, recorded):
    context = SimpleNamespace(
        settings=Settings(kubeconfig=kubeconfig, resolv_conf=""), events=Events(), missing_dns_reported=False,
        host_ips=(), userns=SimpleNamespace(of=lambda _: pb.UserNamespace()),
    )  # fmt: skip
    for subject in (pod(), pod(dnsPolicy="Default"), pod()):
        build_sandbox_config(subject, 0, context)
    assert context.events.of == recorded


@pytest.mark.parametrize(
    ("spec", "node_ip", "wanted"),
    [
        ({"dnsPolicy": "Default"}, "", DnsConfig(("127.0.0.1",), (".",))),
        ({"dnsPolicy": "Default"}, "192.0.2.1", DnsConfig(("127.0.0.1",), (".",))),
        ({"dnsPolicy": "Default"}, "::", DnsConfig(("::1",), (".",))),
        ({"dnsPolicy": "Default"}, "2001:db8::1,192.0.2.1", DnsConfig(("::1", "127.0.0.1"), (".",))),
        ({}, "192.0.2.1", DnsConfig(("10.0.0.10",), ("ns.svc.c.l", "svc.c.l", "c.l"), ("ndots:5",))),
    ],
)
def test_resolver_is_on_the_node_without_a_resolv_conf(spec, node_ip, wanted):
    assert pod_dns(pod(**spec), ("10.0.0.10",), "c.l", None, node_ip) == wanted


@pytest.mark.parametrize(("node_ip", "servers"), [("", ["127.0.0.1"]), ("2001:db8::1", ["::1"])])
def test_resolvers_family_is_node_ips_not_the_nodes(node_ip, servers):
    context = SimpleNamespace(
        settings=Settings(resolv_conf="", node_ip=node_ip), events=Events(), missing_dns_reported=False,
        host_ips=("192.0.2.1", "2001:db8::1"), userns=SimpleNamespace(of=lambda _: pb.UserNamespace()),
    )  # fmt: skip
    assert list(build_sandbox_config(pod(dnsPolicy="Default"), 0, context).dns_config.servers) == servers


@pytest.mark.parametrize(
    ("searches", "kept"),
    [
        ([f"{n:02}" + "x" * 98 for n in range(32)], 20),  # 20 of 100 characters and 19 spaces; one more is past 2048
        (["x"] * 33, 32),
        (["x" * 253, "y"], 2),
    ],
)
def test_dns_stays_within_a_resolvers_limits(searches, kept):
    servers = tuple(f"192.0.2.{n}" for n in range(3))
    config, problems = within_limits(DnsConfig(servers, tuple(searches)))
    assert config == DnsConfig(servers, tuple(searches[:kept]))
    line = "Search Line limits were exceeded, some search paths have been omitted, the applied search line is: "
    assert problems == (() if kept == len(searches) else (line + " ".join(searches[:kept]),))


def test_a_search_path_too_long_for_a_name_is_left_out():
    config, problems = within_limits(DnsConfig((), ("a", "x" * 254, "b")))
    assert config.searches == ("a", "b")
    assert len(problems) == 1


def test_nameservers_past_the_third_are_left_out():
    config, problems = within_limits(DnsConfig(("1.1.1.1", "1.1.1.2", "1.1.1.3", "1.1.1.4")))
    assert config.servers == ("1.1.1.1", "1.1.1.2", "1.1.1.3")
    assert problems == (
        "Nameserver limits were exceeded, some nameservers have been omitted, the applied nameserver line is: "
        "1.1.1.1 1.1.1.2 1.1.1.3",
    )


# Names and namespaces


@pytest.mark.parametrize(
    ("spec", "name"),
    [
        ({}, "p"),
        ({"hostname": "h"}, "h"),
        ({"hostname": "h", "subdomain": "s"}, "h"),
        ({"hostname": "h", "subdomain": "s", "setHostnameAsFQDN": True}, "h.s.ns.svc.c.l"),
        ({"hostname": "h", "hostnameOverride": "other.example.org"}, "other.example.org"),
        ({"hostname": "a" * 62 + "-bc"}, "a" * 62),
        ({"hostnameOverride": "a" * 64}, "a" * 63),
        ({"hostnameOverride": "a" * 62 + ".b"}, "a" * 62),
    ],
)
def test_hostname(spec, name):
    assert pod_hostname(pod(**spec), "c.l") == name


def test_overridden_hostname_has_no_domain():
    assert hostname_and_domain(pod(hostnameOverride="o", hostname="h", subdomain="s"), "c.l") == ("o", "")


def test_fqdn_over_the_kernel_limit_is_a_config_error():
    with pytest.raises(ConfigError, match="too long"):
        pod_hostname(pod(hostname="h" * 60, subdomain="s", setHostnameAsFQDN=True), "c.l")


@pytest.mark.parametrize(
    ("spec", "network", "pid", "ipc"),
    [
        ({}, pb.POD, pb.CONTAINER, pb.POD),
        ({"hostNetwork": True}, pb.NODE, pb.CONTAINER, pb.POD),
        ({"hostPID": True, "hostIPC": True}, pb.POD, pb.NODE, pb.NODE),
        ({"shareProcessNamespace": True}, pb.POD, pb.POD, pb.POD),
    ],
)
def test_namespaces_of_sandbox_and_container(spec, network, pid, ipc):
    subject = pod(**spec)
    for options in (
        sandbox_of(subject).linux.security_context.namespace_options,
        config_of(subject).linux.security_context.namespace_options,
    ):
        assert (options.network, options.pid, options.ipc) == (network, pid, ipc)
    assert sandbox_of(subject).hostname == ("" if spec.get("hostNetwork") else "p")


def test_sysctls_reach_the_runtime_with_dots():
    """With slashes, runc finds no separate kernel namespace of theirs."""
    given = {"net/ipv4/tcp_syncookies": "1", "kernel.shm_rmid_forced": "0", "net/ipv4/conf/eth0.1/rp_filter": "2"}
    subject = pod(securityContext={"sysctls": [{"name": name, "value": text} for name, text in given.items()]})
    names = ("net.ipv4.tcp_syncookies", "kernel.shm_rmid_forced", "net.ipv4.conf.eth0/1.rp_filter")
    assert dict(sandbox_of(subject).linux.sysctls) == dict(zip(names, given.values(), strict=True))


def test_the_pods_own_users_are_told_to_sandbox_and_container():
    subject = pod(hostUsers=False)
    ids = pb.IDMapping(host_id=65536, container_id=0, length=65536)
    users = pb.UserNamespace(mode=pb.POD, uids=[ids], gids=[ids])
    sandbox = sandbox_config(subject, 0, Settings(), "", DnsConfig(), users)
    assert sandbox.linux.security_context.namespace_options.userns_options == users
    container = config_of(subject, users=users).linux.security_context.namespace_options
    assert container.userns_options == users
    assert sandbox_of(pod()).linux.security_context.namespace_options.userns_options.mode == pb.NODE


def test_every_mount_has_the_pods_own_users():
    ids = pb.IDMapping(host_id=65536, container_id=0, length=65536)
    users = pb.UserNamespace(mode=pb.POD, uids=[ids], gids=[ids])
    subject = pod({"volumeMounts": [{"name": "v", "mountPath": "/v"}]}, hostUsers=False)
    instance = {"mounts": MountInputs({"v": "/host/v"}), "files": HostFiles("/r/etc-hosts", "/r/words")}
    mounts = config_of(subject, users=users, **instance).mounts
    assert len(mounts) == 3
    assert all((list(one.uidMappings), list(one.gidMappings)) == ([ids], [ids]) for one in mounts)
    assert not any(one.uidMappings or one.gidMappings for one in config_of(subject, **instance).mounts)


def test_ports_are_mapped_once_each():
    ports = [
        {"containerPort": 80, "hostPort": 8080, "hostIP": "127.0.0.1"},
        {"containerPort": 53, "protocol": "UDP"},
        {"containerPort": 53, "protocol": "UDP", "name": "dns"},
    ]
    got = [
        (m.protocol, m.host_ip, m.host_port, m.container_port) for m in sandbox_of(pod({"ports": ports})).port_mappings
    ]
    assert got == [(pb.TCP, "127.0.0.1", 8080, 80), (pb.UDP, "", 0, 53)]


# Security


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


# Mounts and files


def test_mounts_take_the_volumes_paths_and_switches():
    mounts = [
        {"name": "data", "mountPath": "/data", "readOnly": True, "mountPropagation": "HostToContainer"},
        {"name": "cm", "mountPath": "/cm"},
    ]
    subject = pod(
        {"volumeMounts": mounts}, volumes=[{"name": "data", "emptyDir": {}}, {"name": "cm", "configMap": {"name": "m"}}]
    )
    data, configuration = config_of(subject, mounts=MountInputs({"data": "/v/data", "cm": "/v/cm"})).mounts
    assert (data.host_path, data.container_path, data.readonly) == ("/v/data", "/data", True)
    assert data.propagation == pb.PROPAGATION_HOST_TO_CONTAINER
    assert configuration.readonly


@pytest.mark.parametrize(
    ("mount", "message"),
    [
        ({"readOnly": True, "recursiveReadOnly": "Enabled"}, "mode, but it is not supported by the runtime"),
        ({"recursiveReadOnly": "IfPossible"}, 'volume "data" requested recursive read-only mode, but it is not read'),
        (
            {"readOnly": True, "recursiveReadOnly": "Enabled", "mountPropagation": "HostToContainer"},
            'not compatible with propagation "HostToContainer"',
        ),
        ({"name": "other"}, 'cannot find volume "other" to mount into container "c"'),
    ],
)
def test_a_mount_that_cannot_be_is_a_config_error(mount, message):
    subject = pod(
        {"volumeMounts": [{"name": "data", "mountPath": "/d"} | mount]}, volumes=[{"name": "data", "emptyDir": {}}]
    )
    with pytest.raises(ConfigError, match=message):
        config_of(subject, mounts=MountInputs({"data": "/v/data"}))


@pytest.mark.parametrize(
    ("mode", "can", "done"),
    [(None, True, False), ("Disabled", True, False), ("IfPossible", False, False), ("IfPossible", True, True),
     ("Enabled", True, True)],
)  # fmt: skip
def test_read_only_goes_as_deep_as_wanted_where_the_runtime_can(mode, can, done):
    mount = {"name": "data", "mountPath": "/d", "readOnly": True, "recursiveReadOnly": mode}
    subject = pod({"volumeMounts": [mount]}, volumes=[{"name": "data", "emptyDir": {}}])
    (got,) = config_of(subject, mounts=MountInputs({"data": "/v/data"}, recursive_read_only=can)).mounts
    assert got.recursive_read_only == done


def test_parts_of_volumes_are_mounted_from_where_they_are_bound():
    mounts = [
        {"name": "data", "mountPath": "/whole"},
        {"name": "data", "mountPath": "/part", "subPath": "a/b"},
        {"name": "data", "mountPath": "/own", "subPathExpr": "logs/$(POD)-$$"},
    ]
    subject = pod({"volumeMounts": mounts}, volumes=[{"name": "data", "emptyDir": {}}])
    main = subject.spec.containers[0]
    parts = sub_paths(main, lambda: {"POD": "p"})
    assert to_bind(main, parts, {"data": "/v"}, {}) == (
        SubPath(index=1, volume="data", volume_path="/v", sub_path="a/b"),
        SubPath(index=2, volume="data", volume_path="/v", sub_path="logs/p-$"),
    )
    whole, part, own = config_of(subject, mounts=MountInputs({"data": "/v"}, {1: "/s/1", 2: "/s/2"})).mounts
    assert (whole.host_path, part.host_path, own.host_path) == ("/v", "/s/1", "/s/2")


@pytest.mark.parametrize(
    ("mount", "message"),
    [
        ({"subPath": "/a"}, "error SubPath `/a` must not be an absolute path"),
        ({"subPath": "a/../../b"}, "unable to provision SubPath `a/../../b`: must not contain '..'"),
        ({"subPathExpr": "$(UP)/b"}, "unable to provision SubPath `../b`: must not contain '..'"),
        ({"subPathExpr": "$(NONE)/$(EMPTY)"}, "missing value for EMPTY, NONE"),
        ({"name": "other", "subPath": "a"}, 'cannot find volume "other" to mount into container "c"'),
    ],
)
def test_a_sub_path_that_cannot_be_is_a_config_error(mount, message):
    subject = pod({"volumeMounts": [{"name": "data", "mountPath": "/d"} | mount]})
    main = subject.spec.containers[0]
    with pytest.raises(ConfigError) as caught:
        to_bind(main, sub_paths(main, lambda: {"UP": "..", "EMPTY": ""}), {"data": "/v"}, {})
    assert str(caught.value) == message


def test_a_raw_volume_is_a_device_of_the_container():
    devices = [{"name": "disk", "devicePath": "/dev/xvda"}, {"name": "old", "devicePath": "/dev/old"}]
    claims = [
        {"name": "disk", "persistentVolumeClaim": {"claimName": "a"}},
        {"name": "old", "persistentVolumeClaim": {"claimName": "b", "readOnly": True}},
    ]
    subject = pod({"volumeDevices": devices}, volumes=claims)
    got = config_of(subject, mounts=MountInputs({"disk": "/p/disk", "old": "/p/old"}))
    assert list(got.devices) == [
        pb.Device(container_path="/dev/xvda", host_path="/p/disk", permissions="mrw"),
        pb.Device(container_path="/dev/old", host_path="/p/old", permissions="r"),
    ]
    assert not got.mounts


@pytest.mark.parametrize("read_only", [True, False])
def test_mount_of_a_migrated_volume_is_as_read_only_as_the_volume(read_only):
    disk = {"name": "disk", "awsElasticBlockStore": {"volumeID": "vol-1", "readOnly": read_only}}
    subject = pod({"volumeMounts": [{"name": "disk", "mountPath": "/d"}]}, volumes=[disk])
    (got,) = config_of(subject, mounts=MountInputs({"disk": "/p/disk"})).mounts
    assert got.readonly is read_only


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("dev/a", "error DevicePath `dev/a` must be an absolute path"),
        ("/dev/a", 'cannot find volume "disk" to pass into container "c"'),
    ],
)
def test_a_device_that_cannot_be_is_a_config_error(path, message):
    subject = pod({"volumeDevices": [{"name": "disk", "devicePath": path}]})
    with pytest.raises(ConfigError) as caught:
        config_of(subject)
    assert str(caught.value) == message


def test_an_image_is_mounted_by_the_runtime_itself_and_read_only():
    mounts = [
        {"name": "tools", "mountPath": "/tools"},
        {"name": "tools", "mountPath": "/bin/tool", "subPathExpr": "$(POD)/tool", "readOnly": True},
    ]
    source = {"reference": "registry.example/tools:1", "pullPolicy": "Always"}
    subject = pod({"volumeMounts": mounts}, volumes=[{"name": "tools", "image": source}, {"name": "x", "image": {}}])
    main = subject.spec.containers[0]
    assert {name: one.pull_policy for name, one in image_volumes(subject, main).items()} == {"tools": "Always"}
    image = pb.ImageSpec(image="sha256:1", user_specified_image="registry.example/tools:1")
    parts = sub_paths(main, lambda: {"POD": "p"})
    assert to_bind(main, parts, {}, {"tools": image}) == ()
    facts = MountInputs(images={"tools": image}, image_sub_paths=parts)
    whole, part = config_of(subject, mounts=facts).mounts
    assert whole == pb.Mount(container_path="/tools", image=image, readonly=True)
    assert part == pb.Mount(container_path="/bin/tool", image=image, image_sub_path="p/tool", readonly=True)


def test_a_path_in_an_image_leads_nowhere_else():
    mount = {"name": "tools", "mountPath": "/t", "subPath": "a/../../etc"}
    subject = pod({"volumeMounts": [mount]}, volumes=[{"name": "tools", "image": {"reference": "r"}}])
    with pytest.raises(ConfigError, match=r"must not contain '\.\.'"):
        sub_paths(subject.spec.containers[0], dict)


def test_the_hosts_file_of_a_pod_is_the_kubelets():
    text = hosts_content(
        ("10.0.0.1", "fd00::1"), "h", "s.ns.svc.c.l", (HostAlias(ip="192.0.2.7", hostnames=("x", "y")),)
    )
    lines = text.splitlines()
    assert lines[:2] == ["# Kubernetes-managed hosts file.", "127.0.0.1\tlocalhost"]
    assert lines[7:] == [
        "10.0.0.1\th.s.ns.svc.c.l\th",
        "fd00::1\th.s.ns.svc.c.l\th",
        "",
        "# Entries added by HostAliases.",
        "192.0.2.7\tx\ty",
    ]
    own = host_network_hosts_content("127.0.0.1 localhost\n", ())
    assert own == "# Kubernetes-managed hosts file (host network).\n127.0.0.1 localhost\n"


def test_container_mounting_its_own_hosts_file_gets_no_other():
    own = from_dict(Container, {"name": "c", "volumeMounts": [{"name": "h", "mountPath": "/etc/hosts/"}]})
    assert not gets_hosts_file(pod(), own, ("10.0.0.1",))
    assert not gets_hosts_file(pod(), Container(name="c"), ())
    assert gets_hosts_file(pod(hostNetwork=True), Container(name="c"), ())


def test_files_are_made_for_each_life(tmp_path):
    settings = Settings(root_dir=str(tmp_path), cluster_domain="c.l")
    subject = pod({"terminationMessagePath": "/dev/termination-log"})
    sandbox = SandboxView(id="s", ips=("10.0.0.1",))
    first = prepare(subject, subject.spec.containers[0], sandbox, settings)
    inode = os.stat(first.etc_hosts).st_ino
    second = prepare(subject, subject.spec.containers[0], SandboxView(id="s", ips=("10.0.0.2",)), settings)
    assert first.etc_hosts == second.etc_hosts == f"{tmp_path}/pods/u/etc-hosts"
    assert os.stat(second.etc_hosts).st_ino == inode  # what runs already has this very file mounted
    assert "10.0.0.2\tp\n" in (tmp_path / "pods/u/etc-hosts").read_text()
    assert first.termination_log != second.termination_log
    for path in (first.termination_log, second.termination_log):
        assert os.path.dirname(path) == f"{tmp_path}/pods/u/containers/c"
        assert os.stat(path).st_mode & 0o777 == 0o666


# The rest of a container


def test_command_and_arguments_are_expanded_and_bytes_kept():
    subject = pod({"command": ["sh", "-c", "echo $(A) $(NONE)"], "args": ["$$(A)"], "workingDir": "/w", "tty": True})
    got = config_of(subject, envs={"A": "ä"}, restart_count=2)
    assert (list(got.command), list(got.args)) == (["sh", "-c", "echo ä $(NONE)"], ["$(A)"])
    assert got.envs[0].value == "ä".encode()
    assert (got.working_dir, got.tty, got.stdin) == ("/w", True, False)
    assert (got.metadata.attempt, got.log_path) == (2, "c/2.log")
    assert got.annotations["io.kubernetes.container.restartCount"] == "2"


def test_stop_signal_and_pre_stop_are_carried():
    lifecycle = {"stopSignal": "SIGRTMIN+3", "preStop": {"exec": {"command": ["bye"]}}}
    got = config_of(pod({"lifecycle": lifecycle}))
    assert got.stop_signal == pb.SIGNAL_SIGRTMINPLUS3
    assert got.annotations["io.kubernetes.container.preStopHandler"] == '{"exec":{"command":["bye"]}}'


def test_files_of_the_host_are_mounted_last():
    subject = pod({"terminationMessagePath": "/dev/termination-log"})
    got = config_of(subject, files=HostFiles("/r/etc-hosts", "/r/words"))
    assert [(m.container_path, m.host_path) for m in got.mounts] == [
        ("/etc/hosts", "/r/etc-hosts"),
        ("/dev/termination-log", "/r/words"),
    ]


@pytest.mark.parametrize(
    ("asked", "mounted"),
    [("msg/log", "/msg/log"), ("//dev//log/", "/dev/log"), ("../log", "/log"), ("/a/./b/../log", "/a/log")],
)
def test_termination_log_is_at_an_absolute_clean_path(asked, mounted):
    got = config_of(pod({"terminationMessagePath": asked}), files=HostFiles("", "/r/words"))
    assert [(m.container_path, m.host_path) for m in got.mounts] == [(mounted, "/r/words")]
    assert got.annotations["io.kubernetes.container.terminationMessagePath"] == asked
