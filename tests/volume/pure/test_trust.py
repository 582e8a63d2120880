"""Trust anchors of ClusterTrustBundles: by name, by signer and labels, each certificate once."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Any

import pytest

from actors.volume import policy
from actors.volume.plugins import trust_bundles
from actors.volume.plugins.base import CannotMount, Context
from actors.volume.steps.volumes import Files
from proto import v1
from proto.pods.objects import ApiObject, ObjectRef
from proto.v1.volumes.projected import ClusterTrustBundleProjection
from tests.volume.pure.test_plugins import pod


def certificate(letter: str) -> str:
    return f"-----BEGIN CERTIFICATE-----\n{letter * 64}\n{letter * 8}\n-----END CERTIFICATE-----\n"


def bundle(name: str, *letters: str, signer: str = "", **labels: str) -> ApiObject:
    document = {
        "metadata": {"name": name, "labels": labels},
        "spec": {"signerName": signer, "trustBundle": "\n# words\n".join(map(certificate, letters))},
    }
    return ApiObject(ref=ObjectRef(kind=trust_bundles.KIND, name=name), resource_version="1", document=document)


BUNDLES = {
    one.ref: one
    for one in (
        bundle("roots", "B", "A", "B"),
        bundle("x:1", "C", signer="x", env="prod"),
        bundle("x:2", "C", "D", signer="x", env="test"),
        bundle("y:1", "E", signer="y", env="prod"),
    )
}


def projection(**fields: Any) -> ClusterTrustBundleProjection:
    return v1.from_dict(ClusterTrustBundleProjection, {"path": "ca.pem", **fields})


def anchors(**fields: Any) -> str:
    return trust_bundles.anchors(projection(**fields), BUNDLES).decode()


@pytest.mark.parametrize(
    ("fields", "letters"),
    [
        ({"name": "roots"}, "AB"),
        ({"name": "none", "optional": True}, ""),
        ({"signerName": "x", "labelSelector": {}}, "CD"),
        ({"signerName": "x", "labelSelector": {"matchLabels": {"env": "prod"}}}, "C"),
        ({"signerName": "x", "labelSelector": {"matchExpressions": [{"key": "env", "operator": "DoesNotExist"}]},
          "optional": True}, ""),
        ({"signerName": "z", "labelSelector": {}, "optional": True}, ""),
        ({"signerName": "x", "optional": True}, ""),
    ],
)  # fmt: skip
def test_anchors_of_selected_bundles_without_duplicates(fields: dict[str, Any], letters: str) -> None:
    assert anchors(**fields) == "".join(map(certificate, letters))


def test_text_without_an_end_is_searched_once() -> None:
    hostile = bundle("a")
    hostile.document["spec"]["trustBundle"] = "-----BEGIN CERTIFICATE-----\n" * 100_000
    began = time.process_time()
    assert trust_bundles.anchors(projection(name="a"), {hostile.ref: hostile}) == b""
    assert time.process_time() - began < 1.0, "seconds of CPU time"


def test_missing_bundles_give_the_kubelets_messages() -> None:
    with pytest.raises(CannotMount, match=r'while getting ClusterTrustBundle: clustertrustbundle.* "none" not found'):
        anchors(name="none")
    with pytest.raises(CannotMount, match="combination of signerName and labelSelector matched zero"):
        anchors(signerName="x", labelSelector={"matchLabels": {"env": "none"}})


def test_trust_bundles_need_the_feature_gate_and_an_api_server() -> None:
    spec = pod(projected={"sources": [{"clusterTrustBundle": {"name": "roots", "path": "ca.pem"}}]})
    wanted = policy.wanted_volumes(spec)["v"]
    assert wanted.refs == (ObjectRef(kind=trust_bundles.KIND, name="roots"),)
    context = Context(1 << 26, standalone=False, trust_bundles=True, objects=BUNDLES)
    made = wanted.plugin.step(spec, wanted.volume, context)
    assert isinstance(made, Files)
    assert [(one.path, one.data.decode(), one.mode) for one in made.files] == [("ca.pem", anchors(name="roots"), 0o600)]
    for other in (replace(context, standalone=True), replace(context, trust_bundles=False)):
        with pytest.raises(CannotMount, match=trust_bundles.NOT_SUPPORTED):
            wanted.plugin.step(spec, wanted.volume, other)
