"""Targets: state files of the managers of the node's resources."""

from __future__ import annotations

import json

from actors.resources.machine.memory import NodeMemory
from actors.resources.memory import static
from actors.resources.memory.model import PolicyError
from actors.resources.memory.state import decode
from tests.fuzz.target import Target

TABLE = {"total": 2048, "systemReserved": 512, "allocatable": 1536, "reserved": 512, "free": 1024}
MEMORY_STATE = {
    "policyName": "Static",
    "machineState": {
        "0": {"numberOfAssignments": 1, "memoryMap": {"hugepages-2Mi": {}, "memory": TABLE}, "cells": [0]},
    },
    "entries": {"u": {"c": [{"numaAffinity": [0], "type": "memory", "size": 512}]}},
    "checksum": 0,
}


def _memory_manager_state(data: bytes) -> None:
    try:
        state = decode(data, "Static")
    except ValueError:
        return
    empty = static.initial({0: NodeMemory(2048, {"hugepages-2Mi": 0})}, {0: {"memory": 512}})
    try:
        static.check(state, empty)
    except PolicyError:
        return
    for uid in list(state.entries):
        static.remove_pod(state, uid)
    assert sum(table.reserved for table in state.machine[0].tables.values()) == 0


TARGETS = (
    Target(
        "memory-manager-state",
        _memory_manager_state,
        (json.dumps(MEMORY_STATE).encode(), b"{}", b"[" * 5000),
        (b'"entries":', b'"cells":', b'"numaAffinity":'),
    ),
)
