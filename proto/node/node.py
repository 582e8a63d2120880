"""Messages that the node actor receives: from volume, resources and certificates."""

from __future__ import annotations

from proto.wire.message import Message


class SetVolumesInUse(Message, frozen=True, kw_only=True):
    """From volume: every attachable volume that a pod has mounted or is about to mount. Idempotent.

    The node actor writes status.volumesInUse and confirms it by proto.pods.volume.VolumesInUseReported.
    """

    volumes: tuple[str, ...]
    """Unique volume names, `kubernetes.io/csi/DRIVER^HANDLE`."""
    number: int = 0
    """Grows with each list, also over restarts of volume; the confirmation has it."""


class SetDevices(Message, frozen=True, kw_only=True):
    """From resources, at its start and with every change: numbers of devices by extended resource. Idempotent.

    The Node has them from its next status on. A resource whose device plugin has gone for good has 0.
    """

    capacity: dict[str, int]
    allocatable: dict[str, int]
    """The healthy ones of plugins that are connected."""


class Bootstrapped(Message, frozen=True, kw_only=True):
    """From certificates: the bootstrap kubeconfig gave this machine a new client certificate. Idempotent.

    The Node is registered again if it is not there: the machine joins anew, as a kubelet that starts again does.
    """
