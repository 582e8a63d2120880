"""Records of affinity, tolerations, topology spread, scheduling gates and groups.

Admission on the node checks node affinity and taints. Only the scheduler uses the other records.
"""

from proto.v1.meta import LabelSelector
from proto.v1.scalars.base import Int32, Int64, Record


class NodeSelectorRequirement(Record, frozen=True, kw_only=True):
    """A key, an operator (In, NotIn, Exists, DoesNotExist, Gt, Lt) and its values."""

    key: str = ""
    operator: str = ""
    values: tuple[str, ...] = ()


class NodeSelectorTerm(Record, frozen=True, kw_only=True):
    """Requirements on labels and fields, all of which must hold."""

    match_expressions: tuple[NodeSelectorRequirement, ...] = ()
    match_fields: tuple[NodeSelectorRequirement, ...] = ()


class NodeSelector(Record, frozen=True, kw_only=True):
    """Terms of which one must hold."""

    node_selector_terms: tuple[NodeSelectorTerm, ...] = ()


class PreferredSchedulingTerm(Record, frozen=True, kw_only=True):
    """A term and its weight, 1 to 100."""

    weight: Int32 = 0
    preference: NodeSelectorTerm = NodeSelectorTerm()


class NodeAffinity(Record, frozen=True, kw_only=True):
    """Required and preferred nodes of the pod."""

    required_during_scheduling_ignored_during_execution: NodeSelector | None = None
    preferred_during_scheduling_ignored_during_execution: tuple[PreferredSchedulingTerm, ...] = ()


class PodAffinityTerm(Record, frozen=True, kw_only=True):
    """Pods to be near to, or away from, within a topology."""

    label_selector: LabelSelector | None = None
    namespaces: tuple[str, ...] = ()
    topology_key: str = ""
    namespace_selector: LabelSelector | None = None
    match_label_keys: tuple[str, ...] = ()
    mismatch_label_keys: tuple[str, ...] = ()


class WeightedPodAffinityTerm(Record, frozen=True, kw_only=True):
    """A term and its weight, 1 to 100."""

    weight: Int32 = 0
    pod_affinity_term: PodAffinityTerm = PodAffinityTerm()


class PodAffinity(Record, frozen=True, kw_only=True):
    """Pods to be near to."""

    required_during_scheduling_ignored_during_execution: tuple[PodAffinityTerm, ...] = ()
    preferred_during_scheduling_ignored_during_execution: tuple[WeightedPodAffinityTerm, ...] = ()


class PodAntiAffinity(Record, frozen=True, kw_only=True):
    """Pods to be away from."""

    required_during_scheduling_ignored_during_execution: tuple[PodAffinityTerm, ...] = ()
    preferred_during_scheduling_ignored_during_execution: tuple[WeightedPodAffinityTerm, ...] = ()


class Affinity(Record, frozen=True, kw_only=True):
    """All affinity rules of a pod."""

    node_affinity: NodeAffinity | None = None
    pod_affinity: PodAffinity | None = None
    pod_anti_affinity: PodAntiAffinity | None = None


class Toleration(Record, frozen=True, kw_only=True):
    """A taint the pod bears; empty key with Exists bears all."""

    key: str | None = None
    operator: str | None = None
    value: str | None = None
    effect: str | None = None
    toleration_seconds: Int64 | None = None


class TopologySpreadConstraint(Record, frozen=True, kw_only=True):
    """Allowed skew of matching pods over a topology."""

    max_skew: Int32 = 0
    topology_key: str = ""
    when_unsatisfiable: str = ""
    label_selector: LabelSelector | None = None
    min_domains: Int32 | None = None
    node_affinity_policy: str | None = None
    node_taints_policy: str | None = None
    match_label_keys: tuple[str, ...] = ()


class PodSchedulingGate(Record, frozen=True, kw_only=True):
    """A name that keeps the pod from being scheduled."""

    name: str = ""


class PodSchedulingGroup(Record, frozen=True, kw_only=True):
    """The PodGroup the pod is scheduled with (KEP-4671)."""

    pod_group_name: str | None = None
