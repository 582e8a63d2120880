"""The kubelet's file memory_manager_state: upstream's own examples (state_checkpoint_test.go), and refusals."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from actors.resources.memory.model import Block, Node, State, Table
from actors.resources.memory.state import decode, encode

UPSTREAM: dict[str, Any] = {
    "policyName": "static",
    "machineState": {
        "0": {
            "numberOfAssignments": 0,
            "memoryMap": {
                "memory": {"total": 2048, "systemReserved": 512, "allocatable": 1536, "reserved": 512, "free": 1024}
            },
            "cells": [],
        }
    },
    "entries": {"pod": {"container1": [{"numaAffinity": [0], "type": "memory", "size": 512}]}},
    "checksum": 4215593881,
}
OF_1_36 = 2267633148
"""The checksum of a kubelet 1.36, which prints another name of the type."""
STATE = State(
    {0: Node(0, {"memory": Table(2048, 512, 1536, 512, 1024)}, [])},
    {"pod": {"container1": [Block([0], "memory", 512)]}},
)


POD_ENTRIES = {"pod": {"memoryBlocks": [{"numaAffinity": [0], "type": "memory", "size": 512}]}}


def content(**changes: Any) -> bytes:
    return json.dumps(UPSTREAM | changes).encode()


@pytest.mark.parametrize("checksum", [UPSTREAM["checksum"], OF_1_36, 0])
def test_kubelets_file_is_read(checksum: int) -> None:
    assert decode(content(checksum=checksum), "static") == STATE


def test_file_is_the_kubelets() -> None:
    assert json.loads(encode(STATE, "static")) == UPSTREAM


def test_pods_with_memory_of_their_own_are_the_kubelets() -> None:
    state = State(STATE.machine, STATE.entries, {"pod": [Block([0], "memory", 512)]})
    written = UPSTREAM | {"podEntries": POD_ENTRIES, "checksum": 1278640530}
    for pod_level in (False, True):
        assert json.loads(encode(state, "static", pod_level=pod_level)) == written
    for checksum in (1278640530, 0):
        assert decode(content(podEntries=POD_ENTRIES, checksum=checksum), "static") == state
    with pytest.raises(ValueError, match="checkpoint is corrupted"):
        decode(content(podEntries=POD_ENTRIES, checksum=101010), "static")


def test_version_2_without_such_pods_is_read_by_any() -> None:
    written = encode(STATE, "static", pod_level=True)
    assert json.loads(written).keys() == UPSTREAM.keys()
    assert json.loads(written)["checksum"] != UPSTREAM["checksum"]
    assert decode(written, "static") == STATE


def test_file_without_assignments_has_no_entries() -> None:
    written = encode(State(), "None")
    assert json.loads(written).keys() == {"policyName", "machineState", "checksum"}
    assert decode(written, "None") == State()


def test_maps_are_in_the_order_of_go() -> None:
    many = State({number: Node(0, {}, [number]) for number in range(12)})
    assert list(json.loads(encode(many, "Static"))["machineState"])[:4] == ["0", "1", "10", "11"]
    assert decode(encode(many, "Static"), "Static") == many


@pytest.mark.parametrize(
    ("damaged", "reason"),
    [
        (b"", "checkpoint is corrupted: "),
        (b"{", "checkpoint is corrupted: "),
        (b"null", "checkpoint is corrupted: "),
        (b"[" * 5000, "checkpoint is corrupted: "),
        (b'{"policyName": "\xff"}', "checkpoint is corrupted: "),
        (content(checksum=101010), "checkpoint is corrupted$"),
        (content(checksum=-1), "checkpoint is corrupted$"),
        (content(policyName="Static"), "checkpoint is corrupted$"),
        (content(entries={}), "checkpoint is corrupted$"),
        (content(machineState={}), "checkpoint is corrupted$"),
        (content(machineState=None), "checkpoint is corrupted: "),
        (content(machineState={"x": UPSTREAM["machineState"]["0"]}), "checkpoint is corrupted: "),
        (content(machineState={"-1": UPSTREAM["machineState"]["0"]}), "checkpoint is corrupted: "),
        (content(entries={"pod": {"c": [{"size": -1}]}}, checksum=0), "checkpoint is corrupted: "),
        (content(entries={"pod": {"c": [{"size": 2**63}]}}, checksum=0), "checkpoint is corrupted: "),
        (content(entries={"pod": {"c": [{"numaAffinity": [-1]}]}}, checksum=0), "checkpoint is corrupted: "),
        (content(entries=[]), "checkpoint is corrupted: "),
        (content(policyName="None", checksum=0), 'policy "static" differs from state checkpoint policy "None"'),
        (b"{}", 'configured policy "static" differs from state checkpoint policy ""'),
    ],
)
def test_damaged_and_foreign_files_are_refused(damaged: bytes, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        decode(damaged, "static")


def test_unknown_fields_are_ignored_as_by_go() -> None:
    assert decode(content(data="{}", podEntries={}), "static") == STATE


COUNTS = st.integers(0, 2**63 - 1)
IDS = st.integers(0, 20)
NAMES = st.text(st.characters(blacklist_categories=("Cs",)), max_size=4)
TABLES = st.builds(Table, COUNTS, COUNTS, COUNTS, COUNTS, COUNTS)
NODES = st.builds(Node, st.integers(0, 9), st.dictionaries(NAMES, TABLES, max_size=2), st.lists(IDS, max_size=3))
BLOCKS = st.lists(st.builds(Block, st.lists(IDS, max_size=3), NAMES, COUNTS), max_size=2)
ENTRIES = st.dictionaries(NAMES, st.dictionaries(NAMES, BLOCKS, max_size=2), max_size=2)
STATES = st.builds(State, st.dictionaries(IDS, NODES, max_size=3), ENTRIES)


@given(STATES)
def test_state_survives_the_file(any_state: State) -> None:
    assert decode(encode(any_state, "Static"), "Static") == any_state


@given(STATES, COUNTS)
def test_changed_state_has_another_checksum(any_state: State, size: int) -> None:
    any_state.entries = {"u": {"c": [Block([0], "memory", size)]}}
    written = json.loads(encode(any_state, "Static"))
    written["entries"]["u"]["c"][0]["size"] = (size + 1) % 2**62
    with pytest.raises(ValueError, match="checkpoint is corrupted"):
        decode(json.dumps(written).encode(), "Static")
