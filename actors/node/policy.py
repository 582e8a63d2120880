"""Builds the Node, its status and its Lease, and decides when they are written. Pure.

Objects are plain mappings, as in JSON, so that fields of a server of another version stay.
Source: pkg/kubelet/kubelet_node_status.go and pkg/kubelet/nodestatus of Kubernetes 1.36.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from typing import Any, NamedTuple

import msgspec

from actors.node import node_resources
from actors.node.node_resources import Resources
from proto.common import rfc3339
from proto.common.backoff import Backoff
from proto.v1.scalars.duration import SECOND, format_duration

Object = dict[str, Any]

HOSTNAME = "kubernetes.io/hostname"
OS = "kubernetes.io/os"
ARCH = "kubernetes.io/arch"
ATTACH = "volumes.kubernetes.io/controller-managed-attach-detach"
PROVIDED_IP = "alpha.kubernetes.io/provided-node-ip"
DEFAULT_LABELS = (
    HOSTNAME,
    "topology.kubernetes.io/zone",
    "topology.kubernetes.io/region",
    "failure-domain.beta.kubernetes.io/zone",
    "failure-domain.beta.kubernetes.io/region",
    "node.kubernetes.io/instance-type",
    "beta.kubernetes.io/instance-type",
    OS,
    ARCH,
    "beta.kubernetes.io/os",
    "beta.kubernetes.io/arch",
)
"""Labels that are restored on an existing Node where a new one would have them."""
UNINITIALIZED = {"key": "node.cloudprovider.kubernetes.io/uninitialized", "value": "true", "effect": "NoSchedule"}
MAX_IMAGE_NAMES = 5
REGISTER_RETRY = Backoff(0.1, cap_s=7.0)
RETRY = Backoff(0.2, cap_s=7.0)
"""Delays of the status and of the Lease after failures. The values are the kubelet's for its Lease."""


PRESSURES = {
    "MemoryPressure": {
        True: ("KubeletHasInsufficientMemory", "kubelet has insufficient memory available"),
        False: ("KubeletHasSufficientMemory", "kubelet has sufficient memory available"),
    },
    "DiskPressure": {
        True: ("KubeletHasDiskPressure", "kubelet has disk pressure"),
        False: ("KubeletHasNoDiskPressure", "kubelet has no disk pressure"),
    },
    "PIDPressure": {
        True: ("KubeletHasInsufficientPID", "kubelet has insufficient PID available"),
        False: ("KubeletHasSufficientPID", "kubelet has sufficient PID available"),
    },
}
"""(reason, message) of a condition while it holds and while it does not, in the order of the status."""


class AgentProblems(NamedTuple):
    """Problems of the agent itself; all empty where there is none."""

    degraded: tuple[str, ...] = ()
    """Actors that do not stay in service."""
    configuration: str = ""
    """The reason why the configuration in the files is not in force."""
    storage: str = ""
    """The error of the last write below the root directory."""


MAX_PROBLEM = 1024
PLEG_THRESHOLD_S = 180.0
CSI_NODE_WITHIN_S = 15.0
"""A restart of the agent does not make a node not Ready before."""
CSI_NODE_MISSING = "CSINode is not yet initialized"


def labels(name: str, architecture: str, own: Mapping[str, str]) -> dict[str, str]:
    """Labels of a new Node. `own`, from --node-labels, override the default ones."""
    return {
        HOSTNAME: name,
        OS: "linux",
        ARCH: architecture,
        "beta.kubernetes.io/os": "linux",
        "beta.kubernetes.io/arch": architecture,
        **own,
    }


def new_node(
    name: str, wanted: Mapping[str, str], taints: Iterable[Object], provider_id: str, status: Object
) -> Object:  # fmt: skip
    """The Node to create, with `wanted` labels."""
    spec: Object = {"taints": list(taints)} if taints else {}
    if any(one.get("key") == "node.kubernetes.io/unschedulable" for one in spec.get("taints", ())):
        spec["unschedulable"] = True
    if provider_id:
        spec["providerID"] = provider_id
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": dict(wanted), "annotations": {ATTACH: "true"}},
        "spec": spec,
        "status": status,
    }


