"""What the runtime says of images and their use, as the policy takes it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec

from actors.image_gc.policy import ImageView
from proto.common import untrusted
from proto.cri import api_pb2 as pb

POD_UID = "io.kubernetes.pod.uid"


def image_view(image: pb.Image) -> ImageView:
    """One entry of ListImages."""
    return ImageView(
        id=image.id,
        names=frozenset({image.id, *image.repo_tags, *image.repo_digests}),
        size_bytes=image.size,
        pinned=image.pinned,
        runtime_handler=image.spec.runtime_handler,
    )


def images_in_use(containers: Iterable[pb.Container]) -> frozenset[str]:
    """Every name by which a container, running or not, refers to its image.

    Which of the three is the image's ID differs between runtimes and their versions; a name too many only keeps one.
    """
    used = set()
    for container in containers:
        used |= {container.image_id, container.image_ref, container.image.image}
    return frozenset(used - {""})


def pods_in(sandboxes: Iterable[pb.PodSandbox]) -> set[str]:
    """UIDs of the pods of node agents."""
    return {one.labels[POD_UID] for one in sandboxes if one.labels.get(POD_UID)}


def sandbox_image(info: Mapping[str, str]) -> str:
    """The pause image that the runtime is configured with, out of Status's verbose info; empty when it is not told.

    Newer runtimes pin it. containerd before 1.7 does not, and no container names it.
    """
    try:
        config = untrusted.decode_json(info.get("config", "{}"))
    except msgspec.DecodeError:
        return ""
    found = config.get("sandboxImage", "") if isinstance(config, dict) else ""
    return found if isinstance(found, str) else ""
