"""DNS of pods: the node's resolv.conf, policies, limits of resolvers."""

from types import SimpleNamespace

import pytest

from actors.pod_workers.cri_config.dns import DnsConfig, host_problem, parse_resolv_conf, pod_dns, within_limits
from actors.pod_workers.cri_config.resolv_conf import ResolvConfCheck, read_resolv_conf
from actors.pod_workers.cri_config.sandbox_config import build_sandbox_config
from actors.pod_workers.environment.variables import ConfigError
from proto.agent.settings import Settings
from proto.cri import api_pb2 as pb
from tests.pod_workers.cri_config.config_parts import pod

HOST = DnsConfig(("192.0.2.53",), ("example.org",), ("timeout:1",))


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
