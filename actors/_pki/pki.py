"""X.509 for actors: each call runs in its own process. Blocks for up to DEADLINE_S. Raises PkiError, PkiUnavailable.

Keys pass through pipes, never through arguments, environment or disk.
"""

from __future__ import annotations

import subprocess
from typing import TypeVar

import msgspec

from proto.common import untrusted
from proto.common.interpreter import command
from proto.wire.message import Record

T = TypeVar("T")

DEADLINE_S = 30.0
"""The work takes half a second; a busy machine may need much longer."""


class PkiError(Exception):
    """The certificate or key cannot be used. The message says why."""


class PkiUnavailable(OSError):
    """The process for certificates did not start, was killed, or took too long. A repeat may succeed."""


class Names(Record, frozen=True, kw_only=True):
    """The subject and alternative names of a certificate."""

    common_name: str = ""
    organizations: tuple[str, ...] = ()
    dns_names: tuple[str, ...] = ()
    addresses: tuple[str, ...] = ()
    """IP addresses."""


class Certificate(Record, frozen=True, kw_only=True):
    """The names and validity of a certificate. Times are Unix seconds."""

    names: Names
    not_before: float
    not_after: float


class Signing(Record, frozen=True, kw_only=True):
    """A certificate request and its key, in PEM."""

    key: str
    request: str
    public_key: str
    """SHA-256 of the public key in DER, in hexadecimal."""


class MakeRequest(Record, frozen=True, kw_only=True, tag="request"):
    """Make a certificate request, with a new key when `key` is empty."""

    names: Names
    key: str = ""


class Read(Record, frozen=True, kw_only=True, tag="read"):
    """Read the first certificate of a PEM file and check that the file's key matches it."""

    pem: str


class SelfSign(Record, frozen=True, kw_only=True, tag="sign"):
    """Make a self-signed certificate, valid for a year, and its key."""

    names: Names


class MakeKey(Record, frozen=True, kw_only=True, tag="key"):
    """Make a key, and sign a text with it."""

    kind: str
    text: str


class ProvenKey(Record, frozen=True, kw_only=True):
    """A key in PEM (PKCS #8), its public key in DER, and a signature that proves the possession of the key."""

    key: str
    public_key: bytes
    proof: bytes


class Pem(Record, frozen=True, kw_only=True):
    """A certificate and its key."""

    certificate: str
    key: str


class Problem(Record, frozen=True, kw_only=True):
    """The reason of a failure."""

    problem: str


def request(names: Names, key: str = "") -> Signing:
    """A certificate request for `key`, or for a new ECDSA key (P-256, as in the kubelet). Raises PkiError."""
    return _ask(MakeRequest(names=names, key=key), Signing)


def read(pem: bytes) -> Certificate:
    """The certificate of a file with a certificate and its key. Raises PkiError, also when they do not match."""
    return _ask(Read(pem=pem.decode("ascii", errors="replace")), Certificate)


def self_signed(names: Names) -> Pem:
    """A self-signed serving certificate, as the kubelet makes it when none is configured. Raises PkiError."""
    return _ask(SelfSign(names=names), Pem)


def proven_key(kind: str, text: str) -> ProvenKey:
    """A new key and its signature of `text`. Raises PkiError for a kind that is not in x509.KEYS."""
    return _ask(MakeKey(kind=kind, text=text), ProvenKey)


def _ask(question: MakeRequest | Read | SelfSign | MakeKey, answer: type[T]) -> T:
    try:
        done = subprocess.run(
            command("actors._pki.x509"),
            input=msgspec.json.encode(question),
            capture_output=True, timeout=DEADLINE_S, check=False,
        )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired) as error:
        why = type(error).__name__ if isinstance(error, subprocess.TimeoutExpired) else error.strerror
        raise PkiUnavailable(f"cannot run the process for certificates: {why}") from error
    if done.returncode < 0:  # as by the OOM killer; this says nothing about the certificate
        raise PkiUnavailable(f"the process for certificates was ended by signal {-done.returncode}")
    if done.returncode != 0:
        said = done.stderr.decode(errors="replace").strip().rpartition("\n")[2]
        raise PkiError(f"the process for certificates failed: {said}")
    try:
        raise PkiError(untrusted.decode_json(done.stdout, Problem).problem)
    except msgspec.ValidationError:
        return untrusted.decode_json(done.stdout, answer)
