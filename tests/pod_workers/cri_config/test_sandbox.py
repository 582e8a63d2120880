"""Sandbox configs: names, namespaces, users, ports, sysctls, cgroups."""

from types import SimpleNamespace

import pytest

from actors._cgroup.hierarchy import Hierarchy
from actors.pod_workers.cri_config.dns import DnsConfig
from actors.pod_workers.cri_config.host_files import (
    HostFiles,
)
from actors.pod_workers.cri_config.hostname import hostname_and_domain, pod_hostname
from actors.pod_workers.cri_config.mounts import MountInputs
from actors.pod_workers.cri_config.sandbox_config import build_sandbox_config, sandbox_config
from actors.pod_workers.environment.variables import ConfigError
from proto.agent.settings import Settings
from proto.cri import api_pb2 as pb
from tests.pod_workers.cri_config.config_parts import config_of, pod, sandbox_of


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
