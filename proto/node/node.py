"""Messages that the node actor receives: the volumes in use, from volume."""

from __future__ import annotations

from proto.wire.message import Message


class SetVolumesInUse(Message, frozen=True, kw_only=True):
    """From volume: every attachable volume that a pod has mounted or is about to mount. Idempotent.

    The node actor writes status.volumesInUse and confirms it by proto.pods.volume.VolumesInUseReported.
    """

    volumes: tuple[str, ...]
    """Unique volume names, `kubernetes.io/csi/DRIVER^HANDLE`."""
