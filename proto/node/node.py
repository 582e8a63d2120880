"""Messages the node actor receives. From volume: SetVolumesInUse."""

from __future__ import annotations

from proto.wire.message import Message


class SetVolumesInUse(Message, frozen=True, kw_only=True):
    """Every attachable volume that a pod of this node has mounted, or is about to: status.volumesInUse.

    Idempotent. What the Node holds of them is told back (proto.pods.volume.VolumesInUseReported).
    """

    volumes: tuple[str, ...]
    """Unique volume names, `kubernetes.io/csi/DRIVER^HANDLE`."""
