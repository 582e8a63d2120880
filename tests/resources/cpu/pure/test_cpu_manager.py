"""CpuManager: grants, the state file across restarts, and settings that cannot work."""

import errno

import pytest

from actors.resources import state_file
from actors.resources.cpu.manager import CpuManager, CpuSettings
from actors.resources.errors import PolicyError
from actors.resources.machine.cpusets import parse, printed
from actors.resources.model.hints import ANY, Hint
from actors.resources.model.provider import AllocationError, NotYetError
from proto.resources.grants import Grant
from proto.wire.errors import AskTimeout
from tests.resources.cpu.machines import DUAL_HT, FOUR, MULTI_NUMA_HT, MULTI_SOCKET_HT, SINGLE_HT, machine
from tests.resources.cpu.pods import at_once, container, make_pod, run, simple

STATIC = CpuSettings(policy="static", reserved_count=1)


def manager(directory, settings=STATIC, topology=SINGLE_HT, blocking=at_once):
    return CpuManager(topology, settings, str(directory), blocking)


def allocate(cpus, pod):
    for each in (*pod.spec.init_containers, *pod.spec.containers):
        run(cpus.allocate(pod, each, ANY))


def content(directory):
    return (directory / "cpu_manager_state").read_text()


def test_policy_none_grants_nothing(tmp_path):
    cpus = manager(tmp_path, CpuSettings())
    pod = simple("p", "c", "2")
    allocate(cpus, pod)
    assert cpus.grant(pod, pod.spec.containers[0]) == Grant()
    assert cpus.container_hints(pod, pod.spec.containers[0]) == cpus.pod_hints(pod) == {}
    assert cpus.shared == cpus.allocatable == cpus.exclusive(pod, pod.spec.containers[0]) == frozenset()
    assert content(tmp_path) == '{"policyName":"none","defaultCpuSet":"","checksum":1353318690}'


def test_exclusive_cpus_are_granted_without_quota(tmp_path):
    cpus = manager(tmp_path)
    pod = make_pod("p", container("alone", "2"), container("fraction", "1500m"))
    allocate(cpus, pod)
    assert cpus.grant(pod, pod.spec.containers[0]) == Grant(cpus="1,5", exclusive_cpus=True)
    assert cpus.grant(pod, pod.spec.containers[1]) == Grant(cpus="0,2-4,6-7")
    assert printed(cpus.exclusive(pod, pod.spec.containers[0])) == "1,5"
    assert not cpus.exclusive(pod, pod.spec.containers[1])
    assert (printed(cpus.shared), printed(cpus.allocatable)) == ("0,2-4,6-7", "1-7")


def test_listed_cpus_are_reserved_from_containers(tmp_path):
    cpus = manager(tmp_path, CpuSettings(policy="static", reserved_cpus=parse("0")), FOUR)
    assert printed(cpus.allocatable) == "1-3"
    allocate(cpus, simple("p", "c", "2"))
    assert printed(cpus.shared) == "0,3"


def test_cpus_survive_a_restart(tmp_path):
    pod, other = simple("p", "c", "2"), simple("q", "c", "2")
    allocate(manager(tmp_path), pod)
    again = manager(tmp_path)
    allocate(again, pod)
    allocate(again, other)
    assert again.grant(pod, pod.spec.containers[0]).cpus == "1,5"
    assert again.grant(other, other.spec.containers[0]).cpus == "2,6"


def test_released_pod_leaves_the_state_file(tmp_path):
    cpus = manager(tmp_path)
    empty = content(tmp_path)
    allocate(cpus, simple("p", "c", "2"))
    assert '"p":{"c":"1,5"}' in content(tmp_path)
    cpus.release("p")
    cpus.release("p")
    assert content(tmp_path) == empty
    assert printed(cpus.shared) == "0-7"


def test_retain_frees_pods_that_are_gone(tmp_path):
    cpus = manager(tmp_path)
    for uid in ("a", "b"):
        allocate(cpus, simple(uid, "c", "2"))
    cpus.retain(["b", "unknown"])
    assert printed(cpus.shared) == "0-1,3-5,7"
    assert '"a"' not in content(tmp_path)


@pytest.mark.parametrize(
    "error", [OSError(errno.ENOSPC, "No space left on device"), AskTimeout("No answer of the disk within 10 s")]
)
def test_cpus_that_cannot_be_written_are_assigned_later(tmp_path, error):
    errors = [error] * 3

    def disk(timeout_s, function, *args):
        return at_once(timeout_s, *((fail,) if errors else (function, *args)))

    def fail():
        raise errors.pop()

    cpus, pod = manager(tmp_path, blocking=disk), simple("p", "c", "2")
    while errors:
        with pytest.raises(NotYetError, match=r"cannot write .*cpu_manager_state: .*No "):
            allocate(cpus, pod)
        assert cpus.shared == parse("0-7")
        assert not cpus.exclusive(pod, pod.spec.containers[0])
    allocate(cpus, pod)
    assert (printed(cpus.shared), cpus.shared) == ("0,2-4,6-7", manager(tmp_path).shared)


