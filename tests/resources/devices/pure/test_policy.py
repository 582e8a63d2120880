from unittest.mock import AsyncMock

import pytest
from hypothesis import given
from hypothesis import strategies as st

from actors.resources.devices import numa, policy
from actors.resources.devices.allocation import Allocation
from actors.resources.devices.holdings import Holding, Holdings
from actors.resources.devices.inventory import GRACE_S, Device, Inventory, Resource
from actors.resources.devices.unread import Unread
from actors.resources.model.hints import ANY, Hint
from actors.resources.model.provider import AllocationError, NotYetError
from tests.resources.devices.pods import GPU, claimed, container, pod

NONE: frozenset[str] = frozenset()


def resource(**nodes: tuple[int, ...]) -> Resource:
    """Devices by ID, with their NUMA nodes."""
    return Resource({one: Device(one, True, frozenset(of)) for one, of in nodes.items()}, connected=True, listed=True)


FOUR = resource(a=(0,), b=(0,), c=(1,), d=(1,))
MIXED = resource(a=(0,), b=(1,), c=())


def near(*nodes: int) -> Hint:
    return Hint(frozenset(nodes), preferred=True)


@pytest.mark.parametrize(
    ("devices", "required", "in_use", "reusable", "affinity", "preferred", "expected"),
    [
        (FOUR, 1, "", "", ANY, "", "a"),
        (FOUR, 1, "a", "", ANY, "", "b"),
        (FOUR, 1, "", "", ANY, "d", "d"),
        (FOUR, 2, "", "", ANY, "xd", "da"),
        (FOUR, 2, "c", "", ANY, "cd", "da"),
        (FOUR, 1, "", "", near(1), "", "c"),
        (FOUR, 1, "", "", near(1), "a", "c"),
        (FOUR, 1, "", "", near(1), "d", "d"),
        (FOUR, 2, "", "", near(1), "ab", "cd"),
        (FOUR, 3, "", "", near(1), "b", "cdb"),
        (FOUR, 3, "", "", near(0, 1), "bcd", "bcd"),
        (FOUR, 2, "cd", "cd", ANY, "ab", "cd"),
        (FOUR, 3, "cd", "cd", ANY, "b", "cdb"),
        (FOUR, 1, "cd", "cd", ANY, "b", "c"),
        (MIXED, 2, "", "", near(1), "", "ba"),
        (MIXED, 2, "", "", near(1), "c", "bc"),
        (MIXED, 3, "", "", near(1), "", "bac"),
        (resource(a=(), b=()), 1, "", "", near(1), "b", "b"),
    ],
)
def test_devices_are_chosen_as_the_kubelet_does(
    devices: Resource, required: int, in_use: str, reusable: str, affinity: Hint, preferred: str, expected: str
) -> None:
    choice = policy.choose(GPU, devices, required, frozenset(in_use), frozenset(reusable), affinity)
    assert "".join(policy.complete(choice, preferred)) == expected


def test_too_few_devices_reject_the_pod_in_the_kubelets_words() -> None:
    with pytest.raises(AllocationError) as caught:
        policy.choose(GPU, FOUR, 3, frozenset("ab"), NONE, ANY)
    assert caught.value.reason == "UnexpectedAdmissionError"
    assert str(caught.value) == (
        "Allocate failed due to requested number of devices unavailable for vendor.test/gpu. "
        "Requested: 3, Available: 2, which is unexpected"
    )


@given(
    st.dictionaries(st.sampled_from("abcdefgh"), st.frozensets(st.integers(0, 2))),
    st.integers(1, 9),
    st.frozensets(st.sampled_from("abcdefgh")),
    st.frozensets(st.sampled_from("abcdefgh")),
    st.one_of(st.none(), st.frozensets(st.integers(0, 2))),
    st.lists(st.sampled_from("abcdefghxyz")),
)
def test_no_device_is_given_twice_whatever_the_plugin_prefers(
    nodes: dict[str, frozenset[int]], required: int, in_use: frozenset[str], own: frozenset[str],
    affinity: frozenset[int] | None, preferred: list[str],
) -> None:  # fmt: skip
    devices = resource(**{one: tuple(of) for one, of in nodes.items()})
    reusable = in_use & own
    try:
        choice = policy.choose(GPU, devices, required, in_use, reusable, Hint(affinity, preferred=True))
    except AllocationError:
        assert len(devices.healthy - (in_use - reusable)) < required
        return
    taken = policy.complete(choice, preferred)
    assert len(taken) == len(set(taken)) == required
    assert set(taken) <= devices.healthy - (in_use - reusable)


