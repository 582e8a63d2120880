"""Records of requests, limits and claims of a container, a pod or a volume claim."""

from proto.v1.scalars.base import Record, ResourceList


class ResourceClaim(Record, frozen=True, kw_only=True):
    """A container's use of an entry of spec.resourceClaims (KEP-4381)."""

    name: str = ""
    request: str | None = None


class ResourceRequirements(Record, frozen=True, kw_only=True):
    """Maximum and guaranteed resources of a container or pod."""

    limits: ResourceList = {}
    requests: ResourceList = {}
    claims: tuple[ResourceClaim, ...] = ()


class VolumeResourceRequirements(Record, frozen=True, kw_only=True):
    """The size in a PersistentVolumeClaim."""

    limits: ResourceList = {}
    requests: ResourceList = {}


class PodResourceClaim(Record, frozen=True, kw_only=True):
    """A ResourceClaim, existing or made from a template, that the pod needs."""

    name: str = ""
    resource_claim_name: str | None = None
    resource_claim_template_name: str | None = None


NO_RESOURCES = ResourceRequirements()
