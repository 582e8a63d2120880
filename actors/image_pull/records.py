"""Files with the records of image pulls, in the kubelet's layout below ROOT_DIR/image_manager.

    pulling/sha256-HEX   an ImagePullIntent during a pull, by the image's name
    pulled/sha256-HEX    an ImagePulledRecord by the image's ID: the credentials that pulled it, by repository

`verification.py` has the meaning of the records. Source: KEP-2535, pkg/kubelet/images/pullmanager of Kubernetes 1.36.
"""

from __future__ import annotations

import hashlib
import logging
import os
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import msgspec

from actors.image_pull.verification import API_VERSION, PulledRecord, PullIntent
from proto.common import untrusted

log = logging.getLogger(__name__)

_VERSIONS = frozenset({API_VERSION, "kubelet.config.k8s.io/v1alpha1"})
_PREFIX, _TEMPORARY = "sha256-", ".tmp"


@dataclass
class Loaded:
    """Records from disk. `broken`: names of files that cannot be decoded."""

    intents: set[str] = field(default_factory=set)
    pulled: dict[str, PulledRecord] = field(default_factory=dict)
    broken: set[str] = field(default_factory=set)


class Records:
    """The directory of records. Blocks on the root directory's disk; for one call at a time."""

    def __init__(self, root_dir: str) -> None:
        self._pulling = f"{root_dir}/image_manager/pulling"
        self._pulled = f"{root_dir}/image_manager/pulled"

    def load(self) -> Loaded:
        """Read all records. Raises OSError when a directory can be neither read nor created."""
        loaded = Loaded()
        for directory in (self._pulling, self._pulled):
            os.makedirs(directory, 0o700, exist_ok=True)
        for _, content in _files(self._pulling):
            with suppress(msgspec.DecodeError):
                loaded.intents.add(_decoded(content, PullIntent).image)
        for name, content in _files(self._pulled):
            try:
                record = _decoded(content, PulledRecord)
                loaded.pulled[record.image_ref] = record
            except msgspec.DecodeError as error:
                log.warning(
                    "cannot use %s/%s: %s; its image's credentials are verified again", self._pulled, name, error
                )
                loaded.broken.add(name)
        return loaded

    def write_intent(self, image: str) -> None:
        """Record the start of a pull. Raises OSError."""
        self._write(self._pulling, image, PullIntent(image=image))

    def delete_intent(self, image: str) -> None:
        """Record that no pull of the image is in progress. Raises OSError."""
        with suppress(FileNotFoundError):
            os.unlink(f"{self._pulling}/{file_name(image)}")

    def write_pulled(self, record: PulledRecord) -> None:
        """Write the record of an image. Raises OSError."""
        self._write(self._pulled, record.image_ref, record)

    def delete_pulled(self, image_ref: str) -> None:
        """Remove the record of an image. Raises OSError."""
        with suppress(FileNotFoundError):
            os.unlink(f"{self._pulled}/{file_name(image_ref)}")

    def _write(self, directory: str, key: str, what: PullIntent | PulledRecord) -> None:
        path = f"{directory}/{file_name(key)}"
        os.makedirs(directory, 0o700, exist_ok=True)
        fd = os.open(path + _TEMPORARY, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        with os.fdopen(fd, "wb") as file:
            file.write(msgspec.json.encode(what))
        os.rename(path + _TEMPORARY, path)


def file_name(key: str) -> str:
    """File name for an image's name or ID, which may hold any character."""
    return _PREFIX + hashlib.sha256(key.encode()).hexdigest()


def _files(directory: str) -> Iterator[tuple[str, bytes]]:
    for name in os.listdir(directory):
        if name.startswith(_PREFIX) and not name.endswith(_TEMPORARY):
            with suppress(OSError), open(f"{directory}/{name}", "rb") as file:
                yield name, file.read()


def _decoded(content: bytes, kind: type[Any]) -> Any:
    # Raises DecodeError, also for another kind or version.
    found = untrusted.decode_json(content, kind)
    if found.api_version not in _VERSIONS:
        raise msgspec.ValidationError(f"its apiVersion is {found.api_version}")
    return found
