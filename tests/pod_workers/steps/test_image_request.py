"""The requests of pod_workers to image_pull for a container's image."""

from __future__ import annotations

from collections.abc import Coroutine
from contextlib import suppress
from types import SimpleNamespace
from typing import Any

import pytest

from actors._base import Future
from actors._cri.client import PULL_SECONDS
from actors.pod_workers.cri_config.mounts import MountInputs
from actors.pod_workers.model.view import SandboxView
from actors.pod_workers.steps.container_start import ContainerStart, StartFailedError
from actors.pod_workers.steps.operations import Operations
from proto.agent.settings import Settings
from proto.cri import api_pb2 as pb
from proto.node.image_pull import EnsureImage, ExpectImages, ImageEnsured
from proto.pods.objects import ApiObject, ObjectRef, Objects
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
    context: Any = SimpleNamespace(images=images, settings=Settings())
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
    context: Any = SimpleNamespace(images=images, sandboxes=sandboxes, settings=Settings())
    unused: Any = None
    operations = Operations(SimpleNamespace(pod=pod, context=context), unused, unused, unused)  # type: ignore[arg-type]
    operations.expect_images(pod.spec.containers[2:3], "kata")
    assert images.told == []
    operations.expect_images(pod.spec.containers, "kata")
    assert images.told == [ExpectImages(images=("i", "j"), annotations={"team": "a"})]
    sandboxes.add("another pod")
    operations.expect_images(pod.spec.containers, "kata")
    assert len(images.told) == 1, "in a mass start it would only cost time"
    sandboxes.remove("another pod")
    context.settings = Settings(images_by_handler=True)
    operations.expect_images(pod.spec.containers, "kata")
    assert images.told[1].runtime_handler == "kata"


class Classes:
    """The objects actor with the class `sandboxed` of the handler `kata`, or without it."""

    def __init__(self, *, exists: bool) -> None:
        ref = ObjectRef(kind="RuntimeClass", name="sandboxed")
        document = {"metadata": {"name": ref.name}, "handler": "kata"}
        found = (ApiObject(ref=ref, resource_version="1", document=document),)
        self.answer = Objects(found=found if exists else ())

    def ask(self, _: Any, __: float) -> Future[Objects]:
        answer: Future[Objects] = Future()
        answer.set(self.answer)
        return answer


def start_of_class(images: Images, *, exists: bool = True, gate: bool) -> ContainerStart:
    """The start of a container with an image volume in a pod with the class `sandboxed`."""
    mounting = {"name": "c", "image": "i", "volumeMounts": [{"name": "v", "mountPath": "/v"}]}
    volumes = [{"name": "v", "image": {"reference": "data"}}]
    spec = {"runtimeClassName": "sandboxed", "containers": [mounting], "volumes": volumes}
    pod = from_dict(Pod, {"metadata": {"name": "p", "namespace": "ns", "uid": "u"}, "spec": spec})
    settings = Settings(images_by_handler=gate, kubeconfig="/kubeconfig")
    events = SimpleNamespace(pod=lambda *_: None)
    context: Any = SimpleNamespace(images=images, settings=settings, objects=Classes(exists=exists), events=events)
    sandbox = SandboxView(id="s")
    return ContainerStart(context, pod, pod.spec.containers[0], sandbox, 0, MountInputs(), pb.PodSandboxConfig())


def complete(coroutine: Coroutine[Any, Any, Any]) -> None:
    """Run a coroutine that awaits nothing but complete futures."""
    with suppress(StopIteration):
        while True:
            coroutine.send(None)


@pytest.mark.parametrize(("gate", "handler"), [(True, "kata"), (False, "")])
def test_images_are_asked_for_the_handler_of_the_class(gate: bool, handler: str) -> None:
    images = Images()
    start = start_of_class(images, gate=gate)
    complete(start.ensure_image_volumes())
    complete(start.ensure_image())
    asked = [(request.image, request.runtime_handler) for request, _ in images.asked]
    assert asked == [("data", handler), ("i", handler)]
    assert start.images["v"].runtime_handler == handler


def test_image_of_a_class_that_is_gone_is_not_asked_for() -> None:
    images = Images()
    asking = start_of_class(images, exists=False, gate=True).ensure_image()
    with pytest.raises(StartFailedError, match=r'runtimeclass\.node\.k8s\.io "sandboxed" not found') as failed:
        complete(asking)
    assert failed.value.reason == "CreateContainerConfigError"
    assert images.asked == []
