"""The user namespace of a pod: the IDs of the machine that its users are. Pure.

The kubelet gives each pod one range of IDs, whose length is a multiple of 65536, above the machine's own IDs (KEP-127).
Everything else is refused: several ranges, ranges that differ between users and groups, and the machine's own IDs.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from actors.runtime.model.errors import invalid
from proto.cri import api_pb2 as pb

UNIT = 65_536
_INVALID_ID = 2**32 - 1
"""The kernel's INVALID_UID, which no map may contain."""
_OPTIONS = "namespace_options.userns_options"


class UserMapping(NamedTuple):
    """The range of IDs. In the pod they begin at 0."""

    first: int
    length: int

    def on_machine(self, id_: int) -> int:
        """The machine's ID of an ID in the pod; an ID without one is the pod's `nobody`."""
        return self.first + (id_ if id_ < self.length else UNIT - 2)

    def to_oci(self) -> list[dict[str, Any]]:
        """uidMappings, and gidMappings, in config.json."""
        return [{"containerID": 0, "hostID": self.first, "size": self.length}]

    def is_in(self, mount: pb.Mount) -> bool:
        """Return True when a mount has this mapping, for users and groups."""
        return all(_ranges(ids) == [(0, *self)] for ids in (mount.uidMappings, mount.gidMappings))


class PodUsers(NamedTuple):
    """A pod's IDs, and the path of its pinned user namespace."""

    ids: UserMapping
    namespace: str


def mapping_of(options: pb.NamespaceOption) -> UserMapping | None:
    """The IDs that the options ask for; None for the machine's users. Raises RpcError INVALID_ARGUMENT."""
    users = options.userns_options
    if not options.HasField("userns_options") or users.mode == pb.NODE:
        if users.uids or users.gids:
            raise invalid(f"{_OPTIONS} has IDs with mode NODE; leave them out, or use mode POD")
        return None
    if users.mode != pb.POD:
        raise invalid(f"{_OPTIONS}.mode is {pb.NamespaceMode.Name(users.mode)}; use POD or NODE")
    for kind in ("network", "pid", "ipc"):
        if getattr(options, kind) == pb.NODE:
            raise invalid(f"namespace_options.{kind} is NODE, which a pod with users of its own cannot have; use POD")
    uids, gids = (_mapping(ids, f"{_OPTIONS}.{name}") for name, ids in (("uids", users.uids), ("gids", users.gids)))
    if uids != gids:
        raise invalid(f"{_OPTIONS}.gids differs from uids; give both the same range")
    return uids


def _mapping(ids: Any, field: str) -> UserMapping:
    if len(ids) != 1:
        raise invalid(f"{field} has {len(ids)} ranges; give one")
    (only,) = ids
    if only.container_id != 0:
        raise invalid(f"{field}: container_id is {only.container_id}; give 0")
    if not only.length or only.length % UNIT:
        raise invalid(f"{field}: length is {only.length}; give a multiple of {UNIT}")
    if only.host_id < UNIT or only.host_id + only.length > _INVALID_ID:
        raise invalid(f"{field}: host_id is {only.host_id}; give IDs from {UNIT} to {_INVALID_ID - 1}")
    return UserMapping(only.host_id, only.length)


def _ranges(ids: Any) -> list[tuple[int, int, int]]:
    return [(one.container_id, one.host_id, one.length) for one in ids]
