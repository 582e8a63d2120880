"""Mounts and pipes of a container whose pod has users of its own, as its specification has them. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from actors.runtime.model.records import ShownMount
from actors.runtime.model.user_mapping import UserMapping

_FOLLOWING = ("rslave", "rshared")
_LIMITS = ("ro", "rro", "nosuid", "nodev", "noexec")


def through_places(mounts: list[dict[str, Any]], place: Callable[[int], str]) -> tuple[ShownMount, ...]:
    """Give each bind mount `place(number)` as its source, and return what is to appear there, by number.

    At these places of filesystems/shown_mounts.py, files appear with the pod's IDs, and the options that limit use are
    in effect. So both go. Set in the container's namespace, root there could clear the options again. The kernel
    refuses to change them where the source has others, such as nosuid.
    """
    found: list[ShownMount] = []
    for mount in mounts:
        if mount["type"] != "bind":
            continue
        options = mount["options"]
        mount["options"] = [one for one in options if one not in (*_LIMITS, "rw")]
        mapped = [mount.pop(key, None) for key in ("uidMappings", "gidMappings")]
        found.append(
            ShownMount(
                source=mount["source"],
                mapped=any(mapped),
                recursive="rbind" in options,
                follows=any(one in options for one in _FOLLOWING),
                options=tuple(one for one in options if one in _LIMITS),
            )
        )
        mount["source"] = place(len(found) - 1)
    return tuple(found)


def owner_of(spec: Mapping[str, Any]) -> tuple[int, int] | None:
    """The machine's user and group who are to own the pipes of a process; None where the OCI runtime gives them.

    It may not do it in a user namespace, which the machine's root is not in. Without it, /dev/stdout does not open.
    """
    mapped = spec.get("linux", {}).get("uidMappings")
    if not mapped:
        return None
    ids, user = UserMapping(mapped[0]["hostID"], mapped[0]["size"]), spec["process"]["user"]
    return ids.on_machine(user["uid"]), ids.on_machine(user["gid"])
