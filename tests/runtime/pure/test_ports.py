"""Tables of host port decisions, without a network."""

import contextlib
import errno

import pytest

from actors.runtime.network.api import NetworkError
from actors.runtime.network.bridge import missing_feature
from actors.runtime.network.conntrack import Flow, is_stale
from actors.runtime.network.ports import HostPort, Pod, check_free, host_ports, translation, unmapped_ports
from proto.cri import api_pb2 as pb
from tests.runtime.network.node import NODE, config


@pytest.mark.parametrize(
    ("mapping", "expected"),
    [
        ((0, 80, "", pb.TCP), ()),
        ((8080, 80, "", pb.TCP), (HostPort("tcp", "", 8080, 80),)),
        ((8080, 80, "0.0.0.0", pb.UDP), (HostPort("udp", "", 8080, 80),)),
        ((8080, 80, "127.0.0.1", pb.SCTP), (HostPort("sctp", "127.0.0.1", 8080, 80),)),
        ((8080, 80, "::1", pb.TCP), ()),
        ((8080, 80, "localhost", pb.TCP), "'localhost': it is not an IP address"),
        ((8080, 0, "", pb.TCP), "host port 8080 to container port 0"),
        ((70000, 80, "", pb.TCP), "host port 70000"),
    ],
)
def test_host_ports_of_a_pod(
    mapping: tuple[int, int, str, "pb.Protocol.ValueType"], expected: tuple[HostPort, ...] | str
) -> None:
    if isinstance(expected, str):
        with pytest.raises(NetworkError, match=expected):
            host_ports(config(mapping))
        return
    assert host_ports(config(mapping, mapping)) == expected
    assert len(unmapped_ports(config(mapping))) == (mapping[2] == "::1")


def test_host_port_with_two_targets_is_refused() -> None:
    with pytest.raises(NetworkError, match="both to container port 80 and to 81"):
        host_ports(config((8080, 80, "", pb.TCP), (8080, 81, "", pb.TCP)))
    assert len(host_ports(config((8080, 80, "", pb.TCP), (8080, 81, "127.0.0.1", pb.TCP)))) == 2


@pytest.mark.parametrize(
    ("ip", "protocol", "port", "free"),
    [
        ("", "tcp", 8080, False),
        ("127.0.0.1", "tcp", 8080, False),
        ("", "udp", 8080, True),
        ("", "tcp", 8081, True),
        ("192.0.2.1", "tcp", 9090, False),
        ("", "tcp", 9090, False),
        ("192.0.2.2", "tcp", 9090, True),
    ],
)
def test_host_port_of_another_pod_is_not_free(ip: str, protocol: str, port: int, free: bool) -> None:
    pods = {"abc": Pod("10.0.0.2", (HostPort("tcp", "", 8080, 80), HostPort("tcp", "192.0.2.1", 9090, 80)))}
    with contextlib.nullcontext() if free else pytest.raises(NetworkError, match=f"{port}/tcp: pod sandbox abc has it"):
        check_free([HostPort(protocol, ip, port, 80)], pods)


def test_the_rules_of_pods() -> None:
    always = [
        "postrouting: ip saddr 10.0.0.0/24 ip daddr != 10.0.0.0/24 ip daddr != 224.0.0.0/4 masquerade",
        "loopback: iifname nv0 ip daddr 127.0.0.0/8 drop",
        "loopback: iifname nv0 ip saddr 127.0.0.0/8 drop",
    ]
    plain = translation("nv0", "10.0.0.0/24", [Pod("10.0.0.2")])
    assert [f"{rule.chain}: {rule}" for rule in plain.rules] == always
    pods = [
        Pod("10.0.0.3", (HostPort("tcp", "", 8080, 80), HostPort("tcp", "127.0.0.1", 8080, 81))),
        Pod("10.0.0.2", (HostPort("sctp", "", 7, 7),)),
    ]
    mapped = translation("nv0", "10.0.0.0/24", pods)
    assert [f"{rule.chain}: {rule}" for rule in mapped.rules] == [
        *always,
        "prerouting: fib daddr type local jump hostports",
        "output: fib daddr type local jump hostports",
        "postrouting: ip saddr 10.0.0.0/24 ip daddr 10.0.0.0/24 ct status dnat masquerade",
        "postrouting: oifname nv0 ip saddr 127.0.0.0/8 masquerade",
        "hostports: ip daddr 127.0.0.1/32 tcp dport 8080 dnat to 10.0.0.3:81",
        "hostports: sctp dport 7 dnat to 10.0.0.2:7",
        "hostports: tcp dport 8080 dnat to 10.0.0.3:80",
    ]
    assert translation("nv0", "10.0.0.0/24", reversed(pods)) == mapped


@pytest.mark.parametrize(
    ("asked", "answers", "stale"),
    [
        ((NODE, 53), ("10.0.0.2", 5353), False),  # the current mapping
        ((NODE, 53), (NODE, 53), True),  # older than the pod
        ((NODE, 53), ("10.0.0.9", 5353), True),  # to an earlier pod
        (("127.0.0.1", 53), ("127.0.0.1", 53), True),
        (("127.0.0.1", 54), ("10.0.0.2", 54), False),
        ((NODE, 54), (NODE, 54), False),  # mapped for another address only
        ((NODE, 55), ("10.0.0.2", 55), True),  # a removed mapping
        ((NODE, 55), ("10.1.1.1", 55), False),  # another program's mapping
        (("8.8.8.8", 53), ("8.8.8.8", 53), False),  # not of this machine
        (("10.0.0.2", 53), ("10.0.0.2", 53), False),
    ],
)
def test_stale_flows(asked: tuple[str, int], answers: tuple[str, int], stale: bool) -> None:
    pods = [Pod("10.0.0.2", (HostPort("udp", "", 53, 5353), HostPort("udp", "127.0.0.1", 54, 54)))]
    assert is_stale(Flow(asked, answers, b""), pods, "10.0.0.0/24", {NODE, "127.0.0.1"}) == stale


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (OSError(errno.EOPNOTSUPP, "Operation not supported (nf_tables)"), r"\(nf_tables\); it takes CONFIG_NF_TABLES"),
        (OSError(errno.EROFS, "Read-only file system", "/proc/sys/x"), "cannot write /proc/sys/x: Read-only"),
        (OSError(errno.ENOMEM, "no memory"), "nftables: no memory"),
    ],
)
def test_missing_kernel_feature_is_named(error: OSError, told: str) -> None:
    with pytest.raises(NetworkError, match=told):
        raise NetworkError(missing_feature(error))
