"""Pulls from the first of several hosts that gives the image: mirrors, then the registry itself.

After any error of a mirror the next host is asked, and resumes a started download. The final error is the last host's,
the registry's.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import IO, TypeVar

from actors.runtime.images.blobs import checked_digest
from actors.runtime.images.errors import ImageError, StoreFull
from actors.runtime.images.local.store import ImageStore
from actors.runtime.images.manifest import Descriptor
from actors.runtime.images.sources.client import Credentials, Registry
from actors.runtime.images.sources.hosts import Host
from actors.runtime.images.sources.partial import downloaded
from actors.runtime.images.sources.progress import Cancelled, Pull

T = TypeVar("T")
log = logging.getLogger(__name__)


class Mirrored:
    """A source.Source of one image."""

    def __init__(
        self, store: ImageStore, name: str, credentials: Credentials, hosts: Sequence[Host], pull: Pull
    ) -> None:
        """`name` is in full; `hosts`, at least one, are asked in order. Raises OSError, see Registry."""
        self._store = store
        self._pull = pull
        self._by_digest = "@" in name
        self._places = [(host, Registry(store, name, credentials, host, pull)) for host in hosts]

    def resolve(self) -> Descriptor:
        """The descriptor that the name leads to now. Raises ImageError."""
        needed = "pull" if self._by_digest else "resolve"
        return self._first(needed, lambda place: place.resolve())

    def document(self, descriptor: Descriptor, most_bytes: int) -> bytes:
        """See source.Source."""
        return self._first("pull", lambda place: place.document(descriptor, most_bytes))

    @contextlib.contextmanager
    def blob(self, descriptor: Descriptor) -> Iterator[IO[bytes]]:
        """See source.Source."""
        path = self._store.partial(checked_digest(descriptor.digest))

        def download(own: Path) -> None:
            self._first("pull", lambda place: place.download(descriptor, own))

        with downloaded(path, download, self._pull) as file:
            yield file

    def _first(self, needed: str, ask: Callable[[Registry], T]) -> T:
        able = [(host, place) for host, place in self._places if needed in host.capabilities] or self._places[-1:]
        for number, (host, place) in enumerate(able):
            try:
                return ask(place)
            except (Cancelled, StoreFull):
                raise
            except (ImageError, OSError) as error:
                if number == len(able) - 1:
                    raise
                log.warning(
                    "mirror %s does not give the image: %s; asking %s", host.name, error, able[number + 1][0].name
                )
        raise AssertionError("unreachable")
