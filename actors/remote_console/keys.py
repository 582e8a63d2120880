"""The keys of remote consoles, in ROOT_DIR/nodevisor/console: the server's pair, and the clients' public keys.

`supervisor console keys` writes them, the actor reads them. Secret keys of clients are in their own files only.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import TypeVar

import msgspec
import zmq

from proto.agent.console_roles import Role
from proto.agent.remote_console import KEY_NAME, AuthorizedKey, AuthorizedKeys, ConsoleKey, ServerKey
from proto.common import rfc3339, untrusted

T = TypeVar("T")

MOST_KEYS = 64
MOST_BYTES = 64 * 1024
KEYS, SERVER, LOCK = "keys.json", "server.json", "lock"


class KeyProblem(Exception):
    """A key cannot be added, revoked or read; the message says why."""


def directory(root_dir: str) -> Path:
    """The directory of the keys."""
    return Path(root_dir, "nodevisor", "console")


def stamp(folder: Path) -> tuple[int, int, int]:
    """Changes with every change of the authorized keys."""
    try:
        found = (folder / KEYS).stat()
    except OSError:
        return (0, 0, 0)
    return (found.st_ino, found.st_mtime_ns, found.st_size)


def authorized(folder: Path) -> tuple[AuthorizedKey, ...]:
    """The keys that may connect; none without a file. Raises KeyProblem when it is damaged."""
    found = _read(folder / KEYS, AuthorizedKeys)
    return found.keys if found is not None else ()


def server_key(folder: Path) -> ServerKey:
    """The server's pair, made at the first call. Raises KeyProblem."""
    with _locked(folder):
        found = _read(folder / SERVER, ServerKey)
        if found is None:
            public, secret = zmq.curve_keypair()
            found = ServerKey(public=public.decode(), secret=secret.decode())
            _write(folder / SERVER, msgspec.json.encode(found))
    return found


def add(folder: Path, name: str, role: Role) -> ConsoleKey:
    """Authorize a new key, and return it with its secret, which is not stored here. Raises KeyProblem."""
    if re.fullmatch(KEY_NAME, name) is None:
        raise KeyProblem(f"cannot add the key {name!r}: a name has a-z, 0-9, dots and hyphens, at most 63 characters")
    server = server_key(folder)
    with _locked(folder):
        present = authorized(folder)
        if any(key.name == name for key in present):
            raise KeyProblem(f"cannot add the key {name}: it exists; revoke it first, or use another name")
        if len(present) >= MOST_KEYS:
            raise KeyProblem(f"cannot add the key {name}: there are {MOST_KEYS} keys, the most; revoke some")
        public, secret = (one.decode() for one in zmq.curve_keypair())
        key = AuthorizedKey(name=name, role=role, public=public, added=rfc3339.now())
        _write(folder / KEYS, msgspec.json.encode(AuthorizedKeys(keys=(*present, key))))
    return ConsoleKey(name=name, role=role, public=public, secret=secret, server=server.public)


def revoke(folder: Path, name: str) -> None:
    """Remove a key; its connections end within a second. Raises KeyProblem."""
    with _locked(folder):
        present = authorized(folder)
        kept = tuple(key for key in present if key.name != name)
        if len(kept) == len(present):
            names = ", ".join(key.name for key in present) or "none"
            raise KeyProblem(f"cannot revoke {name!r}: there is no such key; there are {names}")
        _write(folder / KEYS, msgspec.json.encode(AuthorizedKeys(keys=kept)))


def read_client(path: Path) -> ConsoleKey:
    """A client's key file. Raises KeyProblem."""
    found = _read(path, ConsoleKey)
    if found is None:
        raise KeyProblem(f"cannot read {path}: there is no such file; `supervisor console keys add` makes one")
    return found


def write_client(path: Path, key: ConsoleKey) -> None:
    """Write a client's key file, mode 0600, and replace none. Raises KeyProblem."""
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
        with os.fdopen(descriptor, "wb") as file:
            file.write(msgspec.json.format(msgspec.json.encode(key)) + b"\n")
    except OSError as error:
        raise KeyProblem(f"cannot write {path}: {error.strerror}; choose another file with --out") from error


def _read(path: Path, kind: type[T]) -> T | None:
    try:
        with path.open("rb") as file:
            return untrusted.decode_json(file.read(MOST_BYTES), kind)
    except FileNotFoundError:
        return None
    except (OSError, msgspec.DecodeError) as error:
        raise KeyProblem(f"cannot read {path}: {error}") from error


def _write(path: Path, content: bytes) -> None:
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except OSError as error:
        raise KeyProblem(f"cannot write {path}: {error.strerror}") from error


@contextlib.contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """One writer at a time."""
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        lock = os.open(folder / LOCK, os.O_RDWR | os.O_CREAT, 0o600)
    except OSError as error:
        raise KeyProblem(f"cannot use {folder}: {error.strerror}") from error
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
    finally:
        os.close(lock)
