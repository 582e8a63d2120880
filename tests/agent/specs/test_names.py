"""Host name, /etc/hosts, resolver and namespaces of a pod, seen from inside."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.agent.agent import Agent, container, pod
from tests.agent.table import Case, Seen, Table, once, running
from tests.containerd import ContainerdInstance
from tests.harness import wait_for

NODE_HOSTS = Path("/etc/hosts")
IN_NODE_HOSTS = NODE_HOSTS.read_text() if NODE_HOSTS.exists() else ""
HOSTS = "cat /etc/hosts"
RESOLV = "cat /etc/resolv.conf"
NAMES = "echo host=$(hostname); echo fqdn=$(cat /proc/sys/kernel/hostname)"
KINDS = ("net", "pid", "ipc", "uts", "mnt")
NAMESPACES = "; ".join(f"echo {kind}=$(readlink /proc/self/ns/{kind})" for kind in KINDS)
CLUSTER_SEARCHES = "default.svc.spec.test svc.spec.test spec.test"
NODE_RESOLV = "nameserver 192.0.2.53\nnameserver 192.0.2.54\nsearch corp.example.\noptions timeout:2\n"
LONG = "n" * 70
MANAGED = (
    "# Kubernetes-managed hosts file.\n"
    "127.0.0.1\tlocalhost\n"
    "::1\tlocalhost ip6-localhost ip6-loopback\n"
    "fe00::0\tip6-localnet\n"
    "fe00::0\tip6-mcastprefix\n"
    "fe00::1\tip6-allnodes\n"
    "fe00::2\tip6-allrouters\n"
)
NAP = "do sleep 0.1; done"
BOTH = [{"name": "both", "mountPath": "/both"}]
"""A volume by which the containers of a pod wait for each other."""
ALIASES = [
    {"ip": "192.0.2.1", "hostnames": ["foo.local", "bar.local"]},
    {"ip": "192.0.2.2", "hostnames": ["baz"]},
]
ALIAS_LINES = "\n# Entries added by HostAliases.\n192.0.2.1\tfoo.local\tbar.local\n192.0.2.2\tbaz\n"


def is_called(host: str) -> Any:
    def check(seen: Seen) -> None:
        assert seen.values()["host"] == host, seen.log()

    return check


def writes(text: str, name: str = "c") -> Any:
    """The whole output; POD_IP stands for the pod's address."""

    def check(seen: Seen) -> None:
        assert seen.phase == "Succeeded", seen.status
        assert seen.log(name) == text.replace("POD_IP", seen.status["podIP"])

    return check


def resolves_by(nameservers: str, searches: str, options: str) -> Any:
    """These lines make up its resolv.conf."""

    def check(seen: Seen) -> None:
        found = {"nameserver": "", "search": "", "options": ""}
        for line in seen.lines():
            word, _, rest = line.partition(" ")
            found[word] = f"{found[word]} {rest}".strip()
        assert (found["nameserver"], found["search"], found["options"]) == (nameservers, searches, options)

    return check


def with_event(check: Callable[[Seen], None], text: str) -> Callable[[Seen], None]:
    """Add a check that the pod has an event with `text`."""

    def both(seen: Seen) -> None:
        check(seen)
        said = f"{text}: an event, which goes another way than the status"
        wait_for(lambda: any(one.startswith(text) for one in seen.events("DNSConfigForming")), 20, said)

    return both


def shares(*kinds: str) -> Any:
    """The namespaces it has in common with the node are these."""

    def check(seen: Seen) -> None:
        values = seen.values()
        same = tuple(kind for kind in KINDS if values[kind] == os.readlink(f"/proc/self/ns/{kind}"))
        assert same == kinds

    return check


def dns(policy: str, config: dict[str, Any] | None = None, **spec: Any) -> dict[str, Any]:
    return once(RESOLV, spec={"dnsPolicy": policy, **({"dnsConfig": config} if config else {}), **spec})


def two(script: str, **spec: Any) -> dict[str, Any]:
    """A pod with containers `c` and `d`, which run until both have looked.

    The kernel reuses the number of a namespace that is gone.
    """
    main = [
        container(name, f"{script}; touch /both/{name}; until test -e /both/{other}; {NAP}", volumeMounts=BOTH)
        for name, other in (("c", "d"), ("d", "c"))
    ]
    return pod("", *main, **{"restartPolicy": "Never", "volumes": [{"name": "both", "emptyDir": {}}], **spec})