def registration_patch(node: Object, wanted: Mapping[str, str]) -> Object | None:
    """The merge patch for an existing Node's metadata at registration; None when nothing differs.

    As in the kubelet it restores the default labels only; other --node-labels and taints apply to new Nodes.
    """
    meta = node["metadata"]
    has = meta.get("labels") or {}
    stale = {key: wanted[key] for key in DEFAULT_LABELS if key in wanted and has.get(key) != wanted[key]}
    patch: Object = {"labels": stale} if stale else {}
    if (meta.get("annotations") or {}).get(ATTACH) != "true":
        patch["annotations"] = {ATTACH: "true"}
    return {"metadata": patch} if patch else None


def addresses(name: str, found: Iterable[str]) -> list[Object]:
    """status.addresses of a node with these IP addresses."""
    return [
        *({"type": "InternalIP", "address": address} for address in found),
        {"type": "Hostname", "address": name},
    ]


def metadata_patch(node: Object, architecture: str, provided: Iterable[str] | None) -> Object:
    """The metadata to patch with each status write; empty when nothing differs.

    Changed labels of the operating system and the architecture are restored (updateNode of the kubelet). `provided` are
    the addresses of --node-ip for an external cloud provider. Without any, the Node has no such annotation. None: they
    are not the node's, and the annotation stays as it is.
    """
    meta = node["metadata"]
    has = meta.get("labels") or {}
    machine = {OS: "linux", ARCH: architecture}
    changed = {key: value for key, value in machine.items() if has.get(key) != value}
    patch: Object = {"labels": changed} if changed else {}
    annotation = ",".join(provided or ()) or None
    if provided is not None and (meta.get("annotations") or {}).get(PROVIDED_IP) != annotation:
        patch["annotations"] = {PROVIDED_IP: annotation}
    return {"metadata": patch} if patch else {}


def machine_ids(info: Mapping[str, Any]) -> tuple[str, str]:
    """(machine ID, system UUID) of a nodeInfo."""
    return (info.get("machineID") or "", info.get("systemUUID") or "")


def is_other_machine(stored: Mapping[str, Any], own: Mapping[str, Any]) -> bool:
    """True when both IDs of the Node's nodeInfo are known and differ from this machine's."""
    return "" not in machine_ids(stored) and not set(machine_ids(stored)) & set(machine_ids(own))


def is_replaced_machine(stored: Mapping[str, Any], own: Mapping[str, Any]) -> bool:
    """True when the Node's nodeInfo is another machine's, by the system UUID, or by the machine ID without one.

    A system without a disk has a new machine ID at each boot.
    """
    pairs = zip(machine_ids(stored), machine_ids(own), strict=True)
    known = [before != now for before, now in pairs if before and now]
    return bool(known) and known[-1]


def rebooted(stored: Mapping[str, Any], own: Mapping[str, Any]) -> bool:
    """True when this machine has booted since its Node was written."""
    return stored.get("bootID") not in (None, "", own.get("bootID")) and not is_other_machine(stored, own)


def conditions(
    pressures: Iterable[str],
    problems: Iterable[str],
    before: Iterable[Object],
    now: str,
    agent: AgentProblems = AgentProblems(),  # noqa: B008 - immutable
) -> list[Object]:
    """The conditions at `now`, RFC 3339, Ready last. A condition keeps its transition time while its status stays."""
    known = {one["type"]: one for one in before}
    holding, problems = set(pressures), list(problems)
    found = [_condition(kind, str(kind in holding), *reasons[kind in holding]) for kind, reasons in PRESSURES.items()]
    found += _of_the_agent(agent)
    if problems:
        message = problems[0] if len(problems) == 1 else f"[{', '.join(problems)}]"
        found.append(_condition("Ready", "False", "KubeletNotReady", message))
    else:
        found.append(_condition("Ready", "True", "KubeletReady", "kubelet is posting ready status"))
    for one in found:
        old = known.get(one["type"])
        same = old is not None and old.get("status") == one["status"]
        one["lastTransitionTime"] = old["lastTransitionTime"] if same and old else now
        one["lastHeartbeatTime"] = now
    return found


