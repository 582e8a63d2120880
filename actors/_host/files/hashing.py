"""The hashes the kubelet writes beside containers, so that a node changes from it to us without restarting any.

Covers the container hash (label-side annotation `io.kubernetes.container.hash`). The hash that names a static pod is in
`actors.config.pods.podhash`.
"""

import json

_FNV32_OFFSET = 0x811C9DC5
_FNV32_PRIME = 0x01000193


def container_hash(name: str, image: str) -> str:
    """Return io.kubernetes.container.hash: lower-case hex, no padding, of what a change of restarts a container for.

    Since Kubernetes 1.31 that is name and image alone. The hash is FNV-1a 32 over the printed form (go-spew's `%#v`)
    of the bytes of their JSON, as pkg/util/hash.DeepHashObject has it.
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


def _go_escaped(document: str) -> str:
    # encoding/json escapes these for HTML and JavaScript; json.dumps does not.
    for character in ("<", ">", "&", "\u2028", "\u2029"):
        document = document.replace(character, f"\\u{ord(character):04x}")
    return document
