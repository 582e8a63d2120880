"""Files of a pod's certificate in a projected volume."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from actors.volume import policy
from actors.volume.plugins import pod_certificates
from actors.volume.plugins.base import CannotMount, Context
from actors.volume.steps.volumes import Files
from proto.pods.objects import PodCertificate
from tests.volume.pure.test_plugins import pod
from tests.volume.pure.test_trust import certificate

SOURCE = {"signerName": "example.com/s", "keyType": "ED25519", "userAnnotations": {"b": "2", "a": "1"}}
CONTEXT = Context(1 << 26, standalone=False, pod_certificates=True)


def step(context: Context = CONTEXT, answer: Any = None, **paths: str) -> list[tuple[str, str, int]]:
    spec = pod(projected={"sources": [{"podCertificate": SOURCE | paths}]})
    wanted = policy.wanted_volumes(spec)["v"]
    requests = wanted.plugin.credentials(spec, wanted.volume, context)
    has = replace(context, credentials=dict.fromkeys(requests, answer))
    made = wanted.plugin.step(spec, wanted.volume, has)
    assert isinstance(made, Files)
    return [(one.path, one.data.decode(), one.mode) for one in made.files]


def test_request_names_the_source() -> None:
    spec = pod(projected={"sources": [{"downwardAPI": {}}, {"podCertificate": SOURCE | {"maxExpirationSeconds": 9}}]})
    wanted = policy.wanted_volumes(spec)["v"]
    (request,) = wanted.plugin.credentials(spec, wanted.volume, CONTEXT)
    assert (request.volume, request.source, request.service_account) == ("v", 1, "default")
    assert (request.signer_name, request.key_type, request.max_expiration_s) == ("example.com/s", "ED25519", 9)
    assert request.user_annotations == (("a", "1"), ("b", "2"))
    assert hash(request)


def test_bundle_has_the_key_first_and_files_only_certificates() -> None:
    chain = f"# words\n{certificate('A')}between\n{certificate('B')}"
    answer = PodCertificate(key="KEY\n", chain=chain, refresh=0.0)
    clean = certificate("A") + certificate("B")
    found = step(
        answer=answer, credentialBundlePath="bundle.pem", keyPath="key.pem", certificateChainPath="d/chain.pem"
    )
    assert sorted(found) == [
        ("bundle.pem", "KEY\n" + clean, 0o600),
        ("d/chain.pem", clean, 0o600),
        ("key.pem", "KEY\n", 0o600),
    ]
    assert [path for path, _, _ in step(answer=answer, keyPath="k")] == ["k"]


@pytest.mark.parametrize(
    ("context", "answer", "message", "retry"),
    [
        (CONTEXT, "NotIssued: credential bundle is not issued yet", "credential bundle is not issued yet", True),
        (replace(CONTEXT, pod_certificates=False), None, pod_certificates.GATE_OFF, False),
        (replace(CONTEXT, standalone=True), None, pod_certificates.STANDALONE, False),
    ],
)
def test_missing_certificates_are_errors(context: Context, answer: Any, message: str, retry: bool) -> None:
    with pytest.raises(CannotMount, match=message) as caught:
        step(context, answer, keyPath="k")
    assert caught.value.retry is retry
    assert caught.value.soon is retry
