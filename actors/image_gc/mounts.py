"""The images that containers mount as volumes (KEP-4639). A list of containers does not have them.

Each container is asked for once, by ContainerStatus: its mounts never change. The kubelet asks for all at each look
(detectImages of pkg/kubelet/images/image_gc_manager.go).
"""

from __future__ import annotations

import time
from collections.abc import Iterable

from actors._base import Actor, gather
from actors._cri.errors import CriError, NotFound
from actors._cri.relay import RelayedCri
from actors.image_gc.listing import mounted_images

AT_ONCE = 4
"""Calls at a time. pleg relays them, and other actors' calls pass between."""
READ_S = 60.0
"""Time for the calls of one look. What was read counts for the next look."""


class ImageMounts:
    """The mounts of known containers, in memory only. Runs in the actor's mailbox thread."""

    def __init__(self, actor: Actor) -> None:
        self._actor = actor
        self._known: dict[str, frozenset[str]] = {}
        """Names of the images that a container mounts, by CRI ID."""

    async def of(self, cri: RelayedCri, listed: Iterable[str]) -> frozenset[str]:
        """Return the names of all images that the `listed` containers mount. Forgets other containers.

        Raises CriError when one cannot be read: then it is not known which images are in use.
        """
        ids = list(listed)
        self._known = {one: self._known[one] for one in ids if one in self._known}
        new = [one for one in ids if one not in self._known]
        began = time.monotonic()
        for start in range(0, len(new), AT_ONCE):
            if start and time.monotonic() - began >= READ_S:
                text = f"the mounts of {len(new) - start} containers are not known after {READ_S:g} s"
                raise CriError.of("DeadlineExceeded", text, "ContainerStatus")
            part = new[start : start + AT_ONCE]
            found = await gather(*(self._actor.spawn(self._read(cri, one), "image mounts") for one in part))
            self._known.update(zip(part, found, strict=True))
        return frozenset().union(*self._known.values())

    async def _read(self, cri: RelayedCri, identity: str) -> frozenset[str]:
        try:
            return mounted_images((await cri.container_status(identity)).status)
        except NotFound:
            return frozenset()  # removed since the list
        except CriError as error:
            text = f"cannot read the mounts of container {identity}: {error}"
            raise CriError.of(error.code, text, error.rpc) from error
