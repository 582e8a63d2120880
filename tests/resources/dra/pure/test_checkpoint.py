"""The state file dra_manager_state. The contents and checksums are those of upstream's tests."""

from __future__ import annotations

import json
import zlib

import pytest

from actors.resources.dra import checkpoint
from actors.resources.dra.claims import Claim, Device, Key

POD = "139cdb46-f989-4f17-9561-ca10cfb509a6"
DEVICE = Device("worker-1", "dev-1", None, ("test request",), ("example.com/example=cdi-example",))
CLAIM = Claim(
    Key("default", "example"),
    "067798be-454e-4be4-9047-1aa06aea63f7",
    {POD},
    {"test-driver.cdi.k8s.io": (DEVICE,)},
)
OF_A_KUBELET = (
    '{"Data":"{\\"kind\\":\\"DRACheckpoint\\",\\"apiVersion\\":\\"checkpoint.dra.kubelet.k8s.io/v1\\",\\"Entries\\":'
    '[{\\"ClaimUID\\":\\"067798be-454e-4be4-9047-1aa06aea63f7\\",\\"ClaimName\\":\\"example\\",\\"Namespace\\":'
    '\\"default\\",\\"PodUIDs\\":{\\"139cdb46-f989-4f17-9561-ca10cfb509a6\\":{}},\\"DriverState\\":'
    '{\\"test-driver.cdi.k8s.io\\":{\\"Devices\\":[{\\"PoolName\\":\\"worker-1\\",\\"DeviceName\\":\\"dev-1\\",'
    '\\"RequestNames\\":[\\"test request\\"],\\"CDIDeviceIDs\\":[\\"example.com/example=cdi-example\\"]}]}}}]}",'
    '"Checksum":1597924435}'
)


def test_file_of_a_kubelet_is_read() -> None:
    assert checkpoint.decode(OF_A_KUBELET.encode()) == [CLAIM]


def test_fields_are_in_the_kubelets_order() -> None:
    data = json.loads(json.loads(checkpoint.encode([CLAIM]))["Data"])
    assert list(data["Entries"][0]) == ["ClaimUID", "ClaimName", "Namespace", "PodUIDs", "DriverState"]
    (device,) = data["Entries"][0]["DriverState"]["test-driver.cdi.k8s.io"]["Devices"]
    assert list(device) == ["PoolName", "DeviceName", "ShareID", "RequestNames", "CDIDeviceIDs"]
    assert device["ShareID"] is None


def test_claims_are_the_same_after_a_round() -> None:
    plain = Claim(Key("default", "other"), "u2", {POD, "p2"}, {"a": (), "b": (Device("p", "d", "share"),)})
    assert checkpoint.decode(checkpoint.encode([CLAIM, plain])) == [CLAIM, plain]
    assert checkpoint.decode(checkpoint.encode([])) == []


def test_a_prepared_claim_is_not_prepared_after_a_round() -> None:
    prepared = Claim(CLAIM.key, CLAIM.uid, {POD}, dict(CLAIM.devices), prepared=True)
    (found,) = checkpoint.decode(checkpoint.encode([prepared]))
    assert not found.prepared


def damaged(data: str) -> bytes:
    return json.dumps({"Data": data, "Checksum": zlib.crc32(data.encode())}).encode()


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (OF_A_KUBELET.replace("1597924435", "2930258365").encode(), "checkpoint is corrupted"),
        (b"{", "truncated"),
        (b'{"Data":1,"Checksum":2}', "Expected `str`"),
        (damaged("[]"), "Expected `object`"),
        (damaged('{"kind":"Other","apiVersion":"v1","Entries":null}'), "it is a v1 Other"),
        (damaged('{"kind":"DRACheckpoint","apiVersion":"checkpoint.dra.kubelet.k8s.io/v1","Entries":[1]}'), "Expected"),
    ],
)
def test_damaged_files_are_refused(content: bytes, problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        checkpoint.decode(content)
