"""The claims of pods, as the DRA manager knows them. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import NamedTuple


class Key(NamedTuple):
    """Names a ResourceClaim."""

    namespace: str
    name: str


@dataclass(frozen=True, slots=True)
class Device:
    """A device of a claim, as its driver describes it."""

    pool: str
    name: str
    share_id: str | None = None
    """Of a device that several claims share."""
    requests: tuple[str, ...] = ()
    """Requests of the claim that it is for; empty: all."""
    cdi_names: tuple[str, ...] = ()

    def serves(self, request: str) -> bool:
        """True if the device is for this request of the claim. Empty: any request. A subrequest counts as its request.

        Source: cdiDevicesAsList of pkg/kubelet/cm/dra/claiminfo.go.
        """
        return not request or not self.requests or request in {one.partition("/")[0] for one in self.requests}


@dataclass
class Claim:
    """A claim that is prepared, or of which a driver may have been asked to prepare it."""

    key: Key
    uid: str
    pod_uids: set[str] = field(default_factory=set)
    """Pods that use it."""
    devices: dict[str, tuple[Device, ...]] = field(default_factory=dict)
    """By driver: every driver of the allocation, also one without devices for containers."""
    prepared: bool = False
    """Every driver has prepared it since this process started."""

    def cdi_names(self, request: str) -> Iterator[str]:
        """CDI names of the devices for a request; empty: all."""
        for devices in self.devices.values():
            for one in devices:
                if one.serves(request):
                    yield from one.cdi_names


class Claims:
    """State: all claims by key."""

    def __init__(self, claims: Iterable[Claim] = ()) -> None:
        self._claims = {one.key: one for one in claims}

    def __iter__(self) -> Iterator[Claim]:
        return iter(self._claims.values())

    def __len__(self) -> int:
        return len(self._claims)

    def copy(self) -> Claims:
        """A copy, to try a change on."""
        return Claims(replace(one, pod_uids=set(one.pod_uids), devices=dict(one.devices)) for one in self)

    def get(self, key: Key) -> Claim | None:
        """The claim; None when no driver was asked for it."""
        return self._claims.get(key)

    def add(self, claim: Claim) -> None:
        """Add a claim."""
        self._claims[claim.key] = claim

    def remove(self, key: Key) -> None:
        """Forget a claim that no driver has prepared any more."""
        self._claims.pop(key, None)

    def of_pod(self, uid: str) -> list[Claim]:
        """The claims that the pod uses."""
        return [one for one in self if uid in one.pod_uids]

    def of_driver(self, driver: str) -> Iterator[Claim]:
        """The claims of a driver, with its devices alone."""
        return (replace(one, devices={driver: one.devices[driver]}) for one in self if driver in one.devices)

    def pods(self) -> frozenset[str]:
        """UIDs of all pods that use a claim."""
        return frozenset(uid for one in self for uid in one.pod_uids)

    def users(self, driver: str, devices: Collection[tuple[str, str]]) -> frozenset[str]:
        """UIDs of the pods that use one of a driver's devices, given as (pool, name)."""
        return frozenset(
            uid
            for one in self
            if any((device.pool, device.name) in devices for device in one.devices.get(driver, ()))
            for uid in one.pod_uids
        )

    def by_driver(self) -> dict[str, int]:
        """Number of claims by driver."""
        found: dict[str, int] = {}
        for one in self:
            for driver in one.devices:
                found[driver] = found.get(driver, 0) + 1
        return found