def _of_the_agent(problems: AgentProblems) -> list[Object]:
    """Conditions that the kubelet does not have. Only KubeletConfigOk is True without a problem."""
    found = (
        ("KubeletConfigOk", "the files' configuration is in force", "ConfigurationInForce", "ConfigurationNotInForce"),
        ("KubeletDegraded", "all actors stay in service", "ActorsServing", "ActorsDegraded"),
        ("KubeletStorageError", "the root directory can be written", "StateWritable", "StateNotWritable"),
    )
    degraded = f"actors do not stay in service: {', '.join(problems.degraded)}" if problems.degraded else ""
    texts = (problems.configuration, degraded, problems.storage)
    return [
        _condition(
            kind, str(bool(text) != (kind == "KubeletConfigOk")), bad if text else good, text[:MAX_PROBLEM] or fine
        )
        for (kind, fine, good, bad), text in zip(found, texts, strict=True)
    ]


def pleg_problem(age_s: float) -> str:
    """The kubelet's words for a list of the runtime's pods that is too old; empty for a young one."""
    if age_s < PLEG_THRESHOLD_S:
        return ""
    ago, threshold = (format_duration(int(seconds) * SECOND) for seconds in (age_s, PLEG_THRESHOLD_S))
    return f"PLEG is not healthy: pleg was last seen active {ago} ago; threshold is {threshold}"


def csi_node_problem(stored: Iterable[Object], running_s: float, *, written: bool) -> str:
    """The problem of a CSINode that is not written; empty for CSI_NODE_WITHIN_S on a node that was Ready before."""
    was_ready = any((one.get("type"), one.get("status")) == ("Ready", "True") for one in stored)
    return "" if written or (was_ready and running_s < CSI_NODE_WITHIN_S) else CSI_NODE_MISSING


def _condition(kind: str, status: str, reason: str, message: str) -> Object:
    return {"type": kind, "status": status, "reason": reason, "message": message}


def ready_event(before: Iterable[Object], after: Iterable[Object]) -> str:
    """The reason of the event for a changed Ready condition, NodeReady or NodeNotReady; empty without a change.

    The first one is no change, as in the kubelet, or each new node would cause an alert. Events of pressures are
    eviction's, which has no need of an API server.
    """
    was, now = _ready_status(before), _ready_status(after)
    if was in ("", now):
        return ""
    return "NodeReady" if now == "True" else "NodeNotReady"


def is_lost(conditions: Iterable[Object]) -> bool:
    """True when the node controller has missed the heartbeats of the Node with these conditions."""
    return _ready_status(conditions) == "Unknown"


def _ready_status(conditions: Iterable[Object]) -> str:
    return next((str(one["status"]) for one in conditions if one["type"] == "Ready"), "")


class ImageFacts(NamedTuple):
    """An image of the runtime. They are ordered by size, then by ID."""

    size_bytes: int
    id: str
    names: tuple[str, ...]


def images(found: Iterable[ImageFacts], most: int) -> list[Object]:
    """status.images, largest first. `most` bounds their number; -1 is no bound.

    The runtime lists images in any order. Images of equal size are ordered by ID, or each look could change the status.
    """
    ordered = sorted(found, reverse=True)
    if most > -1:
        ordered = ordered[:most]
    return [{"names": list(one.names[:MAX_IMAGE_NAMES]), "sizeBytes": one.size_bytes} for one in ordered]


def quantities(amounts: Mapping[str, int]) -> dict[str, str]:
    """Format the amounts of actors._cgroup.quantities.allocatable as API quantities."""
    return {name: _cpu(amount) if name == "cpu" else _plain(name, amount) for name, amount in amounts.items()}


