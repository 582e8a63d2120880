"""Decisions about CSI drivers and volumes. Pure. Source: pkg/volume/csi of Kubernetes 1.36, the CSI specification."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Collection, Iterable, Mapping

from actors._plugins import kinds
from actors.volume.steps.csi import CsiMount, FsGroup, Volume
from proto.common import rfc3339
from proto.common.safe_text import clipped
from proto.pods.objects import Token

SELINUX_LABEL = "seLinuxMountContext"
"""Key in vol_data.json."""
DEFAULT_GROUP_POLICY = "ReadWriteOnceWithFSType"
POD_INFO = "csi.storage.k8s.io/"
MOST_NAME = 63
NAME_RULE = f"letters, digits, '-' and '.', a letter or digit around each '.', at most {MOST_NAME} characters"
_NAME = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9]*[A-Za-z0-9])?(\.[A-Za-z0-9]([-A-Za-z0-9]*[A-Za-z0-9])?)*")
"""A driver's name, by the CSI specification and the API server, which takes capitals too (ValidateCSIDriverName)."""
MOST_NODE_ID_BYTES = 256
"""By the CSI specification; a CSINode of older servers takes 192."""
MOST_TOPOLOGY = 64 * 1024
"""Characters of a node's topology. Each segment becomes a label, which has at most 380."""
_UNRESPONSIVE = tuple(f"rpc error: code = {code} desc = " for code in ("DeadlineExceeded", "Unavailable"))
_UNCERTAIN = frozenset({"Canceled", "DeadlineExceeded", "Unavailable", "ResourceExhausted", "Aborted"})

ACCESS_MODES = {
    "ReadWriteOnce": "SINGLE_NODE_WRITER",
    "ReadOnlyMany": "MULTI_NODE_READER_ONLY",
    "ReadWriteMany": "MULTI_NODE_MULTI_WRITER",
    "ReadWriteOncePod": "SINGLE_NODE_WRITER",
}
_WITH_SINGLE_NODE_MULTI_WRITER = {
    "ReadWriteOnce": "SINGLE_NODE_MULTI_WRITER",
    "ReadWriteOncePod": "SINGLE_NODE_SINGLE_WRITER",
}


def is_final(code: str) -> bool:
    """True when a call with this gRPC code (Go's name) certainly had no effect and has none later."""
    return code not in _UNCERTAIN


def is_unresponsive(error: str) -> bool:
    """True for the error of a call, in Go's text, when the driver itself does not answer."""
    return error.startswith(_UNRESPONSIVE)


# Names and places


def ephemeral_handle(uid: str, volume: str) -> str:
    """The handle of an ephemeral volume."""
    return "csi-" + hashlib.sha256(f"{uid}{volume}".encode()).hexdigest()


def attachment_name(handle: str, driver: str, node: str) -> str:
    """Name of the VolumeAttachment of a volume to a node."""
    return "csi-" + hashlib.sha256(f"{handle}{driver}{node}".encode()).hexdigest()


def volume_data(step: CsiMount) -> dict[str, str]:
    """Content of the pod's vol_data.json."""
    volume = step.volume
    return label_data(step.selinux_label) | {
        "specVolID": volume.spec_name,
        "volumeHandle": volume.handle,
        "driverName": volume.driver,
        "nodeName": step.node,
        "attachmentID": attachment_name(volume.handle, volume.driver, step.node),
        "volumeLifecycleMode": "Ephemeral" if step.ephemeral else "Persistent",
    }


def label_data(label: str) -> dict[str, str]:
    """The part of vol_data.json that has the SELinux label of the volume's mount."""
    return {SELINUX_LABEL: label} if label else {}


# Registration


def chosen_version(versions: Iterable[str], driver: str) -> tuple[str, str]:
    """(highest version that agent and driver both support, problem); one of them is empty."""
    versions = tuple(versions)
    if not versions:
        return "", "CSI driver reporting empty array for supported versions"
    common = [version for version in versions if _parts(version)[:1] == (1,)]
    if common:
        return max(common, key=_parts), ""
    return "", (
        f"could not find a highest supported version from versions ({clipped(' '.join(versions))}) "
        f"reported by this driver: {driver}"
    )


def _parts(version: str) -> tuple[int, ...]:
    """(1, 2, 0) of `v1.2.0`; empty for an invalid version."""
    found = re.fullmatch(r"v?(\d{1,9})\.(\d{1,9})(?:\.(\d{1,9}))?(?:[-+].{0,64})?", version)
    return tuple(int(part or 0) for part in found.groups()) if found else ()