def test_a_plugin_that_is_away_is_waited_for() -> None:
    for one in (None, Resource(), Resource(connected=True)):
        with pytest.raises(NotYetError):
            policy.check_ready(GPU, one, NONE)


def test_a_connected_plugin_without_healthy_devices_rejects() -> None:
    sick = Resource({"a": Device("a", False)}, connected=True, listed=True)
    with pytest.raises(AllocationError, match="no healthy devices present"):
        policy.check_ready(GPU, sick, NONE)


def test_a_device_that_fell_ill_rejects_its_pod() -> None:
    with pytest.raises(AllocationError, match="previously allocated devices are no longer healthy"):
        policy.check_ready(GPU, FOUR, frozenset("x"))


@pytest.mark.parametrize(
    ("rpc", "message"),
    [
        ("Allocate", "Allocate failed due to no, which is unexpected"),
        (
            "GetPreferredAllocation",
            "Allocate failed due to device plugin GetPreferredAllocation rpc failed with err: no, which is unexpected",
        ),
    ],
)
def test_a_failed_call_rejects_in_the_kubelets_words(rpc: str, message: str) -> None:
    assert str(policy.call_failure(GPU, rpc, "Internal", "no")) == message


def test_only_limits_of_extended_resources_are_requests() -> None:
    one = pod("u", {"name": "c", "image": "i", "resources": {"limits": {"cpu": "1", GPU: "2", "a.test/none": "0"}}})
    assert policy.requests(one, one.spec.containers[0]) == {GPU: 2}


def test_no_plugin_is_asked_for_what_a_claim_gives() -> None:
    subject = claimed(pod("u", container("c", 1), container("d", 2)))
    found = [policy.requests(subject, one) for one in subject.spec.containers]
    assert (found, numa.pod_requests(subject)) == ([{}, {GPU: 2}], {GPU: 2})


def test_claim_is_not_held_back_by_a_plugin_that_has_gone() -> None:
    inventory, holdings = Inventory(), Holdings()
    inventory.restore([GPU], 0.0)
    inventory.expire(GRACE_S)
    allocation = Allocation(inventory, holdings, {}, AsyncMock(), Unread())
    subject = pod("u", container("c"))
    with pytest.raises(NotYetError):
        allocation.choose(subject, subject.spec.containers[0], ANY)
    allocation.choose(claimed(subject), subject.spec.containers[0], ANY)
    assert not list(holdings)


def test_containers_reuse_devices_of_ended_init_containers() -> None:
    subject = pod(
        "u",
        container("one"), container("two"),
        init=(container("plain"), container("sidecar", restartPolicy="Always"), container("last")),
    )  # fmt: skip
    every = {one.name: one for one in (*subject.spec.init_containers, *subject.spec.containers)}
    held = Holdings(Holding("u", name, GPU, {-1: tuple(ids)}) for name, ids in [("plain", "ab"), ("sidecar", "a")])
    free = {name: "".join(sorted(held.reusable(subject, one, GPU))) for name, one in every.items()}
    assert free == {"plain": "", "sidecar": "ab", "last": "b", "one": "b", "two": "b"}
    held.put(Holding("u", "one", GPU, {-1: ("b",)}))
    assert held.reusable(subject, every["two"], GPU) == NONE


