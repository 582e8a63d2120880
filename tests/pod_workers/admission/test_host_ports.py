"""A pod is refused when another pod has a host port that it wants."""

from __future__ import annotations

from typing import Any

import pytest

from tests.pod_workers.admission.pods import OK, judged, pod


def ports(*wanted: dict[str, Any]) -> dict[str, Any]:
    return {"container": {"ports": [{"containerPort": 80, **one} for one in wanted]}}


@pytest.mark.parametrize(
    ("mine", "theirs", "free"),
    [
        ({"hostPort": 80}, {"hostPort": 81}, True),
        ({"hostPort": 80}, {"hostPort": 80}, False),
        ({"hostPort": 80}, {"hostPort": 80, "protocol": "UDP"}, True),
        ({"hostPort": 80, "hostIP": "127.0.0.1"}, {"hostPort": 80, "hostIP": "127.0.0.2"}, True),
        ({"hostPort": 80, "hostIP": "127.0.0.1"}, {"hostPort": 80, "hostIP": "127.0.0.1"}, False),
        ({"hostPort": 80, "hostIP": "127.0.0.1"}, {"hostPort": 80}, False),
        ({"hostPort": 80}, {"hostPort": 80, "hostIP": "127.0.0.1"}, False),
        ({"hostPort": 80, "hostIP": "0.0.0.0"}, {"hostPort": 80, "hostIP": "10.0.0.1"}, False),
        ({}, {"hostPort": 80}, True),
        ({"hostPort": 0}, {"hostPort": 0}, True),
    ],
)
def test_host_ports(mine, theirs, free):
    expected = ("NodePorts", "Predicate NodePorts failed: node(s) didn't have free ports for the requested pod ports")
    assert judged(pod(**ports(mine)), pod("o", **ports(theirs))) == (OK if free else expected)


def test_ports_of_sidecars_count_but_not_of_init_containers():
    init = {"name": "i", "ports": [{"containerPort": 80, "hostPort": 80}]}
    other = pod("o", initContainers=[init])
    assert judged(pod(**ports({"hostPort": 80})), other) == OK
    other = pod("o", initContainers=[init | {"restartPolicy": "Always"}])
    assert judged(pod(**ports({"hostPort": 80})), other)[0] == "NodePorts"


def test_a_pod_on_the_nodes_network_takes_the_ports_it_declares():
    assert judged(pod(hostNetwork=True, **ports({})), pod("o", **ports({"hostPort": 80})))[0] == "NodePorts"