def test_cpus_are_not_assigned_beyond_what_the_next_start_reads(tmp_path, monkeypatch):
    monkeypatch.setattr(state_file, "MOST_BYTES", 500)
    cpus = manager(tmp_path)
    allocate(cpus, simple("p" * 200, "c", "1"))
    with pytest.raises(
        AllocationError, match=r"cannot write .*cpu_manager_state: .* bytes are more than 500"
    ) as caught:
        allocate(cpus, simple("q" * 200, "c", "1"))
    assert caught.value.reason == "UnexpectedAdmissionError"
    assert manager(tmp_path).shared == cpus.shared


def test_release_needs_no_disk(tmp_path, caplog):
    cpus = manager(tmp_path)
    allocate(cpus, simple("p", "c", "2"))
    (tmp_path / ".cpu_manager_state.tmp").mkdir()
    cpus.release("p")
    assert printed(cpus.shared) == "0-7"
    assert "it shows released CPUs as held" in caplog.text
    (tmp_path / ".cpu_manager_state.tmp").rmdir()
    again = manager(tmp_path)
    assert printed(again.shared) == "0,2-4,6-7"
    again.retain([])
    assert again.shared == cpus.shared


def test_pods_with_cpus_keep_them_when_the_gate_goes_off(tmp_path):
    gate = CpuSettings(policy="static", reserved_count=1, pod_level=True, topology_scope="pod")
    pod = make_pod("p", container("c", "1"), own="2")
    allocate(manager(tmp_path, gate), pod)
    other = simple("q", "c", "2")
    allocate(manager(tmp_path), other)
    again = manager(tmp_path)
    assert again.grant(other, other.spec.containers[0]).cpus == "2,6"
    assert printed(again.shared) == "0,3-4,7"


def test_hints_count_what_the_container_holds(tmp_path):
    cpus = manager(tmp_path, topology=DUAL_HT)
    pod = simple("p", "c", "6")
    both = Hint(frozenset({0, 1}), preferred=False)
    assert cpus.container_hints(pod, pod.spec.containers[0]) == {"cpu": [Hint(frozenset({1}), preferred=True), both]}
    allocate(cpus, pod)
    assert cpus.container_hints(pod, pod.spec.containers[0]) == {"cpu": [Hint(frozenset({1}), preferred=True), both]}
    assert cpus.pod_hints(pod) == cpus.container_hints(pod, pod.spec.containers[0])
    resized = simple("p", "c", "4")
    assert cpus.container_hints(resized, resized.spec.containers[0]) == cpus.pod_hints(resized) == {"cpu": []}


def test_changed_policy_is_refused_while_the_file_is_there(tmp_path):
    allocate(manager(tmp_path), simple("p", "c", "2"))
    with pytest.raises(PolicyError, match='configured policy "none" differs from state checkpoint policy "static"'):
        manager(tmp_path, CpuSettings())
    (tmp_path / "cpu_manager_state").unlink()
    assert not manager(tmp_path, CpuSettings()).shared


def test_cpu_that_went_offline_is_refused(tmp_path):
    manager(tmp_path)
    fewer = machine(7, lambda n: (n % 4, 0, 0))
    with pytest.raises(PolicyError, match='"0-6" doesn\'t match with CPUs in state "0-7", please drain') as caught:
        manager(tmp_path, topology=fewer)
    assert "cpu_manager_state" in str(caught.value)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (CpuSettings(policy="dynamic"), 'unknown policy: "dynamic"'),
        (CpuSettings(policy="static"), "greater than zero"),
        (CpuSettings(options={"full-pcpus-only": "true"}), "None policy: received unsupported options=full-pcpus-only"),
        (CpuSettings(policy="static", reserved_cpus=parse("7-9")), "unknown CPU ID: 8"),
        (CpuSettings(policy="static", reserved_count=9), "unable to reserve the required amount of CPUs"),
        (CpuSettings(policy="static", reserved_count=1, options={"fast": "true"}), "unknown CPU Manager Policy option"),
    ],
)
def test_settings_that_cannot_work_are_refused(tmp_path, settings, message):
    with pytest.raises(PolicyError, match=message):
        manager(tmp_path, settings)


@pytest.mark.parametrize(
    ("option", "topology_policy"),
    [
        ("full-pcpus-only", "single-numa-node"),
        ("align-by-socket", "none"),
        ("align-by-socket", "best-effort"),
        ("align-by-socket", "restricted"),
    ],
)
def test_options_that_fit_the_topology_policy_are_taken(tmp_path, option, topology_policy):
    settings = CpuSettings(
        policy="static",
        reserved_count=1,
        options={option: "true"},
        alpha_options=True,
        topology_policy=topology_policy,
    )
    assert manager(tmp_path, settings, MULTI_NUMA_HT).shared == MULTI_NUMA_HT.ids


def test_align_by_socket_needs_sockets_below_nodes(tmp_path):
    by_socket = {"align-by-socket": "true"}
    settings = CpuSettings(policy="static", reserved_count=1, options=by_socket, alpha_options=True)
    with pytest.raises(PolicyError, match="number of sockets are more than number of NUMA"):
        manager(tmp_path, settings, MULTI_SOCKET_HT)
    settings = CpuSettings(
        policy="static", reserved_count=1, options=by_socket, alpha_options=True, topology_policy="single-numa-node"
    )
    with pytest.raises(PolicyError, match="incompatible with CPUManager align-by-socket"):
        manager(tmp_path, settings)