def registration_problem(kind: str, name: str, versions: Iterable[str], socket: str, highest: Mapping[str, str]) -> str:
    """Reason to refuse a plugin; empty to accept it. `highest` as in Register.

    Only a driver with a higher version displaces another one of its name (validateVersions of the kubelet).
    """
    if kind != kinds.CSI:
        return kinds.unknown_type(kind, socket)
    if len(name) > MOST_NAME or not _NAME.fullmatch(name):
        return kinds.invalid(f"plugin name {clipped(name)!r} is not one of a driver: {NAME_RULE}")
    version, problem = chosen_version(versions, name)
    if problem:
        return kinds.invalid(f"validation failed for CSI Driver {name} at endpoint {socket}: {problem}")
    return displacement_problem(name, version, socket, highest)


_DISPLACES_NOT = "Another driver with the same name is already registered with a higher supported version"


def displacement_problem(name: str, version: str, socket: str, highest: Mapping[str, str]) -> str:
    """Reason to keep the registered driver of this name instead; empty when there is none, or an older one."""
    other = highest.get(name, "")
    if not other or _parts(other) < _parts(version):
        return ""
    return kinds.invalid(
        f"validation failed for CSI Driver {name} at endpoint {socket} failed. {_DISPLACES_NOT}: "
        f'"{other.removeprefix("v")}"'
    )


def is_displacement_problem(error: str) -> bool:
    """True for the error of a driver that another one of its name keeps out."""
    return _DISPLACES_NOT in error


def node_problem(node_id: str, topology: Mapping[str, str]) -> str:
    """Reason to refuse what a driver says about this node; empty to accept it."""
    if not node_id:
        return "node ID is empty"
    if len(node_id.encode()) > MOST_NODE_ID_BYTES or not node_id.isprintable():
        return (
            f"node ID {clipped(node_id)!r} cannot be one: it may have {MOST_NODE_ID_BYTES} bytes, "
            "without control characters"
        )
    if sum(len(key) + len(value) for key, value in topology.items()) > MOST_TOPOLOGY:
        return f"topology is longer than {MOST_TOPOLOGY} characters"
    return ""


# Mounting


def mount_flags(step: CsiMount) -> tuple[str, ...]:
    """The volume's mount options, and the one with its SELinux label. A label has commas, so it is in quotes."""
    return (*step.mount_options, f'context="{step.selinux_label}"') if step.selinux_label else step.mount_options


def other_label_message(volume: Volume) -> str:
    """The kubelet's message for a volume that is mounted with another SELinux label."""
    name = f"kubernetes.io/csi/{volume.driver}^{volume.handle}"
    why = "because it is already mounted to a different pod with a different SELinux label"
    return f'waiting for unmount of volume "{name}", {why}'


def access_mode(modes: tuple[str, ...], capabilities: Collection[str]) -> str:
    """CSI's name of the first of a volume's access modes."""
    mode = modes[0] if modes else "ReadWriteOnce"
    if "SINGLE_NODE_MULTI_WRITER" in capabilities and mode in _WITH_SINGLE_NODE_MULTI_WRITER:
        return _WITH_SINGLE_NODE_MULTI_WRITER[mode]
    return ACCESS_MODES.get(mode, "UNKNOWN")


def mount_group(step: CsiMount, capabilities: Collection[str]) -> str:
    """GID with which the driver itself mounts the volume; empty for none."""
    if step.fs_group is None or "VOLUME_MOUNT_GROUP" not in capabilities:
        return ""
    return str(step.fs_group.group)


def owned_by(step: CsiMount, capabilities: Collection[str]) -> FsGroup | None:
    """The group to which the node gives the volume's files; None for none."""
    group = step.fs_group
    if group is None or step.read_only or "VOLUME_MOUNT_GROUP" in capabilities or group.driver_policy == "None":
        return None
    if group.driver_policy == "File":
        return group
    once = step.ephemeral or bool({"ReadWriteOnce", "ReadWriteOncePod"}.intersection(step.access_modes))
    return group if step.fs_type and once else None


def pod_attributes(name: str, namespace: str, uid: str, service_account: str, *, ephemeral: bool) -> dict[str, str]:
    """Volume attributes for a driver with podInfoOnMount."""
    return {
        f"{POD_INFO}pod.name": name,
        f"{POD_INFO}pod.namespace": namespace,
        f"{POD_INFO}pod.uid": uid,
        f"{POD_INFO}serviceAccount.name": service_account,
        f"{POD_INFO}ephemeral": "true" if ephemeral else "false",
    }


def token_attributes(tokens: Mapping[str, Token]) -> dict[str, str]:
    """Volume attributes for a driver with tokenRequests; `tokens` by audience. Keys are in the kubelet's order."""
    status = {
        audience: {
            "token": one.token,
            "expirationTimestamp": rfc3339.seconds(one.expires),
        }
        for audience, one in sorted(tokens.items())
    }
    return {f"{POD_INFO}serviceAccount.tokens": json.dumps(status, separators=(",", ":"))}


def not_registered(driver: str) -> str:
    """The kubelet's message for a driver that is not registered."""
    return f"driver name {driver} not found in the list of registered CSI drivers"
