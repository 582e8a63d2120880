"""The API's objects as other actors get them."""

from typing import Any

import pytest

from actors._kube.reflector import Position
from actors.objects.api.resources import RESOURCES, api_object
from actors.objects.api.watching import Followed
from proto.pods.objects import ObjectRef


def node(**status: Any) -> dict[str, Any]:
    return {"metadata": {"name": "n", "labels": {"a": "b"}, "resourceVersion": "1"}, "status": status}


def test_attached_volumes_of_a_node_are_read_but_are_no_change() -> None:
    attached = [{"name": "kubernetes.io/csi/d^h", "devicePath": "/dev/x"}]
    dongles = {"example.com/dongle": "4"}
    before = api_object("Node", node(allocatable=dongles | {"cpu": "4"}))
    after = api_object("Node", node(allocatable=dongles, volumesAttached=attached, images=[]))
    assert before.document["status"] == {"allocatable": dongles, "volumesAttached": []}
    assert after.document["status"] == {
        "allocatable": dongles,
        "volumesAttached": [{"name": "kubernetes.io/csi/d^h"}],
    }
    assert before.resource_version == after.resource_version


def nested(depth: int) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for _ in range(depth):
        found = {"a": found}
    return found


META = {"name": "n", "resourceVersion": "1"}
ODD: tuple[dict[str, Any], ...] = (
    {},
    {"metadata": "x"},
    {"metadata": {}},
    {"metadata": {"name": 5}},
    {"metadata": META | {"resourceVersion": 5}},
    {"metadata": META | {"labels": "x"}},
    {"metadata": META, "spec": [1]},
    {"metadata": META, "status": "ok"},
)
ODD_OF_KIND: tuple[tuple[str, dict[str, Any]], ...] = (
    ("Secret", {"data": "x"}),
    ("Secret", {"data": {"k": 5}}),
    ("Secret", {"data": {"k": "a"}}),
    ("Secret", {"type": {}}),
    ("ConfigMap", {"binaryData": ["x"]}),
    ("ConfigMap", {"immutable": "false"}),
    ("Node", {"status": {"allocatable": ["x"]}}),
    ("Node", {"status": {"volumesAttached": [{}]}}),
    ("Service", {"spec": {"ports": 5}}),
    ("PersistentVolume", {"spec": nested(900)}),
    ("CSIDriver", {"spec": {"n": 10**30}}),
    ("Node", {"spec": {"taints": [{"key": 10**30}]}}),
)


@pytest.mark.parametrize("kind", sorted(RESOURCES))
def test_object_of_an_odd_shape_is_a_value_error(kind: str) -> None:
    for item in (*ODD, *({"metadata": META} | parts for named, parts in ODD_OF_KIND if named == kind)):
        with pytest.raises(ValueError, match=r"Expected|missing|no name|base64|64 bits"):
            api_object(kind, item)


def test_odd_objects_of_a_watch_are_left_out() -> None:
    told: list[tuple[ObjectRef, ...]] = []
    followed = Followed("Secret", Position("/api/v1/secrets"), told.append)
    good = {"metadata": META, "data": {"k": "dg=="}}
    followed.replaced([*ODD, good])
    (ref,) = followed.objects
    for kind in ("ADDED", "MODIFIED", "DELETED"):
        for item in ODD[:4]:
            followed.changed(kind, item)
    assert list(followed.objects) == [ref]
    assert told == [(ref,)]
