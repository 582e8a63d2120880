"""The API objects a pod refers to."""

from __future__ import annotations

from typing import Any

import pytest

from actors.pod_workers.environment.references import pod_references, services
from proto.v1 import Pod
from proto.v1.codec import from_dict


def pod(**spec: Any) -> Pod:
    return from_dict(Pod, {"metadata": {"name": "p", "namespace": "ns", "uid": "u"}, "spec": spec})


def env(**source: Any) -> dict[str, Any]:
    return {"containers": [{"name": "c", "env": [{"name": "X", "valueFrom": source}]}]}


@pytest.mark.parametrize(
    ("spec", "refs"),
    [
        (env(configMapKeyRef={"name": "m", "key": "k"}), ["ConfigMap ns/m"]),
        (env(secretKeyRef={"name": "s", "key": "k", "optional": True}), ["Secret ns/s"]),
        (env(fieldRef={"fieldPath": "metadata.name"}), []),
        ({"initContainers": [{"name": "c", "envFrom": [{"configMapRef": {"name": "m"}}]}]}, ["ConfigMap ns/m"]),
        ({"ephemeralContainers": [{"name": "c", "envFrom": [{"secretRef": {"name": "s"}}]}]}, ["Secret ns/s"]),
        ({"imagePullSecrets": [{"name": "b"}, {}, {"name": "a"}]}, ["Secret ns/a", "Secret ns/b"]),
        ({"runtimeClassName": "r"}, ["RuntimeClass /r"]),
        ({"volumes": [{"name": "v", "configMap": {"name": "m"}}]}, ["ConfigMap ns/m"]),
        ({"volumes": [{"name": "v", "secret": {"secretName": "s"}}]}, ["Secret ns/s"]),
        (
            {"volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "d"}}]},
            ["CSIDriver /", "PersistentVolume /", "PersistentVolumeClaim ns/d", "VolumeAttachment /"],
        ),
        (
            {
                "volumes": [
                    {"name": "v", "projected": {"sources": [{"secret": {"name": "s"}}, {"configMap": {"name": "m"}}]}}
                ]
            },
            ["ConfigMap ns/m", "Secret ns/s"],
        ),
        ({"volumes": [{"name": "v", "emptyDir": {}}]}, []),
        (
            {"volumes": [{"name": "v", "azureFile": {"secretName": "s", "shareName": "h"}}]},
            ["CSIDriver /file.csi.azure.com", "Secret ns/s", "VolumeAttachment /"],
        ),
    ],
)
def test_what_a_pod_refers_to(spec: dict[str, Any], refs: list[str]) -> None:
    assert [f"{ref.kind} {ref.namespace}/{ref.name}" for ref in sorted(pod_references(pod(**spec)))] == refs


def test_services_are_those_of_its_namespace_if_it_wants_them() -> None:
    found = [(ref.namespace, ref.name) for ref in services(pod())]
    assert found == [("default", "kubernetes"), ("ns", "")]
    assert [ref.name for ref in services(pod(enableServiceLinks=False))] == ["kubernetes"]
