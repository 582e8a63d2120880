"""Decisions of the DRA manager: which claims a pod needs, if it may use them, and what its containers get. Pure.

Source: pkg/kubelet/cm/dra/manager.go and k8s.io/dynamic-resource-allocation/resourceclaim of Kubernetes 1.36; the
messages are theirs.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from actors.resources.dra.claims import Claim, Claims, Key
from proto.v1 import Container, Pod
from proto.v1.cluster import ResourceClaim


class ClaimError(Exception):
    """The pod's claims cannot be prepared or unprepared now; the message says why. It is tried again."""


class PodClaim(NamedTuple):
    """A claim that a pod needs."""

    key: Key
    must_own: bool
    """It was made from a template for this pod alone."""


class Use(NamedTuple):
    """A container's use of a claim."""

    key: Key
    request: str
    """Empty: all requests of the claim."""
    shown: str
    """Its name in statuses; empty for the claim of extended resources."""


def has_claims(pod: Pod) -> bool:
    """True when the pod needs a claim."""
    return bool(pod.spec.resource_claims) or pod.status.extended_resource_claim_status is not None


def claims_of(pod: Pod) -> list[PodClaim]:
    """The claims that the pod needs. Raises ClaimError while one is not created yet."""
    found = []
    for one in pod.spec.resource_claims:
        name = _name(pod, one.name)
        if name:
            found.append(PodClaim(Key(pod.metadata.namespace, name), one.resource_claim_name is None))
    extended = pod.status.extended_resource_claim_status
    if extended is not None:
        found.append(PodClaim(Key(pod.metadata.namespace, extended.resource_claim_name), must_own=False))
    return found


def _name(pod: Pod, entry: str) -> str:
    """Name of the ResourceClaim of an entry of spec.resourceClaims; empty: the entry needs none. Raises ClaimError."""
    found = next(one for one in pod.spec.resource_claims if one.name == entry)
    who = f'pod "{pod.metadata.namespace}/{pod.metadata.name}"'
    if found.resource_claim_name is not None:
        return found.resource_claim_name
    if found.resource_claim_template_name is None:
        raise ClaimError(f'{who}, spec.resourceClaim "{entry}": none of the supported fields are set')
    for status in pod.status.resource_claim_statuses:
        if status.name == entry:
            return status.resource_claim_name or ""
    raise ClaimError(f"{who}: ResourceClaim not created yet")


def drivers_of(pod: Pod, wanted: PodClaim, claim: ResourceClaim | None) -> frozenset[str]:
    """The drivers of the claim's allocation. `claim`: None if it does not exist. Raises ClaimError."""
    name = wanted.key.name
    if claim is None:
        raise ClaimError(f'fetch ResourceClaim {name}: resourceclaims.resource.k8s.io "{name}" not found')
    meta = claim.metadata
    if wanted.must_own and not any(one.controller and one.uid == pod.metadata.uid for one in meta.owner_references):
        raise ClaimError(
            f"ResourceClaim {wanted.key.namespace}/{name} was not created for pod "
            f"{pod.metadata.namespace}/{pod.metadata.name} (pod is not owner)"
        )
    if all(one.uid != pod.metadata.uid for one in claim.status.reserved_for):
        raise ClaimError(
            f"pod {pod.metadata.name} ({pod.metadata.uid}) is not allowed to use ResourceClaim {name} ({meta.uid})"
        )
    if claim.status.allocation is None:
        raise ClaimError(f"ResourceClaim {name}: not allocated")
    return frozenset(one.driver for one in claim.status.allocation.devices.results)


def entered(claims: Claims, pod_uid: str, key: Key, uid: str, drivers: frozenset[str]) -> Claim:
    """Note that the pod uses the claim, before a driver is asked. Raises ClaimError for an older claim of the name."""
    known = claims.get(key)
    if known is None:
        known = Claim(key, uid)
        claims.add(known)
    elif known.uid != uid:
        raise ClaimError(
            f"old ResourceClaim with same name {key.name} and different UID {known.uid} still exists "
            "(previous pod force-deleted?!)"
        )
    known.pod_uids.add(pod_uid)
    for driver in sorted(drivers - known.devices.keys()):  # it is new, or was allocated again
        known.devices[driver] = ()
        known.prepared = False
    return known


def uses_of(pod: Pod, container: Container) -> Iterator[Use]:
    """The claims that a container uses. Raises ClaimError as `claims_of`."""
    for wanted in container.resources.claims:
        if any(one.name == wanted.name for one in pod.spec.resource_claims):
            name = _name(pod, wanted.name)
            if name:
                shown = f"claim:{wanted.name}/{wanted.request}" if wanted.request else f"claim:{wanted.name}"
                yield Use(Key(pod.metadata.namespace, name), wanted.request or "", shown)
    extended = pod.status.extended_resource_claim_status
    if extended is not None:
        key = Key(pod.metadata.namespace, extended.resource_claim_name)
        for mapping in extended.request_mappings:
            if mapping.container_name == container.name:
                yield Use(key, mapping.request_name, "")


def cdi_names(pod: Pod, container: Container, claims: Claims) -> tuple[str, ...]:
    """CDI names of the devices that a container gets. Raises ClaimError for a claim that no driver was asked for."""
    found: dict[str, None] = {}
    for use in uses_of(pod, container):
        claim = claims.get(use.key)
        if claim is None or pod.metadata.uid not in claim.pod_uids:
            raise ClaimError(f"unable to get claim info for ResourceClaim {use.key.name}")
        found.update(dict.fromkeys(claim.cdi_names(use.request)))
    return tuple(found)