def _cpu(milli: int) -> str:
    return str(milli // 1000) if milli % 1000 == 0 else f"{milli}m"


def _plain(name: str, amount: int) -> str:
    if name == "pods" or amount == 0:
        return str(amount)
    for suffix in ("", "Ki", "Mi", "Gi", "Ti", "Pi"):
        if amount % 1024:
            return f"{amount}{suffix}"
        amount //= 1024
    return f"{amount}Ei"


# Writes


class WrittenStatus(NamedTuple):
    """The last write and the server's answer: a field that the server drops or changes is no reason to write."""

    sent: Object
    stored: Object
    at: float
    """Monotonic seconds."""


class SavedWrite(msgspec.Struct, frozen=True):
    """A write, as its checkpoint has it."""

    sent: str
    """Digest of the status without heartbeats, as sent."""
    stored: str
    """Digest of the server's answer."""
    at: float
    """Unix seconds."""
    agent: str = ""
    """The run of the agent (system.agent_id)."""


def saved(write: WrittenStatus, now: float, agent: str) -> SavedWrite:
    """The checkpoint of a write at `now`, Unix seconds, by this run of the agent."""
    sent, stored = _digest(_without_heartbeats(write.sent)), _digest(_our_fields(write.stored, write.sent))
    return SavedWrite(sent, stored, now, agent)


def restored(
    write: SavedWrite | None, wanted: Object, stored: Object, now: float, monotonic: float, agent: str
) -> WrittenStatus | None:
    """The write of an earlier incarnation; None when the wanted or the stored status differs from it.

    Without it each restart of the actor would write a status in which nothing has changed. A new run of the agent
    writes once, as the kubelet at its start: clients wait for the heartbeats. Times: `now` is Unix.
    """
    if write is None or write.at > now:
        return None
    found = WrittenStatus(wanted, stored, monotonic - (now - write.at))
    return found if saved(found, write.at, agent) == write else None


def _digest(status: Object) -> str:
    return hashlib.sha256(msgspec.json.encode(status, order="deterministic")).hexdigest()


def pressures_of(stored: Iterable[Object]) -> tuple[str, ...]:
    """The pressures that hold by the Node's conditions."""
    return tuple(one["type"] for one in stored if one.get("type") in PRESSURES and one.get("status") == "True")


def due(wanted: Object, stored: Object, last: WrittenStatus | None, report_s: float, now: float) -> bool:
    """True when the status has to be written: never written, changed on either side, or older than `report_s`."""
    if last is None or now - last.at >= report_s:
        return True
    changed_here = _without_heartbeats(wanted) != _without_heartbeats(last.sent)
    return changed_here or _our_fields(stored, wanted) != _our_fields(last.stored, wanted)


def _without_heartbeats(status: Object) -> Object:
    """Drop the heartbeat times, which are no reason to write, and sort the conditions."""
    found = [{k: v for k, v in one.items() if k != "lastHeartbeatTime"} for one in status.get("conditions", ())]
    return status | {"conditions": sorted(found, key=lambda one: str(one["type"]))}


def _our_fields(stored: Object, wanted: Object) -> Object:
    """The server's values of the fields and conditions that we write; it has those of other clients too."""
    ours = {one["type"] for one in wanted.get("conditions", ())}
    part = {name: stored.get(name) for name in wanted}
    part["conditions"] = [one for one in stored.get("conditions") or () if one["type"] in ours]
    return _without_heartbeats(part)


def patch_of(wanted: Object, stored: Object) -> Object:
    """The strategic merge patch for the status: all of our fields."""
    amounts = Resources(wanted.get("capacity") or {}, wanted.get("allocatable") or {})
    patch = wanted | node_resources.patch_of(amounts, stored)
    # The server would merge addresses by type, and two of one type into one.
    if "addresses" in wanted:
        patch["addresses"] = [*wanted["addresses"], {"$patch": "replace"}]
    return {"status": patch}


def lease(name: str, node_uid: str, duration_s: int, now: str, existing: Object | None) -> Object:
    """The Lease to write: a new one, or `existing` renewed. The Node owns it once `node_uid` is known.

    `now` is RFC 3339 with microseconds, UTC. The renewal time only grows, even when the machine's clock goes back:
    controllers count a renewal only when its time is later than the last one's.
    """
    found: Object = existing or {
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {"name": name, "namespace": "kube-node-lease"},
    }
    meta = dict(found["metadata"])
    if node_uid and not meta.get("ownerReferences"):
        meta["ownerReferences"] = [{"apiVersion": "v1", "kind": "Node", "name": name, "uid": node_uid}]
    before: Object = found.get("spec") or {}
    renewed = _later(before.get("renewTime") or "", now)
    spec = {**before, "holderIdentity": name, "leaseDurationSeconds": duration_s, "renewTime": renewed}
    return found | {"metadata": meta, "spec": spec}


def _later(before: str, now: str) -> str:
    """The later of `now` and one microsecond after `before`."""
    try:
        least = datetime.fromisoformat(before) + timedelta(microseconds=1)
        late = datetime.fromisoformat(now) < least
    except (ValueError, TypeError, OverflowError):
        return now
    return rfc3339.micros(least) if late else now
