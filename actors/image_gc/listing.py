"""Converts CRI lists of images, containers and sandboxes to the policy's types."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

import msgspec

from actors.image_gc.policy import ImageView
from proto.common import untrusted
from proto.cri import api_pb2 as pb
from proto.cri.labels import POD_UID


def image_view(image: pb.Image) -> ImageView:
    """Return the view of one entry of ListImages."""
    return ImageView(
        id=image.id,
        names=frozenset({image.id, *image.repo_tags, *image.repo_digests}),
        size_bytes=image.size,
        pinned=image.pinned,
        local=not image.repo_digests,
        runtime_handler=image.spec.runtime_handler,
    )


def image_views(images: Iterable[pb.Image]) -> list[ImageView]:
    """Return the views of ListImages, one for each ID and runtime handler. Entries of one ID share names and pins.

    An entry without the name that a container uses must not let the image go. One without an ID cannot be removed.
    """
    views: dict[tuple[str, str], ImageView] = {}
    names: dict[str, frozenset[str]] = {}
    pinned: set[str] = set()
    for one in map(image_view, filter(lambda image: image.id, images)):
        views.setdefault((one.id, one.runtime_handler), one)
        names[one.id] = names.get(one.id, frozenset()) | one.names
        if one.pinned:
            pinned.add(one.id)
    return [replace(one, names=names[one.id], pinned=one.id in pinned) for one in views.values()]


def images_in_use(containers: Iterable[pb.Container]) -> frozenset[str]:
    """Return all names by which containers, running or not, refer to their images.

    Runtimes and their versions differ in the field that has the image's ID. A superfluous name only keeps an image.
    """
    used = set()
    for container in containers:
        used |= {container.image_id, container.image_ref, container.image.image}
    return frozenset(used - {""})


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
