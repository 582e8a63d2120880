"""Pod networks without a configuration by the administrator."""

import errno
import ipaddress
import json
import os
from pathlib import Path

import pytest

from actors.runtime.model import namespaces
from actors.runtime.model.records import Records, SandboxRecord, new_id
from actors.runtime.model.state import Sandbox
from actors.runtime.network.api import NetworkError
from actors.runtime.network.bridge import free_address
from actors.runtime.network.choice import bridge_name
from actors.runtime.network.cni import MOST_STATE_BYTES, POD_ANNOTATIONS, CniNetwork
from actors.runtime.network.subnets import SUBNETS, free_subnet, is_taken
from proto.cri import api_pb2 as pb

ROUTES = "Iface Destination Gateway Flags RefCnt Use Metric Mask MTU Window IRTT\n"


def test_subnet_in_use_is_not_chosen() -> None:
    default = "eth0 00000000 0100000A 0003 0 0 0 00000000 0 0 0\n"
    podman = "cni0 0000580A 00000000 0001 0 0 0 0000FFFF 0 0 0\n"  # 10.88.0.0/16
    assert {free_subnet(ROUTES + default) for _ in range(200)} == set(SUBNETS)
    assert {free_subnet(ROUTES + podman) for _ in range(200)} == set(SUBNETS[1:])
    assert is_taken(ROUTES + podman, SUBNETS[0], but="nv1")
    assert not is_taken(ROUTES + podman, SUBNETS[0], but="cni0")
    assert not is_taken(ROUTES + podman + default, SUBNETS[1], but="nv1")
    everything = "tun0 0000000A 00000000 0001 0 0 0 000000FF 0 0 0\n"  # 10.0.0.0/8
    with pytest.raises(NetworkError, match="configure CNI"):
        free_subnet(ROUTES + everything)


def test_bridge_name_follows_the_directory_not_its_path(tmp_path: Path) -> None:
    one, other = tmp_path / "one", tmp_path / "other"
    one.mkdir()
    other.mkdir()
    (tmp_path / "link").symlink_to(one)
    assert bridge_name(one) == bridge_name(tmp_path / "link") != bridge_name(other)
    first = bridge_name(one)
    one.rename(tmp_path / "moved")
    other.rename(one)
    assert bridge_name(one) != first, "another directory of that path has another bridge"


def test_addresses_are_unique_until_none_is_left() -> None:
    subnet = ipaddress.ip_network("10.1.1.0/30")
    assert free_address(subnet, set()) == "10.1.1.1"
    assert free_address(subnet, {"10.1.1.1"}) == "10.1.1.2"
    with pytest.raises(NetworkError, match="no address is left"):
        free_address(subnet, {"10.1.1.1", "10.1.1.2"})


PLUGIN = """#!/bin/sh
read -r input
echo "$CNI_COMMAND $CNI_CONTAINERID $CNI_ARGS" >> {calls}
test ! -e {broken} || {{ echo '{{"msg": "broken"}}'; exit 1; }}
test "$CNI_COMMAND" != ADD || echo '{{"cniVersion": "0.4.0", "ips": [{{"address": "10.9.9.9/24"}}]}}'
"""


def cni(directory: Path) -> CniNetwork:
    """A network of one plugin, which logs its calls in `calls`, and fails while `broken` exists."""
    for name in ("net.d", "bin"):
        (directory / name).mkdir()
    (directory / "net.d/10.conf").write_text('{"cniVersion": "0.4.0", "name": "net", "type": "noting"}')
    plugin = directory / "bin/noting"
    plugin.write_text(PLUGIN.format(calls=directory / "calls", broken=directory / "broken"))
    plugin.chmod(0o755)
    return CniNetwork(str(directory / "net.d"), [str(directory / "bin")])


def calls(directory: Path) -> list[list[str]]:
    return [line.split() for line in (directory / "calls").read_text().splitlines()]


def test_unfinished_sandbox_releases_its_address(tmp_path: Path) -> None:
    """As after a kill between the plugin's ADD and the sandbox's record: only the files of `attach` exist."""
    network = cni(tmp_path)
    config = pb.PodSandboxConfig(metadata=pb.PodSandboxMetadata(name="web", namespace="default", uid="u"))
    sandbox = Sandbox(SandboxRecord(id=new_id(), config=config.SerializeToString(), created_at_ns=1, boot=""))
    records = Records(tmp_path, "sandboxes", SandboxRecord)
    directory = records.path(sandbox.record.id)
    directory.mkdir()
    assert network.attach(sandbox, "/nowhere", directory)[1] == ("10.9.9.9",)

    def release_network(path: Path) -> bool:
        try:
            network.release(path)
        except NetworkError:
            return False
        return True

    (tmp_path / "broken").touch()
    assert list(records.load(release_network)) == []
    assert directory.exists()  # the next start retries
    (tmp_path / "broken").unlink()
    assert list(records.load(release_network)) == []
    assert not directory.exists()
    assert [call[0] for call in calls(tmp_path)] == ["ADD", "DEL", "DEL"]
    assert len({tuple(call[1:]) for call in calls(tmp_path)}) == 1
    assert "K8S_POD_NAME=web" in calls(tmp_path)[0][2]
    assert calls(tmp_path)[0][1] == sandbox.record.id


