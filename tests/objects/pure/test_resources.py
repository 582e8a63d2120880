"""The API's objects as other actors get them."""

from typing import Any

from actors.objects.api.resources import api_object


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
