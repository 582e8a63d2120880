"""Tells extended resources from Kubernetes' own by their names."""


def is_extended(name: str) -> bool:
    """A name with a domain that is not Kubernetes' own (IsExtendedResourceName)."""
    return "/" in name and "kubernetes.io/" not in name and not name.startswith("requests.")
