"""Variables of Services, in the order and form of Docker's links."""

from __future__ import annotations

from typing import Any

import pytest

from actors.pod_workers.environment.service_env import service_variables
from proto.v1.cluster import Service
from proto.v1.codec import from_dict


def service(name: str, namespace: str = "ns", ip: str = "10.0.0.1", *ports: dict[str, Any]) -> Service:
    spec = {"clusterIP": ip, "ports": list(ports) or [{"port": 80}]}
    return from_dict(Service, {"metadata": {"name": name, "namespace": namespace}, "spec": spec})


def test_the_variables_of_a_service() -> None:
    web = service("my-web", "ns", "10.0.0.1", {"port": 80, "name": "http-a"}, {"port": 53, "protocol": "UDP"})
    assert service_variables([web], "ns", links=True) == {
        "MY_WEB_SERVICE_HOST": "10.0.0.1",
        "MY_WEB_SERVICE_PORT": "80",
        "MY_WEB_SERVICE_PORT_HTTP_A": "80",
        "MY_WEB_PORT": "tcp://10.0.0.1:80",
        "MY_WEB_PORT_80_TCP": "tcp://10.0.0.1:80",
        "MY_WEB_PORT_80_TCP_PROTO": "tcp",
        "MY_WEB_PORT_80_TCP_PORT": "80",
        "MY_WEB_PORT_80_TCP_ADDR": "10.0.0.1",
        "MY_WEB_PORT_53_UDP": "udp://10.0.0.1:53",
        "MY_WEB_PORT_53_UDP_PROTO": "udp",
        "MY_WEB_PORT_53_UDP_PORT": "53",
        "MY_WEB_PORT_53_UDP_ADDR": "10.0.0.1",
    }


def test_an_ipv6_address_is_in_brackets_in_urls_only() -> None:
    found = service_variables([service("a", "ns", "fd00::1")], "ns", links=True)
    assert (found["A_SERVICE_HOST"], found["A_PORT"]) == ("fd00::1", "tcp://[fd00::1]:80")


@pytest.mark.parametrize(
    ("services", "namespace", "links", "hosts"),
    [
        ([service("a"), service("b", "other")], "ns", True, {"A": "10.0.0.1"}),
        ([service("a"), service("kubernetes", "default", "10.0.0.9")], "ns", False, {"KUBERNETES": "10.0.0.9"}),
        ([service("kubernetes", "default", "10.0.0.9")], "default", False, {"KUBERNETES": "10.0.0.9"}),
        (
            [service("kubernetes", "ns", "10.0.0.2"), service("kubernetes", "default", "10.0.0.9")],
            "ns",
            True,
            {"KUBERNETES": "10.0.0.2"},
        ),
        ([service("a", ip="None"), service("b", ip="")], "ns", True, {}),
    ],
)
def test_which_services_a_pod_hears_of(
    services: list[Service], namespace: str, links: bool, hosts: dict[str, str]
) -> None:
    found = service_variables(services, namespace, links=links)
    assert {name.removesuffix("_SERVICE_HOST"): found[name] for name in found if name.endswith("_HOST")} == hosts
