"""Memory of pods with resources of their own (KEP-5526): the parts of containers, restarts, and the books."""

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from actors.resources.memory import pod_level, static
from actors.resources.memory.manager import MemoryManager, MemorySettings
from actors.resources.memory.model import AssignmentError, Block, State
from actors.resources.memory.reserved import Reservation
from actors.resources.memory.state import decode, encode
from actors.resources.model.pod_level import EmptyPoolError
from actors.resources.model.provider import AllocationError, NotYetError
from proto.resources.grants import Grant
from proto.v1 import Pod
from tests.resources.cpu.pods import at_once
from tests.resources.hints import finish, hint, hints
from tests.resources.memory import GI, HUGE, MI, all_containers, blocks, container, machine, pod

TWO = machine((3 * GI, GI), (3 * GI, GI))
EACH = tuple(Reservation(node, {"memory": "512Mi"}) for node in (0, 1))
SCOPE_POD = MemorySettings(policy="Static", reserved=EACH, kept={"memory": GI * MI}, topology_scope="pod")
GATE = MemorySettings(policy="Static", reserved=EACH, kept={"memory": GI * MI}, topology_scope="pod", pod_level=True)
SHARED: dict[str, Any] = {"name": "s"}


def empty() -> State:
    return static.initial(TWO, {0: {"memory": 512 * MI}, 1: {"memory": 512 * MI}})


def own(memory: int, *containers: Any, init: tuple[Any, ...] = (), huge: int | None = None, uid: str = "p") -> Pod:
    """A pod with this memory of its own."""
    return pod(uid, *containers, init=init, resources=container("", memory, huge)["resources"])


def side(name: str, *sizes: int) -> dict[str, Any]:
    return (container(name, *sizes) if sizes else {"name": name}) | {"restartPolicy": "Always"}


DIVIDED: list[tuple[Pod, dict[str, int]]] = [
    (own(1024, SHARED), {"s": 1024}),
    (own(1024, container("a", 512), SHARED), {"a": 512, "s": 512}),
    (own(1024, container("a", 512), container("b", 512)), {"a": 512, "b": 512}),
    (own(1024, container("a", 512)), {"a": 512}),
    (own(1024, container("a", 1024), init=(container("i", 1024),)), {"i": 1024, "a": 1024}),
    (
        own(1024, container("a", 256), SHARED, init=({"name": "i"}, side("r", 256), {"name": "j"})),
        {"i": 1024, "r": 256, "j": 768, "a": 256, "s": 512},
    ),
    (own(1024, container("a", 256), init=(side("r"), container("i", 512))), {"r": 768, "i": 512, "a": 256}),
]

REFUSED = [
    (own(512, container("a", 512), SHARED), "sum of exclusive container memory requests equals pod budget"),
    (own(512, container("a", 256), init=(side("r", 256), side("q"))), "leaving no memory for shared containers"),
    (own(512, container("a", 256), init=(side("r", 512), {"name": "i"})), "shared init containers but no memory"),
    (own(512, container("a", 256), init=(container("i", 513),)), f"requests {513 * MI} of memory, but only {512 * MI}"),
    (own(512, container("a", 512), init=(side("r", 1),)), "request more memory than the pod"),
    (own(512, container("a", 256, GI), SHARED, huge=GI), "container hugepages-1Gi requests equals pod budget"),
]


@pytest.mark.parametrize(("subject", "expected"), DIVIDED)
def test_pods_memory_is_divided(subject: Pod, expected: dict[str, int]) -> None:
    found = empty()
    assert pod_level.allocate(found, subject, hint("1+"))
    assert found.entries == {"p": {name: blocks("1", size) for name, size in expected.items()}}
    assert found.pods == {"p": blocks("1", 1024)}
    assert found.machine[1].tables["memory"].reserved == 1024 * MI
    assert found.machine[1].assignments == 1
    assert not pod_level.allocate(found, subject, hint("0+"))
    static.check(found, empty())
    names = [one.name for one in all_containers(subject)]
    for name in names[:-1]:
        static.remove(found, "p", name)
    assert found.machine[1].assignments == 1
    static.remove(found, "p", names[-1])
    assert found == empty()


def test_huge_pages_of_a_pod_are_divided() -> None:
    found = empty()
    subject = own(1024, container("a", 512, GI), container("b", 256), huge=GI)
    assert pod_level.allocate(found, subject, hint("0+"))
    assert found.entries == {"p": {"a": blocks("0", 512, GI), "b": blocks("0", 256)}}
    assert found.pods == {"p": blocks("0", 1024, GI)}
    assert found.machine[0].tables[HUGE].free == 0
    static.check(found, empty())
    assert static.remove_pod(found, "p")
    assert found == empty()


@pytest.mark.parametrize(("subject", "problem"), REFUSED)
def test_pod_that_leaves_nothing_to_share_is_refused(subject: Pod, problem: str) -> None:
    found = empty()
    with pytest.raises(EmptyPoolError, match=problem):
        pod_level.allocate(found, subject, hint("0+"))
    assert pod_level.pod_hints(found, subject)["memory"] == []
    assert found == empty()


def test_large_pod_is_on_a_group_of_nodes() -> None:
    found = empty()
    subject = own(2560, container("a", 512), SHARED)
    assert pod_level.pod_hints(found, subject) == {"memory": hints("01+")}
    assert pod_level.allocate(found, subject, hint("*-"))
    assert found.entries["p"] == {"a": blocks("01", 512), "s": blocks("01", 2048)}
    assert found.machine[0].group == found.machine[1].group == [0, 1]
    assert pod_level.pod_hints(found, subject) == {"memory": hints("01+")}
    other = own(256, SHARED, uid="q")
    assert pod_level.pod_hints(found, other) == {"memory": hints("01-")}
    static.check(found, empty())