def in_common(*kinds: str) -> Any:
    """The namespaces its two containers have in common are these."""

    def check(seen: Seen) -> None:
        one, other = seen.values("c"), seen.values("d")
        assert tuple(kind for kind in KINDS if one[kind] == other[kind]) == kinds

    return check


def too_long(seen: Seen) -> None:
    """The kubelet leaves it Pending and says why in its events."""
    assert seen.phase == "Pending"
    assert seen.reason() == "ContainerCreating"
    message = seen.events("FailedCreatePodSandBox")[0]
    assert message.startswith(
        "Failed to create pod sandbox: failed to construct FQDN from pod hostname and cluster domain, FQDN "
    )
    assert message.endswith(" is too long (64 characters is the max, 88 characters requested)")


def mounts_its_own(path: Path) -> dict[str, Any]:
    """A volume of the pod's takes the place of /etc/hosts."""
    return once(
        HOSTS,
        spec={"volumes": [{"name": "own", "hostPath": {"path": str(path), "type": "File"}}]},
        volumeMounts=[{"name": "own", "mountPath": "/etc/hosts"}],
    )


def sees_the_others_process(seen: Seen) -> None:
    assert "sleep 4711" in seen.log()
    assert "PID   USER" in seen.log()


def reports_the_nodes_address(seen: Seen) -> None:
    assert seen.status["podIP"] == seen.status["hostIP"] == "127.0.0.1"
    assert seen.values()["host"] == os.uname().nodename


def has_its_own_address(seen: Seen) -> None:
    assert f"inet {seen.status['podIP']}/" in seen.log()
    assert [one["ip"] for one in seen.status["podIPs"]] == [seen.status["podIP"]]
    assert seen.status["hostIP"] == "127.0.0.1"


