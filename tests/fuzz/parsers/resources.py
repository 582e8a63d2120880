"""Targets: state files of the managers of the node's resources."""

from __future__ import annotations

import json

import msgspec
import yaml
from google.protobuf.message import DecodeError

from actors.resources.devices import answers, checkpoint
from actors.resources.dra import answers as dra_answers
from actors.resources.dra import checkpoint as dra_checkpoint
from actors.resources.dra.claims import Claim, Device, Key
from actors.resources.dra.policy import ClaimError
from actors.resources.errors import PolicyError
from actors.resources.machine.memory import NodeMemory
from actors.resources.memory import static
from actors.resources.memory.state import decode
from actors.resources.model.cdi import is_cdi_name
from actors.runtime.oci import cdi
from proto.cri import api_pb2 as cri
from proto.plugins import deviceplugin_pb2 as device_plugin
from proto.plugins import dra_pb2 as dra
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


DEVICES = (
    b'{"Data":{"PodDeviceEntries":[{"PodUID":"u","ContainerName":"c","ResourceName":"a.test/b","DeviceIDs":{"-1":["d"]},'
    b'"AllocResp":"CgYKAUESATE="}],"RegisteredDevices":{"a.test/b":["d"]}},"Checksum":0,"BootID":"b"}'
)


def _devices_checkpoint(data: bytes) -> None:
    try:
        holdings, registered = checkpoint.decode(data, "b")
    except checkpoint.DamagedError:
        return
    again, names = checkpoint.decode(checkpoint.encode(holdings, dict.fromkeys(registered, ()), "b"), "b")
    assert ({one.ids for one in again}, set(names)) == ({one.ids for one in holdings}, set(registered))


def _allocate_response(data: bytes) -> None:
    try:
        grant = answers.read_grant(device_plugin.ContainerAllocateResponse.FromString(data))
        answers.read_devices(device_plugin.ListAndWatchResponse.FromString(data))
    except (DecodeError, answers.BadAnswerError):
        return
    assert all(one.host_path.startswith("/") and "/../" not in one.host_path for one in grant.devices)


CLAIMS = dra_checkpoint.encode([Claim(Key("n", "c"), "u", {"p"}, {"d": (Device("p", "d", "s", ("r",), ("v/c=1",)),)})])
PREPARED = dra.NodePrepareResourceResponse(
    devices=[dra.Device(pool_name="p", device_name="d", request_names=["r"], cdi_device_ids=["v/c=1"], share_id="s")]
)


def _dra_manager_state(data: bytes) -> None:
    try:
        claims = dra_checkpoint.decode(data)
    except ValueError:
        return
    by_key = {one.key: one for one in claims}
    assert {one.key: one for one in dra_checkpoint.decode(dra_checkpoint.encode(by_key.values()))} == by_key


def _dra_driver_answer(data: bytes) -> None:
    try:
        devices = dra_answers.devices("d", dra.NodePrepareResourceResponse.FromString(data))
    except (DecodeError, ClaimError):
        return
    assert all(is_cdi_name(name) for one in devices for name in one.cdi_names)


CDI = (
    b'{"cdiVersion": "0.6.0", "kind": "v.test/c", "devices": [{"name": "d", "containerEdits": {"env": ["A=1"],'
    b' "deviceNodes": [{"path": "/dev/null"}], "additionalGids": [44],'
    b' "mounts": [{"hostPath": "/", "containerPath": "/a", "options": ["ro"]}]}}]}'
)


def _cdi_specification(data: bytes) -> None:
    for name in ("a.json", "a.yaml"):
        try:
            spec = cdi._decoded(name, data)
        except (msgspec.DecodeError, yaml.YAMLError):
            continue
        for device in spec.devices:
            try:
                cdi._check(device.name, device.container_edits, True)
                cdi._make(cri.ContainerConfig(), device.name, device.container_edits)
            except cdi.CdiError:
                continue


TARGETS = (
    Target(
        "cdi-specification", _cdi_specification, (CDI, b"kind: v.test/c", b"[" * 5000), (b'"hooks":', b"null", b"&a ")
    ),
    Target("dra-manager-state", _dra_manager_state, (CLAIMS, b"{}", b"[" * 5000), (b'"Data":', b"Entries")),
    Target("dra-driver-answers", _dra_driver_answer, (PREPARED.SerializeToString(), b""), (b"\x22\x05", b"/c=")),
    Target("devices-checkpoint", _devices_checkpoint, (DEVICES, b"{}", b"[" * 5000), (b'"Data":', b'"DeviceIDs":')),
    Target(
        "device-plugin-answers",
        _allocate_response,
        (
            device_plugin.ContainerAllocateResponse(
                envs={"A": "1"}, devices=[device_plugin.DeviceSpec(container_path="/c", host_path="/h")]
            ).SerializeToString(),
            b"",
        ),
        (b"/../", b"\x1a\x04"),
    ),
    Target(
        "memory-manager-state",
        _memory_manager_state,
        (json.dumps(MEMORY_STATE).encode(), b"{}", b"[" * 5000),
        (b'"entries":', b'"cells":', b'"numaAffinity":'),
    ),
)
