"""The SELinux label that a volume is mounted with (`context=`, KEP-1710), and which volumes the runtime relabels. Pure.

Source: pkg/volume/util/selinux.go and AddPodToVolume of the kubelet's desired state of world, 1.36.
"""

from __future__ import annotations

from dataclasses import dataclass

from actors._host.selinux import LabelError, SELinux, file_label
from actors.volume.plugins.base import Claimed
from actors.volume.steps.codec import SetUp
from actors.volume.steps.volumes import EmptyDir, Files, Local
from proto.v1 import Pod, SELinuxOptions, Volume
from proto.v1.volumes.volume import VOLUME_SOURCES

_MOST_SHOWN = 10
_MODES = (
    ("ReadWriteMany", "RWX"),
    ("ReadOnlyMany", "ROX"),
    ("ReadWriteOnce", "RWO"),
    ("ReadWriteOncePod", "RWOP"),
)


class SeveralLabels(LabelError):
    """Containers of one pod use the volume with different labels."""


@dataclass(frozen=True)
class Labelled:
    """A CSI volume that a pod uses, as far as it concerns its label."""

    key: tuple[str, str]
    """Driver and handle."""
    volume: str
    """Its name in messages: the PersistentVolume's, or the pod's own."""
    mode: str
    """RWX, ROX, RWO, RWOP, or inline."""
    by_mount: bool
    """Its CSIDriver has seLinuxMount."""
    supported: bool
    """Volumes of this access mode are mounted with a label; else a conflict is no error."""

    @property
    def plugin(self) -> str:
        """The kubelet's name of its plugin in metrics."""
        return f"kubernetes.io/csi/{self.key[0]}"


def access_mode(claimed: Claimed | None) -> str:
    """The widest access mode, in the words of metrics. `claimed`: None for a volume of the pod's own."""
    if claimed is None:
        return "inline"
    return next((short for mode, short in _MODES if mode in claimed.volume.spec.access_modes), "")


def contexts(pod: Pod, volume: str) -> list[SELinuxOptions]:
    """The options of the containers that mount the volume; containers without options have no say."""
    found = []
    common = pod.spec.security_context.se_linux_options if pod.spec.security_context is not None else None
    for one in (*pod.spec.init_containers, *pod.spec.containers, *pod.spec.ephemeral_containers):
        own = one.security_context.se_linux_options if one.security_context is not None else None
        options = own or common
        if options is not None and any(mount.name == volume for mount in one.volume_mounts):
            found.append(options)
    return found


def mount_label(pod: Pod, volume: str, selinux: SELinux) -> str:
    """The label for all files of the volume; empty when the runtime is to label them. Raises LabelError."""
    labels = sorted({file_label(options, selinux) for options in contexts(pod, volume)})
    if len(labels) > 1:
        more = ",..." if len(labels) > _MOST_SHOWN else ""
        raise SeveralLabels(f"multiple SELinux labels found: {','.join(labels[:_MOST_SHOWN])}{more}")
    security = pod.spec.security_context
    recursive = security is not None and security.se_linux_change_policy == "Recursive"
    return labels[0] if labels and not recursive else ""


def conflict(volume: str, before: str, now: str, other: str) -> str:
    """The kubelet's message for a volume that the pod `other` uses with another label; that name may be empty."""
    text = f'conflicting SELinux labels of volume {volume}: "{before}" and "{now}"'
    return f"{text}; pod {other} uses it" if other else text


def is_labelled_by_runtime(step: SetUp) -> bool:
    """True for a volume whose files the runtime may label: it is on the node, and its content is the pod's own.

    CSI volumes are not among them: their mount tells it.
    """
    return isinstance(step, EmptyDir | Files | Local)


def is_read_only(volume: Volume) -> bool:
    """True when the pod's volume says so: nothing writes labels to it."""
    source = next((getattr(volume, one) for one in VOLUME_SOURCES if getattr(volume, one) is not None), None)
    return bool(getattr(source, "read_only", False))