STEPS = st.lists(
    st.tuples(
        st.integers(0, 4),
        st.booleans(),
        st.integers(0, 3000),
        st.integers(1, 2000),
        st.sampled_from(["*-", "*+", "0+", "1-", "01-"]),
    ),
    max_size=12,
)


@given(STEPS)
def test_any_history_keeps_the_books(steps: list[tuple[int, bool, int, int, str]]) -> None:
    found = empty()
    for number, arrives, size, part, affinity in steps:
        uid = str(number)
        if not arrives or uid in found.entries:
            static.remove_pod(found, uid)
            continue
        subject = own(size, container("a", part), SHARED, uid=uid) if size else pod(uid, container("a", part))
        try:
            if size:
                pod_level.allocate(found, subject, hint(affinity))
            else:
                static.allocate(found, subject, subject.spec.containers[0], hint(affinity))
        except (AssignmentError, EmptyPoolError):
            assert uid not in {**found.entries, **found.pods}
        static.check(found, empty())
        assert decode(encode(found, "Static"), "Static") == found
    for uid in list(found.entries):
        static.remove_pod(found, uid)
    assert found == empty()


def manager(directory: Path, settings: MemorySettings = GATE, *, full: bool = False) -> MemoryManager:
    def fail(*_args: Any) -> None:
        raise OSError(28, "No space left on device")

    def blocking(timeout_s: float, function: Any, *args: Any) -> Any:
        return at_once(timeout_s, fail if full else function, *args)

    return MemoryManager(TWO, settings, str(directory), blocking)


def allocate(memory: MemoryManager, subject: Pod) -> None:
    for each in all_containers(subject):
        finish(memory.allocate(subject, each, hint("0-")))


def kept(memory: MemoryManager, subject: Pod) -> list[tuple[Block, ...]]:
    return [memory.blocks(subject, each) for each in all_containers(subject)]


@pytest.mark.parametrize(
    ("settings", "subject", "expected", "pods"),
    [
        (GATE, own(128, container("a", 100)), [100], True),
        (SCOPE_POD, own(128, container("a", 100)), [0], False),
        (GATE, pod("p", container("a", 100), container("b", 100)), [100, 100], False),
        (SCOPE_POD, pod("p", container("a", 100), container("b", 100)), [100, 100], False),
    ],
)
def test_memory_survives_a_restart(
    tmp_path: Path, settings: MemorySettings, subject: Pod, expected: list[int], pods: bool
) -> None:
    allocate(manager(tmp_path, settings), subject)
    content = (tmp_path / "memory_manager_state").read_bytes()
    assert (b'"podEntries":{"p":' in content) == pods
    again = manager(tmp_path, settings)
    allocate(again, subject)
    assert kept(again, subject) == [tuple(blocks("0", size) if size else ()) for size in expected]
    assert (tmp_path / "memory_manager_state").read_bytes() == content


def test_container_that_shares_the_pods_memory_is_on_its_node(tmp_path: Path) -> None:
    memory, subject = manager(tmp_path), own(1024, container("a", 512), SHARED)
    allocate(memory, subject)
    assert [memory.grant(subject, each) for each in all_containers(subject)] == [Grant(memory_nodes="0")] * 2
    memory.retain([])
    assert kept(memory, subject) == [(), ()]


def test_pods_keep_their_memory_when_the_gate_goes_off(tmp_path: Path) -> None:
    subject = own(1024, container("a", 512), SHARED)
    allocate(manager(tmp_path), subject)
    without = manager(tmp_path, SCOPE_POD)
    allocate(without, subject)
    assert kept(without, subject) == [(blocks("0", 512)[0],)] * 2
    assert without.pod_hints(subject) == {}
    without.release("p")
    assert kept(manager(tmp_path), subject) == [(), ()]


def test_containers_have_memory_of_their_own_with_another_scope(tmp_path: Path) -> None:
    by_container = MemorySettings(policy="Static", reserved=EACH, kept={"memory": GI * MI}, pod_level=True)
    memory, subject = manager(tmp_path, by_container), own(1024, container("a", 512), SHARED)
    allocate(memory, subject)
    assert kept(memory, subject) == [(blocks("0", 512)[0],), ()]
    again = manager(tmp_path)
    allocate(again, subject)
    assert kept(again, subject) == [(blocks("0", 512)[0],), ()]


def test_pod_that_a_killed_kubelet_wrote_alone_is_dropped(tmp_path: Path) -> None:
    manager(tmp_path)
    path = tmp_path / "memory_manager_state"
    entry = b'"podEntries":{"p":{"memoryBlocks":[{"numaAffinity":[0],"type":"memory","size":512}]}},"checksum":0}'
    path.write_bytes(path.read_bytes().partition(b'"checksum"')[0] + entry)
    memory, subject = manager(tmp_path), own(1024, SHARED)
    allocate(memory, subject)
    assert kept(memory, subject) == [tuple(blocks("0", 1024))]


def test_pods_memory_that_cannot_be_written_is_not_assigned(tmp_path: Path) -> None:
    manager(tmp_path)
    memory, subject = manager(tmp_path, full=True), own(1024, container("a", 512), SHARED)
    with pytest.raises(NotYetError, match="No space left on device"):
        allocate(memory, subject)
    assert kept(memory, subject) == [(), ()]
    with pytest.raises(AllocationError, match="pod rejected") as caught:
        allocate(memory, own(512, container("a", 512), SHARED))
    assert caught.value.reason == "EmptyPodSharedPoolError"
