"""States of a pod's certificate, from its PodCertificateRequest to its expiry (KEP-4317). Pure: no clock, no random().

Source: pkg/kubelet/podcertificate of Kubernetes 1.36. As there, no certificate is kept over a restart: each is then
requested again.
"""

from __future__ import annotations

import base64
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any, Literal

import msgspec

from proto.pods.objects import GetPodCertificate

API_VERSION = "certificates.k8s.io/v1beta1"
NOT_ISSUED = "credential bundle is not issued yet"
ABANDON_S = 600.0
"""Age at which a request that the watch does not show counts as deleted."""
OVERDUE_S = 600.0
"""Time after the start of the refresh until an event reports it as overdue."""
JITTER_S = 300.0
"""Random part of times, so that the requests of pods that started together spread."""

State = Literal["not_yet_issued", "fresh", "overdue_for_refresh", "expired", "denied", "failed"]
"""Values of the label `state` of kubelet_podcertificate_states."""


@dataclass(frozen=True)
class Pending:
    """A PodCertificateRequest that no signer has answered yet."""

    name: str
    key: str = field(repr=False)
    """The private key, in PEM."""
    abandoned_at: float
    """From this time on it counts as deleted, if the watch does not show it."""


@dataclass(frozen=True)
class Issued:
    """A certificate chain and its private key, in PEM."""

    key: str = field(repr=False)
    chain: str = field(repr=False)
    refresh: float
    """From this time on the next certificate is requested."""
    expires: float


@dataclass(frozen=True)
class Ended:
    """A signer's final refusal. No other request follows."""

    kind: Literal["Denied", "Failed"]
    reason: str
    message: str

    def __str__(self) -> str:
        return (
            f'PodCertificateRequest was permanently {self.kind.lower()}: reason="{self.reason}" '
            f'message="{self.message}"'
        )


@dataclass(frozen=True)
class Certificate:
    """One certificate of a pod: in use, requested, or refused. Times are Unix seconds."""

    issued: Issued | None = None
    pending: Pending | None = None
    ended: Ended | None = None

    @property
    def is_answered(self) -> bool:
        """True once a signer has issued or refused it."""
        return self.issued is not None or self.ended is not None

    def is_due(self, now: float) -> bool:
        """True when a PodCertificateRequest has to be created."""
        return self.ended is None and self.pending is None and (self.issued is None or now >= self.issued.refresh)

    def state(self, now: float) -> State:
        """The state for the metric."""
        if self.ended is not None:
            return "denied" if self.ended.kind == "Denied" else "failed"
        if self.issued is None:
            return "not_yet_issued"
        if now > self.issued.expires:
            return "expired"
        return "overdue_for_refresh" if now > self.issued.refresh + OVERDUE_S else "fresh"


def requested(before: Certificate, name: str, key: str, now: float, chance: float) -> Certificate:
    """The certificate after the PodCertificateRequest `name` was created for `key`. `chance` from 0 to 1."""
    return replace(before, pending=Pending(name, key, now + ABANDON_S + chance * JITTER_S))


class _Condition(msgspec.Struct):
    type: str
    reason: str = ""
    message: str = ""


class _Status(msgspec.Struct, rename="camel"):
    conditions: list[_Condition] = []
    certificate_chain: str = ""
    begin_refresh_at: str = ""
    not_after: str = ""


class _Request(msgspec.Struct):
    status: _Status = msgspec.field(default_factory=_Status)


def seen(before: Certificate, document: dict[str, Any] | None, now: float, chance: float) -> Certificate:
    """The certificate after the watch was looked at. `chance` from 0 to 1. Raises ValueError for an invalid status.

    `document`: the pending PodCertificateRequest in JSON form; None when the watch does not show it.
    """
    pending = before.pending
    if pending is None:
        return before
    if document is None:
        return replace(before, pending=None) if now > pending.abandoned_at else before
    status = msgspec.convert(document, _Request).status
    for condition in status.conditions:
        if condition.type == "Issued":
            refresh = _seconds(status.begin_refresh_at) + chance * JITTER_S
            issued = Issued(pending.key, status.certificate_chain, refresh, _seconds(status.not_after))
            return Certificate(issued=issued)
        if condition.type == "Denied":
            return Certificate(ended=Ended("Denied", condition.reason, condition.message))
        if condition.type == "Failed":
            return Certificate(ended=Ended("Failed", condition.reason, condition.message))
    return before


def _seconds(text: str) -> float:
    return datetime.fromisoformat(text).timestamp()


def body(
    request: GetPodCertificate, *, account_uid: str, node: str, node_uid: str, public_key: bytes, proof: bytes
) -> dict[str, Any]:
    """The PodCertificateRequest in JSON form. Its owner is the pod, so it is removed with the pod.

    `public_key` in DER; `proof`: the key's signature of the pod's UID. See `actors._pki.pki.proven_key`.
    """
    spec: dict[str, Any] = {
        "signerName": request.signer_name,
        "podName": request.pod_name,
        "podUID": request.pod_uid,
        "serviceAccountName": request.service_account,
        "serviceAccountUID": account_uid,
        "nodeName": node,
        "nodeUID": node_uid,
        "pkixPublicKey": base64.b64encode(public_key).decode(),
        "proofOfPossession": base64.b64encode(proof).decode(),
    }
    if request.max_expiration_s is not None:
        spec["maxExpirationSeconds"] = request.max_expiration_s
    if request.user_annotations:
        spec["unverifiedUserAnnotations"] = dict(request.user_annotations)
    owner = {"apiVersion": "core/v1", "kind": "Pod", "name": request.pod_name, "uid": request.pod_uid}
    meta = {"namespace": request.namespace, "generateName": "req-", "ownerReferences": [owner]}
    return {
        "apiVersion": API_VERSION,
        "kind": "PodCertificateRequest",
        "metadata": meta,
        "spec": spec,
    }
