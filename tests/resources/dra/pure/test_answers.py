"""Answers of DRA drivers are bounded, and have the names of the API."""

from __future__ import annotations

from typing import Any

import pytest

from actors.resources.dra import answers
from actors.resources.dra.claims import Device
from actors.resources.dra.policy import ClaimError
from proto.plugins import dra_pb2 as pb


def read(*devices: Any) -> tuple[Device, ...]:
    return answers.devices("d", pb.NodePrepareResourceResponse(devices=devices))


@pytest.mark.parametrize(
    ("pool", "name", "requests"),
    [
        ("node-1.example.com", "gpu-0-mig-1g-5gb-0", ["r"]),
        (f"{'n' * 100}.example.com/imex/0", "d" * 63, ["gpus/large"]),
        ("0", "0", []),
    ],
)
def test_names_of_the_api_are_kept(pool: str, name: str, requests: list[str]) -> None:
    found = read(pb.Device(pool_name=pool, device_name=name, request_names=requests, share_id="6f1c-AB"))
    assert found == (Device(pool, name, "6f1c-AB", tuple(requests)),)


@pytest.mark.parametrize(
    "fields",
    [
        {"device_name": '"' * 60},
        {"device_name": "d" * 64},
        {"device_name": ""},
        {"device_name": "d\n"},
        {"pool_name": "\\"},
        {"pool_name": "p" * 254},
        {"pool_name": "a//b"},
        {"request_names": ['"']},
        {"request_names": ["a/b/c"]},
        {"share_id": '"'},
    ],
)
def test_other_names_are_refused(fields: dict[str, Any]) -> None:
    with pytest.raises(ClaimError, match="the DRA driver d lies: a "):
        read(pb.Device(**{"pool_name": "p", "device_name": "d", **fields}))


def test_names_of_a_claim_are_bounded_together() -> None:
    ids = [f"v/c={'x' * 4000}"] * 33
    assert len(read(pb.Device(pool_name="p", device_name="d", cdi_device_ids=ids))) == 1
    with pytest.raises(ClaimError, match=f"more than {answers.MOST_TEXT}"):
        read(*[pb.Device(pool_name="p", device_name=f"d{number}", cdi_device_ids=ids) for number in range(2)])
