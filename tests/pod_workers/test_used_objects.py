"""References of pods to API objects, as they are sent to the objects actor."""

from typing import Any, cast

import pytest

from actors.pod_workers.shared.used_objects import UsedObjects
from actors.pod_workers.shared.worker_context import Published
from proto.pods.objects import ObjectRef, PodObjects, SetPodObjects
from proto.v1 import ObjectMeta, Pod, PodSpec
from proto.v1.meta import LocalObjectReference


class Peer:
    def __init__(self) -> None:
        self.told: list[Any] = []

    def tell(self, message: Any) -> None:
        self.told.append(message)


@pytest.mark.parametrize("full", [False, True])
def test_only_a_complete_report_lets_objects_drop_other_pods(full: bool) -> None:
    """pod_workers that has just restarted does not know all pods yet."""
    objects = Peer()
    published = Published.to(cast("Any", lambda _: Peer()), cast("Any", objects), lambda: None, cluster=True)
    assert isinstance(published.used_objects, UsedObjects)
    spec = PodSpec(image_pull_secrets=(LocalObjectReference(name="s"),))
    published.uses(Pod(metadata=ObjectMeta(name="p", namespace="ns", uid="u1"), spec=spec))
    published.resend("objects", full=full)
    refs = (ObjectRef(kind="Secret", namespace="ns", name="s"),)
    first, again = objects.told
    assert set(refs) <= set(first.pods[0].refs)
    assert again == SetPodObjects(pods=(PodObjects(pod_uid="u1", refs=first.pods[0].refs),), full=full)
