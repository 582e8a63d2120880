"""The image store on disk: layers by content, images by name.

Files:

    index.json      all images, replaced atomically: the only commit point
    documents/HEX   manifests and configurations
    layers/NAME/    fs/ (files) and layer.json (chain ID, hidden paths); NAME is the start of its chain ID
    incoming/       layers being unpacked, and trash; leftovers go after a start
    partial/        unfinished downloads by digest, to be resumed

A complete layer is moved to its place and never changed. An image exists once it is in the index. A layer stays while
an image of the index, a container or a running pull uses it; others are removed. So the next start can remove all that
a kill leaves. A removal renames layers under the lock and deletes them without it: a large one takes minutes, and all
other images are in use meanwhile.
"""

from __future__ import annotations

import contextlib
import logging
import math
import os
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import IO

import msgspec

from actors._host.files import checkpoint
from actors.runtime.images import names
from actors.runtime.images.blobs import Documents
from actors.runtime.images.errors import FULL, BadImage, NoSuchImage
from actors.runtime.images.limits import Budget, Limits, check_room
from actors.runtime.images.local.compression import Unpacked
from actors.runtime.images.local.stack import Hidden, Layer, Stack
from actors.runtime.images.local.unpack import unpack
from actors.runtime.images.manifest import Config, Execution, Manifest, parse_config
from actors.runtime.model.disk import new_name, remove_tree, sync_file_system, usage
from proto.common import untrusted

VERSION = 1
_NAME_DIGITS = 24
"""Length of most layers' names; a layer whose name is taken gets a longer one."""
_LOOK_S = 0.2
"""Interval of looking whether a pull is still wanted, while another one unpacks its layer."""
log = logging.getLogger(__name__)


class Image(msgspec.Struct, frozen=True, kw_only=True):
    """An image in the store."""

    id: str
    """The digest of its configuration."""
    tags: tuple[str, ...] = ()
    """Full names with a tag."""
    digests: tuple[str, ...] = ()
    """Full names with the digest of the manifest, or of the index that led to it."""
    manifest: str
    """The digest of its manifest."""
    layers: tuple[str, ...] = ()
    """Names of layers, the lowest first."""
    size: int = 0
    """Bytes on the disk."""


class _LayerFile(msgspec.Struct, frozen=True):
    """The content of layer.json."""

    whiteouts: tuple[str, ...] = ()
    opaque: tuple[str, ...] = ()
    size: int = 0
    inodes: int = 0
    raw_whiteouts: tuple[bytes, ...] = ()
    raw_opaque: tuple[bytes, ...] = ()
    """The same for names that are not UTF-8, which JSON text cannot hold."""
    chain_id: str = ""
    """The digest of the layer and of all below it; empty in layers of older versions."""

    @classmethod
    def of(cls, chain_id: str, hidden: Hidden, size: int, inodes: int) -> _LayerFile:
        """From the paths that a layer hides."""
        whiteouts, raw_whiteouts = _split(hidden.whiteouts)
        opaque, raw_opaque = _split(hidden.opaque)
        return cls(whiteouts, opaque, size, inodes, raw_whiteouts, raw_opaque, chain_id)

    @property
    def hidden(self) -> Hidden:
        """The paths that the layer hides."""
        return Hidden(
            {*self.whiteouts, *map(os.fsdecode, self.raw_whiteouts)}, {*self.opaque, *map(os.fsdecode, self.raw_opaque)}
        )


def _split(names: set[str]) -> tuple[tuple[str, ...], tuple[bytes, ...]]:
    raw = {name for name in names if not is_text(name)}
    return tuple(sorted(names - raw)), tuple(sorted(map(os.fsencode, raw)))


def is_text(name: str) -> bool:
    """Return True when the name is UTF-8."""
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True


