"""The SELinux labels that pods use CSI volumes with: one volume has one label at a time (KEP-1710).

A pod that wants another label waits until the volume's pods have gone. Runs in the actor's mailbox thread.
Source: AddPodToVolume of pkg/kubelet/volumemanager/cache.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from actors._host.selinux import LabelError, SELinux
from actors._metrics import kubelet as metrics
from actors.volume import selinux_labels
from actors.volume.plugins.base import CannotMount, Claimed, Context
from actors.volume.plugins.csi import mounted_volume, mounts_by_label
from actors.volume.selinux_labels import Labelled
from proto.v1 import Pod, Volume

log = logging.getLogger(__name__)

User = tuple[str, str]
"""A pod's UID, and the volume's name in the pod."""
Key = tuple[str, str]
"""A volume's driver and handle."""

_WARNINGS = {
    "container": metrics.SELINUX_CONTAINER_WARNINGS,
    "pod": metrics.SELINUX_POD_WARNINGS,
}
_ERRORS = {
    "container": metrics.SELINUX_CONTAINER_ERRORS,
    "pod": metrics.SELINUX_POD_ERRORS,
}


@dataclass
class _Volume:
    label: str
    """Its pods' label, also where no mount has it because of the access mode."""
    users: dict[User, str] = field(default_factory=dict)
    """NAMESPACE/NAME of the pods; empty for a pod that was found on disk.

    A pod may have a volume under two names. An incomplete one on disk has a name that no volume of its pod has.
    """
    waiting: set[User] = field(default_factory=set)
    is_exact: bool = True
    """False for a volume that was found on disk: there only the label of its mount is known."""


class Labels:
    """The labels of all CSI volumes that pods have or are about to mount."""

    def __init__(self, selinux: SELinux, on_free: Callable[[str, str], None], *, every_mode: bool) -> None:
        """`on_free` takes a user that waits no longer. `every_mode`: the feature gate SELinuxMount."""
        self._selinux, self._on_free, self._every_mode = selinux, on_free, every_mode
        self._volumes: dict[Key, _Volume] = {}
        self._mounted: dict[User, str] = {}
        """The label of each volume's mount; empty: it is mounted without one."""

    def take_over(self, found: Mapping[User, tuple[Key, str]]) -> None:
        """Note volumes that an earlier incarnation has mounted, with the labels of their mounts."""
        for user, (key, label) in found.items():
            self._volumes.setdefault(key, _Volume(label, is_exact=False)).users[user] = ""
            self._mounted[user] = label

    def of(self, uid: str, name: str) -> str:
        """The label of a mounted volume; empty for none."""
        return self._mounted.get((uid, name), "")

    def admit(self, pod: Pod, one: Volume, claimed: Claimed | None, context: Context) -> str:
        """The label to mount the volume with; empty for none. Raises CannotMount while other pods use another one."""
        if not self._selinux.enabled:
            return ""
        user = (pod.metadata.uid, one.name)
        key = mounted_volume(pod, one, claimed)
        self._release(lambda other, at: other == user and at != key)  # its claim is bound to another volume now
        if key is None:
            return ""
        volume = Labelled(
            key=key,
            volume=claimed.name if claimed is not None else one.name,
            mode=selinux_labels.access_mode(claimed),
            by_mount=mounts_by_label(key[0], context),
            supported=claimed is not None and (self._every_mode or claimed.exclusive),
        )
        label = self._label(pod, one.name, volume) if volume.by_mount else ""
        self._use(user, pod, volume, label)
        self._mounted[user] = label if volume.supported else ""
        return self._mounted[user]

    def _label(self, pod: Pod, name: str, volume: Labelled) -> str:
        try:
            return selinux_labels.mount_label(pod, name, self._selinux)
        except LabelError as error:
            kind = "pod" if isinstance(error, selinux_labels.SeveralLabels) else "container"
            if volume.supported:
                _ERRORS[kind].add(1, volume.mode)
                raise CannotMount(str(error), stage="") from None
            if (pod.metadata.uid, name) not in self._mounted:
                _WARNINGS[kind].add(1, volume.mode)
            return ""

    def _use(self, user: User, pod: Pod, volume: Labelled, label: str) -> None:
        known = self._volumes.get(volume.key)
        meta = pod.metadata
        if known is None:
            known = self._volumes[volume.key] = _Volume(label)
            if label:
                metrics.SELINUX_ADMITTED.add(1, volume.plugin, volume.mode)
        names = {one.name for one in pod.spec.volumes}
        known.users = {one: who for one, who in known.users.items() if one[0] != user[0] or one[1] in names}
        if not known.users.keys() - {user}:
            known.label, known.is_exact = label, True
        elif volume.by_mount and label != known.label:
            self._mismatch(user, meta.namespace, volume, known, label)
        known.users[user] = f"{meta.namespace}/{meta.name}"
        known.waiting.discard(user)

    def _mismatch(self, user: User, namespace: str, volume: Labelled, known: _Volume, label: str) -> None:
        # Another namespace's pod is not named: its name is none of this one's business.
        other = next((one for one in sorted(known.users.values()) if one.startswith(f"{namespace}/")), "")
        text = selinux_labels.conflict(volume.volume, known.label, label, other)
        if volume.supported:
            known.users.pop(user, None)
            known.waiting.add(user)
            metrics.SELINUX_VOLUME_ERRORS.add(1, volume.plugin, volume.mode)
            raise CannotMount(text, stage="")
        if known.is_exact and user not in known.users:
            metrics.SELINUX_VOLUME_WARNINGS.add(1, volume.plugin, volume.mode)
            log.info("pod %s: %s; the access mode %s has no label of its own yet", user[0], text, volume.mode)

    def drop(self, uid: str) -> None:
        """Forget a pod whose volumes have gone. Pods that wait for a volume that is free now are tried at once."""
        self._mounted = {user: label for user, label in self._mounted.items() if user[0] != uid}
        self._release(lambda user, _: user[0] == uid)

    def _release(self, is_gone: Callable[[User, Key], bool]) -> None:
        freed: set[User] = set()
        for key, volume in list(self._volumes.items()):
            volume.users = {user: pod for user, pod in volume.users.items() if not is_gone(user, key)}
            volume.waiting = {user for user in volume.waiting if not is_gone(user, key)}
            if not volume.users:
                freed |= volume.waiting
                del self._volumes[key]
        for user in sorted(freed):
            self._on_free(*user)