def test_attachment_stays_while_the_kernel_does_not_tell_its_namespace(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    network = cni(tmp_path)
    config = pb.PodSandboxConfig(metadata=pb.PodSandboxMetadata(name="web", namespace="default", uid="u"))
    sandbox = Sandbox(SandboxRecord(id=new_id(), config=config.SerializeToString(), created_at_ns=1, boot=""))
    network.attach(sandbox, "/nowhere", tmp_path)

    def fails(_: object) -> bool:
        raise OSError(errno.ENOMEM, os.strerror(errno.ENOMEM))

    with monkeypatch.context() as patched:
        patched.setattr(namespaces, "all_pinned", fails)
        with pytest.raises(NetworkError, match="Cannot allocate memory"):
            network.release(tmp_path)
    network.release(tmp_path)
    assert [call[0] for call in calls(tmp_path)] == ["ADD", "DEL"]


@pytest.mark.parametrize(("capabilities", "warned"), [({}, True), ({"portMappings": True}, False)])
def test_unmapped_host_ports_are_logged(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, capabilities: dict[str, bool], warned: bool
) -> None:
    network = cni(tmp_path)
    plugin = {"name": "net", "cniVersion": "0.4.0", "type": "noting", "capabilities": capabilities}
    (tmp_path / "net.d/10.conf").write_text(json.dumps(plugin))
    config = pb.PodSandboxConfig(
        metadata=pb.PodSandboxMetadata(name="web", namespace="default", uid="u"),
        port_mappings=[pb.PortMapping(container_port=80, host_port=8080)],
    )
    sandbox = Sandbox(SandboxRecord(id=new_id(), config=config.SerializeToString(), created_at_ns=1, boot=""))
    network.attach(sandbox, "/nowhere", tmp_path)
    assert ("default/web: its host ports are not mapped" in caplog.text) == warned


SAVES = """#!/bin/sh
cat > {directory}/$CNI_COMMAND
test "$CNI_COMMAND" != ADD || echo '{{"cniVersion": "0.4.0", "ips": [{{"address": "10.9.9.9/24"}}]}}'
"""
LIMITS = {"kubernetes.io/ingress-bandwidth": "1M", "kubernetes.io/egress-bandwidth": "2500"}
BANDWIDTH = {"ingressRate": 10**6, "ingressBurst": 2**32 - 1, "egressRate": 2500, "egressBurst": 2**32 - 1}
ASKED = pb.PodSandboxConfig(
    metadata=pb.PodSandboxMetadata(name="web", namespace="default", uid="u"),
    annotations=LIMITS,
    port_mappings=[pb.PortMapping(container_port=80, host_port=8080)],
    dns_config=pb.DNSConfig(servers=["10.0.0.10"], searches=["local"]),
    linux=pb.LinuxPodSandboxConfig(cgroup_parent="/kubepods/podu"),
)
VALUES = {
    "bandwidth": BANDWIDTH,
    "dns": {"servers": ["10.0.0.10"], "searches": ["local"], "options": []},
    "cgroupPath": "/kubepods/podu",
    "io.kubernetes.cri.pod-annotations": LIMITS,
    "portMappings": [{"hostPort": 8080, "containerPort": 80, "protocol": "tcp"}],
}


def attach(directory: Path, config: pb.PodSandboxConfig, capabilities: dict[str, bool]) -> CniNetwork:
    """Attach a pod to a network of one plugin, which saves its input in files with the commands' names."""
    network = cni(directory)
    plugin = {"name": "net", "cniVersion": "0.4.0", "type": "noting", "capabilities": capabilities}
    (directory / "net.d/10.conf").write_text(json.dumps(plugin))
    (directory / "bin/noting").write_text(SAVES.format(directory=directory))
    sandbox = Sandbox(SandboxRecord(id=new_id(), config=config.SerializeToString(), created_at_ns=1, boot=""))
    network.attach(sandbox, "/nowhere", directory)
    return network


@pytest.mark.parametrize("names", [[], ["bandwidth"], [*VALUES], ["other"]])
def test_plugin_gets_the_capabilities_that_it_has(tmp_path: Path, names: list[str]) -> None:
    network = attach(tmp_path, ASKED, dict.fromkeys(VALUES, False) | dict.fromkeys(names, True))
    CniNetwork.release(network, tmp_path)  # as after a kill: only the files of `attach` exist
    for command in ("ADD", "DEL"):
        read = json.loads((tmp_path / command).read_text())
        assert "capabilities" not in read
        assert read.get("runtimeConfig", {}) == {name: VALUES[name] for name in names if name in VALUES}


@pytest.mark.parametrize(("has", "warned"), [(True, False), (False, True)])
def test_bandwidth_annotation_without_effect_is_logged(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, has: bool, warned: bool
) -> None:
    attach(tmp_path, ASKED, {"bandwidth": has})
    assert ("default/web: its bandwidth annotations have no effect" in caplog.text) == warned


@pytest.mark.parametrize("rate", ["abc", "", "-1M", "999", "2P", "1" * 200])
def test_invalid_bandwidth_fails_the_pod(tmp_path: Path, rate: str) -> None:
    config = pb.PodSandboxConfig()
    config.CopyFrom(ASKED)
    config.annotations["kubernetes.io/egress-bandwidth"] = rate
    with pytest.raises(NetworkError, match=r"annotation kubernetes\.io/egress-bandwidth"):
        attach(tmp_path, config, {})
    assert not (tmp_path / "ADD").exists()


def test_state_too_large_to_read_again_is_refused(tmp_path: Path) -> None:
    config = pb.PodSandboxConfig()
    config.CopyFrom(ASKED)
    config.annotations["large"] = "\1" * (MOST_STATE_BYTES // 6)
    with pytest.raises(NetworkError, match="it takes more than"):
        attach(tmp_path, config, {POD_ANNOTATIONS: True})
    assert not (tmp_path / "ADD").exists()


def test_damaged_attachment_file_is_an_error(tmp_path: Path) -> None:
    network = cni(tmp_path)
    (tmp_path / "network.json").write_text("{")
    with pytest.raises(NetworkError, match=r"network\.json"):
        network.release(tmp_path)
