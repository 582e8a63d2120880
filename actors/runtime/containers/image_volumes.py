"""Images as volumes: CRI's Mount.image, KEP-4639. The image's files, or a part of them, read-only in the container.

Which layers a volume has is settled when its container is created, so a tag that moves meanwhile changes nothing, and
is on its record, so they stay with it. They are mounted when it starts and unmounted when it has ended, as its root is.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec

from actors._cri.image_reference import InvalidImageName
from actors.runtime.containers.rootfs import RootFs
from actors.runtime.images import names
from actors.runtime.images.local.store import ImageStore, is_text
from actors.runtime.images.registry.errors import ImageError
from actors.runtime.oci.spec.mounts import BadMount
from proto.cri import api_pb2 as pb


class ImageVolume(msgspec.Struct, frozen=True, kw_only=True):
    """One of a container's."""

    mount: int
    """Index in the configuration's mounts."""
    layers: tuple[str, ...]
    part: str = ""
    """What of it is mounted, its links resolved; empty for all."""
    image_id: str = ""
    """Empty on records of before."""


class ImageVolumes:
    """Makes and removes them. Safe from any thread."""

    def __init__(self, store: ImageStore, rootfs: RootFs, directory: Path) -> None:
        """`directory` gets a directory for each container that has some."""
        self._store = store
        self._rootfs = rootfs
        self._directory = directory

    def choose(self, config: pb.ContainerConfig, hold: Callable[[str], None]) -> tuple[ImageVolume, ...]:
        """Those that are asked for; `hold` is told each layer before it is looked at. Raises BadMount."""
        return tuple(
            self._choose(index, mount, hold) for index, mount in enumerate(config.mounts) if mount.HasField("image")
        )

    def _choose(self, index: int, mount: pb.Mount, hold: Callable[[str], None]) -> ImageVolume:
        name, asked = mount.image.image, mount.image_sub_path
        what = f"cannot mount image {name!r} at {mount.container_path}"
        if mount.host_path:
            raise BadMount(f"{what}: the mount also names a path of the machine, {mount.host_path}")
        try:
            if not names.is_id(name) and names.full(name) == names.HOST:
                raise BadMount(f"{what}: the machine's own files are mounted by a path of the machine")
            image = self._store.get(name)
            for layer in image.layers:
                hold(layer)
            part, status = self._store.stack(image.layers).resolve(asked)
        except (ImageError, InvalidImageName, OSError) as error:
            raise BadMount(f"{what}: {error}") from error
        if asked and status is None:
            raise BadMount(f"{what}: there is no {asked!r} in the image")
        if not is_text(part):  # neither a record nor config.json can have it
            raise BadMount(f"{what}: {asked!r} leads to {part!r}, which is not UTF-8")
        return ImageVolume(mount=index, layers=image.layers, part=part, image_id=image.id)

    def sources(self, container_id: str, volumes: Sequence[ImageVolume]) -> dict[int, str]:
        """By index of the mount, the path on the machine to mount from."""
        return {one.mount: str(self._place(container_id, one) / one.part).rstrip("/") for one in volumes}

    def prepare(self, container_id: str, volumes: Sequence[ImageVolume]) -> None:
        """Have them at their places. Raises OSError, ImageError."""
        for one in volumes:
            self._rootfs.prepare_read_only(one.layers, self._place(container_id, one))

    def remove(self, container_id: str) -> None:
        """Take them away. Idempotent. Raises OSError."""
        directory = self._directory / container_id
        for path in list(directory.iterdir()) if directory.is_dir() else ():
            self._rootfs.remove_read_only(path)
        with contextlib.suppress(FileNotFoundError):
            directory.rmdir()

    def strays(self, known: set[str]) -> list[str]:
        """Containers that are not among `known` and have some."""
        return [path.name for path in self._directory.glob("*") if path.name not in known]

    def _place(self, container_id: str, volume: ImageVolume) -> Path:
        return self._directory / container_id / str(volume.mount)
