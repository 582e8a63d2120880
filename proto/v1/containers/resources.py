"""Requests, limits and claims of a container, a pod or a volume claim.

Covers the records. Does not cover quantities' arithmetic (`quantity.py`) nor how requests are summed.
"""

from proto.v1.scalars.base import Record, ResourceList


class ResourceClaim(Record, frozen=True, kw_only=True):
    """A container's use of an entry of spec.resourceClaims (KEP-4381)."""

    name: str = ""
    request: str | None = None


class ResourceRequirements(Record, frozen=True, kw_only=True):
    """What a container or pod may use at most and is sure to get."""

    limits: ResourceList = {}
    requests: ResourceList = {}
    claims: tuple[ResourceClaim, ...] = ()


class VolumeResourceRequirements(Record, frozen=True, kw_only=True):
    """The size a claim asks for."""

    limits: ResourceList = {}
    requests: ResourceList = {}


class PodResourceClaim(Record, frozen=True, kw_only=True):
    """A ResourceClaim, existing or made from a template, that the pod needs."""

    name: str = ""
    resource_claim_name: str | None = None
    resource_claim_template_name: str | None = None


NO_RESOURCES = ResourceRequirements()
