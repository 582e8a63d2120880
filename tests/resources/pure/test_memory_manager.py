"""The provider of memory with its file on a real disk, and reservedMemory."""

import errno
import json
import os
from collections.abc import Callable, Generator
from pathlib import Path
from typing import Any

import pytest

from actors.resources import state_file
from actors.resources.errors import PolicyError
from actors.resources.machine.memory import Memory
from actors.resources.memory.manager import MemoryManager, MemorySettings
from actors.resources.memory.model import Block
from actors.resources.memory.reserved import Reservation, reserved_by_node
from actors.resources.model.provider import AllocationError, NotYetError, Provider
from proto.v1 import Pod
from proto.v1.scalars.quantity import QuantityError
from proto.wire.errors import AskTimeout
from tests.resources.hints import finish, hint, hints
from tests.resources.memory import GI, HUGE, HUGE_2M, MI, burstable, container, guaranteed, machine, pod

TWO = machine((3 * GI, GI), (3 * GI, GI))
SETTINGS = MemorySettings(policy="Static", reserved=(Reservation(0, {"memory": "512Mi"}),), kept={"memory": 512 * MI})
FILE = "memory_manager_state"


class Done:
    """A write that is over, as Actor.blocking gives it."""

    def __init__(self, error: Exception | None = None) -> None:
        self._error = error

    def __await__(self) -> Generator[None, None, None]:
        if self._error is not None:
            raise self._error
        yield from ()


class Disk:
    """Writes at the call, or fails with `error`."""

    def __init__(self) -> None:
        self.error: Exception | None = None
        self.writes = 0

    def __call__(self, timeout_s: float, function: Callable[..., None], *args: Any) -> Done:
        assert timeout_s > 0
        if self.error is not None:
            return Done(self.error)
        function(*args)
        self.writes += 1
        return Done()


def manager(
    directory: Path, disk: Disk | None = None, settings: MemorySettings = SETTINGS, nodes: Memory = TWO
) -> MemoryManager:
    return MemoryManager(nodes, settings, str(directory), disk or Disk())


def allocate(provider: Provider, subject: Pod, affinity: str = "*-") -> None:
    for each in (*subject.spec.init_containers, *subject.spec.containers):
        finish(provider.allocate(subject, each, hint(affinity)))


def nodes_of(provider: Provider, subject: Pod) -> str:
    return provider.grant(subject, subject.spec.containers[0]).memory_nodes


def test_guaranteed_container_gets_its_nodes(tmp_path: Path) -> None:
    subject = manager(tmp_path)
    one, both = guaranteed("p", GI, None), guaranteed("q", 3 * GI, None)
    assert subject.container_hints(one, one.spec.containers[0]) == {"memory": hints("0+ 1+ 01-")}
    allocate(subject, both, "01+")
    assert nodes_of(subject, both) == "0,1"
    assert subject.pod_hints(both) == {"memory": hints("01+")}
    assert subject.blocks(both, both.spec.containers[0]) == (Block([0, 1], "memory", 3 * GI * MI),)


@pytest.mark.parametrize(
    "other", [burstable("p"), pod("p", container("c", 1), resources={"requests": {"cpu": "1", "memory": "1Gi"}})]
)
def test_other_pods_use_any_node(tmp_path: Path, other: Pod) -> None:
    subject = manager(tmp_path)
    allocate(subject, other)
    assert subject.container_hints(other, other.spec.containers[0]) == subject.pod_hints(other) == {}
    assert nodes_of(subject, other) == ""
    assert subject.blocks(other, other.spec.containers[0]) == ()


def test_policy_none_grants_nothing(tmp_path: Path) -> None:
    subject = manager(tmp_path, settings=MemorySettings())
    one = guaranteed("p")
    allocate(subject, one)
    assert subject.pod_hints(one) == subject.container_hints(one, one.spec.containers[0]) == {}
    assert nodes_of(subject, one) == ""
    assert subject.allocatable() == []
    assert json.loads((tmp_path / FILE).read_bytes())["policyName"] == "None"


