"""Targets: layers, manifests and configurations of images."""

from __future__ import annotations

import io
import itertools
import json
import tempfile
from collections.abc import Iterator

from actors.runtime.images import manifest
from actors.runtime.images.errors import ImageError
from actors.runtime.images.limits import Budget, Limits
from actors.runtime.images.local.stack import Stack
from actors.runtime.images.local.unpack import unpack
from actors.runtime.oci.spec.mounts import BadMount, declared_volumes
from proto.cri import api_pb2 as pb
from tests.fuzz.target import Target
from tests.runtime.images.build import Made, entry, hardlink, symlink, tar

BLOCK = 512
MOST_EXPANDED = 8 * 1024 * 1024
"""16,000 headers: some 0.6 s of processor time, and five times that while Atheris counts branches."""
_CHECKSUM = slice(148, 156)
_MAGIC = slice(257, 262)


def packed(data: bytes) -> bytes:
    """Run-length encoded in blocks: two bytes of count before each block of 512. What `expanded` takes apart."""
    blocks = [data[start : start + BLOCK].ljust(BLOCK, b"\0") for start in range(0, len(data), BLOCK)]
    return b"".join(len(list(run)).to_bytes(2, "big") + block for block, run in itertools.groupby(blocks))


class Expanded(io.RawIOBase):
    """A tar from `packed` form, at most MOST_EXPANDED bytes of it, with the checksum of each header corrected.

    So a small input makes a large layer, as compression does in a registry, and mutations stay within the format.
    """

    def __init__(self, data: bytes) -> None:
        super().__init__()
        self._blocks = self._expand(data)
        self._rest = b""
        self._left = MOST_EXPANDED

    @staticmethod
    def _expand(data: bytes) -> Iterator[bytes]:
        for start in range(0, len(data), BLOCK + 2):
            block = bytearray(data[start + 2 : start + 2 + BLOCK].ljust(BLOCK, b"\0"))
            if block[_MAGIC] == b"ustar":
                block[_CHECKSUM] = b" " * 8
                block[_CHECKSUM] = b"%06o\0 " % sum(block)
            yield from itertools.repeat(bytes(block), int.from_bytes(data[start : start + 2], "big"))

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1, /) -> bytes:
        parts = [self._rest]
        wanted = min(size if size >= 0 else self._left, self._left)
        have = len(self._rest)
        while have < wanted and (block := next(self._blocks, b"")):
            parts.append(block)
            have += len(block)
        content = b"".join(parts)
        self._rest = content[wanted:]
        self._left -= len(content[:wanted])
        return content[:wanted]


def _layer(data: bytes) -> None:
    with tempfile.TemporaryDirectory(prefix="nv-fuzz-") as directory:
        budget = Budget(Limits(reserve_bytes=0), directory)
        try:
            unpack(Expanded(data), f"{directory}/layer", Stack([]), budget)
        except ImageError:
            return


def _header(name: bytes, kind: bytes, size: int, **fields: bytes) -> bytearray:
    """One header in the old GNU format; `fields` are offsets as `at_386` and their bytes."""
    block = bytearray(BLOCK)
    block[: len(name)] = name
    block[100:108] = b"0000644\0"
    block[124:136] = b"%011o\0" % size
    block[156:157] = kind
    block[257:265] = b"ustar  \0"
    for field, value in fields.items():
        offset = int(field.removeprefix("at_"))
        block[offset : offset + len(value)] = value
    return block


def _sparse_chain(blocks: int) -> bytes:
    """A sparse member whose map goes on through so many extension headers (the class of CVE-2025-58183)."""
    entry_ = b"00000000001\0" * 2
    more = bytearray((entry_ * 21).ljust(504, b"\0") + b"\1").ljust(BLOCK, b"\0")
    first = _header(b"sparse", b"S", 0, at_386=entry_ * 4, at_482=b"\1")
    return b"\0\1" + bytes(first) + blocks.to_bytes(2, "big") + bytes(more)


def _extension_chain(kind: bytes) -> bytes:
    """60,000 extension headers one after the other, none with the member that it is for."""
    return (60_000).to_bytes(2, "big") + bytes(_header(b"x", kind, 0))


LAYERS = (
    tar(entry("etc/"), entry("etc/a", b"content"), symlink("etc/b", "../../x"), hardlink("etc/c", "etc/a")),
    tar(entry("d/"), entry("d/.wh.a", b""), entry("d/.wh..wh..opq", b""), entry("d", b"file"), entry("d/")),
    tar(entry("x" * 300, b"long"), entry("p", b"", pax_headers={"SCHILY.xattr.user.a": "b", "mtime": "1.5"})),
    tar(entry("sparse", b"x" * 100, pax_headers={"GNU.sparse.map": "0,1,2,3", "GNU.sparse.size": "4"})),
)
BOMBS = (_sparse_chain(60_000), _extension_chain(b"x"), _extension_chain(b"L"), _extension_chain(b"g"))


def _manifest(data: bytes) -> None:
    try:
        found = manifest.parse(data)
        if isinstance(found, manifest.Index):
            manifest.for_this_machine(found)
    except ImageError:
        return


def _configuration(data: bytes) -> None:
    try:
        found = manifest.parse_config(data, 1)
    except ImageError:
        return
    manifest.chain_ids(found.rootfs.diff_ids)
    volumes = (found.config or manifest.Execution()).volumes or ()
    try:
        paths = declared_volumes(volumes, pb.ContainerConfig())
    except BadMount:
        return
    assert all(path.startswith("/") and not {"", ".", ".."} & {*path[1:].split("/")} for path in paths), paths


_MADE = Made(LAYERS[0], config={"Volumes": {"/data": {}, "../a/./b": {}}})
_INDEX = {
    "schemaVersion": 2,
    "manifests": [{**_MADE.described(), "platform": {"os": "linux", "architecture": "amd64"}}],
}

TARGETS = (
    Target(
        "image-layer", _layer, (*map(packed, LAYERS), *BOMBS), (b"ustar", b"../", b".wh.", b"GNU.sparse.map=", b"S")
    ),
    Target(
        "image-manifest", _manifest, (json.dumps(_MADE.manifest()).encode(), json.dumps(_INDEX).encode()), (b"sha256:",)
    ),
    Target("image-configuration", _configuration, (json.dumps(_MADE.config).encode(),), (b'"Cmd":', b"null", b"../")),
)
