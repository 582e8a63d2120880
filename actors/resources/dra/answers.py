"""Checks what DRA drivers answer. Pure.

A driver runs with rights of its own, in a container as a rule. What it answers goes into files and to the container
runtime. So it is bounded, and an answer that no driver can mean is refused.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from actors.resources.dra.claims import Claim, Device
from actors.resources.dra.policy import ClaimError
from actors.resources.model.cdi import is_cdi_name
from proto.common.safe_text import clipped

MOST_DEVICES = 4096
"""Of one claim. The API allows 32 in an allocation."""
MOST_ITEMS = 256
"""Requests or CDI names of one device."""
MOST_NAME = 253


def check(rpc: str, claims: Iterable[Claim], results: Mapping[str, Any]) -> None:
    """Raise ClaimError unless every claim of the request, and no other, was handled."""
    asked = {one.uid: one for one in claims}
    for uid in results:
        if uid not in asked:
            raise ClaimError(f"{rpc} returned result for unknown claim UID {clipped(uid)}")
        if results[uid].error:
            raise ClaimError(f"{rpc} failed for ResourceClaim {asked[uid].key.name}: {results[uid].error[:1024]}")
    if len(results) != len(asked):
        raise ClaimError(f"{rpc} skipped {len(asked) - len(results)} ResourceClaims")


def devices(driver: str, result: Any) -> tuple[Device, ...]:
    """The devices in a NodePrepareResourceResponse. Raises ClaimError."""
    if len(result.devices) > MOST_DEVICES:
        raise _lie(driver, f"a claim has {len(result.devices)} devices, more than {MOST_DEVICES}")
    return tuple(_device(driver, one) for one in result.devices)


def _device(driver: str, device: Any) -> Device:
    for name in (device.pool_name, device.device_name):
        if not name or len(name) > MOST_NAME or not name.isprintable():
            raise _lie(driver, f"a device is called {clipped(name)!r}")
    if len(device.request_names) > MOST_ITEMS or len(device.cdi_device_ids) > MOST_ITEMS:
        raise _lie(driver, f"a device has more than {MOST_ITEMS} requests or CDI devices")
    for name in device.cdi_device_ids:
        if not is_cdi_name(name):
            raise _lie(driver, f"it grants the CDI device {clipped(name)!r}, which is not VENDOR/CLASS=NAME")
    if any(len(one) > MOST_NAME for one in (*device.request_names, device.share_id)):
        raise _lie(driver, "a request or a share has a name that is too long")
    return Device(
        device.pool_name,
        device.device_name,
        device.share_id if device.HasField("share_id") else None,
        tuple(device.request_names),
        tuple(device.cdi_device_ids),
    )


def _lie(driver: str, what: str) -> ClaimError:
    return ClaimError(f"the DRA driver {driver} lies: {what}")
