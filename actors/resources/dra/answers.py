"""Checks what DRA drivers answer. Pure.

A driver runs with rights of its own, in a container as a rule. What it answers goes into files and to the container
runtime. So it is bounded, and an answer that no driver can mean is refused.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

from actors.resources.dra.claims import Claim, Device
from actors.resources.dra.policy import ClaimError
from actors.resources.model.cdi import is_cdi_name
from actors.resources.model.plugin_bounds import error_text
from proto.common.safe_text import clipped

MOST_DEVICES = 4096
"""Of one claim. The API allows 32 in an allocation."""
MOST_ITEMS = 256
"""Requests or CDI names of one device."""
MOST_NAME = 253
MOST_TEXT = 256 * 1024
"""Characters of all names in one claim. An allocation of the API's size has less than a tenth, with its CDI names."""
_LABEL = r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?"
_PART = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?"
"""Of a subdomain; only its whole length is bounded."""
_DEVICE = re.compile(_LABEL)
_REQUEST = re.compile(rf"{_LABEL}(/{_LABEL})?")
_POOL = re.compile(rf"{_PART}([./]{_PART})*")
"""Subdomains with slashes between."""
_SHARE = re.compile(r"[-A-Za-z0-9]{1,63}")
"""A UUID."""


def check(rpc: str, claims: Iterable[Claim], results: Mapping[str, Any]) -> None:
    """Raise ClaimError unless every claim of the request, and no other, was handled."""
    asked = {one.uid: one for one in claims}
    for uid in results:
        if uid not in asked:
            raise ClaimError(f"{rpc} returned result for unknown claim UID {clipped(uid)}")
        if results[uid].error:
            raise ClaimError(f"{rpc} failed for ResourceClaim {asked[uid].key.name}: {error_text(results[uid].error)}")
    if len(results) != len(asked):
        raise ClaimError(f"{rpc} skipped {len(asked) - len(results)} ResourceClaims")


def devices(driver: str, result: Any) -> tuple[Device, ...]:
    """The devices in a NodePrepareResourceResponse. Raises ClaimError."""
    if len(result.devices) > MOST_DEVICES:
        raise _lie(driver, f"a claim has {len(result.devices)} devices, more than {MOST_DEVICES}")
    found = tuple(_device(driver, one) for one in result.devices)
    size = sum(_size(one) for one in found)
    if size > MOST_TEXT:
        raise _lie(driver, f"a claim has names of {size} characters, more than {MOST_TEXT}")
    return found


def _device(driver: str, device: Any) -> Device:
    _check_name(driver, "pool", _POOL, device.pool_name)
    _check_name(driver, "device", _DEVICE, device.device_name)
    if len(device.request_names) > MOST_ITEMS or len(device.cdi_device_ids) > MOST_ITEMS:
        raise _lie(driver, f"a device has more than {MOST_ITEMS} requests or CDI devices")
    for name in device.cdi_device_ids:
        if not is_cdi_name(name):
            raise _lie(driver, f"it grants the CDI device {clipped(name)!r}, which is not VENDOR/CLASS=NAME")
    for name in device.request_names:
        _check_name(driver, "request", _REQUEST, name)
    if device.share_id:
        _check_name(driver, "share", _SHARE, device.share_id)
    return Device(
        device.pool_name,
        device.device_name,
        device.share_id if device.HasField("share_id") else None,
        tuple(device.request_names),
        tuple(device.cdi_device_ids),
    )


def _check_name(driver: str, what: str, syntax: re.Pattern[str], name: str) -> None:
    """Raise ClaimError unless the name has the syntax of resource.k8s.io/v1 (validation.go of apis/resource)."""
    if len(name) > MOST_NAME or syntax.fullmatch(name) is None:
        raise _lie(driver, f"a {what} is called {clipped(name)!r}")


def _size(device: Device) -> int:
    names = (device.pool, device.name, device.share_id or "", *device.requests, *device.cdi_names)
    return sum(len(name) for name in names)


def _lie(driver: str, what: str) -> ClaimError:
    return ClaimError(f"the DRA driver {driver} lies: {what}")
