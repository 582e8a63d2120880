"""The inputs of a container's start that come from its sandbox and the node."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from actors.pod_workers.cri_config.mounts import MountInputs
from actors.pod_workers.model.view import SandboxView
from actors.pod_workers.steps.container_start import ContainerStart
from proto.agent.settings import Settings
from proto.cri import api_pb2 as pb
from proto.v1 import Pod
from proto.v1.codec import from_dict


def start(spec: dict[str, Any], ips: tuple[str, ...] = (), **context: Any) -> ContainerStart:
    """The start of the only container of a pod with these fields, in a sandbox with these addresses."""
    whole = {"containers": [{"name": "c", "image": "i"}], **spec}
    pod = from_dict(Pod, {"metadata": {"name": "p", "namespace": "ns", "uid": "u"}, "spec": whole})
    shared: Any = SimpleNamespace(**{"settings": Settings(), "host_ips": (), "allocatable": {"cpu": 1000}} | context)
    sandbox = SandboxView(id="s", ips=ips)
    return ContainerStart(shared, pod, pod.spec.containers[0], sandbox, 0, MountInputs(), pb.PodSandboxConfig())


V4, V6 = "10.0.0.1", "fd00::1"


@pytest.mark.parametrize(
    ("node", "of_sandbox", "in_variables"),
    [
        (("192.0.2.2",), (V6, V4), (V4, V6)),
        (("2001:db8::2", "192.0.2.2"), (V4, V6), (V6, V4)),
        (("2001:db8::2",), (V4,), (V4,)),
        (("192.0.2.2",), (V4, "10.0.0.2", V6, "fd00::2"), (V4, V6)),
        ((), (V6, V4), (V4, V6)),
    ],
)
def test_variables_have_the_pods_addresses_as_its_status_does(
    node: tuple[str, ...], of_sandbox: tuple[str, ...], in_variables: tuple[str, ...]
) -> None:
    assert start({}, of_sandbox, host_ips=node)._sources().pod_ips == in_variables


def test_a_host_network_pods_variables_have_the_nodes_addresses() -> None:
    node = ("2001:db8::2", "192.0.2.2")
    assert start({"hostNetwork": True}, (), host_ips=node)._sources().pod_ips == node