@pytest.mark.parametrize(
    ("devices", "requested", "in_use", "reusable", "held", "expected"),
    [
        (FOUR, 1, "", "", "", [((0,), True), ((1,), True), ((0, 1), False)]),
        (FOUR, 2, "a", "", "", [((1,), True), ((0, 1), False)]),
        (FOUR, 3, "", "", "", [((0, 1), True)]),
        (FOUR, 2, "ac", "", "", [((0, 1), False)]),
        (FOUR, 5, "", "", "", []),
        (FOUR, 1, "ab", "a", "", [((0,), True), ((0, 1), False)]),
        (FOUR, 2, "ab", "", "ab", [((0,), True), ((0, 1), False)]),
        (FOUR, 2, "a", "", "a", []),
        (resource(a=(), b=()), 1, "", "", "", None),
    ],
)
def test_hints_are_those_of_the_kubelet(
    devices: Resource, requested: int, in_use: str, reusable: str, held: str,
    expected: list[tuple[tuple[int, ...], bool]] | None,
) -> None:  # fmt: skip
    found = numa.hints(
        devices, (0, 1), requested,
        held=frozenset(held), in_use=frozenset(in_use), reusable=frozenset(reusable),
    )  # fmt: skip
    assert found == (None if expected is None else [Hint(frozenset(of), preferred=good) for of, good in expected])


def test_a_pods_request_counts_init_containers_and_sidecars() -> None:
    subject = pod(
        "u", container("a", 1), container("b", 2), init=(container("s", 1, restartPolicy="Always"), container("i", 5))
    )
    assert numa.pod_requests(subject) == {GPU: 6}


def test_capacity_stays_while_the_plugin_is_away_until_the_grace_ends() -> None:
    inventory = Inventory()
    inventory.connect(GPU)
    assert inventory.update(GPU, [Device("a"), Device("b", False)])
    assert (inventory.capacity(), inventory.allocatable()) == ({GPU: 2}, {GPU: 1})
    inventory.disconnect(GPU, 100.0)
    assert (inventory.capacity(), inventory.allocatable()) == ({GPU: 2}, {GPU: 0})
    assert inventory.expire(100.0 + GRACE_S - 1) == NONE
    assert inventory.expire(100.0 + GRACE_S) == {GPU}
    assert (inventory.capacity(), inventory.allocatable(), inventory.knows(GPU)) == ({GPU: 0}, {GPU: 0}, True)


@pytest.mark.parametrize(
    ("devices", "is_change"),
    [
        ([Device("a"), Device("b")], False),
        ([Device("b"), Device("a")], False),
        ([Device("a"), Device("b", False)], True),
        ([Device("a")], True),
        ([Device("a"), Device("b"), Device("c")], True),
        ([Device("a"), Device("b", nodes=frozenset({1}))], True),
    ],
)
def test_only_lists_with_other_devices_are_changes(devices: list[Device], is_change: bool) -> None:
    inventory = Inventory()
    inventory.connect(GPU)
    assert inventory.update(GPU, [Device("a"), Device("b")])
    assert inventory.update(GPU, devices) == is_change
    inventory.disconnect(GPU, 0.0)
    inventory.connect(GPU)
    assert inventory.update(GPU, devices), "a connected plugin's first list"


def test_a_restored_resource_has_no_capacity_until_it_registers() -> None:
    inventory = Inventory()
    inventory.restore([GPU], 0.0)
    assert (inventory.capacity(), inventory.allocatable()) == ({GPU: 0}, {GPU: 0})


def test_devices_of_an_allocation_under_way_are_not_a_containers() -> None:
    """The kubelet notes them once the plugin has answered. Until then no other container gets them."""
    earlier = Holding("u", "c", "a.example/old", {-1: ("o",)}, earlier_boot=True)
    holdings = Holdings([earlier, Holding("u", "c", GPU, {-1: ("a",)}, chosen_for=ANY)])
    assert holdings.of_container("u", "c") == [earlier]
    assert holdings.in_use(GPU) == {"a"}
    holdings.put(held := Holding("u", "c", GPU, {-1: ("a",)}))
    assert holdings.of_container("u", "c") == [earlier, held]
