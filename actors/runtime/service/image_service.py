"""CRI's ImageService: one method for each rpc."""

from __future__ import annotations

import logging
import math
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec

from actors._cri.image_reference import InvalidImageName
from actors.runtime.engine.engine import Engine
from actors.runtime.images import names
from actors.runtime.images.errors import BadImage, ImageError, NoSuchImage, RegistryError, StoreFull
from actors.runtime.images.local.store import Image
from actors.runtime.images.sources import partial
from actors.runtime.images.sources.hosts import hosts_of
from actors.runtime.images.sources.layout import import_all, import_one
from actors.runtime.images.sources.progress import Cancelled, Pull, Pulls
from actors.runtime.images.sources.source import add_image
from actors.runtime.model.errors import RpcError, invalid
from actors.runtime.policy import user_of
from actors.runtime.stats.stats import Stats
from proto.cri import api_pb2 as pb

# ruff: noqa: N802  (the rpcs' own names)

IMPORT_RETRY_S = 300.0
"""Pause before an archive is imported again that failed for a reason which may pass, such as a full disk."""
LEAST_SIZE = 1
"""Reported size of an image, at least: the kubelet and crictl reject a size of 0."""
TRANSPORTS = ("oci-archive:", "oci:")
"""Prefixes for PullImage: oci-archive:/PATH or oci:/PATH imports an archive or layout, as in skopeo and CRI-O."""
log = logging.getLogger(__name__)


