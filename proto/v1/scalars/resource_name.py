"""Tells extended resources from Kubernetes' own by their names."""

DEVICE_CLASS = "deviceclass.resource.kubernetes.io/"
"""Begins the implicit extended resource of a DeviceClass; its name follows (KEP-5004)."""


def is_extended(name: str) -> bool:
    """A name with a domain that is not Kubernetes' own (IsExtendedResourceName)."""
    return "/" in name and "kubernetes.io/" not in name and not name.startswith("requests.")


def may_be_claimed(name: str) -> bool:
    """An extended resource that a claim may stand behind (IsDRAExtendedResourceName)."""
    return is_extended(name) or name.startswith(DEVICE_CLASS)
