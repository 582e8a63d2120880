"""Image volumes: CRI's Mount.image (KEP-4639), which mounts an image's files read-only into a container.

The layers of a volume are chosen when its container is created and are in its record: a tag that moves later changes
nothing. Volumes are mounted at the start and unmounted after the exit, like the root file system.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from pathlib import Path

from actors._cri.image_reference import InvalidImageName
from actors.runtime.filesystems.rootfs import RootFs
from actors.runtime.images import names
from actors.runtime.images.errors import ImageError
from actors.runtime.images.local.store import ImageStore, is_text
from actors.runtime.model.records import ImageVolume
from actors.runtime.model.user_mapping import PodUsers
from actors.runtime.oci.spec.mounts import BadMount
from proto.cri import api_pb2 as pb


class ImageVolumes:
    """Mounts and unmounts image volumes. Safe from any thread."""

    def __init__(self, store: ImageStore, rootfs: RootFs, directory: Path) -> None:
        """`directory` gets a directory for each container with image volumes."""
        self._store = store
        self._rootfs = rootfs
        self._directory = directory

    def choose(self, config: pb.ContainerConfig, hold: Callable[[str], None]) -> tuple[ImageVolume, ...]:
        """The image volumes of a configuration. Calls `hold` with each layer before reading it. Raises BadMount."""
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
                raise BadMount(f"{what}: mount the machine's own files by host_path")
            image = self._store.get(name)
            for layer in image.layers:
                hold(layer)
            part, status = self._store.stack(image.layers).resolve(asked)
        except (ImageError, InvalidImageName, OSError) as error:
            raise BadMount(f"{what}: {error}") from error
        if asked and status is None:
            raise BadMount(f"{what}: there is no {asked!r} in the image")
        if not is_text(part):  # records and config.json are UTF-8
            raise BadMount(f"{what}: {asked!r} leads to {part!r}, which is not UTF-8")
        return ImageVolume(mount=index, layers=image.layers, part=part, image_id=image.id)

    def sources(self, container_id: str, volumes: Sequence[ImageVolume]) -> dict[int, str]:
        """Path of each volume's files on the machine, by index of the mount."""
        return {one.mount: str(self._place(container_id, one) / one.part).rstrip("/") for one in volumes}

    def prepare(
        self, container_id: str, volumes: Sequence[ImageVolume], users: PodUsers | None = None, label: str = ""
    ) -> None:
        """Mount the volumes, with the users and the SELinux label of a pod. Raises OSError, ImageError."""
        for one in volumes:
            self._rootfs.prepare_read_only(one.layers, self._place(container_id, one), users, label)

    def remove(self, container_id: str) -> None:
        """Unmount a container's volumes. Idempotent. Raises OSError."""
        directory = self._directory / container_id
        for path in list(directory.iterdir()) if directory.is_dir() else ():
            self._rootfs.remove_read_only(path)
        with contextlib.suppress(FileNotFoundError):
            directory.rmdir()

    def orphaned(self, known: set[str]) -> list[str]:
        """IDs of containers that have mounted volumes and are not in `known`."""
        return [path.name for path in self._directory.glob("*") if path.name not in known]

    def _place(self, container_id: str, volume: ImageVolume) -> Path:
        return self._directory / container_id / str(volume.mount)
