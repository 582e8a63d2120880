"""Converts CRI lists of images, containers and sandboxes to the policy's types."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import NamedTuple

import msgspec

from actors.image_gc.policy import ImageView, InUse
from proto.common import untrusted
from proto.cri import api_pb2 as pb
from proto.cri.labels import POD_UID


def image_view(image: pb.Image, *, by_handler: bool = False) -> ImageView:
    """Return the view of one entry of ListImages. `by_handler`: see ImageView."""
    return ImageView(
        id=image.id,
        names=frozenset({image.id, *image.repo_tags, *image.repo_digests}),
        size_bytes=image.size,
        pinned=image.pinned,
        local=not image.repo_digests,
        runtime_handler=image.spec.runtime_handler,
        by_handler=by_handler,
    )


def image_views(images: Iterable[pb.Image], *, by_handler: bool = False) -> list[ImageView]:
    """Return the views of ListImages, one for each ID and runtime handler. Entries of one ID share names and pins.

    An entry without the name that a container uses must not let the image go. One without an ID cannot be removed.
    """
    views: dict[tuple[str, str], ImageView] = {}
    names: dict[str, frozenset[str]] = {}
    pinned: set[str] = set()
    for one in (image_view(image, by_handler=by_handler) for image in images if image.id):
        views.setdefault((one.id, one.runtime_handler), one)
        names[one.id] = names.get(one.id, frozenset()) | one.names
        if one.pinned:
            pinned.add(one.id)
    return [replace(one, names=names[one.id], pinned=one.id in pinned) for one in views.values()]


def handlers_by_name(images: Iterable[ImageView]) -> dict[str, frozenset[str]]:
    """Return the runtime handlers of the images that have a name, by name; those of entries without one as empty."""
    found: dict[str, frozenset[str]] = {}
    for image in images:
        for name in image.names:
            found[name] = found.get(name, frozenset()) | {image.runtime_handler}
    return found


class Handlers(NamedTuple):
    """The runtime handlers of a look, for images that are told apart by them (RuntimeClassInImageCriApi)."""

    of_sandboxes: Mapping[str, str]
    """By CRI ID."""
    of_names: Mapping[str, frozenset[str]]
    """As from `handlers_by_name`."""


def images_in_use(containers: Iterable[pb.Container], handlers: Handlers | None = None) -> InUse:
    """Return all names by which containers, running or not, refer to their images.

    Runtimes and their versions differ in the field that has the image's ID. A superfluous name only keeps an image.

    `handlers`: None if images are not told apart by them. Else a container uses the image for its own handler: that in
    its ImageSpec, as in the kubelet, or its sandbox's. It uses the images for all handlers if none is known to be its.
    """
    used: set[str | tuple[str, str]] = set()
    for container in containers:
        names = {container.image_id, container.image_ref, container.image.image} - {""}
        handler = _handler(container, handlers) if handlers is not None else None
        for name in names:
            of_name = handlers.of_names.get(name, ()) if handlers is not None else ()
            used.add(name if handler is None or handler not in of_name else (name, handler))
    return frozenset(used)


def _handler(container: pb.Container, handlers: Handlers) -> str | None:
    return container.image.runtime_handler or handlers.of_sandboxes.get(container.pod_sandbox_id)


def mounted_images(status: pb.ContainerStatus) -> frozenset[str]:
    """Return all names by which a container's mounts refer to images; none from a runtime without image volumes."""
    images = [mount.image for mount in status.mounts if mount.HasField("image")]
    return frozenset(name for image in images for name in (image.image, image.image_ref) if name)


def pods_in(sandboxes: Iterable[pb.PodSandbox]) -> set[str]:
    """Return the UIDs of pods in a list of sandboxes. A sandbox without UID belongs to no node agent."""
    return {one.labels[POD_UID] for one in sandboxes if one.labels.get(POD_UID)}


def sandbox_image(info: Mapping[str, str]) -> str:
    """Return the configured pause image in Status' verbose info; empty when it is missing.

    Newer runtimes pin the image. containerd before 1.7 does not, and no container names it.
    """
    try:
        config = untrusted.decode_json(info.get("config", "{}"))
    except msgspec.DecodeError:
        return ""
    found = config.get("sandboxImage", "") if isinstance(config, dict) else ""
    return found if isinstance(found, str) else ""
