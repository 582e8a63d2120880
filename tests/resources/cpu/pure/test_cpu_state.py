"""The file cpu_manager_state: upstream's checkpoints are read, and others refused with its words."""

import os

import pytest

from actors.resources.cpu.state import State, decode, encode, state_file
from actors.resources.errors import PolicyError
from actors.resources.machine.cpusets import parse

NONE_EMPTY = b'{"policyName":"none","defaultCpuSet":"","checksum":1353318690}'
CONTAINERS = {"pod": {"container1": parse("4-6"), "container2": parse("1-3")}}
ENTRIES = b'"entries":{"pod":{"container1":"4-6","container2":"1-3"}}'
POD1 = b'"entries":{"pod1":{"container1":"5-6","container2":"3-4"}},"podEntries":{"pod2":{"cpuSet":"7-9"}}'

WRITTEN_BY_KUBELETS = [
    (NONE_EMPTY, "none", State()),
    (b'{"policyName":"none","defaultCpuSet":"4-6","checksum":354655845}', "none", State(parse("4-6"))),
    (b'{"policyName":"none","defaultCpuSet":"4-6","entries":{},"checksum":0}', "none", State(parse("4-6"))),
    (b'{"policyName":"none","defaultCpuSet":"7-9","checksum":98002435}', "none", State(parse("7-9"))),
    (
        b'{"policyName":"none","defaultCpuSet":"1-3",%s,"checksum":3610638499}' % ENTRIES,
        "none",
        State(parse("1-3"), CONTAINERS),
    ),
    (
        b'{"policyName":"static","defaultCpuSet":"7-9",%s,"checksum":1942532442}' % ENTRIES,
        "static",
        State(parse("7-9"), CONTAINERS),
    ),
    *(
        (
            b'{"policyName":"static","defaultCpuSet":"1-2",%s,"checksum":%d}' % (POD1, number),
            "static",
            State(
                parse("1-2"),
                {"pod1": {"container1": parse("5-6"), "container2": parse("3-4")}},
                {"pod2": parse("7-9")},
            ),
        )
        for number in (2284712151, 766259872)
    ),
]

REFUSED = [
    (b"", "checkpoint is corrupted"),
    (b"{", "checkpoint is corrupted"),
    (b"\xff", "checkpoint is corrupted"),
    (b"[" * 100_000, "checkpoint is corrupted"),
    (b'{"policyName":"static","defaultCpuSet":"1-3","checksum":1337}', "checkpoint is corrupted"),
    (b'{"policyName":"static","defaultCpuSet":"1-3","entries":{"id":"1"},"checksum":0}', "checkpoint is corrupted"),
    (
        b'{"policyName":"other","defaultCpuSet":"1-3","entries":{},"checksum":1394507217}',
        'configured policy "static" differs from state checkpoint policy "other"',
    ),
    (NONE_EMPTY, 'configured policy "static" differs from state checkpoint policy "none"'),
    (b'{"policyName":"static","defaultCpuSet":"1.3","checksum":0}', "could not parse default cpu set"),
    (
        b'{"policyName":"static","defaultCpuSet":"1","entries":{"p":{"c":"asd"}},"checksum":0}',
        'could not parse cpuset for container "c" in pod "p"',
    ),
    (b'{"policyName":"static","defaultCpuSet":"1","podEntries":{"p":{"cpuSet":"x"}},"checksum":0}', "could not parse"),
    (b'{"policyName":"static","defaultCpuSet":"1","podEntries":{"p":{}},"checksum":0}', "checkpoint is corrupted"),
    (
        b'{"policyName":"static","defaultCpuSet":"1","entries":{"p":{%s}},"checksum":0}'
        % b",".join(b'"%d":"0-65535"' % number for number in range(40)),
        "names more than",
    ),
]


@pytest.mark.parametrize(("content", "policy", "expected"), WRITTEN_BY_KUBELETS)
def test_checkpoints_of_kubelets_are_read(content, policy, expected):
    assert decode(content, policy) == expected


@pytest.mark.parametrize(("content", "reason"), REFUSED)
def test_other_files_are_refused_by_name(tmp_path, content, reason):
    (tmp_path / "cpu_manager_state").write_bytes(content)
    with pytest.raises(PolicyError, match="please drain this node and delete the CPU manager") as caught:
        state_file(str(tmp_path), "static").load()
    assert reason in str(caught.value)
    assert str(tmp_path / "cpu_manager_state") in str(caught.value)


def test_state_is_written_as_the_kubelet_does():
    assert encode(State(), "none") == NONE_EMPTY
    state = State(parse("1-3"), CONTAINERS)
    assert encode(state, "none") == b'{"policyName":"none","defaultCpuSet":"1-3",%s,"checksum":3610638499}' % ENTRIES
    state = State(parse("1-2"), {"pod1": {"container1": parse("5-6"), "container2": parse("3-4")}})
    state.pods["pod2"] = parse("7-9")
    expected = b'{"policyName":"static","defaultCpuSet":"1-2",%s,"checksum":766259872}' % POD1
    assert encode(state, "static", pod_level=True) == expected


def test_missing_file_is_no_state(tmp_path):
    assert state_file(str(tmp_path), "static").load() is None


def test_link_in_place_of_the_file_is_refused(tmp_path):
    (tmp_path / "elsewhere").write_bytes(NONE_EMPTY)
    (tmp_path / "cpu_manager_state").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(PolicyError, match="is a symbolic link"):
        state_file(str(tmp_path), "none").load()


def test_late_write_replaces_no_newer_one(tmp_path):
    file = state_file(str(tmp_path), "static")
    file.write(2, b"newer")
    file.write(1, b"older")
    assert (tmp_path / "cpu_manager_state").read_bytes() == b"newer"
    assert os.listdir(tmp_path) == ["cpu_manager_state"]


def test_write_follows_no_link_left_behind(tmp_path):
    (tmp_path / ".cpu_manager_state.tmp").symlink_to(tmp_path / "victim")
    state_file(str(tmp_path), "static").write(1, b"content")
    assert not (tmp_path / "victim").exists()
