"""When a certificate is due, what is asked for, and what came of it. Pure.

Objects are plain mappings, as in JSON. Source: client-go's util/certificate, the kubelet's pkg/kubelet/certificate of
Kubernetes 1.36, and https://kubernetes.io/docs/reference/access-authn-authz/kubelet-tls-bootstrapping/.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
from collections.abc import Mapping
from typing import Any, NamedTuple

import msgspec

from actors._pki.pki import Names

Object = dict[str, Any]

REQUESTS = "/apis/certificates.k8s.io/v1/certificatesigningrequests"
EARLIEST, LATEST = 0.7, 0.9
"""A certificate is replaced between these parts of its life, so that a cluster's nodes do not come all at once."""
USED_FOR_S = 300.0
"""At least, so that no clock makes us ask again and again; what lives for less is used for half its life."""
FIRST_RETRY_S, RETRY_CAP_S, RETRY_JITTER = 2.0, 32.0, 0.1


class Purpose(NamedTuple):
    """One of the two certificates of a kubelet."""

    what: str
    """In the words of messages."""
    prefix: str
    """Of its files in --cert-dir."""
    signer: str
    usages: tuple[str, ...]


# `key encipherment` means nothing for an ECDSA key, and newer kubelets leave it out; controllers of 1.20 to 1.26
# approve and sign only with it, and those of today take both.
CLIENT = Purpose(
    "client certificate",
    "kubelet-client",
    "kubernetes.io/kube-apiserver-client-kubelet",
    ("key encipherment", "digital signature", "client auth"),
)
SERVER = Purpose(
    "serving certificate",
    "kubelet-server",
    "kubernetes.io/kubelet-serving",
    ("key encipherment", "digital signature", "server auth"),
)


def client_names(node: str) -> Names:
    """Who a node is to the API server."""
    return Names(common_name=f"system:node:{node}", organizations=("system:nodes",))


def server_names(node: str, addresses: tuple[str, ...]) -> Names:
    """Whom its clients look for: the node's addresses, as its status has them."""
    return Names(
        common_name=f"system:node:{node}", organizations=("system:nodes",), dns_names=(node,), addresses=addresses
    )


class Held(NamedTuple):
    """How long a certificate has been ours, by a clock that does not jump."""

    left_s: float
    """What was left of it as it came, by the clock of that moment."""
    age_s: float


def due_in_s(not_before: float, not_after: float, chance: float, now: float, held: Held | None = None) -> float:
    """Seconds until it is replaced, negative when that is overdue; `chance` from 0 to 1, drawn once for a certificate.
    Times are Unix seconds; `held`: None for one that was there before us.

    Signers date certificates back by five minutes. One that is good for little longer is used for half of what is left
    of it since we have got it, or the next one would be asked for at once. The machine's clock need not be the
    signer's, and may jump: whatever it says, a new one is used for a while, and none for longer than its life.
    """
    life_s = not_after - not_before
    used_s = life_s * (EARLIEST + (LATEST - EARLIEST) * chance)
    due_s = not_before + used_s - now
    if held is None:
        return due_s
    left_s = held.left_s if 0 < held.left_s <= life_s else life_s
    return max(min(due_s, used_s - held.age_s), min(left_s / 2, USED_FOR_S) - held.age_s)


def covers(has: Names, wanted: Names) -> bool:
    """Whether a certificate is still for whom it has to be for."""
    return (
        has.common_name == wanted.common_name
        and set(has.organizations) >= set(wanted.organizations)
        and set(has.dns_names) >= set(wanted.dns_names)
        and set(has.addresses) >= set(wanted.addresses)
    )


def retry_delay(failures: int, chance: float) -> float:
    """Seconds before the next attempt after so many failures in a row, at least 1."""
    return min(RETRY_CAP_S, FIRST_RETRY_S * 2.0 ** min(failures - 1, 10)) * (1 + RETRY_JITTER * chance)


def request_name(prefix: str, public_key: str, names: Names, purpose: Purpose) -> str:
    """The same for the same key, names and purpose, so that nobody asks for one thing twice."""
    said = msgspec.json.encode((public_key, names, purpose))
    return prefix + base64.b32encode(hashlib.sha256(said).digest()).decode().rstrip("=").lower()


def request_object(name: str, pem: str, purpose: Purpose) -> Object:
    """The CertificateSigningRequest to create."""
    return {
        "apiVersion": "certificates.k8s.io/v1",
        "kind": "CertificateSigningRequest",
        "metadata": {"name": name},
        "spec": {
            "request": base64.b64encode(pem.encode()).decode(),
            "signerName": purpose.signer,
            "usages": list(purpose.usages),
        },
    }


class Issued(NamedTuple):
    """A certificate (PEM)."""

    certificate: bytes


class Rejected(NamedTuple):
    """Nobody will sign this one: another one has to be asked for."""

    why: str


def outcome(request: Mapping[str, Any]) -> Issued | Rejected | None:
    """What has become of a CertificateSigningRequest; None while it waits for approval or signature."""
    status = request.get("status") or {}
    for condition in status.get("conditions") or ():
        if condition.get("type") in ("Denied", "Failed"):
            words = [condition["type"].lower(), condition.get("reason") or "", condition.get("message") or ""]
            return Rejected(": ".join(word for word in words if word))
    try:
        certificate = base64.b64decode(status.get("certificate") or "", validate=True)
    except binascii.Error as error:
        return Rejected(f"its certificate is no base64: {error}")
    return Issued(certificate) if certificate else None
