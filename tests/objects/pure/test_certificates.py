"""Certificates of pods: request bodies, states, and keys with their proofs."""

from __future__ import annotations

from typing import Any

import pytest
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, padding, rsa
from msgspec.structs import replace

from actors._pki import x509
from actors._pki.pki import PkiError
from actors.objects import certificates
from actors.objects.certificates import Certificate, Ended, Issued
from proto.common import rfc3339
from proto.pods.objects import GetPodCertificate

NOW = 1_800_000_000.0
WISH = GetPodCertificate(
    namespace="ns", service_account="web", pod_name="p", pod_uid="u1", volume="v", source=0,
    signer_name="example.com/s", key_type="ED25519",
)  # fmt: skip
PENDING = certificates.requested(Certificate(), "req-a", "KEY", NOW, 0.0)


def answered(*conditions: str, refresh: float = NOW + 100, expires: float = NOW + 200) -> dict[str, Any]:
    return {
        "status": {
            "conditions": [{"type": one, "reason": "R", "message": "M"} for one in conditions],
            "certificateChain": "CHAIN",
            "beginRefreshAt": rfc3339.seconds(refresh),
            "notAfter": rfc3339.seconds(expires),
        }
    }


def body(wish: GetPodCertificate) -> dict[str, Any]:
    return certificates.body(wish, account_uid="sa-1", node="n", node_uid="n-1", public_key=b"\0", proof=b"\1")


def test_body_names_pod_account_and_node_and_belongs_to_the_pod() -> None:
    made = body(replace(WISH, max_expiration_s=3600, user_annotations=(("example.com/a", "1"),)))
    assert made["metadata"]["ownerReferences"] == [{"apiVersion": "core/v1", "kind": "Pod", "name": "p", "uid": "u1"}]
    assert made["metadata"]["generateName"] == "req-"
    assert made["spec"] == {
        "signerName": "example.com/s",
        "podName": "p",
        "podUID": "u1",
        "serviceAccountName": "web",
        "serviceAccountUID": "sa-1",
        "nodeName": "n",
        "nodeUID": "n-1",
        "pkixPublicKey": "AA==",
        "proofOfPossession": "AQ==",
        "maxExpirationSeconds": 3600,
        "unverifiedUserAnnotations": {"example.com/a": "1"},
    }
    assert {"maxExpirationSeconds", "unverifiedUserAnnotations"}.isdisjoint(body(WISH)["spec"])


@pytest.mark.parametrize(
    ("document", "after"),
    [
        ({"status": {}}, PENDING),
        ({}, PENDING),
        (answered("Other"), PENDING),
        (answered("Issued"), Certificate(issued=Issued("KEY", "CHAIN", NOW + 100, NOW + 200))),
        (answered("Denied"), Certificate(ended=Ended("Denied", "R", "M"))),
        (answered("Failed"), Certificate(ended=Ended("Failed", "R", "M"))),
        (None, PENDING),
    ],
)
def test_signers_answer_decides(document: dict[str, Any] | None, after: Certificate) -> None:
    assert certificates.seen(PENDING, document, NOW, 0.0) == after


def test_request_that_is_not_shown_for_ten_minutes_is_made_again() -> None:
    assert not certificates.seen(PENDING, None, NOW + 600, 0.0).is_due(NOW + 600)
    assert certificates.seen(PENDING, None, NOW + 601, 0.0).is_due(NOW + 601)
    spread = certificates.requested(Certificate(), "req-a", "KEY", NOW, 1.0)
    assert not certificates.seen(spread, None, NOW + 900, 0.0).is_due(NOW + 900)


def test_certificate_is_used_while_its_refresh_is_requested_and_until_it_is_refused() -> None:
    first = certificates.seen(PENDING, answered("Issued"), NOW, 1.0)
    assert first.issued is not None
    assert first.issued.refresh == NOW + 400, "spread by up to five minutes"
    assert [first.is_due(NOW + 399), first.is_due(NOW + 400)] == [False, True]
    again = certificates.requested(first, "req-b", "KEY 2", NOW + 400, 0.0)
    assert again.issued == first.issued
    assert not again.is_due(NOW + 500)
    fresh = certificates.seen(again, answered("Issued", refresh=NOW + 500), NOW + 401, 0.0)
    assert fresh.issued is not None
    assert (fresh.issued.key, fresh.pending) == ("KEY 2", None)
    refused = certificates.seen(again, answered("Denied"), NOW + 401, 0.0)
    assert refused.issued is None
    assert not refused.is_due(NOW + 1e6), "a refusal is final"


@pytest.mark.parametrize(
    ("certificate", "after_s", "state"),
    [
        (Certificate(), 0, "not_yet_issued"),
        (PENDING, 0, "not_yet_issued"),
        (Certificate(ended=Ended("Denied", "", "")), 0, "denied"),
        (Certificate(ended=Ended("Failed", "", "")), 0, "failed"),
        (Certificate(issued=Issued("", "", NOW, NOW + 900)), 600, "fresh"),
        (Certificate(issued=Issued("", "", NOW, NOW + 900)), 601, "overdue_for_refresh"),
        (Certificate(issued=Issued("", "", NOW, NOW + 900)), 901, "expired"),
    ],
)
def test_states_are_those_of_the_kubelets_metric(certificate: Certificate, after_s: float, state: str) -> None:
    assert certificate.state(NOW + after_s) == state


@pytest.mark.parametrize(
    "bad",
    [
        {"status": {"conditions": [{"type": "Issued"}]}},
        {"status": {"conditions": [{"type": 5}]}},
        {"status": 5},
        answered("Issued") | {"status": {"conditions": [{"type": "Issued"}], "beginRefreshAt": "soon"}},
    ],
)
def test_bad_status_is_an_error(bad: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"Invalid isoformat|Expected"):
        certificates.seen(PENDING, bad, NOW, 0.0)


@pytest.mark.parametrize("kind", sorted(x509.KEYS))
def test_key_is_in_pkcs8_and_its_proof_signs_the_text(kind: str) -> None:
    made = x509.proven_key(kind, "uid-1")
    assert made.key.startswith("-----BEGIN PRIVATE KEY-----\n")
    private = serialization.load_pem_private_key(made.key.encode(), None)
    public = serialization.load_der_public_key(made.public_key)
    assert private.public_key() == public
    match public:
        case rsa.RSAPublicKey():
            assert f"RSA{public.key_size}" == kind
            digest = hashes.SHA256()
            pss = padding.PSS(padding.MGF1(digest), padding.PSS.MAX_LENGTH)
            public.verify(made.proof, b"uid-1", pss, digest)
        case ec.EllipticCurvePublicKey():
            assert f"ECDSAP{public.curve.key_size}" == kind
            public.verify(made.proof, b"uid-1", ec.ECDSA(hashes.SHA256()))
        case ed25519.Ed25519PublicKey():
            public.verify(made.proof, b"uid-1")
        case _:
            pytest.fail(f"a key of another type: {public}")


def test_unknown_key_type_is_refused_in_the_kubelets_words() -> None:
    with pytest.raises(PkiError, match='unknown key type "DSA"'):
        x509.proven_key("DSA", "uid-1")


def test_private_keys_are_in_no_repr() -> None:
    issued = certificates.seen(PENDING, answered("Issued"), NOW, 0.0)
    assert "KEY" not in repr((PENDING, issued))
