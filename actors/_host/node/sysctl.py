"""Reads names of kernel parameters. Pure. Source: NormalizeName of k8s.io/component-helpers/node/util/sysctl."""

from __future__ import annotations


def dotted(name: str) -> str:
    """A parameter's name with dots as separators.

    If the first separator is a slash, slashes separate, and dots within a name (net/ipv4/conf/eno2.100/rp_filter)
    become slashes.
    """
    first = next((character for character in name if character in "./"), ".")
    return name if first == "." else name.translate(str.maketrans("./", "/."))
