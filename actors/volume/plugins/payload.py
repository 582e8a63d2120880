"""Files of a volume, made from the keys of objects and fields of the pod. Pure.

Covers items, modes, optional keys and valid paths. Source: MakePayload of pkg/volume/configmap and pkg/volume/secret,
CollectData of pkg/volume/downwardapi, validatePath of pkg/volume/util.
"""

from __future__ import annotations

import posixpath
from collections.abc import Iterable, Iterator, Mapping

from actors._host.node import downward
from actors._host.node.downward import NodeFacts, NoSuchFieldError
from actors.volume.plugins.base import CannotMount, Context
from actors.volume.steps.codec import SetUp
from actors.volume.steps.volumes import EmptyDir, File, Files
from proto.v1 import Container, DownwardAPIVolumeFile, KeyToPath, Pod

DEFAULT_MODE = 0o644
MAX_OBJECT_BYTES = 1024 * 1024
"""The API's limit for a ConfigMap or Secret, over all keys."""
MAX_VOLUME_BYTES = 64 * MAX_OBJECT_BYTES
"""Most bytes of one volume's files together. `items` may name a key any number of times, and each is a copy."""
MAX_POD_BYTES = 4 * MAX_VOLUME_BYTES
"""Most bytes of the files of a pod's volumes together: a round of the reconciler hashes and sends all of them."""
_MAX_PATH, _MAX_NAME = 4096, 255
_SHOWN = 5
"""Most volumes that a message names."""

Payload = dict[str, File]
"""Files by path; later sources of a projected volume override earlier ones."""


class TooLarge(CannotMount):
    """The files of one volume have too many bytes."""

    def __init__(self, size: int) -> None:
        text = f"Too long: its files may not be more than {MAX_VOLUME_BYTES} bytes together, and have {size} or more"
        super().__init__(f"{text}; name each key once in `items`", retry=False)


class PodFiles:
    """The files of a pod's volumes in one round of the reconciler, as far as their steps were made."""

    def __init__(self) -> None:
        self._sizes: dict[str, int] = {}
        """Bytes by volume."""

    def add(self, step: SetUp) -> None:
        """Add a volume's files. Raises CannotMount when those of all volumes are too large; this one is left out."""
        if not isinstance(step, Files):
            return
        size, before = sum(len(file.data) for file in step.files), sum(self._sizes.values())
        if before + size > MAX_POD_BYTES:
            raise CannotMount(self._refusal(size, before), retry=False)
        self._sizes[step.name] = size

    def _refusal(self, size: int, before: int) -> str:
        largest = sorted(self._sizes, key=lambda name: -self._sizes[name])
        names = ", ".join(f'"{name}"' for name in largest[:_SHOWN]) + (" and others" if len(largest) > _SHOWN else "")
        limit = f"Too long: the files of a pod's volumes may not be more than {MAX_POD_BYTES} bytes together"
        return f"{limit}; this one has {size}, and {names} have {before}; use fewer or smaller volumes"


def of_keys(
    data: Mapping[str, bytes], items: tuple[KeyToPath, ...], default_mode: int | None, missing: str, *, optional: bool
) -> Payload:
    """Files of an object: every key, or the keys of `items` at their paths. Raises CannotMount.

    `missing`: the error for a missing key, with `{}` in its place.
    """
    mode = DEFAULT_MODE if default_mode is None else default_mode
    size = sum(map(len, data.values()))
    if size > MAX_OBJECT_BYTES:
        raise CannotMount(f"Too long: may not be more than {MAX_OBJECT_BYTES} bytes, and has {size}")
    if not items:
        return payload(File(key, value, mode) for key, value in data.items())
    files = []
    for item in items:
        if item.key in data:
            files.append(File(item.path, data[item.key], mode if item.mode is None else item.mode))
        elif not optional:
            raise CannotMount(missing.format(item.key))
    return payload(files)


def of_fields(
    pod: Pod, items: tuple[DownwardAPIVolumeFile, ...], default_mode: int | None, facts: NodeFacts
) -> Payload:
    """Files from fields of the pod. Raises CannotMount."""
    mode = DEFAULT_MODE if default_mode is None else default_mode

    def files() -> Iterator[File]:  # one by one: `payload` ends it before all copies of a long field exist
        for item in items:
            try:
                text = _field(pod, item, facts)
            except NoSuchFieldError as error:
                raise CannotMount(str(error), retry=False) from None
            yield File(item.path, text.encode(), mode if item.mode is None else item.mode)

    return payload(files())


def _field(pod: Pod, item: DownwardAPIVolumeFile, facts: NodeFacts) -> str:
    if item.field_ref is not None:
        return downward.field_value(pod, item.field_ref.field_path, facts, ())
    if item.resource_field_ref is not None:
        return downward.resource_value(pod, Container(), item.resource_field_ref, facts)
    raise NoSuchFieldError(f"neither fieldRef nor resourceFieldRef for path {item.path}")


def payload(files: Iterable[File]) -> Payload:
    """Files by clean path. Raises CannotMount for an invalid path, TooLarge."""
    found, size = {}, 0
    for file in files:
        size = added(size, file)
        path = clean_path(file.path)
        found[path] = File(path, file.data, file.mode, file.user)
    return found


def added(size: int, *files: File) -> int:
    """The sum of `size` and the bytes of the files. Raises TooLarge."""
    size += sum(len(file.data) for file in files)
    if size > MAX_VOLUME_BYTES:
        raise TooLarge(size)
    return size


def clean_path(path: str) -> str:
    """The path without empty and `.` components. Raises CannotMount with the kubelet's message."""
    if path == "":
        raise CannotMount('invalid path: must not be empty: ""', retry=False)
    if path.startswith("/"):
        raise CannotMount(f"invalid path: must be relative path: {path}", retry=False)
    if len(path) > _MAX_PATH:
        raise CannotMount(f"invalid path: must be less than or equal to {_MAX_PATH} characters", retry=False)
    parts = path.split("/")
    if ".." in parts:
        raise CannotMount(f"invalid path: must not contain '..': {path}", retry=False)
    if any(len(part.encode()) > _MAX_NAME for part in parts):
        raise CannotMount(f"invalid path: filenames must be less than or equal to {_MAX_NAME} characters", retry=False)
    clean = posixpath.normpath(path)
    if clean.startswith("..") or clean == "." or "\0" in clean:
        raise CannotMount(f"invalid path: must not start with '..': {path}", retry=False)
    return clean


def ordered(files: Payload) -> tuple[File, ...]:
    """Files sorted by path. Raises CannotMount when a file is also the directory of another."""
    for path in files:
        head = posixpath.dirname(path)
        while head:
            if head in files:
                raise CannotMount(f"invalid path: {head} is a file, and a directory of {path}", retry=False)
            head = posixpath.dirname(head)
    return tuple(files[path] for path in sorted(files))


def files_step(directory: EmptyDir, files: Payload, context: Context) -> Files:
    """The step for a volume of these files, with the mount points that the pod needs in it. Raises CannotMount."""
    return Files(directory, ordered(files), context.mount_points)