class ImageStore:
    """Images in one directory. Safe from any thread of one process."""

    def __init__(
        self,
        root: Path,
        limits: Limits | None = None,
        in_use: Callable[[], Iterable[str]] = tuple,
        *,
        durable: bool = True,
    ) -> None:
        """`in_use` returns the layers that containers use. Without `durable` a power cut may damage images. Raises
        OSError."""
        self.root = root
        self.limits = limits or Limits()
        self.in_use = in_use
        self._durable = durable
        self.layers_dir = root / "layers"
        self.incoming = root / "incoming"
        self._index = root / "index.json"
        self.partial_dir = root / "partial"
        for directory in (root, self.layers_dir, self.incoming, root / "documents", self.partial_dir):
            directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        self.documents = Documents(root / "documents")
        self._lock = threading.RLock()
        self._leased: Counter[str] = Counter()
        self._busy: dict[str, threading.Lock] = {}
        self._handled: set[Path] = set()
        """Directories in `incoming` that a thread fills or deletes now."""
        self._unmeasured: set[str] = set()
        """Layers without a known use, each logged once."""
        self._images: dict[str, Image] = {image.id: image for image in self._load()}

    def _load(self) -> list[Image]:
        """The images that are whole. Raises OSError: without the index, `clear_leftovers` would remove all layers."""
        try:
            found = msgspec.convert(checkpoint.read(self._index, VERSION) or [], list[Image])
        except (checkpoint.Damaged, msgspec.ValidationError) as error:
            log.warning("cannot use the images in %s: %s; pull them again", self._index, error)
            return []
        except checkpoint.Unusable as error:
            raise OSError(f"cannot use {self._index}: {error}; start the version that wrote it, or remove it") from None
        whole = []
        for image in found:
            if lacking := self._lacking(image):
                log.warning("image %s has lost its layers %s; pull it again", image.tags or image.id, lacking)
                continue
            whole.append(image)
        return whole

    def _lacking(self, image: Image) -> list[str]:
        """The image's layers that are missing or damaged; an error of the disk tells neither."""
        return [layer for layer in image.layers if not self._is_whole(layer)]

    def _is_whole(self, layer: str) -> bool:
        try:
            self._layer_file(layer)
        except (FileNotFoundError, NotADirectoryError, BadImage):
            return False
        except OSError as error:
            log.warning("cannot read layer %s: %s; its images stay", layer, error)
        return True

    def clear_leftovers(self) -> None:
        """Remove unused files, and what a kill or an error left of a removal. A read-only disk keeps them.

        The containers' layers must be known.
        """
        with self._lock:
            left = [path for path in self.incoming.iterdir() if path not in self._handled]
            self._handled.update(left)
        self._delete(left)
        try:
            self._collect()
        except OSError as error:
            log.warning("cannot remove unused layers in %s: %s; the next removal tries again", self.layers_dir, error)

    def partial(self, digest: str) -> Path:
        """Path of the unfinished download of a blob."""
        return self.partial_dir / digest.removeprefix("sha256:")

    # Reading

    def list(self) -> list[Image]:
        """All images, by ID."""
        with self._lock:
            return sorted(self._images.values(), key=lambda image: image.id)

    def find(self, name: str) -> Image | None:
        """Find an image by any form of its name, or by its ID, which may be shortened while it is unique.

        A name goes before a shortened ID, as in containerd (LocalResolve). Raises InvalidImageName.
        """
        id_ = f"sha256:{name.removeprefix('sha256:')}"
        if names.is_id(name):
            with self._lock:
                return self._images.get(id_)
        wanted = names.full(name)
        with self._lock:
            for one in self._images.values():
                if wanted in one.tags or wanted in one.digests:
                    return one
            found = [one for one in self._images.values() if one.id.startswith(id_)] if names.is_short_id(name) else []
        return found[0] if len(found) == 1 else None

    def get(self, name: str) -> Image:
        """Find an image as `find` does. Raises NoSuchImage."""
        image = self.find(name)
        if image is None:
            raise NoSuchImage(f"no image {name} in the store")
        return image

    def config(self, image: Image) -> Config:
        """An image's configuration. Raises OSError, BadImage."""
        return parse_config(self.documents.get(image.id), len(image.layers))

    def execution(self, image: Image) -> Execution:
        """The default process of an image's containers. Raises OSError, BadImage."""
        return self.config(image).config or Execution()

    def stack(self, layers: Iterable[str]) -> Stack:
        """Stacked layers, from names with the lowest first."""
        return Stack([self.layer(name) for name in reversed(tuple(layers))])

    def layer(self, name: str) -> Layer:
        """One layer. Raises OSError, BadImage."""
        return Layer(str(self.layers_dir / name / "fs"), self._layer_file(name).hidden)

    def _layer_file(self, name: str) -> _LayerFile:
        try:
            return untrusted.decode_json((self.layers_dir / name / "layer.json").read_bytes(), _LayerFile)
        except msgspec.DecodeError as error:
            raise BadImage(f"{self.layers_dir / name}/layer.json is damaged: {error}") from error

    def usage(self) -> tuple[int, int]:
        """Bytes and inodes of all layers, as measured when each was added.

        A layer that is being removed, or whose layer.json is damaged, does not count.
        """
        found = [self._measured(name) for name in os.listdir(self.layers_dir)]
        layers = [one for one in found if one is not None]
        return sum(one.size for one in layers), sum(one.inodes for one in layers)

    def _measured(self, name: str) -> _LayerFile | None:
        try:
            return self._layer_file(name)
        except FileNotFoundError:
            return None
        except (OSError, BadImage) as error:
            if name not in self._unmeasured:
                self._unmeasured.add(name)
                log.warning("cannot count the disk use of layer %s: %s; pull its images again", name, error)
            return None

    # Adding

    @contextlib.contextmanager
    def lease(self) -> Iterator[Lease]:
        """Keep the layers that are added to the result until the end of the context; then remove unused ones."""
        lease = Lease(self)
        try:
            yield lease
        finally:
            with self._lock:
                self._leased -= lease.layers
            self._collect()

    def commit(self, name: str, digest: str, own: str, manifest: Manifest, layers: tuple[str, ...]) -> Image:
        """Add an image, whose layers and documents are in the store, under its full `name`.

        `digest` is the digest that the name led to, maybe an index's: pods name images by it. `own` is the manifest's.
        Idempotent. Raises OSError.
        """
        if self._durable:  # takes many seconds on a busy disk: it waits for all writes
            sync_file_system(self.root)
        size = sum(self._layer_file(layer).size for layer in layers)
        by_digest = f"{names.repository(name)}@{digest}"
        with self._lock:
            old = self._images.get(manifest.config.digest)
            tags = () if names.is_digest(name) else (name,)
            image = Image(
                id=manifest.config.digest,
                tags=_with(old.tags if old else (), tags),
                digests=_with(old.digests if old else (), (by_digest,)),
                manifest=own,
                layers=layers,
                size=size,
            )
            images = {**self._images, image.id: image}
            for other in self._images.values():
                # The tag moves, and so does an index's digest, if another image of the index is for this machine now.
                if other.id != image.id and {*tags, by_digest} & {*other.tags, *other.digests}:
                    left = tuple(tag for tag in other.tags if tag not in tags)
                    digests = tuple(one for one in other.digests if one != by_digest)
                    images[other.id] = msgspec.structs.replace(other, tags=left, digests=digests)
            self._save(images)
        return image

    def _save(self, images: dict[str, Image]) -> None:
        checkpoint.save(self._index, VERSION, list(images.values()))
        self._images = images

    def keep_layer(self, chain_id: str, lease: Lease) -> str:
        """The name of a layer, which `lease` then keeps; empty if it is not in the store.

        The name is the start of the chain ID, which another layer may share by design: layer.json has all of it. A
        layer of an older version does not tell its chain ID and is not found. Images that have it keep it.
        """
        with self._lock:
            for name in os.listdir(self.layers_dir):
                if _digits(chain_id).startswith(name) and self._has_chain_id(name, chain_id):
                    lease.add(name)
                    return name
        return ""

    def _has_chain_id(self, name: str, chain_id: str) -> bool:
        try:
            return self._layer_file(name).chain_id == chain_id
        except (OSError, BadImage):
            return False

    def add_layer(
        self,
        chain_id: str,
        diff_id: str,
        below: tuple[str, ...],
        content: IO[bytes],
        budget: Budget,
        lease: Lease,
    ) -> str:
        """Unpack a layer if it is missing; return its name. `below` are the layers under it, the lowest first.

        `lease` keeps it. Raises BadImage, StoreFull, OSError, Cancelled.
        """
        with self._lock:
            busy = self._busy.setdefault(chain_id, threading.Lock())
        while not busy.acquire(timeout=_LOOK_S):  # another pull unpacks this layer; then it is found
            budget.require_wanted()
        try:
            return self.keep_layer(chain_id, lease) or self._unpack(chain_id, diff_id, below, content, budget, lease)
        finally:
            busy.release()

    def _unpack(
        self,
        chain_id: str,
        diff_id: str,
        below: tuple[str, ...],
        content: IO[bytes],
        budget: Budget,
        lease: Lease,
    ) -> str:
        check_room(str(self.root), self.limits)
        directory = self.incoming / new_name()
        with self._lock:
            self._handled.add(directory)
        try:
            directory.mkdir(mode=0o700)
            plain = Unpacked(content, budget.decompressed)
            hidden = unpack(plain, str(directory / "fs"), self.stack(below), budget)
            if (found := plain.drain()) != diff_id:
                raise BadImage(f"a layer unpacks to {found} where the configuration says {diff_id}")
            size, inodes = usage(directory)
            layer_file = _LayerFile.of(chain_id, hidden, size, inodes)
            (directory / "layer.json").write_bytes(msgspec.json.encode(layer_file))
            with self._lock:
                name = self._free_name(chain_id)
                lease.add(name)
                directory.rename(self.layers_dir / name)
        finally:
            self._delete([directory])
        return name

    def _free_name(self, chain_id: str) -> str:
        """The name of a new layer: short, because a mount has all names in one page of options."""
        digits = _digits(chain_id)
        names = (digits[:length] for length in range(_NAME_DIGITS, len(digits) + 1, 2))
        return next(name for name in names if not (self.layers_dir / name).exists())

    # Removing

    def remove(self, name: str) -> None:
        """Remove an image by ID, or one name of it; the image goes with its last tag. Idempotent. Raises OSError.

        A shortened ID removes what `find` finds by it.
        Layers that containers use stay until those are removed.
        """
        with self.lease():  # its end collects; until then the image's documents stay
            self._remove(name)

    def _remove(self, name: str) -> None:
        with self._lock:
            image = self.find(name)
            if image is None:
                return
            wanted = "" if names.is_id(name) else names.full(name)
            wanted = wanted if wanted in (*image.tags, *image.digests) else ""  # a shortened ID
            tags = tuple(tag for tag in image.tags if wanted and tag != wanted)
            images = dict(self._images)
            if tags and not names.is_digest(wanted):
                images[image.id] = msgspec.structs.replace(image, tags=tags)
            else:
                del images[image.id]
            try:
                self._save(images)
                return
            except OSError as error:
                if error.errno not in FULL:
                    raise
            self._images = images
        self._save_when_collected(image, images.get(image.id))

    def _save_when_collected(self, image: Image, left: Image | None) -> None:
        """Save the index to a full disk, which has room for it once unused layers are gone. Raises OSError.

        `left` is what is left of the removed `image`. A kill in between leaves an image without its layers in the
        index, which the next start leaves out.
        """
        try:
            self._collect_layers()
            with self._lock:
                self._save(self._images)
        except OSError:
            with self._lock:
                if self._images.get(image.id) == left and not self._lacking(image):  # no pull has added it meanwhile
                    self._images = {**self._images, image.id: image}
            raise

    def collect(self) -> None:
        """Remove unused layers and documents, such as those of a removed container."""
        self._collect()

    def _collect(self) -> None:
        self._collect_layers()
        with self._lock:
            if not +self._leased:  # the index does not have the documents of a running pull
                self.documents.keep_only(
                    {image.id for image in self._images.values()} | {one.manifest for one in self._images.values()}
                )

    def _collect_layers(self) -> None:
        unused: list[Path] = []
        try:
            with self._lock:
                used = {layer for image in self._images.values() for layer in image.layers}
                used |= {layer for layer, count in self._leased.items() if count > 0}
                used |= set(self.in_use())
                for name in set(os.listdir(self.layers_dir)) - used:
                    target = self.incoming / new_name()
                    (self.layers_dir / name).rename(target)
                    self._handled.add(target)
                    unused.append(target)
        finally:
            self._delete(unused)

    def _delete(self, directories: Iterable[Path]) -> None:
        """Delete directories in `incoming`, which no process writes to. Call it without the lock."""
        for directory in directories:
            try:
                remove_tree(directory, most_s=math.inf)
            finally:
                with self._lock:
                    self._handled.discard(directory)

    def hold(self, layer: str, layers: Counter[str]) -> None:
        """Count a layer as used by a running pull."""
        with self._lock:
            self._leased[layer] += 1
            layers[layer] += 1


class Lease:
    """The layers that one pull or one new container keeps from removal, as a lease does in containerd."""

    def __init__(self, store: ImageStore) -> None:
        self.layers: Counter[str] = Counter()
        self._store = store
        self.add("")  # marks a running pull before its first layer

    def add(self, layer: str) -> None:
        """Keep this layer, even if it is not in the store yet."""
        self._store.hold(layer, self.layers)


def _digits(chain_id: str) -> str:
    return chain_id.removeprefix("sha256:")


def _with(old: tuple[str, ...], new: tuple[str, ...]) -> tuple[str, ...]:
    return (*old, *(one for one in new if one not in old))