class ImageService:
    """All rpcs: request in, response out. Raises RpcError."""

    def __init__(self, engine: Engine, stats: Stats, drop_in: Path, registries_dir: str) -> None:
        """`drop_in`: a directory of archives and layouts that are imported when an image is missing.

        `registries_dir`: a directory that may configure mirrors (sources/hosts.py).
        """
        self.pulls = Pulls()
        self._registries_dir = registries_dir
        self._engine = engine
        self._stats = stats
        self._drop_in = drop_in
        self._seen: dict[Path, tuple[int, int]] = {}
        self._failed: dict[Path, tuple[float, str]] = {}
        """Monotonic seconds and text of the last failure that may pass, such as a full disk, by path."""
        self._importing = threading.Lock()
        self._dropped: dict[str, Path] = {}
        """File by tag and digest of imported images: no registry is asked for them."""
        partial.clear(engine.store.partial_dir)

    def ListImages(self, request: pb.ListImagesRequest) -> pb.ListImagesResponse:
        """List all images, or the one in the filter."""
        wanted = request.filter.image.image
        if wanted:
            found = self._find(wanted)
            return pb.ListImagesResponse(images=[found] if found is not None else [])
        return pb.ListImagesResponse(images=[*self._all_described(), _host_image()])

    def _all_described(self) -> Iterator[pb.Image]:
        for image in self._engine.store.list():
            try:
                yield self._described(image)
            except Exception:  # the node needs the others
                log.exception("cannot describe image %s: it is left out of the list of images", image.id)

    def StreamImages(self, request: pb.StreamImagesRequest, _: object) -> Iterator[pb.StreamImagesResponse]:
        """Stream the answer of ListImages."""
        listed = self.ListImages(pb.ListImagesRequest(filter=request.filter))
        yield pb.StreamImagesResponse(images=listed.images)

    def ImageStatus(self, request: pb.ImageStatusRequest) -> pb.ImageStatusResponse:
        """Describe an image; the answer is empty if it is missing."""
        found = self._find(request.image.image)
        if found is None:
            return pb.ImageStatusResponse()
        info = {}
        if request.verbose and found.id != names.HOST:
            image = self._engine.store.get(found.id)
            info["info"] = msgspec.json.encode({"layers": image.layers, "manifest": image.manifest}).decode()
        return pb.ImageStatusResponse(image=found, info=info)

    def PullImage(
        self, request: pb.PullImageRequest, at_end: Callable[[Callable[[], None]], object]
    ) -> pb.PullImageResponse:
        """Import from the drop-in directory, else pull from the registry. Idempotent: blobs in the store are not
        fetched."""
        name = request.image.image
        if transport := next((one for one in TRANSPORTS if name.startswith(one)), ""):
            return pb.PullImageResponse(image_ref=self._import(Path(name.removeprefix(transport)))[-1].id)
        if names.is_id(name):
            raise invalid(f"cannot pull image {name!r}: an ID has no registry")
        found = self._find(name)
        if found is not None and (found.id == names.HOST or names.full(name) in self._dropped):
            return pb.PullImageResponse(image_ref=found.id)
        with self.pulls.track(names.full(name)) as pull:
            if at_end(pull.cancel) is False:
                pull.cancel()  # the client has already gone
            image = self._from_file(pull.name) or self._pull(name, request.auth, pull)
            return pb.PullImageResponse(image_ref=image.id)

    def _from_file(self, full: str) -> Image | None:
        """Import an image again that came from a file; None without that file."""
        path = self._dropped.get(full)
        if path is None:
            return None
        try:
            return import_one(self._engine.store, path, full)
        except (ImageError, OSError) as error:
            log.warning("cannot import image %s from %s again: %s; it is pulled", full, path, error)
            return None

    def _pull(self, name: str, auth: pb.AuthConfig, pull: Pull) -> Image:
        from actors.runtime.images.sources import client, mirrors  # noqa: PLC0415

        full, store = pull.name, self._engine.store
        try:
            registry = full.partition("/")[0]
            hosts = hosts_of(registry, self._registries_dir)
            partial.clear(store.partial_dir)
            source = mirrors.Mirrored(store, full, client.Credentials.of(auth, registry), hosts, pull)
            image = add_image(store, source, full, source.resolve(), pull)
        except (ImageError, OSError) as error:
            if isinstance(error, StoreFull) and error.missing_bytes <= partial.unused_bytes(store.partial_dir):
                partial.clear(store.partial_dir, kept_s=0)  # the next pull needs the room more than their resumption
            missed = self._missed() if isinstance(error, RegistryError | NoSuchImage) else ""
            raise _as_rpc_error(f"failed to pull image {name!r}", error, missed) from error
        log.info("pulled %s: %s", full, image.id)
        return image

    def _missed(self) -> str:
        """The failed imports of the drop-in directory, where an image may be that its registry does not give."""
        said = [text for _, text in list(self._failed.values())]
        more = f", and {len(said) - 1} more" if len(said) > 1 else ""
        return f"; {said[0]}{more}" if said else ""

    def RemoveImage(self, request: pb.RemoveImageRequest) -> pb.RemoveImageResponse:
        """Remove an image. Idempotent. Layers stay as long as a container uses them."""
        try:
            self._engine.store.remove(request.image.image)
        except InvalidImageName as error:
            raise invalid(str(error)) from error
        except OSError as error:
            raise RpcError("UNKNOWN", f"cannot remove image {request.image.image!r}: {error}") from error
        return pb.RemoveImageResponse()

    def ImageFsInfo(self, _: pb.ImageFsInfoRequest) -> pb.ImageFsInfoResponse:
        """Disk usage of images and writable layers."""
        return self._stats.image_fs()

    def import_dropped(self) -> None:
        """Import new files of the drop-in directory. A bad file is logged once and stays.

        After another error, such as a full disk, it is tried again after IMPORT_RETRY_S.
        """
        with self._importing:  # a waiting thread finds the images imported
            self._import_dropped()

    def _import_dropped(self) -> None:
        if not self._drop_in.is_dir():
            self._failed.clear()
            return
        paths = sorted(self._drop_in.iterdir())
        self._failed = {path: failed for path, failed in self._failed.items() if path in paths}
        for path in paths:
            if path.name.startswith("."):
                continue
            try:
                status = path.stat()
            except OSError as error:  # a dangling link, or a file that has just gone
                log.debug("cannot look at %s: %s", path, error)
                continue
            version = (status.st_mtime_ns, status.st_size)
            failed_at, _ = self._failed.get(path, (-math.inf, ""))
            rests = time.monotonic() < failed_at + IMPORT_RETRY_S
            if self._seen.get(path) == version and (path not in self._failed or rests):
                continue
            self._seen[path] = version
            self._failed.pop(path, None)
            try:
                self._import(path)
            except RpcError as error:
                log.error("%s", error)
                if error.code != "INVALID_ARGUMENT":  # it may succeed later, as with more room
                    self._failed[path] = time.monotonic(), str(error)

    def _import(self, path: Path) -> list[Image]:
        try:
            found = import_all(self._engine.store, path)
        except (ImageError, OSError) as error:
            raise _as_rpc_error(f"cannot import {path}", error) from error
        self._dropped.update({name: path for image in found for name in (*image.tags, *image.digests)})
        log.info("imported %s from %s", ", ".join(tag for image in found for tag in image.tags), path)
        return found

    def _find(self, name: str) -> pb.Image | None:
        try:
            if name == names.HOST or (not names.is_id(name) and names.full(name) == names.HOST):
                return _host_image()
            image = self._engine.store.find(name)
            if image is None and not names.is_id(name):
                self.import_dropped()
                image = self._engine.store.find(name)
            return self._described(image) if image is not None else None
        except InvalidImageName as error:
            raise invalid(str(error)) from error
        except (NoSuchImage, OSError) as error:
            raise RpcError("UNKNOWN", f"cannot look for image {name!r}: {error}") from error

    def _described(self, image: Image) -> pb.Image:
        described = pb.Image(
            id=image.id,
            repo_tags=image.tags,
            repo_digests=image.digests,
            size=max(LEAST_SIZE, image.size),
            spec=pb.ImageSpec(image=image.tags[0] if image.tags else image.id),
        )
        try:
            user = self._engine.store.execution(image).user.partition(":")[0]
        except (ImageError, OSError) as error:
            log.warning("cannot read the configuration of image %s: %s; its user is left out", image.id, error)
            return described
        match user_of(user):
            case int(uid):
                described.uid.value = uid
            case name:
                described.username = name
        return described


def _host_image() -> pb.Image:
    """The machine's root file system as an image, which is neither pulled nor removed."""
    spec = pb.ImageSpec(image=names.HOST)
    return pb.Image(id=names.HOST, repo_tags=[names.HOST], size=LEAST_SIZE, pinned=True, spec=spec)


def _as_rpc_error(what: str, error: Exception, besides: str = "") -> RpcError:
    """The error of a failed pull or import; `besides` ends its text."""
    codes: dict[type[Exception], str] = {
        BadImage: "INVALID_ARGUMENT",
        StoreFull: "RESOURCE_EXHAUSTED",
        NoSuchImage: "NOT_FOUND",
        Cancelled: "CANCELLED",
        RegistryError: "UNAVAILABLE",
    }
    return RpcError(codes.get(type(error), "UNKNOWN"), f"{what}: {error}{besides}")
