"""Directories for the VOLUMEs that a container's image declares, as containerd makes them.

Each is a writable directory in the container's own directory, and goes with it. It begins with the image's content at
that path, with owners and modes. Source: containerd's internal/cri/opts, WithVolumes. The paths are in the container's
record. The start copies the content and repeats a copy that a kill interrupted.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable, Sequence
from pathlib import Path

from actors.runtime.filesystems.rootfs import copy_all
from actors.runtime.images.limits import Budget
from actors.runtime.images.local.stack import Stack
from actors.runtime.oci.relabeling import relabel
from actors.runtime.oci.spec.mounts import BadMount, declared_volumes
from proto.cri import api_pb2 as pb

DIRECTORY = "volumes"
"""Of all volumes of a container, in its directory."""


def choose(volumes: Iterable[str], config: pb.ContainerConfig, stack: Stack) -> tuple[str, ...]:
    """Paths in the container of the volumes to make. `stack` has the image's files. Raises BadMount."""
    paths = declared_volumes(volumes, config)
    for path in paths:
        _content(stack, path)
    return paths


def sources(directory: Path, paths: Sequence[str]) -> dict[str, str]:
    """The volumes' directories on the machine by path in the container. `directory` is the container's."""
    return {path: str(directory / DIRECTORY / str(number)) for number, path in enumerate(paths)}


def prepare(directory: Path, paths: Sequence[str], stack: Stack, budget: Budget, label: str = "") -> None:
    """Make the volumes, each with its content and an SELinux label. Idempotent. Raises BadMount, OSError, ImageError.

    `budget` is for all volumes together: a hostile image may have thousands of names for one large directory.
    """
    for path, source in sources(directory, paths).items():
        if os.path.exists(source):
            continue
        content, copying = _content(stack, path), Path(f"{source}.copying")
        copy_all(content, copying, budget)
        if not content.layers:
            copying.chmod(0o755)
        relabel([os.path.realpath(copying)] if label else [], label)
        copying.rename(source)


def _content(stack: Stack, path: str) -> Stack:
    """The image's files at `path`, links resolved in the image; empty without them. Raises BadMount."""
    what = f"cannot make the image's VOLUME {path}"
    try:
        relative, status = stack.resolve(path)
    except OSError as error:
        raise BadMount(f"{what}: {error}") from error
    if not relative:
        raise BadMount(f"{what}: it leads to the root; use an image without it")
    if status is None:
        return Stack([])
    if not stat.S_ISDIR(status.st_mode):
        raise BadMount(f"{what}: the image has a file there; use an image without it")
    return stack.directory(relative)
