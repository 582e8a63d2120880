"""The state file dra_manager_state, in the kubelet's format: claims that drivers may have prepared. Pure.

A node can change between the kubelet and nodevisor: both read each other's file. Source: the format and checksum of
pkg/kubelet/cm/dra/state of Kubernetes 1.36.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable

import msgspec

from actors.resources.dra.claims import Claim, Device, Key
from proto.common import untrusted

KIND, API_VERSION = "DRACheckpoint", "checkpoint.dra.kubelet.k8s.io/v1"

_NAMES = {
    "pool": "PoolName", "name": "DeviceName", "share_id": "ShareID", "requests": "RequestNames",
    "cdi_names": "CDIDeviceIDs", "devices": "Devices", "uid": "ClaimUID", "claim": "ClaimName",
    "namespace": "Namespace", "pod_uids": "PodUIDs", "drivers": "DriverState", "kind": "kind",
    "api_version": "apiVersion", "entries": "Entries", "data": "Data", "checksum": "Checksum",
}  # fmt: skip
"""The fields of Go's structs."""


class _Device(msgspec.Struct, rename=_NAMES):
    pool: str
    name: str
    share_id: str | None = None
    requests: list[str] | None = None
    cdi_names: list[str] | None = None


class _Driver(msgspec.Struct, rename=_NAMES):
    devices: list[_Device] | None = None


class _Entry(msgspec.Struct, rename=_NAMES):
    uid: str
    claim: str
    namespace: str
    pod_uids: dict[str, dict[str, str]] | None
    """A set: its keys."""
    drivers: dict[str, _Driver] | None


class _Data(msgspec.Struct, rename=_NAMES):
    kind: str
    api_version: str
    entries: list[_Entry] | None


class _File(msgspec.Struct, rename=_NAMES):
    data: str
    """JSON."""
    checksum: int
    """CRC-32 of `data`."""


def encode(claims: Iterable[Claim]) -> bytes:
    """The file's content."""
    entries = [_entry(one) for one in sorted(claims, key=lambda claim: claim.key)]
    data = msgspec.json.encode(_Data(KIND, API_VERSION, entries or None))
    return msgspec.json.encode(_File(data.decode(), zlib.crc32(data)))


def decode(content: bytes) -> list[Claim]:
    """The claims of a file's content, none of them prepared. Raises ValueError; the message says what is wrong."""
    file = untrusted.decode_json(content, _File)
    data = file.data.encode("utf-8", "surrogatepass")
    if file.checksum != zlib.crc32(data):
        raise ValueError("checkpoint is corrupted")
    found = untrusted.decode_json(data, _Data)
    if (found.kind, found.api_version) != (KIND, API_VERSION):
        raise ValueError(f"it is a {found.api_version} {found.kind}, not a {API_VERSION} {KIND}")
    return [_claim(one) for one in found.entries or ()]


def _entry(claim: Claim) -> _Entry:
    drivers = {
        driver: _Driver(
            [
                _Device(one.pool, one.name, one.share_id, list(one.requests) or None, list(one.cdi_names) or None)
                for one in devices
            ]
            or None
        )
        for driver, devices in sorted(claim.devices.items())
    }
    users: dict[str, dict[str, str]] = {uid: {} for uid in sorted(claim.pod_uids)}
    return _Entry(claim.uid, claim.key.name, claim.key.namespace, users, drivers)


def _claim(entry: _Entry) -> Claim:
    devices = {
        driver: tuple(
            Device(one.pool, one.name, one.share_id, tuple(one.requests or ()), tuple(one.cdi_names or ()))
            for one in state.devices or ()
        )
        for driver, state in (entry.drivers or {}).items()
    }
    return Claim(Key(entry.namespace, entry.claim), entry.uid, set(entry.pod_uids or ()), devices)
