"""X.509 for actors: each call is a process of its own, which ends with its answer. Blocks for up to DEADLINE_S.

Keys travel through pipes, never through arguments, environment or disk.
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
"""Half a second of work, on a machine that is busy."""


class PkiError(Exception):
    """The certificate or key cannot be used; the message says why."""


class Names(Record, frozen=True, kw_only=True):
    """Whom a certificate is for."""

    common_name: str = ""
    organizations: tuple[str, ...] = ()
    dns_names: tuple[str, ...] = ()
    addresses: tuple[str, ...] = ()
    """IP addresses."""


class Certificate(Record, frozen=True, kw_only=True):
    """What a certificate says. Times are Unix seconds."""

    names: Names
    not_before: float
    not_after: float


class Signing(Record, frozen=True, kw_only=True):
    """A certificate request (PEM) and the key that it is for."""

    key: str
    request: str
    public_key: str
    """A digest of it, in hexadecimal."""


class MakeRequest(Record, frozen=True, kw_only=True, tag="request"):
    """Make a request; with a new key, unless there is one."""

    names: Names
    key: str = ""


class Read(Record, frozen=True, kw_only=True, tag="read"):
    """Read the first certificate of a PEM file that has its key, too, and check that they belong together."""

    pem: str


class SelfSign(Record, frozen=True, kw_only=True, tag="sign"):
    """Make a certificate that signs itself, and its key; valid for a year."""

    names: Names


class Pem(Record, frozen=True, kw_only=True):
    """A certificate and its key."""

    certificate: str
    key: str


class Problem(Record, frozen=True, kw_only=True):
    """Why it cannot be done."""

    problem: str


def request(names: Names, key: str = "") -> Signing:
    """A certificate request, for a new ECDSA key (P-256, as the kubelet's) or the one given. Raises PkiError."""
    return _ask(MakeRequest(names=names, key=key), Signing)


def read(pem: bytes) -> Certificate:
    """The certificate of a file that holds a certificate and its key. Raises PkiError, also when they do not match."""
    return _ask(Read(pem=pem.decode("ascii", errors="replace")), Certificate)


def self_signed(names: Names) -> Pem:
    """A serving certificate that nobody vouches for, as the kubelet makes one when it is given none."""
    return _ask(SelfSign(names=names), Pem)


def _ask(question: MakeRequest | Read | SelfSign, answer: type[T]) -> T:
    try:
        done = subprocess.run(
            command("actors._pki.x509"),
            input=msgspec.json.encode(question),
            capture_output=True, timeout=DEADLINE_S, check=False,
        )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired) as error:
        raise PkiError(f"cannot run the process for certificates: {type(error).__name__}") from error
    if done.returncode != 0:
        said = done.stderr.decode(errors="replace").strip().rpartition("\n")[2]
        raise PkiError(f"the process for certificates failed: {said}")
    try:
        raise PkiError(untrusted.decode_json(done.stdout, Problem).problem)
    except msgspec.ValidationError:
        return untrusted.decode_json(done.stdout, answer)
