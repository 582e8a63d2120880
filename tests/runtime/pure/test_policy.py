"""Tables of the runtime's decisions."""

import signal

import pytest

from actors.runtime.containers.containers import merge_resources
from actors.runtime.network import cni
from actors.runtime.network.api import NetworkError
from actors.runtime.policy import (
    MachineFeatures,
    OciChoice,
    choose_isolation,
    choose_oci,
    reason_of,
    signal_number,
    signal_of,
    user_of,
)
from proto.cri import api_pb2 as pb

SIGNALS = {one.name: one.value for one in signal.Signals}
BOTH = {"crun": "/usr/bin/crun", "runc": "/usr/sbin/runc"}


@pytest.mark.parametrize(
    ("offers", "asked", "level", "runs"),
    [
        (MachineFeatures(BOTH, root=True, split_cgroups=False), 0, 1, "/usr/bin/crun"),
        (MachineFeatures(BOTH, root=True, split_cgroups=True), 0, 1, "/usr/sbin/runc"),
        (MachineFeatures({"runc": "/usr/sbin/runc"}, root=True, split_cgroups=False), 0, 1, "/usr/sbin/runc"),
        (MachineFeatures({"crun": "/usr/bin/crun"}, root=True, split_cgroups=True, mount=True), 0, 2, "root"),
        (MachineFeatures({}, root=True, split_cgroups=False, mount=True, user=True), 0, 2, "root"),
        (MachineFeatures({}, root=True, split_cgroups=False, user=True), 0, 3, "user"),
        (MachineFeatures({}, root=True, split_cgroups=False), 0, 3, "plain"),
        (MachineFeatures(BOTH, root=False, split_cgroups=False, user=True), 0, 3, "user"),
        (MachineFeatures(BOTH, root=False, split_cgroups=False), 0, 3, "plain"),
        (MachineFeatures(BOTH, root=True, split_cgroups=False, mount=True, user=True), 2, 2, "root"),
        (MachineFeatures(BOTH, root=True, split_cgroups=False, mount=True, user=True), 3, 3, "user"),
        (MachineFeatures({}, root=True, split_cgroups=False, mount=True), 1, 0, ""),
        (MachineFeatures(BOTH, root=False, split_cgroups=False, user=True), 2, 0, ""),
    ],
)
def test_isolation(offers: MachineFeatures, asked: int, level: int, runs: str) -> None:
    chosen = choose_isolation(offers, asked)
    assert (chosen.level, (*chosen.programs, chosen.mode)[0]) == (level, runs)
    assert bool(chosen.why) == (level != 1)  # every lower level has a reason


@pytest.mark.parametrize(
    ("program", "split", "programs", "offered"),
    [
        ("", False, ("/usr/bin/crun", "/usr/sbin/runc"), ("crun", "runc")),
        ("crun", False, ("/usr/bin/crun", "/usr/sbin/runc"), ("crun",)),
        ("runc", False, ("/usr/bin/crun", "/usr/sbin/runc"), ("runc",)),
        ("", True, ("/usr/sbin/runc",), ("runc",)),
    ],
)
def test_pods_are_offered_all_oci_runtimes_or_the_named_one(
    program: str, split: bool, programs: tuple[str, ...], offered: tuple[str, ...]
) -> None:
    chosen = choose_isolation(MachineFeatures(BOTH, root=True, split_cgroups=split), 0, program)
    assert (chosen.level, chosen.programs, chosen.offered) == (1, programs, offered)


@pytest.mark.parametrize(
    ("program", "offers", "asked", "why"),
    [
        ("youki", MachineFeatures(BOTH, root=True, split_cgroups=False), 0, "there are crun and runc"),
        ("crun", MachineFeatures({}, root=True, split_cgroups=False, mount=True), 0, "it is not installed"),
        ("crun", MachineFeatures(BOTH, root=False, split_cgroups=False, user=True), 0, "not root"),
        ("crun", MachineFeatures(BOTH, root=True, split_cgroups=True), 0, "cgroup v1 and v2 mixed"),
        ("runc", MachineFeatures(BOTH, root=True, split_cgroups=False, mount=True), 2, "level 2 was asked for, too"),
    ],
)
def test_named_oci_runtime_is_used_or_nothing(program: str, offers: MachineFeatures, asked: int, why: str) -> None:
    chosen = choose_isolation(offers, asked, program)
    assert (chosen.level, chosen.programs, chosen.offered) == (0, (), ())
    assert f"the OCI runtime {program} was asked for" in chosen.why
    assert why in chosen.why


OLD_CRUN, NEW_CRUN = {"crun": "crun is old", "runc": ""}, {"crun": "", "runc": ""}
NEITHER, SAME = {"crun": "crun is old", "runc": "runc is old"}, {"crun": "old kernel", "runc": "old kernel"}


@pytest.mark.parametrize(
    ("offered", "handler", "users", "chosen"),
    [
        (OLD_CRUN, "", False, OciChoice("crun")),
        (OLD_CRUN, "", True, OciChoice("runc")),
        (OLD_CRUN, "crun", True, OciChoice("crun", "crun is old")),
        (OLD_CRUN, "runc", True, OciChoice("runc")),
        (OLD_CRUN, "runc", False, OciChoice("runc")),
        (NEW_CRUN, "", True, OciChoice("crun")),
        (NEITHER, "", True, OciChoice("crun", "crun is old; runc is old")),
        (SAME, "", True, OciChoice("crun", "old kernel")),
        (SAME, "", False, OciChoice("crun")),
        ({"crun": "crun is old"}, "", True, OciChoice("crun", "crun is old")),
    ],
)
def test_oci_runtime_of_a_pod(offered: dict[str, str], handler: str, users: bool, chosen: OciChoice) -> None:
    assert choose_oci(offered, handler, users=users) == chosen