def test_allocatable_memory_is_listed_by_node(tmp_path: Path) -> None:
    assert manager(tmp_path).allocatable() == [
        Block([0], HUGE, GI * MI),
        Block([0], "memory", 1536 * MI),
        Block([1], HUGE, GI * MI),
        Block([1], "memory", 2 * GI * MI),
    ]


def test_assignment_survives_a_kill(tmp_path: Path) -> None:
    one = guaranteed("p")
    allocate(manager(tmp_path), one, "1+")
    disk = Disk()
    restarted = manager(tmp_path, disk)
    assert nodes_of(restarted, one) == "1"
    assert restarted.container_hints(one, one.spec.containers[0]) == dict.fromkeys(("memory", HUGE), hints("1+"))
    allocate(restarted, one, "0+")
    assert (nodes_of(restarted, one), disk.writes) == ("1", 0)


def test_kill_between_containers_keeps_reuse(tmp_path: Path) -> None:
    subject = pod("p", container("a", GI), container("b", GI), init=(container("i", 2 * GI),))
    init, first, second = (*subject.spec.init_containers, *subject.spec.containers)
    before = manager(tmp_path)
    finish(before.allocate(subject, init, hint("1+")))
    finish(before.allocate(subject, first, hint("1+")))
    restarted = manager(tmp_path)
    for each in (init, first, second):
        finish(restarted.allocate(subject, each, hint("1+")))
    tables = json.loads((tmp_path / FILE).read_bytes())["machineState"]["1"]["memoryMap"]
    assert tables["memory"]["reserved"] == 2 * GI * MI


@pytest.mark.parametrize(
    "error", [OSError(errno.ENOSPC, "No space left on device"), AskTimeout("No answer of the disk within 10 s")]
)
def test_memory_that_cannot_be_written_is_assigned_later(tmp_path: Path, error: Exception) -> None:
    disk = Disk()
    subject, one = manager(tmp_path, disk), guaranteed("p", 2 * GI)
    before = _free(subject)
    disk.error = error
    for _ in range(3):
        with pytest.raises(NotYetError, match=r"cannot write .*memory_manager_state: .*No "):
            allocate(subject, one)
        assert nodes_of(subject, one) == ""
        assert _free(subject) == before
    disk.error = None
    allocate(subject, one, "1+")
    assert nodes_of(subject, one) == "1"
    assert sum(before) - sum(_free(subject)) == sum(block.size for block in subject.blocks(one, one.spec.containers[0]))


def _free(subject: MemoryManager) -> list[int]:
    return [table.free for node in subject._state.machine.values() for table in node.tables.values()]


def test_memory_is_not_assigned_beyond_what_the_next_start_reads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    size = os.path.getsize(_empty_state(tmp_path))
    monkeypatch.setattr(state_file, "MOST_BYTES", size + 10)
    subject, one = manager(tmp_path), guaranteed("p")
    with pytest.raises(AllocationError, match=r"cannot write .*memory_manager_state: .* bytes are more than"):
        allocate(subject, one)
    assert nodes_of(subject, one) == nodes_of(manager(tmp_path), one) == ""


def _empty_state(directory: Path) -> str:
    manager(directory)
    return f"{directory}/{FILE}"


def test_pod_without_room_is_rejected_in_upstreams_words(tmp_path: Path) -> None:
    subject = manager(tmp_path)
    with pytest.raises(AllocationError) as caught:
        allocate(subject, guaranteed("p", 9 * GI))
    assert caught.value.message == (
        "Allocate failed due to [memorymanager] failed to get the default NUMA affinity, "
        "no NUMA nodes with enough memory is available, which is unexpected"
    )


def test_release_frees_memory_and_is_repeatable(tmp_path: Path) -> None:
    disk = Disk()
    subject, one, other = manager(tmp_path, disk), guaranteed("p"), guaranteed("q")
    allocate(subject, one, "0+")
    subject.release("p")
    subject.release("p")
    assert disk.writes == 2
    allocate(subject, other, "0+")
    assert nodes_of(manager(tmp_path), other) == "0"


