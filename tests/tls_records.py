"""Records of TLS 1.3 made by hand, to send what no library sends."""

import socket
import ssl
import struct
from collections.abc import Iterator
from pathlib import Path

from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.kdf.hkdf import HKDFExpand

_HANDSHAKE, _DATA = 22, 23
_KEY_UPDATE = b"\x18\0\0\1\0"


def send_key_updates(sender: ssl.SSLSocket, keys: Path, count: int, data: bytes, sequence: int) -> None:
    """Send `count` updates of the keys, then `data`, in one go. `keys`: the key log of the sender's context.

    `sequence`: the number of records that the sender has sent after its handshake.
    """
    label = "SERVER_TRAFFIC_SECRET_0" if sender.server_side else "CLIENT_TRAFFIC_SECRET_0"
    lines = [line.split() for line in keys.read_text().splitlines()]
    secret = next(bytes.fromhex(line[2]) for line in lines if line[0] == label)
    socket.socket.sendall(sender, b"".join(_records(secret, sequence, count, data)))


def _records(secret: bytes, sequence: int, count: int, data: bytes) -> Iterator[bytes]:
    for _ in range(count):
        yield _record(secret, sequence, _KEY_UPDATE, _HANDSHAKE)
        secret, sequence = _expanded(secret, "traffic upd", 48), 0
    yield _record(secret, sequence, data, _DATA)


def _expanded(secret: bytes, label: str, size: int) -> bytes:
    """HKDF-Expand-Label without a context (RFC 8446, 7.1)."""
    name = b"tls13 " + label.encode()
    return HKDFExpand(hashes.SHA384(), size, struct.pack(">HB", size, len(name)) + name + b"\0").derive(secret)


def _record(secret: bytes, sequence: int, message: bytes, kind: int) -> bytes:
    """A record with AES_256_GCM_SHA384."""
    header = struct.pack(">BHH", 23, 0x303, len(message) + 17)
    nonce = int.from_bytes(_expanded(secret, "iv", 12), "big") ^ sequence
    cipher = AESGCM(_expanded(secret, "key", 32))
    return header + cipher.encrypt(nonce.to_bytes(12, "big"), message + bytes([kind]), header)
