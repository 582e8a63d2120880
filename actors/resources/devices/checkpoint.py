"""The checkpoint ROOT_DIR/device-plugins/kubelet_internal_checkpoint, in the kubelet's format. Pure.

A node can change between the kubelet and nodevisor: both read each other's file. Source: the format and checksum of
pkg/kubelet/cm/devicemanager/checkpoint and of go-spew's `%#v`, which the checksum is over.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterable, Mapping

import msgspec

from actors._host.files.hashing import fnv1a_32
from actors._host.files.paths import DEVICE_CHECKPOINT
from actors.resources.devices.holdings import Holding
from proto.common import untrusted

FILE = DEVICE_CHECKPOINT
MOST_BYTES = 64 << 20
_NIL = "<nil>"


class DamagedError(Exception):
    """The file is damaged; the message says how."""


_NAMES = {
    "pod_uid": "PodUID", "container": "ContainerName", "resource": "ResourceName", "devices": "DeviceIDs",
    "response": "AllocResp", "entries": "PodDeviceEntries", "registered": "RegisteredDevices",
    "data": "Data", "checksum": "Checksum", "boot_id": "BootID",
}  # fmt: skip
"""The fields of Go's structs."""


class _Entry(msgspec.Struct, rename=_NAMES):
    pod_uid: str
    container: str
    resource: str
    devices: dict[int, list[str] | None] | None
    response: str | None
    """Base64."""


class _Data(msgspec.Struct, rename=_NAMES):
    entries: list[_Entry] | None
    registered: dict[str, list[str] | None] | None


class _File(msgspec.Struct, omit_defaults=True, rename=_NAMES):
    data: _Data
    checksum: int
    boot_id: str = ""
    """Boot ID of the machine when it was written; the kubelet of 1.36 and before leaves it out."""


def encode(holdings: Iterable[Holding], registered: Mapping[str, Iterable[str]], boot_id: str) -> bytes:
    """The file's content. `registered`: healthy devices by resource."""
    entries = [
        _Entry(
            one.pod_uid,
            one.container,
            one.resource,
            {node: list(ids) for node, ids in sorted(one.by_node.items())},
            base64.b64encode(one.response).decode(),
        )
        for one in holdings
    ]
    data = _Data(entries or None, {name: list(ids) for name, ids in sorted(registered.items())})
    return msgspec.json.encode(_File(data, _checksum(data), boot_id))


def decode(content: bytes, boot_id: str) -> tuple[list[Holding], tuple[str, ...]]:
    """(holdings, names of registered resources) of a file's content. Raises DamagedError."""
    try:
        file = untrusted.decode_json(content, _File)
        matches = file.checksum == _checksum(file.data)
        earlier = not file.boot_id or file.boot_id != boot_id
        entries = [_holding(one, earlier_boot=earlier) for one in file.data.entries or ()]
    except (msgspec.DecodeError, binascii.Error, ValueError) as error:
        raise DamagedError(str(error)) from error
    if not matches:
        raise DamagedError("its checksum is not that of its data")
    return entries, tuple(file.data.registered or ())


def _holding(entry: _Entry, *, earlier_boot: bool) -> Holding:
    by_node = {node: tuple(ids or ()) for node, ids in (entry.devices or {}).items()}
    response = base64.b64decode(entry.response or "", validate=True)
    return Holding(entry.pod_uid, entry.container, entry.resource, by_node, response, earlier_boot)


def _checksum(data: _Data) -> int:
    return fnv1a_32(_printed(data).encode("utf-8", "surrogatepass"))


def _printed(data: _Data) -> str:
    entries = _NIL
    if data.entries is not None:
        entries = f"[{' '.join(_printed_entry(one) for one in data.entries)}]"
    registered = _NIL
    if data.registered is not None:
        by_name = sorted(data.registered.items(), key=lambda item: item[0].encode("utf-8", "surrogatepass"))
        registered = f"map[{' '.join(f'{name}:{_printed_list(ids)}' for name, ids in by_name)}]"
    return (
        f"(checkpoint.checkpointData){{PodDeviceEntries:([]checkpoint.PodDevicesEntry){entries} "
        f"RegisteredDevices:(map[string][]string){registered}}}"
    )


def _printed_entry(entry: _Entry) -> str:
    devices = _NIL
    if entry.devices is not None:
        devices = f"map[{' '.join(f'{node}:{_printed_list(ids)}' for node, ids in sorted(entry.devices.items()))}]"
    response = _NIL
    if entry.response is not None:
        response = f"[{' '.join(map(str, base64.b64decode(entry.response, validate=True)))}]"
    return (
        f"{{PodUID:(string){entry.pod_uid} ContainerName:(string){entry.container} "
        f"ResourceName:(string){entry.resource} DeviceIDs:(checkpoint.DevicesPerNUMA){devices} "
        f"AllocResp:([]uint8){response}}}"
    )


def _printed_list(items: list[str] | None) -> str:
    return _NIL if items is None else f"[{' '.join(items)}]"