def test_retain_frees_pods_that_are_gone(tmp_path: Path) -> None:
    first, one, other = manager(tmp_path), guaranteed("p"), guaranteed("q")
    allocate(first, one)
    allocate(first, other)
    disk = Disk()
    restarted = manager(tmp_path, disk)
    restarted.retain(["q", "r"])
    restarted.retain(["q", "r"])
    assert disk.writes == 1
    assert (nodes_of(restarted, one), nodes_of(restarted, other)) == ("", "1")


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "checkpoint is corrupted"),
        (b'{"policyName": "None", "machineState": {}}', 'policy "Static" differs from state checkpoint policy "None"'),
        (
            b'{"policyName": "Static", "machineState": {}, "entries": {"p": {"c": []}}}',
            "machine state can not be empty when it has memory assignments",
        ),
        (b'{"policyName": "Static", "machineState": {"0": {}}}', "expected machine state is different from the real"),
    ],
)
def test_unusable_file_is_named_and_kept(tmp_path: Path, content: bytes, reason: str) -> None:
    (tmp_path / FILE).write_bytes(content)
    with pytest.raises(PolicyError, match=reason) as caught:
        manager(tmp_path)
    assert str(caught.value).endswith(
        f'please drain this node and delete the memory manager checkpoint file "{tmp_path}/{FILE}" '
        "before restarting Kubelet"
    )
    assert (tmp_path / FILE).read_bytes() == content


def test_link_in_place_of_the_file_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "other").write_bytes(b"{}")
    (tmp_path / FILE).symlink_to(tmp_path / "other")
    with pytest.raises(PolicyError, match="cannot read it"):
        manager(tmp_path)


def test_file_is_private_and_leaves_no_other(tmp_path: Path) -> None:
    (tmp_path / f".{FILE}.tmp").symlink_to(tmp_path / "victim")
    allocate(manager(tmp_path), guaranteed("p"))
    assert os.listdir(tmp_path) == [FILE]
    assert (tmp_path / FILE).stat().st_mode & 0o777 == 0o600


def test_older_write_replaces_no_later_one(tmp_path: Path) -> None:
    late: list[tuple[Callable[..., None], tuple[Any, ...]]] = []

    def blocking(timeout_s: float, function: Callable[..., None], *args: Any) -> Done:
        late.append((function, args))
        return Done()

    subject = MemoryManager(TWO, SETTINGS, str(tmp_path), blocking)
    allocate(subject, guaranteed("p"))
    subject.release("p")
    for function, args in reversed(late):
        function(*args)
    assert "entries" not in json.loads((tmp_path / FILE).read_bytes())


def test_empty_file_of_the_policy_is_filled(tmp_path: Path) -> None:
    (tmp_path / FILE).write_bytes(b'{"policyName": "Static", "machineState": {}, "checksum": 0}')
    assert manager(tmp_path).allocatable() == manager(tmp_path).allocatable() != []


@pytest.mark.parametrize(
    ("nodes", "settings", "reason"),
    [
        (TWO, MemorySettings(policy="Best"), 'unknown policy: "Best"'),
        (machine(*[(GI, 0)] * 17), SETTINGS, "cannot use memoryManagerPolicy Static on 17 NUMA nodes"),
        (TWO, MemorySettings(policy="Static"), "you should specify the system reserved memory"),
    ],
)
def test_settings_that_do_not_fit_are_refused(
    tmp_path: Path, nodes: Memory, settings: MemorySettings, reason: str
) -> None:
    with pytest.raises(PolicyError, match=reason):
        manager(tmp_path, settings=settings, nodes=nodes)
    assert os.listdir(tmp_path) == []


def reservations(*nodes: dict[str, str]) -> list[Reservation]:
    return [Reservation(number, limits) for number, limits in enumerate(nodes)]


