"""The requests of pod_workers to image_pull for a container's image."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from actors._base import Future
from actors._cri.client import PULL_SECONDS
from actors.pod_workers.cri_config.mounts import MountInputs
from actors.pod_workers.model.view import SandboxView
from actors.pod_workers.steps.container_start import ContainerStart
from actors.pod_workers.steps.operations import Operations
from proto.cri import api_pb2 as pb
from proto.node.image_pull import EnsureImage, ExpectImages, ImageEnsured
from proto.v1 import Pod
from proto.v1.codec import from_dict


class Images:
    """The image_pull actor: has every image."""

    def __init__(self) -> None:
        self.asked: list[tuple[EnsureImage, float]] = []
        self.told: list[ExpectImages] = []

    def tell(self, message: ExpectImages) -> None:
        self.told.append(message)

    def ask(self, request: EnsureImage, timeout_s: float) -> Future[ImageEnsured]:
        self.asked.append((request, timeout_s))
        answer: Future[ImageEnsured] = Future()
        answer.set(ImageEnsured(image_ref="sha256:i"))
        return answer


def test_request_has_the_sandbox_with_its_annotations_beside_it() -> None:
    annotations = {"io.containerd.cri.runtime-handler": "kata", "team": "a"}
    meta = {"name": "p", "namespace": "ns", "uid": "u", "annotations": annotations}
    pod = from_dict(Pod, {"metadata": meta, "spec": {"containers": [{"name": "c", "image": "i"}]}})
    labels = {f"label-{number}": str(number) for number in range(20)}
    metadata = pb.PodSandboxMetadata(name="p", namespace="ns", uid="u")
    sandbox = pb.PodSandboxConfig(metadata=metadata, labels=labels, annotations={"team": "former"})
    images = Images()
    context: Any = SimpleNamespace(images=images)
    start = ContainerStart(context, pod, pod.spec.containers[0], SandboxView(id="s"), 0, MountInputs(), sandbox)
    asking = start.ensure_image()
    asking.send(None)
    with pytest.raises(StopIteration) as ended:
        asking.send(None)
    assert ended.value.value.image_ref == "sha256:i"
    ((request, timeout_s),) = images.asked
    assert request.annotations == annotations
    assert pb.PodSandboxConfig.FromString(request.sandbox_config) == pb.PodSandboxConfig(
        metadata=metadata, labels=labels
    )
    assert sandbox.annotations == {"team": "former"}, "CreateContainer gets the sandbox's own"
    assert timeout_s > PULL_SECONDS, "image_pull's own error comes first"


def test_images_are_expected_once_unless_they_are_pulled_anyway() -> None:
    containers = [
        {"name": "a", "image": "i", "imagePullPolicy": "IfNotPresent"},
        {"name": "b", "image": "i", "imagePullPolicy": "Never"},
        {"name": "c", "image": "new", "imagePullPolicy": "Always"},
        {"name": "d", "image": "j", "imagePullPolicy": "IfNotPresent"},
    ]
    meta = {"name": "p", "namespace": "ns", "uid": "u", "annotations": {"team": "a"}}
    pod = from_dict(Pod, {"metadata": meta, "spec": {"containers": containers}})
    images, sandboxes = Images(), {"u"}
    context: Any = SimpleNamespace(images=images, sandboxes=sandboxes)
    unused: Any = None
    operations = Operations(SimpleNamespace(pod=pod, context=context), unused, unused, unused)  # type: ignore[arg-type]
    operations.expect_images(pod.spec.containers[2:3])
    assert images.told == []
    operations.expect_images(pod.spec.containers)
    assert images.told == [ExpectImages(images=("i", "j"), annotations={"team": "a"})]
    sandboxes.add("another pod")
    operations.expect_images(pod.spec.containers)
    assert len(images.told) == 1, "in a mass start it would only cost time"
