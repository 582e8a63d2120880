"""Brings an image in from where its blobs are: the steps that are the same for every source.

Covers choosing the manifest for this machine, checking every digest and size, unpacking what the store does not have.
A source is anything that opens a blob by its digest: layout.py, registry.py.
"""

from __future__ import annotations

import contextlib
from typing import IO, Protocol

from actors.runtime.images.limits import Budget
from actors.runtime.images.local.blobs import checked_digest, digest_of
from actors.runtime.images.local.store import Held, Image, ImageStore, layer_name
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
from actors.runtime.images.registry.errors import BadImage
from actors.runtime.images.registry.progress import Pull

_DEEPEST_INDEX = 3
"""Indexes in indexes: layouts have one, and nobody two."""


class Source(Protocol):
    """Where blobs come from."""

    def document(self, descriptor: Descriptor, most_bytes: int) -> bytes:
        """An index, a manifest or a configuration. Raises ImageError, OSError."""

    def blob(self, descriptor: Descriptor) -> contextlib.AbstractContextManager[IO[bytes]]:
        """A layer, to be read in order. Raises ImageError, OSError."""


def bring_in(store: ImageStore, source: Source, name: str, descriptor: Descriptor, pull: Pull | None = None) -> Image:
    """Have the image behind `descriptor` in the store as `name`, in full; tells `pull`. Raises ImageError, OSError."""
    pull = pull or Pull(name)
    with store.holding() as held:
        own, manifest = _manifest(store, source, descriptor)
        config = _config(store, source, manifest)
        pull.expect((layer.digest, layer.size) for layer in manifest.layers)
        layers = _layers(store, source, held, manifest, config, pull)
        pull.require_wanted()
        return store.commit(name, descriptor.digest, own, manifest, layers)


def _manifest(store: ImageStore, source: Source, descriptor: Descriptor) -> tuple[str, Manifest]:
    for _ in range(_DEEPEST_INDEX):
        content = fetch_document(store, source, descriptor)
        parsed = parse(content)
        if isinstance(parsed, Manifest):
            if len(parsed.layers) > store.limits.layers:
                raise BadImage(f"it has {len(parsed.layers)} layers; more than {store.limits.layers} cannot be used")
            store.documents.put(descriptor.digest, content)
            return descriptor.digest, parsed
        descriptor = for_this_machine(parsed)
    raise BadImage("an index in an index in an index")


def fetch_document(store: ImageStore, source: Source, descriptor: Descriptor) -> bytes:
    """A document, checked by size and digest. Raises ImageError, OSError."""
    checked_digest(descriptor.digest)
    most = store.limits.document_bytes
    if descriptor.size > most:
        raise BadImage(f"a document of {descriptor.size} bytes; more than {most} are not read")
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
    store: ImageStore, source: Source, held: Held, manifest: Manifest, config: Config, pull: Pull
) -> tuple[str, ...]:
    budget = Budget(store.limits, str(store.root))
    done: tuple[str, ...] = ()
    diff_ids = config.rootfs.diff_ids
    for descriptor, diff_id, chain_id in zip(manifest.layers, diff_ids, chain_ids(diff_ids), strict=True):
        held.add(layer_name(chain_id))
        if not store.has_layer(chain_id):
            with source.blob(descriptor) as content:
                store.add_layer(chain_id, diff_id, done, content, budget)
        pull.whole(descriptor.digest)
        done = (*done, layer_name(chain_id))
    return done


def index_of(content: bytes) -> Index:
    """An index. Raises BadImage."""
    parsed = parse(content)
    if not isinstance(parsed, Index):
        raise BadImage("a manifest where an index should be")
    return parsed
