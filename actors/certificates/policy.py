"""Decisions about certificates: the time of replacement, the requests, and their outcomes. Pure.

Objects are plain mappings, as in JSON. Source: client-go's util/certificate, the kubelet's pkg/kubelet/certificate of
Kubernetes 1.36, and https://kubernetes.io/docs/reference/access-authn-authz/kubelet-tls-bootstrapping/.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import msgspec

from actors._host.node.addresses import parsed
from actors._pki.pki import Certificate, Names
from proto.common.backoff import Backoff
from proto.node.certificates import NodeAddress

Object = dict[str, Any]

REQUESTS = "/apis/certificates.k8s.io/v1/certificatesigningrequests"
EARLIEST, LATEST = 0.7, 0.9
"""A certificate is replaced between these parts of its life, at random, so that nodes do not come all at once."""
USED_FOR_S = 300.0
"""Shortest use of a certificate, so that a wrong clock causes no request loop; a shorter life is used to its half."""
RETRY = Backoff(2.0, cap_s=32.0, jitter=0.1)


class Purpose(NamedTuple):
    """One of the two certificates of a kubelet."""

    what: str
    """Name in messages."""
    prefix: str
    """Prefix of its files in --cert-dir."""
    signer: str
    usages: tuple[str, ...]


# `key encipherment` has no meaning for an ECDSA key, and newer kubelets omit it. Controllers of 1.20 to 1.26 approve
# and sign only with it, and later ones accept both.
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
    """A node's identity for the API server."""
    return Names(common_name=f"system:node:{node}", organizations=("system:nodes",))


def server_names(node: str, addresses: Iterable[NodeAddress], *, dns_suffices: bool = False) -> Names | None:
    """Names of the serving certificate: those of the Node's status. None without an IP address: as the kubelet, wait.

    A Hostname may be an IP address. When `dns_suffices` (feature gate AllowDNSOnlyNodeCSR), a DNS name alone will do.
    """
    dns, ips = set(), set()
    for one in addresses:
        ip = parsed(one.address) if one.type in ("InternalIP", "ExternalIP", "Hostname") else None
        if ip is not None:
            ips.add(str(ip))
        elif one.type in ("InternalDNS", "ExternalDNS", "Hostname") and one.address and one.address.isascii():
            dns.add(one.address)
    if not ips and not (dns_suffices and dns):
        return None
    return msgspec.structs.replace(client_names(node), dns_names=tuple(sorted(dns)), addresses=tuple(sorted(ips)))


class Receipt(NamedTuple):
    """When a certificate was received, by a clock that does not jump."""

    left_s: float
    """Its remaining life at the receipt, by the wall clock."""
    age_s: float
    """Seconds since the receipt."""


def due_in_s(not_before: float, not_after: float, chance: float, now: float, receipt: Receipt | None = None) -> float:
    """Seconds until the replacement of a certificate, negative when overdue. Times are Unix seconds.

    `chance`: from 0 to 1, drawn once for each certificate. `receipt`: None for a certificate from before this actor.

    Signers date certificates back by five minutes. A certificate with a short life is used for half of its remaining
    life since its receipt, or the next request would follow at once. The machine's clock may differ from the signer's,
    and may jump. With any clock, a new certificate is used for a while, and none for longer than its life.
    """
    life_s = not_after - not_before
    used_s = life_s * (EARLIEST + (LATEST - EARLIEST) * chance)
    due_s = not_before + used_s - now
    if receipt is None:
        return due_s
    left_s = receipt.left_s if 0 < receipt.left_s <= life_s else life_s
    return max(min(due_s, used_s - receipt.age_s), min(left_s / 2, USED_FOR_S) - receipt.age_s)


def end_in_s(not_before: float, not_after: float, now: float, receipt: Receipt | None = None) -> float:
    """Seconds until the end of a certificate, negative when it is over; see `due_in_s`.

    With a clock that is ahead, each new certificate would be over at once, and requests would follow without a pause.
    """
    if receipt is None:
        return not_after - now
    life_s = not_after - not_before
    return (receipt.left_s if 0 < receipt.left_s <= life_s else life_s) - receipt.age_s


def covers(has: Names, wanted: Names) -> bool:
    """True when a certificate has all wanted names."""
    return (
        has.common_name == wanted.common_name
        and set(has.organizations) >= set(wanted.organizations)
        and set(has.dns_names) >= set(wanted.dns_names)
        and set(has.addresses) >= set(wanted.addresses)
    )


def replaces(embedded: Certificate, stored: Certificate, now: float) -> bool:
    """True when the kubeconfig's own certificate goes before the stored one.

    A later, valid certificate does: an operator has joined the node to another cluster. If neither is valid, the later
    end counts. To the server it may be valid, because this machine's clock may be wrong.
    """
    if embedded.not_before > stored.not_before and embedded.not_before <= now < embedded.not_after:
        return True
    return not stored.not_before <= now < stored.not_after and embedded.not_after > stored.not_after


def request_name(prefix: str, public_key: str, names: Names, purpose: Purpose) -> str:
    """Name of a request, made of key, names and purpose, so that a repeat finds the earlier request."""
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


class _Condition(msgspec.Struct):
    type: str = ""
    reason: str = ""
    message: str = ""


class _Status(msgspec.Struct):
    conditions: list[_Condition] | None = None
    certificate: str | None = None


class Issued(NamedTuple):
    """A certificate (PEM)."""

    certificate: bytes


class Rejected(NamedTuple):
    """The request was denied or failed; a new request is needed."""

    why: str


def outcome(request: Mapping[str, Any]) -> Issued | Rejected | None:
    """Outcome of a CertificateSigningRequest; None while it waits for approval or signature."""
    try:
        status = msgspec.convert(request.get("status") or {}, _Status)
    except msgspec.ValidationError as error:
        return Rejected(f"its status cannot be read: {error}")
    for condition in status.conditions or ():
        if condition.type in ("Denied", "Failed"):
            words = [condition.type.lower(), condition.reason, condition.message]
            return Rejected(": ".join(word for word in words if word))
    try:
        certificate = base64.b64decode(status.certificate or "", validate=True)
    except ValueError as error:  # binascii.Error, or characters outside of ASCII
        return Rejected(f"its certificate is no base64: {error}")
    return Issued(certificate) if certificate else None
