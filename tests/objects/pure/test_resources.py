"""The API's objects as other actors get them."""

from typing import Any

from actors.objects.api.resources import api_object


def node(**status: Any) -> dict[str, Any]:
    return {"metadata": {"name": "n", "labels": {"a": "b"}, "resourceVersion": "1"}, "status": status}


def test_attached_volumes_of_a_node_are_read_but_are_no_change() -> None:
    attached = [{"name": "kubernetes.io/csi/d^h", "devicePath": "/dev/x"}]
    before, after = api_object("Node", node()), api_object("Node", node(volumesAttached=attached, images=[]))
    assert before.document["status"] == {"volumesAttached": []}
    assert after.document["status"] == {"volumesAttached": [{"name": "kubernetes.io/csi/d^h"}]}
    assert before.resource_version == after.resource_version