@pytest.mark.parametrize(
    ("given", "kept", "expected"),
    [
        (reservations({"memory": "512Mi"}), {"memory": 512 * MI}, {0: {"memory": 512 * MI}, 1: {}}),
        (
            reservations({"memory": "512Mi"}, {"memory": "512Mi"}),
            {"memory": 1024 * MI, "cpu": 500},
            {0: {"memory": 512 * MI}, 1: {"memory": 512 * MI}},
        ),
        (
            reservations({"memory": "1Gi", HUGE: "1Gi"}, {HUGE: "1Gi"}),
            {"memory": GI * MI, HUGE: 2 * GI * MI},
            {0: {"memory": GI * MI, HUGE: GI * MI}, 1: {HUGE: GI * MI}},
        ),
        ([Reservation(0, {"memory": "1"}), Reservation(0, {"memory": "2"})], {"memory": 3}, {0: {"memory": 3}, 1: {}}),
        (reservations({"memory": "512Mi"}), {"memory": 513 * MI}, 'the total amount "536870912" of type "memory"'),
        (reservations({"memory": "512Mi"}), {}, 'is not equal to the value "0" determined by Node Allocatable'),
        ([], {"memory": 1}, 'the total amount "0" of type "memory" is not equal to the value "1"'),
        (reservations({"memory": "1", HUGE: "1Gi"}), {"memory": 1}, f'of type "{HUGE}" is not equal to the value "0"'),
        ([Reservation(2, {"memory": "1"})], {"memory": 1}, "references a NUMA node 2 that does not exist"),
        (
            reservations({"memory": "12", HUGE_2M: "70", HUGE: "13"}, {"memory": "5", HUGE_2M: "7"}),
            {"memory": 17, HUGE_2M: 77, HUGE: 13},
            {0: {"memory": 12, HUGE_2M: 70, HUGE: 13}, 1: {"memory": 5, HUGE_2M: 7}},
        ),
        (
            reservations({"memory": "12", HUGE_2M: "70", HUGE: "13"}, {"memory": "5", HUGE_2M: "7"}),
            {"memory": 17, HUGE_2M: 14, HUGE: 13},
            f'the total amount "77" of type "{HUGE_2M}" is not equal to the value "14"',
        ),
        (reservations({"memory": "12"}), {"memory": 5}, 'the total amount "12" of type "memory" .* value "5"'),
        ([], {HUGE_2M: 5}, f'the total amount "0" of type "{HUGE_2M}" is not equal to the value "5"'),
        (
            [Reservation(0, {"memory": "12"}), Reservation(2, {"memory": "5"})],
            {"memory": 17},
            "references a NUMA node 2 that does not exist on this machine",
        ),
        ([], {}, "you should specify the system reserved memory"),
        (reservations({"memory": "0"}), {"memory": 0}, "you should specify the system reserved memory"),
        (
            reservations({"memory": "12", HUGE_2M: "70", HUGE: "13"}),
            {"memory": 12, HUGE_2M: 70, HUGE: 13},
            {0: {"memory": 12, HUGE_2M: 70, HUGE: 13}, 1: {}},
        ),
        (
            reservations({"memory": "1Gi"}, {"memory": "2Gi"}),
            {"memory": 2 * GI * MI},
            'the total amount "3221225472" of type "memory" is not equal to the value "2147483648"',
        ),
        (reservations({HUGE: "1Gi"}), {HUGE: GI * MI}, "you should specify the system reserved memory"),
    ],
)
def test_reserved_memory_must_be_the_nodes_reservation(
    given: list[Reservation], kept: dict[str, int], expected: dict[int, dict[str, int]] | str
) -> None:
    if isinstance(expected, str):
        with pytest.raises(PolicyError, match=expected):
            reserved_by_node(given, kept, [0, 1])
    else:
        assert reserved_by_node(given, kept, [0, 1]) == expected


def test_reserved_memory_that_is_no_quantity_is_an_error() -> None:
    with pytest.raises(QuantityError):
        reserved_by_node([Reservation(0, {"memory": "much"})], {}, [0])
