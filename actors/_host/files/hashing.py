"""Hashes as Go does, and computes the kubelet's container hash, the annotation `io.kubernetes.container.hash`.

Equal hashes let a node change from the kubelet to nodevisor without a restart of containers. The hash that names a
static pod is in `actors.config.pods.podhash`.
"""

import json

_FNV32_OFFSET = 0x811C9DC5
_FNV32_PRIME = 0x01000193
_FNV128_OFFSET = 0x6C62272E07BB014262B821756295C58D
_FNV128_PRIME = 0x0000000001000000000000000000013B


def container_hash(name: str, image: str) -> str:
    """Return the container hash in lower-case hex without padding. A container with a new hash is restarted.

    Since Kubernetes 1.31 it covers name and image alone. It is FNV-1a 32 over the printed form (`%#v` of go-spew) of
    their JSON bytes, as in pkg/util/hash.DeepHashObject.
    """
    document = json.dumps({"image": image, "name": name}, separators=(",", ":"), ensure_ascii=False)
    printed = "([]uint8)[" + " ".join(map(str, _go_escaped(document).encode())) + "]"
    return f"{fnv1a_32(printed.encode()):x}"


def fnv1a_32(data: bytes) -> int:
    """Return the 32-bit FNV-1a hash (hash/fnv New32a in Go)."""
    digest = _FNV32_OFFSET
    for byte in data:
        digest = (digest ^ byte) * _FNV32_PRIME & 0xFFFFFFFF
    return digest


def fnv1a_128(data: bytes) -> int:
    """Return the 128-bit FNV-1a hash (hash/fnv New128a in Go)."""
    digest = _FNV128_OFFSET
    for byte in data:
        digest = (digest ^ byte) * _FNV128_PRIME & (1 << 128) - 1
    return digest


def _go_escaped(document: str) -> str:
    # encoding/json escapes these for HTML and JavaScript; json.dumps does not.
    for character in ("<", ">", "&", "\u2028", "\u2029"):
        document = document.replace(character, f"\\u{ord(character):04x}")
    return document