@pytest.mark.parametrize(
    ("wanted", "image", "expected"),
    [
        (0, "", signal.SIGTERM),
        (0, "SIGQUIT", signal.SIGQUIT),
        (0, "quit", signal.SIGQUIT),
        (0, "3", signal.SIGQUIT),
        (0, "SIGRTMIN+3", signal.SIGRTMIN + 3),
        (0, "nonsense", signal.SIGTERM),
        (0, "²", signal.SIGTERM),
        (0, "9" * 5000, signal.SIGTERM),
        (0, "65", signal.SIGTERM),
        (0, "SIGRTMIN+²", signal.SIGTERM),
        (0, "SIGRTMIN+99", signal.SIGTERM),
        (0, "SIGRTMAX-" + "9" * 5000, signal.SIGTERM),
        (pb.SIGNAL_SIGUSR1, "SIGQUIT", signal.SIGUSR1),
        (pb.SIGNAL_SIGRTMINPLUS3, "", signal.SIGRTMIN + 3),
    ],
)
def test_stop_signal(wanted: int, image: str, expected: int) -> None:
    assert signal_number(wanted, image, SIGNALS) == expected


@pytest.mark.parametrize(
    ("text", "user"),
    [
        ("", ""),
        ("0", 0),
        ("1000", 1000),
        (str(2**63 - 1), 2**63 - 1),
        (str(2**63), str(2**63)),
        ("99999999999999999999", "99999999999999999999"),
        ("²", "²"),
        ("-1", "-1"),
        ("app", "app"),
        ("9" * 5000, "9" * 256),
    ],
)
def test_user_of_an_image_is_a_uid_or_a_name(text: str, user: int | str) -> None:
    assert user_of(text) == user


@pytest.mark.parametrize(
    ("number", "shown"),
    [
        (signal.SIGTERM, pb.SIGNAL_SIGTERM),
        (signal.SIGRTMIN, pb.SIGNAL_SIGRTMIN),
        (signal.SIGRTMIN + 3, pb.SIGNAL_SIGRTMINPLUS3),
        (signal.SIGRTMAX - 14, pb.SIGNAL_SIGRTMAXMINUS14),
        (signal.SIGRTMAX, pb.SIGNAL_SIGRTMAX),
        (signal.SIGRTMIN - 1, pb.SIGNAL_RUNTIME_DEFAULT),
        (signal.SIGRTMAX + 1, pb.SIGNAL_RUNTIME_DEFAULT),
    ],
)
def test_signal_is_shown_as_cris_enum(number: int, shown: int) -> None:
    assert signal_of(number, SIGNALS) == shown


@pytest.mark.parametrize("number", range(signal.SIGRTMIN, signal.SIGRTMAX + 1))
def test_each_real_time_signal_of_cri_is_shown_as_asked(number: int) -> None:
    assert signal_number(signal_of(number, SIGNALS), "", SIGNALS) == number


def test_exit_reasons() -> None:
    assert (reason_of(0, 0), reason_of(1, 0), reason_of(137, 1), reason_of(0, 1)) == (
        "Completed",
        "Error",
        "OOMKilled",
        "Completed",
    )


def test_update_changes_only_its_fields() -> None:
    into = pb.LinuxContainerResources(cpu_shares=1, memory_limit_in_bytes=2, unified={"a": "1", "b": "1"})
    merge_resources(into, pb.LinuxContainerResources(cpu_shares=5, unified={"b": "2"}))
    assert (into.cpu_shares, into.memory_limit_in_bytes, dict(into.unified)) == (5, 2, {"a": "1", "b": "2"})


def test_a_network_configuration_is_a_list_or_a_single_plugin() -> None:
    listed = cni.parse(b'{"name": "n", "cniVersion": "1.0.0", "plugins": [{"type": "bridge"}]}', "file")
    single = cni.parse(b'{"name": "n", "cniVersion": "1.0.0", "type": "bridge"}', "file")
    assert listed.plugins[0]["type"] == single.plugins[0]["type"] == "bridge"
    for content in (b"", b"[]", b"{}", b'{"name": "n", "plugins": []}', b'{"name": "n", "plugins": [{}]}'):
        with pytest.raises(NetworkError, match="network configuration file"):
            cni.parse(content, "file")


def test_addresses_of_a_result_have_ipv4_first() -> None:
    result = {"ips": [{"address": "fd00::2/64"}, {"address": "10.0.0.2/24"}, {"address": "nonsense"}, {}]}
    assert cni.addresses(result) == ("10.0.0.2", "fd00::2")
    assert cni.addresses({}) == ()


def test_only_ports_on_the_host_are_mapped() -> None:
    config = pb.PodSandboxConfig(
        port_mappings=[
            pb.PortMapping(container_port=80),
            pb.PortMapping(container_port=81, host_port=8081, protocol=pb.UDP, host_ip="127.0.0.1"),
        ]
    )
    assert cni.port_mappings(config) == [
        {"hostPort": 8081, "containerPort": 81, "protocol": "udp", "hostIP": "127.0.0.1"}
    ]
