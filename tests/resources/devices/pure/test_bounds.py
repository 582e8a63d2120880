"""Bounds on what all device plugins together put into the checkpoint, and a checkpoint that cannot be read."""

from __future__ import annotations

from actors.resources.devices import inventory
from actors.resources.devices.holdings import Holding, Holdings
from actors.resources.devices.inventory import MOST_PLACEMENTS, Device, Inventory
from actors.resources.devices.unread import Unread
from actors.resources.model.hints import ANY
from actors.resources.model.plugin_bounds import MOST_TIME, error_text, rest_s


def listed(count: int, length: int) -> list[Device]:
    return [Device(f"{number:06}".ljust(length, "x")) for number in range(count)]


def test_ids_of_all_resources_are_bounded_together() -> None:
    subject = Inventory()
    for name in ("a", "b"):
        subject.connect(name)
    assert not subject.problem("a", listed(16_384, 235))
    subject.update("a", listed(16_384, 235))
    assert not subject.problem("a", listed(16_384, 235)), "a list replaces the resource's own"
    assert subject.problem("b", listed(16_384, 235)) == (
        f"it lists 16384 devices with IDs of 3850240 bytes, with other resources more than {inventory.MOST_ID_BYTES}"
    )
    assert not subject.problem("b", listed(4000, 40))


def test_devices_of_all_resources_are_bounded_together() -> None:
    subject = Inventory()
    for name in "abcd":
        subject.connect(name)
        subject.update(name, listed(16_384, 6))
    subject.connect("e")
    assert "it lists 1 devices, with other resources more than 65536" in subject.problem("e", listed(1, 6))


def test_places_of_all_devices_are_bounded_together() -> None:
    subject = Inventory()
    for name in "ab":
        subject.connect(name)
    near = [Device(one.id, nodes=frozenset(range(64))) for one in listed(1000, 6)]
    assert not subject.problem("a", near)
    subject.update("a", near)
    assert not subject.problem("a", near), "a list replaces the resource's own"
    assert subject.problem("b", near[:100]) == (
        f"it lists 100 devices at 6400 places near NUMA nodes, with other resources more than {MOST_PLACEMENTS}"
    )
    assert not subject.problem("b", listed(1000, 6)), "a device without nodes has one place"


def test_plugins_rest_for_longer_the_more_time_they_take() -> None:
    assert rest_s(0.0, 0, 0.1) == rest_s(0.001, 1, 0.1) == 0.1
    assert rest_s(0.2, 1, 0.1) == 0.2 / MOST_TIME
    assert rest_s(0.2, 8, 0.1) == 8 * 0.2 / MOST_TIME


def test_errors_of_plugins_are_cut() -> None:
    assert error_text(300 * "x") == 300 * "x"
    assert error_text(5000 * "x") == 1021 * "x" + "..."


def test_cost_counts_each_node_and_leaves_admissions_out() -> None:
    held = Holding("u", "c", "r", {0: ("d0",), 1: ("d0", "d1")}, b"1234")
    chosen = Holding("v", "c", "r", {0: ("d2",)}, chosen_for=ANY)
    assert held.cost == 16 + 9
    assert Holdings([held, chosen]).cost(but=chosen) == 25
    assert Holdings([held, chosen]).cost(but=held) == 0


def test_no_device_is_given_until_pods_of_before_are_gone() -> None:
    subject = Unread()
    assert not subject.problem
    subject.begin("is larger than 9 bytes")
    assert "all pods of the node may hold devices" in subject.problem
    assert not subject.release("x")
    assert not subject.retain(["a", "b"])
    assert not subject.retain(["a", "new"])
    assert "1 pods of before" in subject.problem
    assert subject.release("a")
    assert (subject.problem, subject.lasts) == ("", False)
