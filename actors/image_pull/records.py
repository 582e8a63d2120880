"""Files with the records of image pulls, in the kubelet's layout below ROOT_DIR/image_manager.

    pulling/sha256-HEX   an ImagePullIntent during a pull, by the image's name
    pulled/sha256-HEX    an ImagePulledRecord by the image's ID: the credentials that pulled it, by repository

`verification.py` has the meaning of the records. Source: KEP-2535, pkg/kubelet/images/pullmanager of Kubernetes 1.36.
"""

from __future__ import annotations

import errno
import hashlib
import os
import threading
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import msgspec

from actors._host.files.untrusted_files import read_regular
from actors.image_pull.verification import API_VERSION, PulledRecord, PullIntent
from proto.common import untrusted

_PREFIX, _TEMPORARY = "sha256-", ".tmp"
MOST_BYTES = 16 << 20
"""Largest record that is read: some 50,000 Secrets."""


@dataclass
class Loaded:
    """Records from disk."""

    intents: set[str] = field(default_factory=set)
    pulled: dict[str, PulledRecord] = field(default_factory=dict)
    broken: dict[str, str] = field(default_factory=dict)
    """Paths and errors of records and intents that cannot be used, by file name."""
    unread: bool = False
    """Some of these could not be read, and may be later."""


class Records:
    """The directory of records. Blocks on the root directory's disk; for one call at a time."""

    def __init__(self, root_dir: str) -> None:
        self._pulling = f"{root_dir}/image_manager/pulling"
        self._pulled = f"{root_dir}/image_manager/pulled"
        self._loading = threading.Lock()

    def load(self) -> Loaded:
        """Read all records. Raises OSError: a directory can be neither read nor created, or another call hangs."""
        if not self._loading.acquire(blocking=False):
            raise OSError(errno.EBUSY, "the last read of them has not ended")
        try:
            loaded = Loaded()
            for directory in (self._pulling, self._pulled):
                os.makedirs(directory, 0o700, exist_ok=True)
            loaded.intents = {one.image for one in _each(self._pulling, PullIntent, loaded)}
            loaded.pulled = {one.image_ref: one for one in _each(self._pulled, PulledRecord, loaded)}
            return loaded
        finally:
            self._loading.release()

    def write_intent(self, image: str) -> bool:
        """Record the start of a pull; False when there is a file of an earlier one. Raises OSError."""
        if os.path.lexists(f"{self._pulling}/{file_name(image)}"):
            return False
        self._write(self._pulling, image, PullIntent(kind="ImagePullIntent", api_version=API_VERSION, image=image))
        return True

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
        try:
            fd = os.open(path + _TEMPORARY, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
            with os.fdopen(fd, "wb") as file:
                file.write(msgspec.json.encode(what))
            os.rename(path + _TEMPORARY, path)
        except OSError:
            with suppress(OSError):
                os.unlink(path + _TEMPORARY)
            raise


def file_name(key: str) -> str:
    """File name for an image's name or ID, which may hold any character."""
    return _PREFIX + hashlib.sha256(key.encode()).hexdigest()


def _each(directory: str, kind: type[Any], loaded: Loaded) -> Iterator[Any]:
    """Yield the records that can be used, and note the others in `loaded`."""
    for name in os.listdir(directory):
        path = f"{directory}/{name}"
        if not name.startswith(_PREFIX) or name.endswith(_TEMPORARY):
            continue
        try:
            yield untrusted.decode_json(read_regular(path, MOST_BYTES), kind)
        except FileNotFoundError:
            continue
        except OSError as error:
            loaded.broken[name] = f"{path}: {error.strerror}"
            loaded.unread = True
        except msgspec.DecodeError as error:
            loaded.broken[name] = f"{path}: {error}"
