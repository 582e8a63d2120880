"""Adds an image from a source to the store: the steps that are the same for all sources.

They choose the manifest for this machine, check digests and sizes, and unpack missing layers. A source opens blobs by
digest: layout.py, client.py, mirrors.py.
"""

from __future__ import annotations

import contextlib
from typing import IO, Protocol

from actors.runtime.images.blobs import checked_digest, digest_of
from actors.runtime.images.errors import BadImage
from actors.runtime.images.limits import Budget
from actors.runtime.images.local.store import Image, ImageStore, Lease
from actors.runtime.images.manifest import (
    Config,
    Descriptor,
    Index,
    Manifest,
    chain_ids,
    for_this_machine,
    parse,
    parse_config,
)
from actors.runtime.images.sources.progress import Pull

_DEEPEST_INDEX = 3
"""Depth of nested indexes: layouts have one level, and a second one is unusual."""


class Source(Protocol):
    """Opens an image's blobs."""

    def document(self, descriptor: Descriptor, most_bytes: int) -> bytes:
        """Read an index, a manifest or a configuration. Raises ImageError, OSError."""

    def blob(self, descriptor: Descriptor) -> contextlib.AbstractContextManager[IO[bytes]]:
        """Open a layer for reading in order. Raises ImageError, OSError."""


def add_image(store: ImageStore, source: Source, name: str, descriptor: Descriptor, pull: Pull | None = None) -> Image:
    """Add the image of `descriptor` to the store under its full `name`. Raises ImageError, OSError."""
    pull = pull or Pull(name)
    with store.lease() as lease:
        own, manifest = _manifest(store, source, descriptor)
        config = _config(store, source, manifest)
        pull.expect((layer.digest, layer.size) for layer in manifest.layers)
        layers = _layers(store, source, lease, manifest, config, pull)
        pull.require_wanted()
        return store.commit(name, descriptor.digest, own, manifest, layers)


def _manifest(store: ImageStore, source: Source, descriptor: Descriptor) -> tuple[str, Manifest]:
    for _ in range(_DEEPEST_INDEX):
        content = fetch_document(store, source, descriptor)
        parsed = parse(content)
        if isinstance(parsed, Manifest):
            if len(parsed.layers) > store.limits.layers:
                raise BadImage(f"it has {len(parsed.layers)} layers; at most {store.limits.layers} are allowed")
            store.documents.put(descriptor.digest, content)
            return descriptor.digest, parsed
        descriptor = for_this_machine(parsed)
    raise BadImage(f"indexes nested {_DEEPEST_INDEX} deep")


def fetch_document(store: ImageStore, source: Source, descriptor: Descriptor) -> bytes:
    """Read a document and check its size and digest. Raises ImageError, OSError."""
    checked_digest(descriptor.digest)
    most = store.limits.document_bytes
    if descriptor.size > most:
        raise BadImage(f"a document of {descriptor.size} bytes; at most {most} are allowed")
    content = source.document(descriptor, most)
    if (found := digest_of(content)) != descriptor.digest:
        raise BadImage(f"a document has the digest {found} where its name is {descriptor.digest}")
    return content


def _config(store: ImageStore, source: Source, manifest: Manifest) -> Config:
    content = fetch_document(store, source, manifest.config)
    config = parse_config(content, len(manifest.layers))
    store.documents.put(manifest.config.digest, content)
    return config


def _layers(
    store: ImageStore, source: Source, lease: Lease, manifest: Manifest, config: Config, pull: Pull
) -> tuple[str, ...]:
    budget = Budget(store.limits, str(store.root), pull.require_wanted)
    done: tuple[str, ...] = ()
    diff_ids = config.rootfs.diff_ids
    for descriptor, diff_id, chain_id in zip(manifest.layers, diff_ids, chain_ids(diff_ids), strict=True):
        name = store.keep_layer(chain_id, lease)
        if not name:
            with source.blob(descriptor) as content:
                name = store.add_layer(chain_id, diff_id, done, content, budget, lease)
        pull.complete(descriptor.digest)
        done = (*done, name)
    return done


def index_of(content: bytes) -> Index:
    """Parse an index. Raises BadImage."""
    parsed = parse(content)
    if not isinstance(parsed, Index):
        raise BadImage("a manifest where an index should be")
    return parsed
