"""Translates the zones and regions of a PersistentVolume to the topology keys of its CSI driver. Pure.

An in-tree volume has its zone in its node affinity or in a label, by the stable or the beta key. A node has the
driver's keys as labels. Source: plugins/in_tree_volume.go of csi-translation-lib.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from msgspec.structs import replace

from proto.v1.cluster import PersistentVolume, VolumeNodeAffinity
from proto.v1.scheduling import NodeSelector, NodeSelectorRequirement, NodeSelectorTerm

DELIMITER = "__"
"""Between the zones of a label."""


class Keys(NamedTuple):
    """Labels with the zone and the region."""

    zone: str
    region: str


STABLE = Keys("topology.kubernetes.io/zone", "topology.kubernetes.io/region")
BETA = Keys("failure-domain.beta.kubernetes.io/zone", "failure-domain.beta.kubernetes.io/region")


def with_zone(volume: PersistentVolume, zone: str) -> PersistentVolume:
    """The volume with its zones under the driver's key `zone`; the node affinity has precedence over labels."""
    keys = _keys(volume)
    label = volume.metadata.labels.get(keys.zone)
    volume = _with_key(volume, keys.zone, zone, label.split(DELIMITER) if label is not None else ())
    # A new node has no beta labels.
    return _renamed(volume, BETA.region, STABLE.region) if keys is BETA else volume


def with_zone_and_region(volume: PersistentVolume, zone: str, region: str) -> PersistentVolume:
    """The volume with its zones and regions under the driver's keys. Its labels have one value each."""
    keys, labels = _keys(volume), volume.metadata.labels
    volume = _with_key(volume, keys.zone, zone, (labels.get(keys.zone, ""),))
    return _with_key(volume, keys.region, region, (labels.get(keys.region, ""),))


def _keys(volume: PersistentVolume) -> Keys:
    in_affinity = {one.key for term in _terms(volume) for one in term.match_expressions}
    for place in (in_affinity, volume.metadata.labels.keys()):
        for keys in (STABLE, BETA):
            if keys.zone in place:
                return keys
    return STABLE


def _with_key(volume: PersistentVolume, old: str, new: str, otherwise: Iterable[str]) -> PersistentVolume:
    # Renames the key in the affinity; where that has no such value, adds the values of the label.
    if any(one.key == old and one.values for term in _terms(volume) for one in term.match_expressions):
        return _renamed(volume, old, new)
    values = tuple(sorted({value.strip() for value in otherwise} - {""}))
    if not values:
        return volume
    wanted = NodeSelectorRequirement(key=new, operator="In", values=values)
    terms = _terms(volume) or (NodeSelectorTerm(),)
    return _with_terms(
        volume, (replace(term, match_expressions=(*term.match_expressions, wanted)) for term in terms)
    )  # fmt: skip


def _renamed(volume: PersistentVolume, old: str, new: str) -> PersistentVolume:
    def term(one: NodeSelectorTerm) -> NodeSelectorTerm:
        renamed = (replace(each, key=new) if each.key == old else each for each in one.match_expressions)
        return replace(one, match_expressions=tuple(renamed))

    terms = _terms(volume)
    return _with_terms(volume, map(term, terms)) if terms else volume


def _terms(volume: PersistentVolume) -> tuple[NodeSelectorTerm, ...]:
    affinity = volume.spec.node_affinity
    return affinity.required.node_selector_terms if affinity is not None and affinity.required is not None else ()


def _with_terms(volume: PersistentVolume, terms: Iterable[NodeSelectorTerm]) -> PersistentVolume:
    affinity = VolumeNodeAffinity(required=NodeSelector(node_selector_terms=tuple(terms)))
    return replace(volume, spec=replace(volume.spec, node_affinity=affinity))