TABLE = {
    # Host names
    "plain-name": Case(once(NAMES), is_called("plain-name-vm")),
    LONG: Case(once(NAMES), is_called("n" * 63)),
    "given-name": Case(once(NAMES, spec={"hostname": "alice"}), is_called("alice")),
    "with-subdomain": Case(once(NAMES, spec={"hostname": "alice", "subdomain": "wonder"}), is_called("alice")),
    "fqdn": Case(
        once(NAMES, spec={"hostname": "alice", "subdomain": "wonder", "setHostnameAsFQDN": True}),
        is_called("alice.wonder.default.svc.spec.test"),
    ),
    "fqdn-without-domain": Case(once(NAMES, spec={"hostname": "alice", "setHostnameAsFQDN": True}), is_called("alice")),
    "fqdn-too-long": Case(
        once(NAMES, spec={"hostname": "a" * 63, "subdomain": "so", "setHostnameAsFQDN": True}),
        too_long,
        lambda seen: seen.reason() == "ContainerCreating" and bool(seen.events("FailedCreatePodSandBox")),
    ),
    "override": Case(once(f"{NAMES}; {HOSTS}", spec={"hostnameOverride": "alice.example"}), is_called("alice.example")),
    # /etc/hosts
    "hosts": Case(once(HOSTS), writes(f"{MANAGED}POD_IP\thosts-vm\n")),
    "hosts-subdomain": Case(
        once(HOSTS, spec={"hostname": "alice", "subdomain": "wonder"}),
        writes(f"{MANAGED}POD_IP\talice.wonder.default.svc.spec.test\talice\n"),
    ),
    "hosts-aliases": Case(
        once(HOSTS, spec={"hostAliases": ALIASES}), writes(f"{MANAGED}POD_IP\thosts-aliases-vm\n{ALIAS_LINES}")
    ),
    "hosts-init": Case(
        pod("", container("c", HOSTS), restartPolicy="Never", initContainers=[container("i", HOSTS)]),
        writes(f"{MANAGED}POD_IP\thosts-init-vm\n", "i"),
    ),
    "hosts-node": Case(
        once(HOSTS, spec={"hostNetwork": True}),
        writes("# Kubernetes-managed hosts file (host network).\n" + IN_NODE_HOSTS),
    ),
    "hosts-node-aliases": Case(
        once(HOSTS, spec={"hostNetwork": True, "hostAliases": ALIASES}),
        writes("# Kubernetes-managed hosts file (host network).\n" + IN_NODE_HOSTS + ALIAS_LINES),
    ),
    "hosts-mounted": Case(mounts_its_own(NODE_HOSTS), writes(IN_NODE_HOSTS)),
    # Resolver settings
    "dns-cluster-first": Case(
        dns("ClusterFirst"), resolves_by("192.0.2.10", f"{CLUSTER_SEARCHES} corp.example", "ndots:5")
    ),
    "dns-host-network": Case(
        dns("ClusterFirst", hostNetwork=True),
        resolves_by("192.0.2.53 192.0.2.54", "corp.example", "timeout:2"),
    ),
    "dns-with-host-net": Case(
        dns("ClusterFirstWithHostNet", hostNetwork=True),
        resolves_by("192.0.2.10", f"{CLUSTER_SEARCHES} corp.example", "ndots:5"),
    ),
    "dns-default": Case(dns("Default"), resolves_by("192.0.2.53 192.0.2.54", "corp.example", "timeout:2")),
    "dns-none": Case(
        dns(
            "None",
            {
                "nameservers": ["192.0.2.99"],
                "searches": ["own.example"],
                "options": [{"name": "ndots", "value": "2"}, {"name": "edns0"}],
            },
        ),
        resolves_by("192.0.2.99", "own.example", "ndots:2 edns0"),
    ),
    "dns-merged": Case(
        dns(
            "ClusterFirst",
            {
                "nameservers": ["192.0.2.99", "192.0.2.10"],
                "searches": ["own.example", "spec.test"],
                "options": [{"name": "ndots", "value": "2"}],
            },
        ),
        resolves_by("192.0.2.10 192.0.2.99", f"{CLUSTER_SEARCHES} corp.example own.example", "ndots:2"),
    ),
    "dns-too-many-servers": Case(
        dns("Default", {"nameservers": ["192.0.2.97", "192.0.2.98"]}),
        with_event(
            resolves_by("192.0.2.53 192.0.2.54 192.0.2.97", "corp.example", "timeout:2"),
            "Nameserver limits were exceeded, some nameservers have been omitted, "
            "the applied nameserver line is: 192.0.2.53 192.0.2.54 192.0.2.97",
        ),
    ),
    "dns-too-many-searches": Case(
        dns("ClusterFirst", {"searches": [f"s{number}.example" for number in range(31)]}),
        resolves_by(
            "192.0.2.10",
            f"{CLUSTER_SEARCHES} corp.example " + " ".join(f"s{number}.example" for number in range(28)),
            "ndots:5",
        ),
    ),
    # Namespaces
    "own-namespaces": Case(once(NAMESPACES), shares()),
    "host-network": Case(once(NAMESPACES, spec={"hostNetwork": True}), shares("net", "uts")),
    "host-pid": Case(once(NAMESPACES, spec={"hostPID": True}), shares("pid")),
    "host-ipc": Case(once(NAMESPACES, spec={"hostIPC": True}), shares("ipc")),
    "two": Case(two(NAMESPACES), in_common("net", "ipc", "uts")),
    "two-shared": Case(two(NAMESPACES, shareProcessNamespace=True), in_common("net", "pid", "ipc", "uts")),
    "shared-processes": Case(
        pod(
            "",
            container("c", f"until ps | grep -q 'sleep 471[1]'; {NAP}; ps; touch /both/c", volumeMounts=BOTH),
            container("d", f"sleep 4711 & until test -e /both/c; {NAP}", volumeMounts=BOTH),
            restartPolicy="Never",
            shareProcessNamespace=True,
            volumes=[{"name": "both", "emptyDir": {}}],
        ),
        sees_the_others_process,
    ),
    "first-process": Case(once("cat /proc/1/cmdline | tr '\\0' ' ' | cut -c 1-5"), writes("sh -c\n")),
    # Addresses
    "address": Case(once("ip -4 addr show eth0"), has_its_own_address),
    "address-of-the-node": Case(once(NAMES, spec={"hostNetwork": True}), reports_the_nodes_address),
}


def prepare(agent: Agent) -> tuple[str, ...]:
    resolv = agent.dir / "resolv.conf"
    resolv.write_text(NODE_RESOLV)
    config = yaml.safe_load(agent.config.read_text())
    config |= {"clusterDNS": ["192.0.2.10"], "clusterDomain": "spec.test", "resolvConf": str(resolv)}
    agent.config.write_text(yaml.safe_dump(config))
    return ()


@pytest.fixture(scope="module")
def table(containerd: ContainerdInstance) -> Iterator[Table]:
    with running(containerd, TABLE, prepare) as one:
        yield one


@pytest.mark.parametrize("name", TABLE)
def test_names_and_namespaces(table: Table, name: str) -> None:
    table.check(name)
